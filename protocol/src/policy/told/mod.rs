//! A refusal in words: what was refused, by which rule, and the lines that would allow it.
//!
//! Pure. What always holds: with the lines of a [`Refusal`] added, or the names taken out that it says are to be taken out, the policy
//! allows what was refused.

mod calls;
mod paths;

use std::net::SocketAddr;

use super::decide::{Outcome, Setting, Transport, Way, port};
use super::{Policy, Port, SocketFamily};
use crate::ports::OURS;

pub use calls::{Kind, names_line, refused_call, socket_lines};
pub use paths::{Said, guess, said};

/// What is told of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One line: `refused: connect to 203.0.113.5:8080`.
    pub what: String,
    /// Why, and what would allow it.
    pub why: String,
    /// The lines for a policy file, where lines would do.
    pub allow: Option<String>,
    /// Where it takes a name less: the tables that name it.
    pub without: Vec<Without>,
}

/// A system call that is to be taken out of a `[[syscall]]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Without {
    /// Where the table begins, from 1.
    pub line: usize,
    /// The names that stay; none: the table goes.
    pub names: Vec<String>,
}

/// The refusal of connect(2) or bind(2) with an address; `None`: the policy does not refuse it, whatever the kernel and the
/// other end may say.
#[must_use]
pub fn refusal(
    policy: &Policy,
    setting: &Setting,
    transport: Transport,
    way: Way,
    address: SocketAddr,
) -> Option<Refusal> {
    let family = if address.is_ipv6() { SocketFamily::Inet6 } else { SocketFamily::Inet };
    let decision = port(policy, setting, transport, way, family, address.port());
    if decision.outcome != Outcome::Refused {
        return None;
    }
    let (table, udp) = match transport {
        Transport::Tcp => ("tcp", ""),
        Transport::Udp => ("udp", " (udp)"),
    };
    let (name, to) = match way {
        Way::Connect => ("connect", "connect to"),
        Way::Bind => ("bind", "bind"),
    };
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let what = format!("refused: {to} {address}{udp}");
    if let Some(rule) = decision.rule {
        let why = format!(
            "Policy {}, line {} ({}) refuses it: {}",
            policy.name, rule.line, rule.what, rule.reason
        );
        return Some(Refusal::new(what, why, None));
    }
    let number = address.port();
    let mut why = format!("No [[{table}]] rule of policy {} names port {number}. ", policy.name);
    if OURS.contains(&number) {
        why += "It is one of casemate's own, which no policy hands out by number";
        if let Some(own) = setting.ports.filter(|own| own.count > 0) {
            let last = own.first.saturating_add(own.count - 1);
            why += &format!("; this session's are {} to {last}", own.first);
        }
        return Some(Refusal::new(what, why + ".", None));
    }
    let allow = format!("[[{table}]]\n{name} = [{number}]\nreason = \"...\"\n");
    why += &format!("In the policy, this would allow it:\n\n{allow}");
    let by_session = policy.tcp.iter().any(|rule| rule.connect.contains(&Port::Connect));
    if (transport, way) == (Transport::Tcp, Way::Connect) && by_session {
        why += &format!("\nFor one session: --connect {number}");
    }
    Some(Refusal::new(what, why, Some(allow)))
}

// === impl Refusal ===

impl Refusal {
    fn new(what: String, why: String, allow: Option<String>) -> Self {
        Self { what, why, allow, without: Vec::new() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::policy::{BUILT_IN, DEVELOPER, STRICT};
    use crate::ports::PortRange;

    pub(super) fn setting(policy: &Policy) -> Setting {
        let ports = Some(PortRange { first: 21_009, count: 15 });
        Setting { ports, connect: Some(vec![4000]), ..Setting::symbolic(policy) }
    }

    fn told(text: &str, way: Way, address: &str) -> Option<Refusal> {
        let policy = Policy::parse(text).unwrap();
        refusal(&policy, &setting(&policy), Transport::Tcp, way, address.parse().unwrap())
    }

    #[test]
    fn the_lines_that_are_named_allow_what_was_refused() {
        for (name, text) in BUILT_IN {
            for (way, address) in [
                (Way::Connect, "203.0.113.5:8080"),
                (Way::Connect, "[2001:db8::1]:8080"),
                (Way::Bind, "127.0.0.1:8080"),
            ] {
                let refusal = told(text, way, address).unwrap_or_else(|| panic!("{name} {way:?}"));
                assert!(refusal.what.contains(address), "{refusal:?}");
                let allow = refusal.allow.unwrap();
                assert!(refusal.why.contains(&allow));
                assert_eq!(told(&format!("{text}\n{allow}"), way, address), None, "{name}");
            }
        }
    }

    #[test]
    fn what_is_allowed_is_not_told() {
        for (way, address) in [
            (Way::Connect, "203.0.113.5:443"),
            (Way::Connect, "127.0.0.1:21009"),
            (Way::Connect, "127.0.0.1:4000"),
            (Way::Bind, "127.0.0.1:21023"),
        ] {
            assert_eq!(told(DEVELOPER, way, address), None, "{way:?} {address}");
        }
        assert!(
            told(DEVELOPER, Way::Connect, "[::ffff:9.9.9.9]:8080")
                .unwrap()
                .what
                .ends_with("to 9.9.9.9:8080")
        );
    }

    #[test]
    fn an_option_is_named_only_where_the_policy_heeds_it() {
        let connect = |text| told(text, Way::Connect, "203.0.113.5:8080").unwrap().why;
        assert!(connect(DEVELOPER).contains("--connect 8080"));
        assert_eq!(
            connect(STRICT).contains("--connect"),
            Policy::parse(STRICT)
                .unwrap()
                .tcp
                .iter()
                .any(|rule| rule.connect.contains(&Port::Connect))
        );
        assert!(!told(DEVELOPER, Way::Bind, "127.0.0.1:8080").unwrap().why.contains("--connect"));
    }

    #[test]
    fn another_sessions_port_is_nobodys_to_give() {
        let refusal = told(DEVELOPER, Way::Bind, "127.0.0.1:21100").unwrap();
        assert_eq!(refusal.allow, None);
        assert!(refusal.why.contains("this session's are 21009 to 21023"), "{refusal:?}");
    }
}
