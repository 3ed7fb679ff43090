//! Step 1: two sessions have two workers.

use super::World;
use crate::demo::host::HostError;

pub(super) async fn distinct(world: &mut World<'_>) -> Result<(), HostError> {
    let World { a, b, lines, .. } = world;
    lines.step("1  two sessions, two workers");
    let (of_a, of_b) = (&a.facts, &b.facts);
    for facts in [of_a, of_b] {
        lines.same(
            facts.name,
            "measure",
            "tier",
            &lines.tier().to_string(),
            &facts.tier.to_string(),
        );
    }
    for (what, differ) in [
        ("slots", of_a.slot != of_b.slot),
        ("supervisor processes", of_a.worker.0 != of_b.worker.0),
        ("worker boot ids", of_a.boot != of_b.boot && !of_a.boot.is_empty()),
        ("ports", !of_a.ports.clone().any(|port| of_b.ports.contains(&port))),
        ("sessions", of_a.session != of_b.session && a.host.session() != b.host.session()),
    ] {
        lines.same("", "compare", what, "distinct", if differ { "distinct" } else { "the same" });
    }
    Ok(())
}
