//! Of system calls and kinds of sockets.

use std::fmt;

use super::super::decide::{self, Outcome, Setting};
use super::super::egress::Mode;
use super::super::{Errno, Policy, SocketCall, SocketFamily, SocketType};
use super::{Refusal, Without};
use crate::tier::Tier;

/// The refusal of a system call with its arguments as the filter saw them; `None`: the policy does not refuse it, or answers ENOSYS, which
/// sends a library to another call.
#[must_use]
pub fn refused_call(
    policy: &Policy,
    setting: &Setting,
    name: &str,
    arguments: &[u64; 6],
) -> Option<Refusal> {
    let known = arguments.map(Some);
    let decision = decide::syscall(policy, setting, name, &known);
    if decision.outcome != Outcome::Refused || decision.errno == Some(Errno::Enosys) {
        return None;
    }
    if let Some(call) = SocketCall::ALL.into_iter().find(|call| call.name() == name) {
        return Some(socket(policy, setting, call, Kind::of(arguments)));
    }
    let mut why = String::new();
    let mut without = Vec::new();
    for rule in policy.syscalls.iter().filter(|rule| rule.names.iter().any(|own| own == name)) {
        if rule.when.iter().any(|test| test.holds(&known) == Some(false)) {
            continue;
        }
        let names: Vec<String> = rule.names.iter().filter(|own| *own != name).cloned().collect();
        why += &format!(
            "Policy {}, line {} ([[syscall]], {}) refuses it: {}. ",
            policy.name, rule.line, rule.errno, rule.reason
        );
        why += &if names.is_empty() {
            format!("Without the table in line {} it would be allowed.\n", rule.line)
        } else {
            format!(
                "With these names in the table of line {} it would be allowed:\n\n{}\n",
                rule.line,
                names_line(&names)
            )
        };
        without.push(Without { line: rule.line, names });
    }
    Some(Refusal { what: format!("refused: {name}"), why, allow: None, without })
}

/// A list of names as it stands in a table.
#[must_use]
pub fn names_line(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("names = [{}]\n", quoted.join(", "))
}

/// `SOCK_TYPE_MASK` (linux/net.h).
const TYPE_MASK: u64 = 0xf;

/// What a socket was to be, by the numbers; its flags are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The family.
    pub family: u64,
    /// The type.
    pub kind: u64,
    /// The protocol.
    pub protocol: u64,
}

// === impl Kind ===

impl Kind {
    /// Of the arguments of socket(2) or socketpair(2), all of which are `int`.
    #[must_use]
    pub fn of([family, kind, protocol, ..]: &[u64; 6]) -> Self {
        let [family, kind, protocol] = [family, kind, protocol].map(|number| number & 0xffff_ffff);
        Self { family, kind: kind & TYPE_MASK, protocol }
    }

    /// In a policy's words, where it has some and a rule may use them.
    ///
    /// # Errors
    /// Why no rule can allow it.
    pub fn words(self, policy: &Policy) -> Result<(SocketFamily, SocketType), &'static str> {
        let (Some(family), Some(kind)) = (self.family(), self.kind()) else {
            return Err("No policy can: the format has no word for it.");
        };
        let leaves =
            matches!(family, SocketFamily::Inet | SocketFamily::Inet6 | SocketFamily::Vsock);
        if leaves && policy.egress.as_ref().is_some_and(|egress| egress.mode == Mode::None) {
            return Err("With mode \"none\" in [egress] no rule may.");
        }
        Ok((family, kind))
    }

    /// What comes with it, where Landlock does not see it.
    #[must_use]
    pub fn risk(self, setting: &Setting) -> Option<&'static str> {
        risk(setting, self.family()?, self.kind()?, self.protocol)
    }

    fn family(self) -> Option<SocketFamily> {
        SocketFamily::ALL.into_iter().find(|known| u64::from(known.number()) == self.family)
    }

    fn kind(self) -> Option<SocketType> {
        SocketType::ALL.into_iter().find(|known| u64::from(known.number()) == self.kind)
    }
}

/// `inet dgram, protocol 17`; numbers where there is no word.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family() {
            Some(family) => write!(f, "{family} ")?,
            None => write!(f, "{} ", self.family)?,
        }
        match self.kind() {
            Some(kind) => write!(f, "{kind}")?,
            None => write!(f, "{}", self.kind)?,
        }
        write!(f, ", protocol {}", self.protocol)
    }
}

/// The lines that allow a kind of socket.
#[must_use]
pub fn socket_lines(
    call: SocketCall,
    (family, kind): (SocketFamily, SocketType),
    protocol: u64,
    reason: &str,
) -> String {
    format!(
        "[[socket]]\nfamily = \"{family}\"\ntypes = [\"{kind}\"]\nprotocols = [{protocol}]\ncalls = [\"{}\"]\nreason = \"{reason}\"\n",
        call.name()
    )
}

/// Of a kind of socket that the policy does not list.
fn socket(policy: &Policy, setting: &Setting, call: SocketCall, asked: Kind) -> Refusal {
    let what = format!("refused: {} {asked}", call.name());
    let mut why =
        format!("No [[socket]] rule of policy {} that applies here lists it. ", policy.name);
    let words = match asked.words(policy) {
        Ok(words) => words,
        Err(none) => return Refusal::new(what, why + none, None),
    };
    let allow = socket_lines(call, words, asked.protocol, "...");
    why += &format!("In the policy, this would allow it:\n\n{allow}");
    if let Some(risk) = asked.risk(setting) {
        why += &format!("\n{risk}");
    }
    Refusal::new(what, why, Some(allow))
}

fn risk(
    setting: &Setting,
    family: SocketFamily,
    kind: SocketType,
    protocol: u64,
) -> Option<&'static str> {
    const RESOLVE_UNIX: u32 = 9;
    const UDP: u32 = 10;
    const MPTCP: u64 = 262;
    let ip = matches!(family, SocketFamily::Inet | SocketFamily::Inet6);
    match () {
        () if family == SocketFamily::Unix
            && setting.tier == Tier::Domain
            && setting.landlock_abi < RESOLVE_UNIX =>
        {
            Some(
                "It opens every unix socket of this user: this kernel does not restrict paths of sockets.",
            )
        }
        () if ip && kind == SocketType::Dgram && setting.landlock_abi < UDP => {
            Some("It opens UDP to every address and port: this kernel does not restrict it.")
        }
        () if ip && (kind == SocketType::Raw || protocol == MPTCP) => {
            Some("It goes past the policy's rules for ports.")
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::setting;
    use super::*;
    use crate::policy::{BUILT_IN, DEVELOPER};

    fn call(text: &str, name: &str, arguments: &[u64]) -> Option<Refusal> {
        let policy = Policy::parse(text).unwrap();
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        refused_call(&policy, &setting(&policy), name, &all)
    }

    #[test]
    fn a_kind_of_socket_is_told_with_the_lines_that_allow_it() {
        for (name, text) in BUILT_IN {
            for (call_name, arguments) in [
                ("socket", [2, 2 | 0o2_004_000, 0]),
                ("socket", [10, 2, 17]),
                ("socket", [40, 1, 0]),
                ("socket", [2, 1, 262]),
                ("socketpair", [2, 2, 0xdead_0000_0000]),
            ] {
                let refusal = call(text, call_name, &arguments).unwrap();
                let allow = refusal.allow.unwrap();
                assert!(refusal.why.contains(&allow));
                let allowed = format!("{text}\n{allow}");
                assert_eq!(call(&allowed, call_name, &arguments), None, "{name} {arguments:?}");
            }
        }
        let packet = call(DEVELOPER, "socket", &[17, 3, 0]).unwrap();
        assert_eq!(
            (packet.what.as_str(), packet.allow),
            ("refused: socket 17 raw, protocol 0", None)
        );
        let udp = call(DEVELOPER, "socket", &[2, 2, 0]).unwrap();
        assert!(udp.why.contains("opens UDP to every address"), "{}", udp.why);
        // Where the policy has no network at all, a line alone would be a contradiction.
        let none = "version = 1\nname = \"n\"\n[landlock]\nabi = 6\nreason = \"r\"\n[egress]\nmode = \"none\"\nreason = \"r\"\n[sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n";
        assert_eq!(call(none, "socket", &[2, 2, 0]).unwrap().allow, None);
        assert!(call(none, "socket", &[1, 1, 0]).unwrap().allow.is_some());
    }

    /// With each of the edits that are told, and with none less.
    #[test]
    fn a_call_is_told_with_the_names_that_would_be_left() {
        for (name, text) in BUILT_IN {
            let policy = Policy::parse(text).unwrap();
            for (call_name, arguments, tables) in [
                ("ptrace", &[0][..], 1),
                ("ioctl", &[0, 0x5412], 1),
                ("ioctl", &[0, 0xdead_0000_541c], 1),
                ("setpriority", &[2, 7], 2),
                ("unshare", &[0x1000_0000], 1),
            ] {
                let refusal = call(text, call_name, arguments).unwrap();
                assert_eq!(refusal.without.len(), tables, "{name} {call_name}");
                let mut edited = policy.clone();
                for (index, without) in refusal.without.iter().enumerate() {
                    let mut all = [0; 6];
                    all[..arguments.len()].copy_from_slice(arguments);
                    let still = refused_call(&edited, &setting(&edited), call_name, &all);
                    assert!(still.is_some(), "{name} {call_name}: edit {index} is not needed");
                    assert!(refusal.why.contains(&format!("line {}", without.line)));
                    let rule = edited.syscalls.iter_mut().find(|rule| rule.line == without.line);
                    rule.unwrap().names.clone_from(&without.names);
                    edited.syscalls.retain(|rule| !rule.names.is_empty());
                    let now = refused_call(&edited, &setting(&edited), call_name, &all);
                    assert_eq!(now.is_none(), index + 1 == tables, "{name} {call_name}");
                }
            }
        }
    }

    #[test]
    fn what_sends_a_library_elsewhere_is_not_told() {
        for name in ["clone3", "io_uring_setup", "read"] {
            assert_eq!(call(DEVELOPER, name, &[]), None, "{name}");
        }
        assert_eq!(call(DEVELOPER, "ioctl", &[0, 0x5413]), None);
    }
}
