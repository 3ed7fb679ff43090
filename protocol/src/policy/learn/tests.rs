//! Proposals: enough, and nothing too much.

use proptest::prelude::*;

use super::super::decide::{self, Outcome};
use super::*;
use crate::policy::{DEVELOPER, Place};

fn setting(policy: &Policy) -> Setting {
    let mut setting = Setting::symbolic(policy);
    setting.tier = Tier::Namespace;
    for (place, path) in
        [(Place::Work, "/work"), (Place::Home, "/home/agent"), (Place::Scratch, "/tmp")]
    {
        setting.places.insert(place, vec![path.to_owned()]);
    }
    setting
}

fn closed(path: &str) -> Option<String> {
    path.starts_with("/casemate").then(|| "closed".to_owned())
}

fn learn(denials: &Denials) -> (Policy, Setting, Proposal) {
    let policy = Policy::parse(DEVELOPER).unwrap();
    let setting = setting(&policy);
    let proposal = propose(&policy, &setting, denials, &str::to_owned, &closed);
    (policy, setting, proposal)
}

/// The policy as a file with these rules in it, not as it is in memory.
fn with(rules: &[Learned]) -> Policy {
    let rules: Vec<&str> = rules.iter().map(|rule| rule.text.as_str()).collect();
    Policy::parse(&format!("{DEVELOPER}\n{}", rules.join("\n"))).unwrap()
}

fn grants(policy: &Policy, setting: &Setting, wishes: &BTreeSet<Wish>) -> bool {
    allowed(policy, &[], setting, &str::to_owned, wishes.iter()) == *wishes
}

#[test]
fn a_run_that_was_refused_passes_with_the_proposal_and_with_nothing_less() {
    let mut denials = Denials::default();
    for (path, access) in [
        ("/srv/data/a", Access::Read),
        ("/srv/data/b", Access::Read),
        ("/srv/data/c", Access::Read),
        ("/srv/tools/run", Access::Execute),
        ("/home/agent/../x", Access::Read),
        ("/work/made", Access::Write),
        ("/casemate/state", Access::Read),
        ("/var/one", Access::Read),
    ] {
        denials.paths.insert((path.to_owned(), access), 2);
    }
    denials.connect.insert(8443, 1);
    denials.connect.insert(443, 5);
    denials.bind.insert(21_008, 1);
    denials.other.insert("scope.signal".to_owned(), 1);
    let (_, _, proposal) = learn(&denials);
    let texts: Vec<&str> =
        proposal.rules.iter().map(|rule| rule.text.lines().nth(1).unwrap()).collect();
    assert!(texts.contains(&"path = \"/srv/data\""), "{texts:?}");
    assert!(texts.contains(&"path = \"/srv/tools/run\""), "{texts:?}");
    assert!(texts.contains(&"path = \"/var/one\"") && texts.contains(&"connect = [8443]"));
    let kept: Vec<&str> = proposal.kept_out.iter().map(|(what, _)| what.as_str()).collect();
    assert!(kept.contains(&"read /casemate/state") && kept.contains(&"bind 21008"), "{kept:?}");
    assert!(kept.contains(&"scope.signal"), "{kept:?}");
    let granted = ["write /work/made", "connect 443"];
    assert!(granted.iter().all(|one| proposal.allowed.iter().any(|known| known == one)));
}

#[test]
fn a_directory_of_the_root_is_not_opened_for_a_few_files() {
    let mut denials = Denials::default();
    for name in ["a", "b", "c", "d"] {
        denials.paths.insert((format!("/srv/{name}"), Access::Read), 1);
    }
    let (_, _, proposal) = learn(&denials);
    assert_eq!(proposal.rules.len(), 4);
}

#[test]
fn what_opens_other_doors_is_not_proposed_whosever_home_it_lies_in() {
    let never = [
        "/root/.ssh/id_ed25519",
        "/home/me/.ssh",
        "/srv/homes/me/.config/gh/hosts.yml",
        "/home/me/.netrc",
        "/run/secrets/token",
        // A rule for it would go for what lies below.
        "/run",
        "/home/me",
        "/root",
        "/",
    ];
    let mut denials = Denials::default();
    for path in never {
        denials.paths.insert((path.to_owned(), Access::Read), 1);
    }
    // Neighbours, which are no reason to open the home that they lie in.
    for path in ["/home/me/a", "/home/me/b", "/home/me/c", "/home/me/.sshd"] {
        denials.paths.insert((path.to_owned(), Access::Write), 1);
    }
    let (_, _, proposal) = learn(&denials);
    let kept: BTreeSet<String> = proposal.kept_out.into_iter().map(|(what, _)| what).collect();
    assert_eq!(kept, never.iter().map(|path| format!("read {path}")).collect());
    assert_eq!(proposal.rules.len(), 4, "{:?}", proposal.rules);
}

#[test]
fn what_cannot_stand_in_a_policy_is_not_proposed() {
    let mut denials = Denials::default();
    for path in [
        "/srv/{home}",
        "/srv/a\nb",
        "relative",
        "/srv/x/../../etc",
        "/srv/\u{202e}txt.a",
        "/srv/a\"b\\c",
    ] {
        denials.paths.insert((path.to_owned(), Access::Read), 1);
    }
    let (_, setting, proposal) = learn(&denials);
    assert_eq!((proposal.kept_out.len(), proposal.rules.len()), (5, 1), "{proposal:?}");
    let wishes = [Wish::Path("/srv/a\"b\\c".to_owned(), Access::Read)].into();
    assert!(grants(&with(&proposal.rules), &setting, &wishes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_proposal_is_enough_and_none_has_a_rule_too_many(
        paths in prop::collection::btree_set(("/(srv|home/agent|opt/x)(/[ab]){1,3}", 0usize..4), 0..8),
        connect in prop::collection::btree_set(1u16..20_000, 0..3),
        bind in prop::collection::btree_set(1u16..20_000, 0..3),
    ) {
        let mut denials = Denials::default();
        for (path, access) in paths {
            denials.paths.insert((path, Access::ALL[access]), 1);
        }
        denials.connect = connect.into_iter().map(|port| (port, 1)).collect();
        denials.bind = bind.into_iter().map(|port| (port, 1)).collect();
        let (_, setting, proposal) = learn(&denials);
        let kept: Vec<&str> = proposal.kept_out.iter().map(|(what, _)| what.as_str()).collect();
        let mut wishes: BTreeSet<Wish> =
            denials.paths.keys().map(|(path, access)| Wish::Path(path.clone(), *access)).collect();
        wishes.extend(denials.connect.keys().map(|port| Wish::Port(true, *port)));
        wishes.extend(denials.bind.keys().map(|port| Wish::Port(false, *port)));
        wishes.retain(|wish| !kept.contains(&wish.to_string().as_str()));
        prop_assert!(grants(&with(&proposal.rules), &setting, &wishes), "{proposal:?}");
        for without in 0..proposal.rules.len() {
            let mut fewer = proposal.rules.clone();
            fewer.remove(without);
            let mut all = wishes.clone();
            // What is run is read as well.
            let run = |wish: &Wish| match wish {
                Wish::Path(path, Access::Execute) => Some(Wish::Path(path.clone(), Access::Read)),
                _ => None,
            };
            all.extend(wishes.iter().filter_map(run));
            prop_assert!(!grants(&with(&fewer), &setting, &all), "{without} of {proposal:?}");
        }
    }
}

/// As a call would be recorded.
fn asked(denials: &mut Denials, name: &str, arguments: &[u64]) {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    denials.asked.insert((name.to_owned(), all), 1);
}

#[test]
fn calls_are_taken_out_of_their_tables_and_sockets_come_as_rules() {
    let mut denials = Denials::default();
    asked(&mut denials, "ptrace", &[16, 77, 0x7fff_1234]);
    asked(&mut denials, "ptrace", &[16, 78, 0x7fff_5678]);
    asked(&mut denials, "ioctl", &[3, 0x5412, 0x7fff_0000]);
    asked(&mut denials, "setpriority", &[2, 7]);
    asked(&mut denials, "socket", &[2, 2 | 0o2_000_000, 17]);
    asked(&mut denials, "socket", &[17, 3, 0]);
    let (policy, setting, proposal) = learn(&denials);
    assert_eq!(proposal.kept_out.len(), 1, "{proposal:?}");
    assert!(proposal.kept_out[0].0.contains("socket 17 raw"), "{proposal:?}");
    let text = write(DEVELOPER, &proposal).unwrap();
    let learned = Policy::parse(&text).unwrap();
    // ptrace once, ioctl's one table of two, both tables of setpriority, and a socket.
    assert_eq!(proposal.rules.len(), 5, "{proposal:#?}");
    let asks = |policy: &Policy, name: &str, arguments: [u64; 6]| {
        decide::syscall(policy, &setting, name, &arguments.map(Some)).outcome
    };
    for (name, arguments) in [
        ("ptrace", [16, 1, 2, 3, 0, 0]),
        ("ioctl", [0, 0x5412, 0, 0, 0, 0]),
        ("setpriority", [2, 7, 0, 0, 0, 0]),
        ("socket", [2, 2, 17, 0, 0, 0]),
    ] {
        assert_eq!(asks(&policy, name, arguments), Outcome::Refused, "{name}");
        assert_eq!(asks(&learned, name, arguments), Outcome::Allowed, "{name}");
    }
    // And nothing else.
    for (name, arguments) in [
        ("ioctl", [0, 0x541c, 0, 0, 0, 0]),
        ("ioprio_set", [3, 7, 0, 0, 0, 0]),
        ("process_vm_readv", [0; 6]),
        ("socket", [2, 2, 0, 0, 0, 0]),
        ("socket", [10, 2, 17, 0, 0, 0]),
    ] {
        assert_eq!(asks(&learned, name, arguments), Outcome::Refused, "{name}");
    }
    assert_eq!(learned.syscalls.len() + 2, policy.syscalls.len(), "two tables had one name");
    assert!(text.contains("# It opens UDP") && text.contains("# socket 17 raw"), "{text}");
    for without in 0..proposal.rules.len() {
        let mut fewer = proposal.clone();
        fewer.rules.remove(without);
        let fewer = Policy::parse(&write(DEVELOPER, &fewer).unwrap()).unwrap();
        let refused = [
            ("ptrace", [16, 1, 2, 3, 0, 0]),
            ("ioctl", [0, 0x5412, 0, 0, 0, 0]),
            ("setpriority", [2, 7, 0, 0, 0, 0]),
            ("socket", [2, 2, 17, 0, 0, 0]),
        ];
        let refused = refused
            .iter()
            .filter(|(name, arguments)| asks(&fewer, name, *arguments) != Outcome::Allowed);
        assert_eq!(refused.count(), 1, "{without}");
    }
}

/// Each name of each built-in policy's tables is taken out by itself, and everything else stays.
#[test]
fn any_name_can_be_taken_out_and_the_rest_of_the_text_stays() {
    for (name, text) in crate::policy::BUILT_IN {
        let policy = Policy::parse(text).unwrap();
        for rule in &policy.syscalls {
            for call in &rule.names {
                let rules = vec![super::without(&policy, rule.line, call, 1)];
                let proposal = Proposal { rules, ..Proposal::default() };
                let written = write(text, &proposal).unwrap();
                let learned = Policy::parse(&written).unwrap();
                let gone = usize::from(rule.names.len() == 1);
                assert_eq!(learned.rule_count() + gone, policy.rule_count(), "{name} {call}");
                let lines =
                    |text: &str| text.lines().filter(|line| line.starts_with("# --")).count();
                assert_eq!(lines(&written), lines(text), "{name} {call}");
            }
        }
    }
}

/// A path that a rule names already gets more rights there; a table of its own would be an error.
#[test]
fn a_path_is_still_named_once() {
    let mut denials = Denials::default();
    denials.paths.insert(("/usr".to_owned(), Access::Write), 1);
    denials.paths.insert(("/etc".to_owned(), Access::Execute), 1);
    // A directory with one right, and three neighbours in it with another.
    denials.paths.insert(("/srv/data".to_owned(), Access::Read), 1);
    for name in ["a", "b", "c"] {
        denials.paths.insert((format!("/srv/data/{name}"), Access::Write), 1);
    }
    asked(&mut denials, "ptrace", &[]);
    let (_, setting, proposal) = learn(&denials);
    assert_eq!((proposal.rules.len(), proposal.kept_out.len()), (4, 0), "{proposal:?}");
    let learned = Policy::parse(&write(DEVELOPER, &proposal).unwrap()).unwrap();
    let mut wishes: BTreeSet<Wish> =
        denials.paths.keys().map(|(path, access)| Wish::Path(path.clone(), *access)).collect();
    wishes.insert(Wish::call(&learned, "ptrace", &[0; 6]));
    assert!(grants(&learned, &setting, &wishes));
    assert_eq!(learned.rule_count(), Policy::parse(DEVELOPER).unwrap().rule_count() + 1);
}

#[test]
fn a_table_that_is_written_otherwise_is_left_to_a_person() {
    let text = "syscall = [{ names = [\"ptrace\"], errno = \"EPERM\", reason = \"r\" }]\nversion = 1\nname = \"n\"\n[landlock]\nabi = 6\nreason = \"r\"\n[sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n";
    let policy = Policy::parse(text).unwrap();
    let rules = vec![super::without(&policy, policy.syscalls[0].line, "ptrace", 1)];
    let written = write(text, &Proposal { rules, ..Proposal::default() });
    assert!(matches!(written, Err(WriteError::Table { .. })), "{written:?}");
}
