//! The stored answer to `initialize`: under which key it is kept, and when a worker's own answer contradicts it.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::Intent;

/// Names the handshake of an agent and a client: SHA-256 in hex over everything that an agent's answer may depend on,
/// each part preceded by its length. `capabilities` are the client's, stripped.
pub(crate) fn key(intent: &Intent, version: &str, capabilities: &str) -> String {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    };
    part(&intent.profile);
    part(&intent.agent.len().to_string());
    for argument in &intent.agent {
        part(argument);
    }
    for (name, value) in &intent.env {
        part(name);
        part(value);
    }
    part(version);
    part(capabilities);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// True where a host that was told `stored` may be served by a worker that said `real`: same protocol version, same
/// capabilities, same ways to authenticate. Names, versions and `_meta` may differ.
pub(crate) fn agrees(stored: &str, real: &str) -> bool {
    let (Ok(stored), Ok(real)) =
        (serde_json::from_str::<Value>(stored), serde_json::from_str::<Value>(real))
    else {
        return false;
    };
    ["protocolVersion", "agentCapabilities", "authMethods"].iter().all(|name| {
        plain(stored.get(name).cloned().unwrap_or(Value::Null))
            == plain(real.get(name).cloned().unwrap_or(Value::Null))
    })
}

/// Without `_meta`, at any depth.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .filter(|(key, _)| key != "_meta")
                .map(|(key, value)| (key, plain(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_depends_on_each_part() {
        let intent = Intent {
            profile: "p".into(),
            agent: vec!["a".into(), "b".into()],
            env: [("N".to_owned(), "v".to_owned())].into(),
            ..Intent::default()
        };
        let first = key(&intent, "1", "{}");
        assert_eq!(first, key(&intent, "1", "{}"));
        let mut others = vec![key(&intent, "2", "{}"), key(&intent, "1", r#"{"x":1}"#)];
        others.push(key(&Intent { profile: "q".into(), ..intent.clone() }, "1", "{}"));
        others.push(key(&Intent { agent: vec!["ab".into()], ..intent.clone() }, "1", "{}"));
        let env = [("N".to_owned(), "w".to_owned())].into();
        others.push(key(&Intent { env, ..intent.clone() }, "1", "{}"));
        assert!(others.iter().all(|other| *other != first));
        // Where the work comes from says nothing about the agent.
        assert_eq!(first, key(&Intent { repository: Some("r".into()), ..intent }, "1", "{}"));
    }

    #[test]
    fn capabilities_decide_and_names_do_not() {
        let stored = r#"{"protocolVersion":1,"agentCapabilities":{"a":true,"_meta":{"t":1}},"agentInfo":{"version":"1"}}"#;
        let newer = r#"{"agentCapabilities":{"_meta":{"t":2},"a":true},"protocolVersion":1,"agentInfo":{"version":"2"}}"#;
        assert!(agrees(stored, newer));
        assert!(!agrees(stored, r#"{"protocolVersion":1,"agentCapabilities":{"a":false}}"#));
        assert!(!agrees(stored, r#"{"protocolVersion":2,"agentCapabilities":{"a":true}}"#));
        assert!(!agrees(stored, "nonsense"));
    }
}
