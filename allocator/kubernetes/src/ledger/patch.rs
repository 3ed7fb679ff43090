//! A change as a JSON merge patch (RFC 7396) of what it changes: fields that a newer casemate wrote stay.

use kube::Resource as _;
use serde_json::{Map, Value, json};

use crate::resource::{WorkerSession, WorkerSessionSpec};

/// What makes `new` of `old`. Lists are whole; what is absent from `new` is removed.
#[must_use]
pub fn patch_of(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(old) if old == value => {}
            Some(old) => drop(patch.insert(name.clone(), patch_of(old, value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Writes a session's ledger over the one that was read: refused with 409 where that is not the newest any more. `None`: the
/// session was not read from a cluster.
#[must_use]
pub fn session_patch(read: &WorkerSession, spec: &WorkerSessionSpec) -> Option<Value> {
    let meta = read.meta();
    let (uid, version) = (meta.uid.as_ref()?, meta.resource_version.as_ref()?);
    let json = |spec: &WorkerSessionSpec| serde_json::to_value(spec).expect("a ledger is JSON");
    let change = patch_of(&json(&read.spec), &json(spec));
    Some(json!({"metadata": {"uid": uid, "resourceVersion": version}, "spec": change}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_what_changes_and_leaves_the_rest() {
        let old = json!({"a": 1, "b": {"c": 1, "d": [1]}, "e": 1, "unknown": 7});
        let new = json!({"a": 1, "b": {"c": 2, "d": [1, 2]}, "f": {"g": 1}});
        let without = {
            let mut old = old.clone();
            old.as_object_mut().unwrap().remove("unknown");
            old
        };
        let patch = patch_of(&without, &new);
        assert_eq!(patch, json!({"b": {"c": 2, "d": [1, 2]}, "e": null, "f": {"g": 1}}));
        assert_eq!(patch_of(&new, &new), json!({}));
    }
}
