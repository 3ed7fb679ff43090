//! On the host: a confined agent asks its client to do what it cannot.

use std::fs;

use serde_json::json;

use super::World;
use crate::demo::host::HostError;

pub(super) async fn asked(world: &mut World<'_>) -> Result<(), HostError> {
    let World { a, b, lines, house } = world;
    lines.step("a confined agent asks the host, which offers everything");
    let secret = house.outside().join("secret.txt");
    fs::write(&secret, "the owner's\n").map_err(|error| HostError::Io("A", error))?;
    for side in [a, b] {
        let name = side.facts.name;
        for (method, params) in [
            ("terminal/create", json!({"command": "touch", "args": [house.outside().join("run")]})),
            ("fs/read_text_file", json!({"path": secret})),
            ("fs/write_text_file", json!({"path": secret, "content": "overwritten"})),
            ("terminal/output", json!({"terminalId": "1"})),
            ("_host/anything", json!({})),
        ] {
            let said = side.host.prompt(&format!("!ask {method} {params}")).await?;
            lines.same(name, method, "its host", "error -32601", &code(&said));
        }
        let reached = match side.host.reached.as_slice() {
            [] => "nothing".to_owned(),
            reached => reached.join(", "),
        };
        lines.same(name, "read the log", "its host", "nothing", &reached);
    }
    let kept = fs::read_to_string(&secret).unwrap_or_default();
    lines.same("", "read", "the host's file", "the owner's", kept.trim_end());
    Ok(())
}

/// `error -32601` of the agent's `error {"code": -32601, ...}`; the whole of anything else.
fn code(said: &str) -> String {
    let error = said.strip_prefix("error ").and_then(|json| serde_json::from_str(json).ok());
    let code = error.and_then(|error: serde_json::Value| error["code"].as_i64());
    code.map_or_else(|| said.to_owned(), |code| format!("error {code}"))
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn only_an_error_becomes_a_code() {
        assert_eq!(code(r#"error {"code":-32601,"message":"no"}"#), "error -32601");
        assert_eq!(code(r#"result {"content":"x"}"#), r#"result {"content":"x"}"#);
    }
}
