//! Learning: a run with the walls open, and the smallest policy that would have let it pass, for a person to accept.
//!
//! Owns what was noted. Nothing is granted by it: what comes of it is a proposal, and what the run did is done. Closed all the same: casemate's
//! own places, the usual places of credentials and mounted tokens, unless the policy grants them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use casemate_protocol::policy::decide::{self, Outcome, Setting, Transport, Way};
use casemate_protocol::policy::learn::{Denials, Proposal, propose, write};
use casemate_protocol::policy::{Access, Learning, PathTemplate, Place, Policy, SocketFamily};
use casemate_sandbox::{Attempt, Places, Recorder};

use crate::told;
use crate::words::chain;

/// Different refusals that are noted; a run with more is learned from step by step.
const MOST: usize = 200;
/// What a run is refused.
#[derive(Debug)]
pub struct Learner {
    policy: Policy,
    text: String,
    setting: Setting,
    granted: Vec<(PathBuf, Vec<Access>)>,
    closed: Vec<PathBuf>,
    who: Who,
    noted: Mutex<Noted>,
}

#[derive(Debug, Clone, Default)]
struct Noted {
    denials: Denials,
    udp: BTreeMap<u16, u64>,
    unread: BTreeMap<&'static str, u64>,
    beyond: u64,
}

/// Whose permissions count.
#[derive(Debug)]
struct Who {
    uid: u32,
    groups: Vec<u32>,
}

/// Why there may be no such run under this policy.
#[must_use]
pub fn forbidden(policy: &Policy) -> Option<&'static str> {
    let root = nix::unistd::geteuid().is_root();
    match () {
        () if policy.learning == Learning::Forbidden => Some(
            "the policy forbids to learn (learning = \"forbidden\"): its walls are not to be opened. Learn with a copy without that line",
        ),
        () if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
            Some("not in a Pod: to learn opens the walls, and is for a machine of one's own")
        }
        () if root => Some("not as root: name a user, whose files are opened and nobody else's"),
        () => None,
    }
}

// === impl Learner ===

impl Learner {
    /// Of a run in these places; what it is to stay away from, as far as it is there and the policy does not grant it, is added to them.
    #[must_use]
    pub fn of(policy: &Policy, text: &str, places: &mut Places, kept: &[PathBuf]) -> Self {
        let setting = told::setting(policy, places);
        let granted = granted(policy, &setting);
        let own = |path: &PathBuf| granted.iter().any(|(known, _)| path.starts_with(known));
        let kept: Vec<PathBuf> =
            kept.iter().map(|path| as_far_as_it_is_there(path)).filter(|path| !own(path)).collect();
        places.never.extend(kept.iter().filter(|path| path.exists()).cloned());
        // What is not there yet may be tomorrow, under a rule for a directory above it.
        let closed = places.never.iter().chain(&places.private).chain(&kept).cloned().collect();
        let who = Who::own();
        let (policy, text, noted) = (policy.clone(), text.to_owned(), Mutex::default());
        Self { policy, text, setting, granted, closed, who, noted }
    }

    /// What was noted so far was nobody's.
    pub fn forget(&self) {
        *self.locked() = Noted::default();
    }

    /// The command itself, which no listener could read.
    pub fn started(&self, program: &Path) {
        for (path, access) in casemate_sandbox::programs(program) {
            self.path(&path, access);
        }
    }

    /// The policy's text with what was learned so far, and what to say of it.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn proposal(&self) -> Result<(String, String), String> {
        let noted = self.locked().clone();
        let known = std::cell::RefCell::new(BTreeMap::<String, String>::new());
        let real = |path: &str| {
            let mut known = known.borrow_mut();
            let found = known.entry(path.to_owned()).or_insert_with(|| {
                let found = Path::new(path).canonicalize();
                let found = found.ok().and_then(|found| found.to_str().map(str::to_owned));
                found.unwrap_or_else(|| path.to_owned())
            });
            found.clone()
        };
        let closed = |path: &str| self.closed(path);
        let mut proposal = propose(&self.policy, &self.setting, &noted.denials, &real, &closed);
        self.besides(&noted, &mut proposal);
        let written = write(&self.text, &proposal).map_err(|error| chain(&error))?;
        Policy::parse(&written).map_err(|error| format!("the proposal is no policy: {error}"))?;
        let mut words = match proposal.rules.len() {
            1 => "1 rule learned".to_owned(),
            rules => format!("{rules} rules learned"),
        };
        if !proposal.kept_out.is_empty() {
            let kept_out = proposal.kept_out.len();
            words += &format!(
                "; not proposed, and named at the end of the file with the reason: {kept_out}"
            );
        }
        Ok((written, words))
    }

    /// What is no rule's.
    fn besides(&self, noted: &Noted, proposal: &mut Proposal) {
        for port in noted.udp.keys() {
            let why = "a [[udp]] rule is written by hand".to_owned();
            proposal.kept_out.push((format!("udp port {port}"), why));
        }
        for (name, times) in &noted.unread {
            let why = "what it was about could not be read".to_owned();
            proposal.kept_out.push((format!("{times} calls of {name}"), why));
        }
        if noted.beyond > 0 {
            let why = "accept these, run again and learn again".to_owned();
            proposal.kept_out.push((format!("{} attempts more", noted.beyond), why));
        }
    }

    fn closed(&self, path: &str) -> Option<String> {
        let asked = Path::new(path);
        let meets = |known: &&PathBuf| asked.starts_with(known) || known.starts_with(asked);
        if let Some(known) = self.closed.iter().find(meets) {
            return Some(format!(
                "it would open {}: credentials, tokens and casemate's own places are never learned; write the rule yourself if it is meant",
                known.display()
            ));
        }
        // In a namespace of its own they are elsewhere than in the policy of the next session.
        for (place, name) in [(Place::Programs, "{programs}"), (Place::Skills, "{skills}")] {
            let shown = self.setting.places.get(&place).into_iter().flatten();
            let mut shown = shown.filter(|root| is_shown_there(root));
            if shown.any(|root| asked.starts_with(root)) {
                return Some(format!(
                    "it has this path in that session alone: write the rule yourself, with {name}, if it is meant"
                ));
            }
        }
        let process = path.strip_prefix("/proc/").and_then(|rest| rest.bytes().next());
        process
            .is_some_and(|first| first.is_ascii_digit())
            .then(|| "a process of that run: the next one has another number".to_owned())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Noted> {
        // A panic elsewhere cannot leave half a change.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a session in namespaces of its own sees what lies elsewhere on the machine (ARCHITECTURE.md, "One machine").
fn is_shown_there(root: &str) -> bool {
    Path::new(root).starts_with("/programs") || Path::new(root).starts_with("/skills")
}

impl Recorder for Learner {
    fn path(&self, path: &Path, access: Access) {
        let granted = |access: Access| {
            let covers = |(known, rights): &(PathBuf, Vec<Access>)| {
                path.starts_with(known) && rights.contains(&access)
            };
            self.granted.iter().any(covers)
        };
        if granted(access) && (access != Access::Execute || granted(Access::Read)) {
            return;
        }
        // Where the file's own permissions refuse it, no rule would help.
        let Ok(found) = fs::metadata(path) else { return };
        if !self.who.may(&found, access) {
            return;
        }
        let Some(text) = path.to_str() else { return };
        self.locked().count(|denials| denials.paths.entry((text.to_owned(), access)).or_default());
    }

    fn network(&self, Attempt { way, transport, address, .. }: Attempt) {
        let family = if address.is_ipv6() { SocketFamily::Inet6 } else { SocketFamily::Inet };
        let decision =
            decide::port(&self.policy, &self.setting, transport, way, family, address.port());
        if decision.outcome != Outcome::Refused {
            return;
        }
        match (transport, way) {
            // Of sockets that are refused it is the socket that is learned, and they are restricted no further below ABI 10.
            (Transport::Udp, _) if self.setting.landlock_abi < 10 => {}
            (Transport::Udp, _) => *self.locked().udp.entry(address.port()).or_default() += 1,
            (Transport::Tcp, Way::Connect) => {
                self.locked().count(|denials| denials.connect.entry(address.port()).or_default())
            }
            (Transport::Tcp, Way::Bind) => {
                self.locked().count(|denials| denials.bind.entry(address.port()).or_default())
            }
        }
    }

    fn call(&self, name: &'static str, arguments: [u64; 6]) {
        // Two calls that differ in what no rule looks at are one.
        let mut looked_at = [0; 6];
        let tests = self
            .policy
            .syscalls
            .iter()
            .filter(|rule| rule.names.iter().any(|own| own == name))
            .flat_map(|rule| &rule.when);
        let tests = tests.map(|test| usize::from(test.argument));
        let socket = if name.starts_with("socket") { 0..3 } else { 0..0 };
        for index in tests.chain(socket) {
            looked_at[index] = arguments[index];
        }
        self.locked()
            .count(|denials| denials.asked.entry((name.to_owned(), looked_at)).or_default());
    }

    fn unread(&self, name: &'static str) {
        // The command itself is started from a process that nobody may read.
        if name != "execve" {
            *self.locked().unread.entry(name).or_default() += 1;
        }
    }
}

impl Noted {
    fn count(&mut self, entry: impl FnOnce(&mut Denials) -> &mut u64) {
        let denials = &self.denials;
        let known =
            denials.paths.len() + denials.connect.len() + denials.bind.len() + denials.asked.len();
        if known >= MOST {
            self.beyond += 1;
        } else {
            *entry(&mut self.denials) += 1;
        }
    }
}

impl Who {
    /// Out of proc_pid_status(5): a worker's own filter knows no calls for it.
    fn own() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.into_iter()
                .flat_map(str::split_whitespace)
                .filter_map(|id| id.parse().ok())
                .collect()
        };
        // Real, effective, saved and of the file system; and the supplementary ones.
        let groups = [numbers("Gid:"), numbers("Groups:")].concat();
        Self { uid: nix::unistd::geteuid().as_raw(), groups }
    }

    /// By the mode; lists of access control are not looked at.
    fn may(&self, found: &fs::Metadata, access: Access) -> bool {
        let bit = match access {
            Access::Read => 4,
            Access::Write => 2,
            Access::Execute => 1,
            Access::Device => return true,
        };
        let shift = match () {
            () if found.uid() == self.uid => 6,
            () if self.groups.contains(&found.gid()) => 3,
            () => 0,
        };
        found.mode() >> shift & bit != 0
    }
}

/// Without links, up to the first part that is not there.
fn as_far_as_it_is_there(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match found {
        Some((above, real)) => path.strip_prefix(above).map_or_else(
            |_| path.to_owned(),
            |rest| match rest {
                rest if rest.as_os_str().is_empty() => real,
                rest => real.join(rest),
            },
        ),
        None => path.to_owned(),
    }
}

/// The policy's paths as they are now, each with its rights.
fn granted(policy: &Policy, setting: &Setting) -> Vec<(PathBuf, Vec<Access>)> {
    let rules = policy.paths.iter().filter(|rule| rule.tier <= setting.tier);
    let found = |path: &PathTemplate| -> Vec<PathBuf> {
        let roots = match path.place {
            None => vec![path.rest.clone()],
            Some(place) => {
                let roots = setting.places.get(&place).into_iter().flatten();
                roots.map(|root| format!("{root}{}", path.rest)).collect()
            }
        };
        roots.iter().filter_map(|root| Path::new(root).canonicalize().ok()).collect()
    };
    rules
        .flat_map(|rule| found(&rule.path).into_iter().map(|path| (path, rule.access.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use casemate_protocol::tier::Tier;

    use super::*;

    #[test]
    fn no_path_is_learned_that_a_session_alone_has() {
        let policy = Policy::parse(casemate_protocol::policy::DEVELOPER).unwrap();
        let mut places = Places {
            skills: Some("/skills".into()),
            programs: vec!["/programs/0".into(), "/opt/agent".into()],
            ..Places::new("/work".into(), "/home/agent".into(), "/tmp".into(), Tier::Namespace)
        };
        let learner = Learner::of(&policy, "", &mut places, &[]);
        let why = |path: &str| learner.closed(path).unwrap_or_default();
        assert!(why("/programs/0/lib/x").contains("{programs}"));
        assert!(why("/skills/x").contains("{skills}"));
        // These are where they are on the machine.
        assert_eq!((why("/opt/agent/x"), why("/srv/x")), (String::new(), String::new()));
    }

    #[test]
    fn the_modes_that_count_are_ones_own_class() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = |mode| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            fs::metadata(file.path()).unwrap()
        };
        let (uid, gid) = (found(0).uid(), found(0).gid());
        let own = Who { uid, groups: vec![] };
        let group = Who { uid: uid + 1, groups: vec![gid] };
        let other = Who { uid: uid + 1, groups: vec![gid + 1] };
        for (mode, expected) in [
            (0o400, [true, false, false]),
            (0o040, [false, true, false]),
            (0o004, [false, false, true]),
        ] {
            let may = [&own, &group, &other].map(|who| who.may(&found(mode), Access::Read));
            assert_eq!(may, expected, "{mode:o}");
        }
    }
}
