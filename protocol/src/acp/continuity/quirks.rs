//! Where real agents differ from ACP: a row a quirk, each held against the agent itself by `conformance/suite`.
//!
//! Not here is what no rule needs to know an agent's name for. A load of a conversation that lives is never an agent's to answer
//! (copilot refuses it, codex-acp 2.6.0 shows a part), `session/resume` is never asked of one that can load (qwen-code 0.15.10
//! offers it and has it not), and an agent that accepts an id that it does not know (qwen-code 0.15.10) shows no prompts.

use crate::acp::frame;
use crate::codes::rpc;

/// An agent as it names itself in `agentInfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A load of a conversation that the agent does not know is answered with another code than ACP's -32002.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    /// `agentInfo.name`.
    pub name: &'static str,
    /// The first part of `agentInfo.version`: the line in which it was measured.
    pub line: &'static str,
    /// The version in which it was measured.
    pub measured: &'static str,
    /// The code.
    pub code: i64,
    /// Where in the error it says what the matter is.
    pub at: [&'static str; 2],
    /// How that begins.
    pub says: &'static str,
}

/// All rows. The code is JSON-RPC's for any internal error, so each needs the words as well.
pub const UNKNOWN: [Unknown; 4] = [
    Unknown {
        name: "OpenCode",
        line: "1",
        measured: "1.18.33",
        code: rpc::INTERNAL,
        at: ["data", "service"],
        says: "session",
    },
    Unknown {
        name: "@agentclientprotocol/codex-acp",
        line: "2",
        measured: "2.6.0",
        code: rpc::INTERNAL,
        at: ["data", "details"],
        says: "no rollout found for thread id",
    },
    // Where it has others, and where it has none; it says the latter as well of one that was begun in the same minute of the
    // clock by a process before, and takes that away.
    Unknown {
        name: "gemini-cli",
        line: "0",
        measured: "0.61.0",
        code: rpc::INTERNAL,
        at: ["data", "details"],
        says: "Invalid session identifier",
    },
    Unknown {
        name: "gemini-cli",
        line: "0",
        measured: "0.61.0",
        code: rpc::INTERNAL,
        at: ["data", "details"],
        says: "No previous sessions found for this project",
    },
];

/// Agents that answer a load before they have shown what they loaded: name, first part of the version, version in which it was measured.
pub const EARLY: [(&str, &str, &str); 1] = [("gemini-cli", "0", "0.61.0")];

impl AgentInfo {
    fn is_of(&self, name: &str, line: &str) -> bool {
        self.name == name && self.version.split('.').next() == Some(line)
    }
}

/// Whether the agent's answer to a load may come before its replay has ended.
#[must_use]
pub fn answers_early(agent: &AgentInfo) -> bool {
    EARLY.iter().any(|(name, line, _)| agent.is_of(name, line))
}

/// Whether an agent's error to a load (raw JSON) says that it does not know the conversation, as against one that it may load
/// another time.
#[must_use]
pub fn says_unknown(agent: &AgentInfo, error: &str) -> bool {
    let code = frame::member(error, &["code"]).and_then(|raw| raw.parse().ok());
    code == Some(rpc::NOT_FOUND)
        || UNKNOWN.iter().any(|row| {
            let says = frame::member(error, &row.at).and_then(frame::string);
            agent.is_of(row.name, row.line)
                && code == Some(row.code)
                && says.is_some_and(|says| says.starts_with(row.says))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, version: &str) -> AgentInfo {
        AgentInfo { name: name.into(), version: version.into() }
    }

    #[test]
    fn acps_own_code_needs_no_row() {
        assert!(says_unknown(&AgentInfo::default(), r#"{"code":-32002,"message":"m"}"#));
        assert!(!says_unknown(&AgentInfo::default(), r#"{"code":-32000,"message":"m"}"#));
        assert!(!says_unknown(&AgentInfo::default(), "{}"));
    }

    #[test]
    fn a_row_holds_for_its_agents_line_and_words_alone() {
        let codex = r#"{"code":-32603,"message":"Internal error","data":{"details":"no rollout found for thread id x"}}"#;
        let gemini =
            r#"{"code":-32603,"data":{"details":"No previous sessions found for this project."}}"#;
        let other = r#"{"code":-32603,"data":{"details":"Invalid session identifier \"x\"."}}"#;
        let opencode = r#"{"code":-32603,"message":"m","data":{"service":"session"}}"#;
        let name = "@agentclientprotocol/codex-acp";
        for (agent, error, expected) in [
            (agent(name, "2.6.0"), codex, true),
            (agent(name, "2.7.1"), codex, true),
            (agent(name, "3.0.0"), codex, false),
            (agent(name, "20.0.0"), codex, false),
            (agent("codex-acp", "2.6.0"), codex, false),
            (agent(name, "2.6.0"), opencode, false),
            (agent(name, "2.6.0"), r#"{"code":-32603,"data":{"details":"disk full"}}"#, false),
            (agent(name, "2.6.0"), &codex.replace("-32603", "-32000"), false),
            (agent("gemini-cli", "0.61.0"), gemini, true),
            (agent("gemini-cli", "0.61.0"), other, true),
            (agent("gemini-cli", "0.61.0"), codex, false),
            (agent("OpenCode", "1.18.33"), opencode, true),
            (agent("OpenCode", "1.18.33"), r#"{"code":-32603,"data":"session"}"#, false),
        ] {
            assert_eq!(says_unknown(&agent, error), expected, "{agent:?} {error}");
        }
    }
}
