//! Proposals: enough, and nothing too much.

use proptest::prelude::*;

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
