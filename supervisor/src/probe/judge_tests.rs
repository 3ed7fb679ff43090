//! Verdicts of single answers, and what they are refused for.

use casemate_inside::catalogue::attack;
use casemate_protocol::policy::{DEVELOPER, STRICT};

use super::*;

const TIERS: [Tier; 3] = [Tier::Domain, Tier::Namespace, Tier::Pod];

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap()
}

fn said(policy: &Policy, tier: Tier) -> Said<'_> {
    Said { tier, policy, read: Vec::new(), opened: OnceCell::new() }
}

fn judged(id: &str, tier: Tier, outcome: &str) -> Verdict {
    said(&policy(DEVELOPER), tier).verdict(attack(id).unwrap(), outcome)
}

/// As every attack is promised to end in this tier.
fn kept(tier: Tier) -> Vec<Answer> {
    attacks()
        .map(|attack| {
            let outcome = match attack.promised(tier > Tier::Domain) {
                Expected::Refused(names) => names[0],
                Expected::Leaks | Expected::Own => SUCCEEDED,
            };
            Answer { id: attack.id.to_owned(), outcome: outcome.into() }
        })
        .collect()
}

fn ends(answers: &[Answer], tier: Tier) -> Result<(), StartError> {
    keeps_its_promise(&matrix(answers, &said(&policy(DEVELOPER), tier), 1))
}

#[test]
fn no_tier_takes_the_success_of_what_it_stops_for_an_answer() {
    for tier in TIERS {
        for id in [
            "file-read",
            "process-kill",
            "supervisor-ptrace",
            "seed-read",
            "trap-fsmonitor",
            "ring-setup",
            "udp-send",
            "unix-hand-over",
            "abstract-hand-over",
            "shm-attach",
            "setuid-program",
        ] {
            assert_eq!(judged(id, tier, SUCCEEDED), Verdict::Broken, "{id}");
        }
        assert_eq!(judged("run-memory", tier, SUCCEEDED), Verdict::Leaks);
        assert_eq!(judged("kernel-log", tier, SUCCEEDED), Verdict::Leaks);
    }
}

#[test]
fn only_what_the_tier_promises_holds() {
    let elsewhere = [Tier::Namespace, Tier::Pod];
    assert_eq!(judged("file-read", Tier::Domain, "EACCES"), Verdict::Holds);
    assert_eq!(judged("table-i386", Tier::Domain, "SIGSYS"), Verdict::Holds);
    for tier in elsewhere {
        assert_eq!(judged("file-read", tier, "ENOENT"), Verdict::Holds);
        assert_eq!(judged("file-read", tier, "EACCES"), Verdict::Unproven);
    }
    // A decoy that is not there, a shortage, a hang.
    for outcome in ["ENOENT", "EMFILE", "EAGAIN", "SIGALRM", "panicked", "SIGSYS"] {
        assert_eq!(judged("file-read", Tier::Domain, outcome), Verdict::Unproven, "{outcome}");
        assert_eq!(judged("hostname", Tier::Domain, outcome), Verdict::Untried, "{outcome}");
        assert_eq!(judged("proc-stack", Tier::Domain, outcome), Verdict::Untried, "{outcome}");
    }
    for outcome in [UNTRIED, "ENOSYS"] {
        assert_eq!(judged("process-compare", Tier::Domain, outcome), Verdict::Untried);
    }
}

#[test]
fn metadata_is_a_leak_of_tier_domain_and_a_break_of_the_others() {
    assert_eq!(judged("file-chmod", Tier::Domain, SUCCEEDED), Verdict::Leaks);
    assert_eq!(judged("file-chmod", Tier::Domain, "EPERM"), Verdict::Holds);
    assert_eq!(judged("file-chmod", Tier::Domain, "ENOENT"), Verdict::Untried);
    assert_eq!(judged("file-chmod", Tier::Namespace, SUCCEEDED), Verdict::Broken);
    assert_eq!(judged("shm-file", Tier::Namespace, SUCCEEDED), Verdict::Own);
}

#[test]
fn a_policy_opens_what_it_names_and_nothing_of_another_session() {
    let without = DEVELOPER.replace("\"io_uring_setup\", ", "");
    assert_ne!(without, DEVELOPER);
    let without = policy(&without);
    let said = said(&without, Tier::Domain);
    let judged = |id: &str| said.verdict(attack(id).unwrap(), SUCCEEDED);
    assert_eq!(judged("ring-setup"), Verdict::Open);
    assert_eq!(judged("shm-attach"), Verdict::Broken);
    assert_eq!(judged("shm-make"), Verdict::Open);
    assert_eq!(judged("log-list"), Verdict::Broken);
    assert_eq!(judged("table-i386"), Verdict::Broken);
    // One that allows less than a built-in one opens nothing.
    let narrow = policy(&format!("# narrow\n{STRICT}"));
    let ring = attack("ring-setup").unwrap();
    assert_eq!(super::tests::said(&narrow, Tier::Domain).verdict(ring, SUCCEEDED), Verdict::Broken);
}

#[test]
fn a_program_that_is_the_machines_folder_opens_it() {
    let policy = policy(DEVELOPER);
    let mut said = said(&policy, Tier::Domain);
    let list = attack("log-list").unwrap();
    said.read = vec![Path::new("/opt/agent")];
    assert_eq!(said.verdict(list, SUCCEEDED), Verdict::Broken);
    said.read.push(Path::new("/var"));
    assert_eq!(said.verdict(list, SUCCEEDED), Verdict::Open);
}

#[test]
fn a_policys_own_errno_is_a_refusal_too() {
    let other = DEVELOPER.replacen("errno = \"EPERM\"", "errno = \"EINVAL\"", 1);
    assert_ne!(other, DEVELOPER);
    let other = policy(&other);
    let said = said(&other, Tier::Domain);
    let judged = |id: &str| said.verdict(attack(id).unwrap(), "EINVAL");
    assert_eq!(judged("process-pin"), Verdict::Holds);
    assert_eq!(judged("process-kill"), Verdict::Unproven);
}

#[test]
fn what_is_promised_is_enough() {
    for tier in TIERS {
        assert_eq!(ends(&kept(tier), tier), Ok(()), "{tier}");
    }
}

#[test]
fn a_broken_promise_is_a_refusal_that_names_it() {
    for (id, outcome) in
        [("file-read", SUCCEEDED), ("tcp-connect", SUCCEEDED), ("file-read", "ENOENT")]
    {
        let mut answers = kept(Tier::Domain);
        answers.iter_mut().find(|answer| answer.id == id).unwrap().outcome = outcome.into();
        let refused = ends(&answers, Tier::Domain).unwrap_err().to_string();
        assert!(refused.contains(id), "{refused}");
        assert!(outcome == SUCCEEDED || refused.contains(outcome), "{refused}");
    }
}

#[test]
fn a_matrix_that_shows_nothing_is_a_refusal() {
    for outcome in ["SIGALRM", "panicked", "EMFILE"] {
        let all = attacks().map(|attack| Answer { id: attack.id.into(), outcome: outcome.into() });
        assert!(ends(&all.collect::<Vec<_>>(), Tier::Domain).is_err(), "{outcome}");
    }
    // Nor do attacks that are not there at all.
    let some: Vec<Answer> = kept(Tier::Domain).split_off(1);
    assert!(ends(&some, Tier::Domain).is_err());
}
