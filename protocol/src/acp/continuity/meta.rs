//! The outcome in an agent's answer: `_meta.casemate.continuity` of a result, `data.casemate.continuity` of an error.

use super::Outcome;
use crate::acp::frame;
use crate::codes::rpc;

/// An agent's result (raw JSON, an object or null) with the outcome. Its other members stay as they are, those of its
/// `_meta` as well; what it says in casemate's name does not.
#[must_use]
pub fn result(result: &str, outcome: Outcome) -> String {
    let members = frame::object(result).unwrap_or_default();
    let meta: Vec<&str> =
        members.iter().filter(|(name, _)| name == "_meta").map(|(_, raw)| *raw).collect();
    let ours = with(meta.first().copied().unwrap_or("{}"), outcome);
    if meta.is_empty() {
        // Anything but an object is an agent's way to say nothing.
        let Some(rest) = result.trim_start().strip_prefix('{') else {
            return format!(r#"{{"_meta":{ours}}}"#);
        };
        let comma = if members.is_empty() { "" } else { "," };
        return format!(r#"{{"_meta":{ours}{comma}{rest}"#);
    }
    let mut out = String::with_capacity(result.len() + ours.len());
    let mut at = 0;
    // Where it comes twice, all say the same.
    for raw in meta {
        let start = raw.as_ptr() as usize - result.as_ptr() as usize;
        out.push_str(&result[at..start]);
        out.push_str(&ours);
        at = start + raw.len();
    }
    out.push_str(&result[at..]);
    out
}

/// An agent's error (raw JSON) that says the conversation is unknown, as ACP wants it: its code -32002, its words kept.
#[must_use]
pub fn unknown(error: &str) -> String {
    let message = frame::member(error, &["message"]).unwrap_or("\"unknown conversation\"");
    let data = with(frame::member(error, &["data"]).unwrap_or("{}"), Outcome::Reset);
    format!(r#"{{"code":{},"message":{message},"data":{data}}}"#, rpc::NOT_FOUND)
}

/// `object` with `casemate.continuity`; what is no object is replaced.
fn with(object: &str, outcome: Outcome) -> String {
    let mut out = format!(r#"{{"casemate":{{"continuity":"{outcome}"}}"#);
    for (name, raw) in frame::object(object).unwrap_or_default() {
        if name != "casemate" {
            out.push(',');
            out.push_str(&serde_json::Value::from(&*name).to_string());
            out.push(':');
            out.push_str(raw);
        }
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_keeps_all_that_is_the_agents() {
        for (before, after) in [
            ("null", r#"{"_meta":{"casemate":{"continuity":"reloaded"}}}"#),
            ("{}", r#"{"_meta":{"casemate":{"continuity":"reloaded"}}}"#),
            (
                r#"{ "modes":{"a":1.0e0}}"#,
                r#"{"_meta":{"casemate":{"continuity":"reloaded"}}, "modes":{"a":1.0e0}}"#,
            ),
            (
                r#"{"x":1, "_meta" : {"own":-0.0},"y":2}"#,
                r#"{"x":1, "_meta" : {"casemate":{"continuity":"reloaded"},"own":-0.0},"y":2}"#,
            ),
            (
                r#"{"_meta":null,"y":2}"#,
                r#"{"_meta":{"casemate":{"continuity":"reloaded"}},"y":2}"#,
            ),
        ] {
            assert_eq!(result(before, Outcome::Reloaded), after);
        }
    }

    #[test]
    fn an_agent_does_not_speak_in_casemates_name() {
        let lie =
            r#"{"\u005fmeta":{"casemate":{"continuity":"reloaded"}},"_meta":{"c":1,"casemate":1}}"#;
        let told = result(lie, Outcome::Reset);
        assert!(!told.contains("reloaded"), "{told}");
        assert_eq!(told.matches(r#""continuity":"reset""#).count(), 2, "{told}");
    }

    #[test]
    fn an_unknown_conversation_has_acps_code_and_the_agents_words() {
        assert_eq!(
            unknown(r#"{"code":-32603,"message":"M\u00e9","data":{"service":"session"}}"#),
            r#"{"code":-32002,"message":"M\u00e9","data":{"casemate":{"continuity":"reset"},"service":"session"}}"#
        );
        assert_eq!(
            unknown(r#"{"code":-32002,"message":"m"}"#),
            r#"{"code":-32002,"message":"m","data":{"casemate":{"continuity":"reset"}}}"#
        );
    }
}
