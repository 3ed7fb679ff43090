//! The host is outside the wall: what an agent may learn of it and ask of it.
//!
//! ACP lets an agent read and write the host's files (`fs/*`) and run commands there (`terminal/*`), and lets a host be
//! told which command to run for a login. For a confined agent each of these is a way out, so none passes: not as an
//! advertised capability, not as a request, not as an authentication method. Default is refusal: what is not named here
//! does not reach the host. Names in objects are compared folded, as the laxest host would read them.

use crate::acp::bridge::edit::{Fate, edit, set};
use crate::acp::frame::{FrameError, array, folded, string};

/// What becomes of a method that an agent calls on its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// To the host, with the session's id rewritten.
    Session,
    /// To the host, where it names no session or its own.
    Bare,
    /// To the host, `params.requestId` being one of the agent's own requests.
    CancelRequest,
    /// Never to the host.
    Refused,
}

/// For a request.
pub(crate) fn agent_request(method: &str) -> Passage {
    match method {
        "session/request_permission" | "session/elicitation" => Passage::Session,
        _ if method.starts_with("elicitation/") => Passage::Session,
        _ => Passage::Refused,
    }
}

/// For a notification. Extensions (`_vendor/…`) pass where they name their session.
pub(crate) fn agent_notification(method: &str) -> Passage {
    match method {
        "elicitation/complete" => Passage::Bare,
        "$/cancel_request" => Passage::CancelRequest,
        _ if method.starts_with("session/") || method.starts_with('_') => Passage::Session,
        _ => Passage::Refused,
    }
}

/// Host methods of a session that this bridge does not offer yet, whatever the agent says.
pub(crate) fn withheld(method: &str) -> bool {
    matches!(method, "session/list" | "session/fork" | "session/delete" | "logout")
}

/// `_meta` members that tell a peer about terminals (`terminal_output`, `terminal-auth`), by their folded names.
fn is_terminal_hint(key: &str) -> bool {
    key.contains("terminal")
}

fn is_object(raw: &str) -> bool {
    raw.starts_with('{')
}

fn without_hints(meta: &str) -> Result<Fate, FrameError> {
    if !is_object(meta) {
        return Ok(Fate::Keep);
    }
    edit(meta, |key, _| Ok(if is_terminal_hint(key) { Fate::Drop } else { Fate::Keep }))
        .map(Fate::Become)
}

/// `clientCapabilities` without files, terminals and terminal logins.
pub(crate) fn client_capabilities(raw: &str) -> Result<String, FrameError> {
    edit(raw, |key, value| match key {
        "fs" | "terminal" => Ok(Fate::Drop),
        "auth" if is_object(value) => {
            edit(value, |key, _| Ok(if key == "terminal" { Fate::Drop } else { Fate::Keep }))
                .map(Fate::Become)
        }
        "_meta" => without_hints(value),
        _ => Ok(Fate::Keep),
    })
}

/// The params of `initialize` with stripped capabilities and hints.
pub(crate) fn initialize_params(raw: &str) -> Result<String, FrameError> {
    edit(raw, |key, value| match key {
        "clientcapabilities" if is_object(value) => client_capabilities(value).map(Fate::Become),
        "_meta" => without_hints(value),
        _ => Ok(Fate::Keep),
    })
}

/// The result of `initialize` as the host sees it.
///
/// `loadSession` is always true: the worker itself replays a session that lives, whatever the agent can; and where
/// the worker is dead and the agent cannot load, the load fails with an error that says so, upon which a host does what
/// it would have done without the capability (`session/new`), here in the same worktree. `session/close` is the
/// bridge's own. List, fork, delete and logout are not offered yet.
pub(crate) fn initialize_result(raw: &str) -> Result<String, FrameError> {
    let mut capabilities = "{}".to_owned();
    let stripped = edit(raw, |key, value| match key {
        "agentcapabilities" if is_object(value) => {
            capabilities = value.to_owned();
            Ok(Fate::Keep)
        }
        "authmethods" => auth_methods(value).map(Fate::Become),
        "_meta" => without_hints(value),
        _ => Ok(Fate::Keep),
    })?;
    set(&stripped, "agentCapabilities", &agent_capabilities(&capabilities)?)
}

fn agent_capabilities(raw: &str) -> Result<String, FrameError> {
    let mut session = "{}".to_owned();
    let capabilities = edit(raw, |key, value| match key {
        "sessioncapabilities" if is_object(value) => {
            session = edit(value, |key, _| {
                Ok(match key {
                    "list" | "fork" | "delete" => Fate::Drop,
                    _ => Fate::Keep,
                })
            })?;
            Ok(Fate::Keep)
        }
        "auth" if is_object(value) => {
            edit(value, |key, _| Ok(if key == "logout" { Fate::Drop } else { Fate::Keep }))
                .map(Fate::Become)
        }
        "_meta" => without_hints(value),
        _ => Ok(Fate::Keep),
    })?;
    let capabilities = set(&capabilities, "loadSession", "true")?;
    set(&capabilities, "sessionCapabilities", &set(&session, "close", "{}")?)
}

fn auth_methods(raw: &str) -> Result<String, FrameError> {
    let methods =
        array(raw).ok_or_else(|| FrameError::NotJson("authMethods is not a list".into()))?;
    let mut kept = Vec::with_capacity(methods.len());
    for method in methods {
        let mut terminal = false;
        let method = edit(method, |key, value| match key {
            "type" => {
                terminal = string(value).is_some_and(|kind| folded(&kind) == "terminal");
                Ok(Fate::Keep)
            }
            // The older spelling: `"terminal": {"command": …}` in place of a type.
            "terminal" => Ok(Fate::Drop),
            "_meta" => without_hints(value),
            _ => Ok(Fate::Keep),
        })?;
        if !terminal {
            kept.push(method);
        }
    }
    Ok(format!("[{}]", kept.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_files_and_terminals_stays_in_the_clients_capabilities() {
        let raw = r#"{"fs":{"readTextFile":true},"terminal":true,"auth":{"terminal":true,"x":1},
            "elicitation":{"form":{}},"_meta":{"terminal_output":true,"terminal-auth":true,"keep":1.0}}"#;
        assert_eq!(
            client_capabilities(raw).unwrap(),
            r#"{"auth":{"x":1},"elicitation":{"form":{}},"_meta":{"keep":1.0}}"#
        );
    }

    #[test]
    fn the_agents_result_offers_load_and_close_and_no_terminal_login() {
        let raw = r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"sessionCapabilities":
            {"list":{},"fork":{},"resume":{}},"auth":{"logout":{}}},"authMethods":[{"id":"a","name":"A"},
            {"id":"t","type":"terminal","args":["x"]},{"id":"m","_meta":{"terminal-auth":{"command":"sh"},"k":1}}]}"#;
        let out: serde_json::Value =
            serde_json::from_str(&initialize_result(raw).unwrap()).unwrap();
        let want = serde_json::json!({"protocolVersion":1,
            "agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{},"close":{}},"auth":{}},
            "authMethods":[{"id":"a","name":"A"},{"id":"m","_meta":{"k":1}}]});
        assert_eq!(out, want);
    }

    #[test]
    fn what_a_host_without_regard_to_case_would_read_is_stripped_too() {
        let raw = r#"{"AuthMethods":[{"id":"a","Terminal":{"command":"sh"}},{"id":"t","type":"Terminal"},{"id":"u","Type":"terminal"},
            {"id":"v","TYPE":"TERM\u0130NAL"}],"AgentCapabilities":{"ses\u017fionCapabilities":{"List":{},"x":1},"Auth":{"Logout":{}},
            "LoadSession":false},"_META":{"Terminal-Auth":1}}"#;
        let out: serde_json::Value =
            serde_json::from_str(&initialize_result(raw).unwrap()).unwrap();
        let want = serde_json::json!({"AuthMethods":[{"id":"a"}],
            "AgentCapabilities":{"ses\u{17f}ionCapabilities":{"x":1,"close":{}},"Auth":{},"LoadSession":true},"_META":{}});
        assert_eq!(out, want);
        let raw = r#"{"FS":{},"Terminal":true,"Auth":{"TERMINAL":1}}"#;
        assert_eq!(client_capabilities(raw).unwrap(), r#"{"Auth":{}}"#);
    }

    #[test]
    fn a_member_in_two_spellings_is_refused() {
        for raw in [
            r#"{"authMethods":[],"AuthMethods":[{"id":"t","type":"terminal"}]}"#,
            r#"{"agentCapabilities":{},"AgentCapabilities":{"auth":{"logout":{}}}}"#,
            r#"{"authMethods":[{"id":"t","type":"agent","Type":"terminal"}]}"#,
            r#"{"agentCapabilities":{"auth":{},"AUTH":{"logout":{}}}}"#,
        ] {
            let refused = initialize_result(raw);
            assert!(matches!(refused, Err(FrameError::Duplicate(_))), "{raw}: {refused:?}");
        }
    }

    #[test]
    fn an_agent_without_capabilities_gets_ours() {
        let out = initialize_result(r#"{"protocolVersion":1}"#).unwrap();
        assert_eq!(
            out,
            r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"close":{}}}}"#
        );
    }

    #[test]
    fn what_is_not_named_is_refused() {
        for method in
            ["fs/read_text_file", "fs/write_text_file", "terminal/create", "mcp/message", "x", ""]
        {
            assert_eq!(agent_request(method), Passage::Refused, "{method}");
            assert_eq!(agent_notification(method), Passage::Refused, "{method}");
        }
        // A request by extension method is a way to make the host do something; a notification is not.
        assert_eq!(agent_request("_zed/run"), Passage::Refused);
        assert_eq!(agent_request("session/request_permission"), Passage::Session);
    }
}
