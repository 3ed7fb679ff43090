//! What `casemate policy explain` answers, for people and for programs. Pure but for the links that `real` follows.

use std::fmt;
use std::path::Path;

use casemate_protocol::policy::decide::{self, Decision, Outcome, PathDecision, Setting, Way};
use casemate_protocol::policy::{Policy, SocketFamily};
use serde_json::{Map, Value, json};

use super::question::Question;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One for each right.
    Path { path: PathDecision, is_casemates: bool },
    /// One.
    One(Decision),
}

/// Asks the policy. The error is a system call that does not exist.
pub(crate) fn give(
    policy: &Policy,
    setting: &Setting,
    question: &Question,
    real: &dyn Fn(&str) -> String,
    casemate: &Path,
) -> Result<Answer, String> {
    let tcp = |way, family: Option<SocketFamily>, port| {
        let families =
            family.map_or(vec![SocketFamily::Inet, SocketFamily::Inet6], |one| vec![one]);
        let answers =
            families.into_iter().map(|family| decide::tcp(policy, setting, way, family, port));
        // A name may be reached over either family: the better answer counts.
        answers.min_by_key(|decision| match decision.outcome {
            Outcome::Allowed => 0,
            Outcome::Depends => 1,
            Outcome::Refused => 2,
        })
    };
    let decision = match question {
        Question::Path(asked) => {
            let path = decide::path(policy, setting, asked, real);
            let home = real(&casemate.to_string_lossy());
            let is_casemates = Path::new(&path.path).starts_with(home);
            return Ok(Answer::Path { path, is_casemates });
        }
        Question::Connect { family, port } => tcp(Way::Connect, *family, *port),
        Question::Bind { port } => tcp(Way::Bind, None, *port),
        Question::Syscall { name, arguments } => {
            if casemate_sandbox::syscall_number(name).is_none() {
                return Err(format!("this machine has no system call \"{name}\": see syscalls(2)"));
            }
            Some(decide::syscall(policy, setting, name, arguments))
        }
        Question::Socket { call, family, kind, protocol } => {
            let wanted = [Some(*family), Some(*kind), *protocol];
            Some(decide::socket(policy, setting, *call, wanted))
        }
        Question::Variable(name) => Some(decide::variable(policy, name)),
    };
    decision.map(Answer::One).ok_or_else(|| "no family was asked for".to_owned())
}

// === impl Answer ===

impl Answer {
    /// The fields of an object.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let value = match self {
            Self::One(decision) => json!(decision),
            Self::Path { path, is_casemates } => {
                json!({ "path": path.path, "access": path.access, "casemates_own": is_casemates })
            }
        };
        value.as_object().cloned().unwrap_or_default()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(decision) => write_decision(f, "", decision),
            Self::Path { path, is_casemates } => {
                writeln!(f, "{}", path.path)?;
                if *is_casemates {
                    writeln!(
                        f,
                        "casemate's own: a policy that grants it is refused, but for the session's own directories"
                    )?;
                }
                path.access.iter().try_for_each(|one| {
                    write_decision(f, &format!("{:<8} ", one.access.to_string()), &one.decision)
                })
            }
        }
    }
}

fn write_decision(f: &mut fmt::Formatter<'_>, head: &str, decision: &Decision) -> fmt::Result {
    let outcome = match decision.outcome {
        Outcome::Allowed => "allowed",
        Outcome::Refused => "refused",
        Outcome::Depends => "depends",
    };
    write!(f, "{head}{outcome}")?;
    if let Some(errno) = decision.errno {
        write!(f, ", {errno}")?;
    }
    if let Some(rule) = &decision.rule {
        write!(f, ": line {}, {}: {}", rule.line, rule.what, rule.reason)?;
    }
    writeln!(f)?;
    decision.notes.iter().try_for_each(|note| writeln!(f, "         {note}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::policy::DEVELOPER;

    fn ask(words: &str) -> Result<String, String> {
        let policy = Policy::parse(DEVELOPER).unwrap();
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let question = Question::parse(&words).unwrap();
        let setting = Setting::symbolic(&policy);
        give(&policy, &setting, &question, &str::to_owned, Path::new("/var/casemate"))
            .map(|answer| answer.to_string())
    }

    #[test]
    fn the_rule_its_line_reason_and_errno_are_named() {
        let line = |part: &str| {
            let at = DEVELOPER.find(part).unwrap();
            DEVELOPER[..DEVELOPER[..at].rfind("[[").unwrap()].lines().count() + 1
        };
        let passwd = ask("/etc/passwd").unwrap();
        let etc = line("path = \"/etc\"");
        let read = format!("read     allowed: line {etc}, [[path]] /etc (read): users, hosts");
        assert!(passwd.contains(&read), "{passwd}");
        let write = format!("write    refused, EACCES: line {etc}, [[path]] /etc (read)");
        assert!(passwd.contains(&write), "{passwd}");
        let web = ask("connect example.org:443").unwrap();
        let https = line("connect = [80, 443]");
        assert!(
            web.starts_with(&format!("allowed: line {https}, [[tcp]] connect 443: model")),
            "{web}"
        );
        assert!(ask("connect 22").unwrap().starts_with("depends, EACCES: line"));
        let trace = ask("syscall ptrace").unwrap();
        assert!(
            trace.starts_with(&format!("refused, EPERM: line {}", line("\"ptrace\""))),
            "{trace}"
        );
        assert!(ask("socket inet dgram udp").unwrap().starts_with("refused, EACCES: line"));
        assert!(ask("env AWS_SECRET_ACCESS_KEY").unwrap().starts_with("refused\n"));
    }

    #[test]
    fn casemates_own_home_and_unknown_calls_are_said() {
        assert!(ask("/var/casemate/run/key").unwrap().contains("casemate's own"));
        assert!(!ask("/var/casemates").unwrap().contains("casemate's own"));
        assert!(ask("syscall opeen").unwrap_err().contains("no system call \"opeen\""));
    }
}
