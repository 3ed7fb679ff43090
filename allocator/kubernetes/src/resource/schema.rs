//! Schemas of words that other crates own, and of Kubernetes' own types.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A random id of 128 bits (`casemate_protocol::ids`).
fn id(prefix: char) -> Schema {
    json_schema!({"type": "string", "maxLength": 28, "pattern": format!("^{prefix}-[a-z2-7]{{26}}$")})
}

/// Of a session's id.
pub(super) fn session_id(_: &mut SchemaGenerator) -> Schema {
    id('s')
}

/// Of a slot's name.
pub(super) fn slot_id(_: &mut SchemaGenerator) -> Schema {
    id('w')
}

/// Of a start of a worker.
pub(super) fn boot_id(_: &mut SchemaGenerator) -> Schema {
    id('b')
}

/// Of a number that counts up. Kubernetes keeps integers in 64 bits with a sign.
pub(super) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 0})
}

/// Of a number that counts up from one.
pub(super) fn count_from_one(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 1})
}

/// Of an end's reason.
pub(super) fn end_reason(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": casemate_protocol::end::EndReason::ALL})
}

/// Of a tier.
pub(super) fn tier(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": casemate_protocol::tier::Tier::ALL})
}

/// Of what a worktree holds that no remote has.
pub(super) fn evidence(generator: &mut SchemaGenerator) -> Schema {
    let count = count(generator);
    json_schema!({
        "type": "object",
        "description": "What the worktree held that no remote has. Absent: not known, which counts as unpushed work.",
        "required": ["dirty", "unpushed", "stashes"],
        "properties": {"dirty": count, "unpushed": count, "stashes": count},
    })
}

/// Of an object's UID.
pub(super) fn uid(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 64})
}
