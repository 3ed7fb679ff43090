//! Every attack of the catalogue, from B's shell: on decoys of the machine's owner, on A's supervisor, on B's own.

use std::collections::BTreeMap;

use casemate_inside::SUCCEEDED;
use casemate_inside::catalogue::{Attack, Expected, Planted, UNTRIED, attack};
use casemate_protocol::tier::Tier;

use super::World;
use crate::demo::host::HostError;
use crate::demo::judge::Verdict;

pub(super) async fn tried(world: &mut World<'_>) -> Result<(), HostError> {
    let World { a, b, lines, house } = world;
    lines.step("B tries every attack of the catalogue");
    let from = b.facts.name;
    let io = |error| HostError::Io(from, error);
    let planted = Planted::plant(&house.outside().join("decoys"), None).map_err(io)?;
    let others = lines.seen(a.facts.worker.0);
    let decoys = planted.decoys(others, "casemate-supervisor", b.facts.worker.1);
    let decoys = serde_json::to_string(&decoys).map_err(|error| io(error.into()))?;
    let answers = b.host.inside(&["catalogue", &decoys]).await?;
    let mut rows: BTreeMap<(&str, &str, u8), (Vec<&str>, Verdict)> = BTreeMap::new();
    for answer in &answers {
        let Some(attack) = attack(&answer.attack) else { continue };
        let verdict = judge(attack, lines.tier(), &answer.outcome);
        let key = (attack.target.word(), answer.outcome.as_str(), verdict as u8);
        rows.entry(key).or_insert_with(|| (Vec::new(), verdict)).0.push(attack.id);
    }
    for ((target, outcome, _), (ids, verdict)) in rows {
        lines.many(from, &ids, target, outcome, verdict);
    }
    Ok(())
}

/// Any refusal will do: where each slot has a user of its own the owner's files answer differently.
fn judge(attack: &Attack, tier: Tier, outcome: &str) -> Verdict {
    if matches!(outcome, "panicked" | "SIGALRM") {
        return Verdict::Wrong;
    }
    if outcome == UNTRIED || outcome != SUCCEEDED {
        return Verdict::Ok;
    }
    match if tier > Tier::Domain { attack.namespace } else { attack.domain } {
        Expected::Own => Verdict::Ok,
        Expected::Leaks => Verdict::Leak,
        Expected::Refused(_) if attack.is_ours() => Verdict::Wrong,
        Expected::Refused(_) => Verdict::Leak,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_is_judged_by_the_tier_and_refusals_are_not() {
        let judged = |id, tier, outcome| judge(attack(id).unwrap(), tier, outcome);
        for tier in [Tier::Domain, Tier::Namespace] {
            assert_eq!(judged("file-read", tier, SUCCEEDED), Verdict::Wrong);
            assert_eq!(judged("file-read", tier, "EACCES"), Verdict::Ok);
            assert_eq!(judged("file-read", tier, "SIGALRM"), Verdict::Wrong);
        }
        assert_eq!(judged("file-chmod", Tier::Domain, SUCCEEDED), Verdict::Leak);
        assert_eq!(judged("file-chmod", Tier::Namespace, SUCCEEDED), Verdict::Wrong);
    }
}
