//! What the answers amount to. Pure.

use std::collections::BTreeMap;

use casemate_inside::SUCCEEDED;
use casemate_inside::catalogue::{Answer, Attack, Expected, Target, UNTRIED, attack};
use casemate_protocol::matrix::{Matrix, Row, Verdict};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;

/// What became of one attack.
#[must_use]
pub fn verdict(attack: &Attack, tier: Tier, outcome: &str) -> Verdict {
    match outcome {
        SUCCEEDED => {}
        // A hang or a panic proves nothing.
        UNTRIED | "panicked" | "SIGALRM" => return Verdict::Untried,
        _ => return Verdict::Holds,
    }
    match if tier > Tier::Domain { attack.namespace } else { attack.domain } {
        Expected::Leaks => Verdict::Leaks,
        Expected::Own => Verdict::Own,
        // The kernel's own refusals differ from machine to machine; none of them is a promise of ours.
        Expected::Refused(_) if !attack.is_ours() => Verdict::Leaks,
        Expected::Refused(_) if is_of_the_tier(attack.target) => Verdict::Broken,
        Expected::Refused(_) => Verdict::Open,
    }
}

/// The tier is what stands between sessions, and before the supervisor; the rest is the policy's to open.
fn is_of_the_tier(target: Target) -> bool {
    match target {
        Target::Files | Target::Git | Target::House | Target::Processes | Target::Supervisor => {
            true
        }
        Target::Network | Target::Ipc | Target::Kernel | Target::Machine => false,
    }
}

/// Puts answers in order.
#[must_use]
pub fn matrix(answers: &[Answer], tier: Tier, took_ms: u64) -> Matrix {
    let mut rows: BTreeMap<(Target, Verdict, &str), Vec<&str>> = BTreeMap::new();
    for answer in answers {
        // An attack that this build does not know is no answer of its own program.
        let Some(attack) = attack(&answer.id) else { continue };
        let verdict = verdict(attack, tier, &answer.outcome);
        rows.entry((attack.target, verdict, &answer.outcome)).or_default().push(attack.id);
    }
    let rows = rows.into_iter().map(|((target, verdict, answer), ids)| Row {
        target: target.word().to_owned(),
        verdict,
        answer: answer.to_owned(),
        count: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        attacks: match verdict {
            Verdict::Holds => Vec::new(),
            _ => ids.into_iter().map(str::to_owned).collect(),
        },
    });
    Matrix { tier, took_ms, rows: rows.collect() }
}

/// Refuses a wall that does not keep the tier's promise.
///
/// # Errors
/// [`StartError::Shield`] naming the attacks.
pub fn keeps_its_promise(matrix: &Matrix) -> Result<(), StartError> {
    let broken: Vec<&str> = matrix.named(Verdict::Broken).collect();
    if broken.is_empty() {
        return Ok(());
    }
    Err(StartError::Shield {
        message: format!(
            "tier {} does not hold here: {} succeeded behind the agent's wall; take out of the policy what lets it, or \
             report this with `casemate doctor --json`",
            matrix.tier,
            broken.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use casemate_inside::catalogue::attacks;

    use super::*;

    fn judged(id: &str, tier: Tier, outcome: &str) -> Verdict {
        verdict(attack(id).unwrap(), tier, outcome)
    }

    #[test]
    fn no_tier_takes_the_success_of_what_it_stops_for_an_answer() {
        for tier in [Tier::Domain, Tier::Namespace, Tier::Pod] {
            for id in
                ["file-read", "process-kill", "supervisor-ptrace", "seed-read", "trap-fsmonitor"]
            {
                assert_eq!(judged(id, tier, SUCCEEDED), Verdict::Broken, "{id}");
                assert_eq!(judged(id, tier, "EACCES"), Verdict::Holds, "{id}");
            }
            assert_eq!(judged("ring-setup", tier, SUCCEEDED), Verdict::Open);
            assert_eq!(judged("run-memory", tier, SUCCEEDED), Verdict::Leaks);
            assert_eq!(judged("kernel-log", tier, SUCCEEDED), Verdict::Leaks);
        }
    }

    #[test]
    fn metadata_is_a_leak_of_tier_domain_and_a_break_of_the_others() {
        assert_eq!(judged("file-chmod", Tier::Domain, SUCCEEDED), Verdict::Leaks);
        assert_eq!(judged("file-chmod", Tier::Namespace, SUCCEEDED), Verdict::Broken);
        assert_eq!(judged("shm-file", Tier::Namespace, SUCCEEDED), Verdict::Own);
    }

    #[test]
    fn a_hang_is_no_proof() {
        for outcome in [UNTRIED, "panicked", "SIGALRM"] {
            assert_eq!(judged("file-read", Tier::Domain, outcome), Verdict::Untried);
        }
        assert_eq!(judged("table-x32", Tier::Domain, "SIGSYS"), Verdict::Holds);
    }

    #[test]
    fn a_broken_promise_is_a_refusal_that_names_it() {
        let answers: Vec<Answer> = attacks()
            .map(|attack| Answer { id: attack.id.to_owned(), outcome: "EACCES".into() })
            .collect();
        let mut one = answers.clone();
        let held = matrix(&answers, Tier::Domain, 1);
        assert_eq!(held.total(), u32::try_from(answers.len()).unwrap());
        assert_eq!(keeps_its_promise(&held), Ok(()));
        one.iter_mut().find(|answer| answer.id == "file-read").unwrap().outcome = SUCCEEDED.into();
        let refused = keeps_its_promise(&matrix(&one, Tier::Domain, 1)).unwrap_err();
        assert!(refused.to_string().contains("file-read"), "{refused}");
    }
}
