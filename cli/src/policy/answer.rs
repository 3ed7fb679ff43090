//! What `casemate policy explain` answers, for people and for programs. Pure but for the links that `real` follows.

use std::fmt;
use std::path::Path;

use casemate_protocol::policy::decide::{
    self, Decision, Outcome, PathDecision, Setting, Transport, Way,
};
use casemate_protocol::policy::{Policy, SocketFamily, secrets};
use serde_json::{Map, Value, json};

use super::question::Question;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One for each right.
    Path { path: PathDecision, is_casemates: bool, is_secret: bool },
    /// Both have to allow it.
    Connect { port: Decision, host: Decision },
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
    let port_of = |transport: Transport, way, family: Option<SocketFamily>, port| {
        let families =
            family.map_or(vec![SocketFamily::Inet, SocketFamily::Inet6], |one| vec![one]);
        // A name may be reached over either family: the better answer counts.
        families
            .into_iter()
            .map(|family| decide::port(policy, setting, transport, way, family, port))
            .min_by_key(badness)
    };
    let decision = match question {
        Question::Path(asked) => {
            let path = decide::path(policy, setting, asked, real);
            let home = real(&casemate.to_string_lossy());
            let is_casemates = Path::new(&path.path).starts_with(home);
            let is_secret = secrets::holding(Path::new(&path.path)).is_some();
            return Ok(Answer::Path { path, is_casemates, is_secret });
        }
        Question::Connect { transport, host, family, port } => {
            let by_port = port_of(*transport, Way::Connect, *family, *port);
            let Some((host, by_port)) = host.as_ref().zip(by_port.as_ref()) else {
                return by_port
                    .map(Answer::One)
                    .ok_or_else(|| "no family was asked for".to_owned());
            };
            let host = decide::host(policy, host, *port);
            return Ok(Answer::Connect { port: by_port.clone(), host });
        }
        Question::Bind { transport, port } => port_of(*transport, Way::Bind, None, *port),
        Question::Scope(kind) => Some(decide::scope(policy, *kind)),
        Question::Limit(resource) => Some(decide::limit(policy, *resource)),
        Question::Bound(bound) => Some(decide::bound(policy, *bound)),
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

fn badness(decision: &Decision) -> u8 {
    match decision.outcome {
        Outcome::Allowed => 0,
        Outcome::Depends => 1,
        Outcome::Refused => 2,
    }
}

// === impl Answer ===

impl Answer {
    /// The fields of an object.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let value = match self {
            Self::One(decision) => json!(decision),
            // The outcome of both, and each by itself.
            Self::Connect { port, host } => {
                let worse = if badness(host) > badness(port) { host } else { port };
                json!({ "outcome": worse.outcome, "port": port, "host": host })
            }
            Self::Path { path, is_casemates, is_secret } => json!({
                "path": path.path, "access": path.access, "casemates_own": is_casemates, "secret": is_secret,
            }),
        };
        value.as_object().cloned().unwrap_or_default()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(decision) => write_decision(f, "", decision),
            Self::Connect { port, host } => {
                write_decision(f, "port     ", port)?;
                write_decision(f, "host     ", host)
            }
            Self::Path { path, is_casemates, is_secret: _ } => {
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
        let port = format!("port     allowed: line {https}, [[tcp]] connect 443: model");
        assert!(web.starts_with(&port), "{web}");
        let egress = DEVELOPER[..DEVELOPER.find("[egress]").unwrap()].lines().count() + 1;
        let host = format!("host     allowed: line {egress}, [egress] mode open: which hosts");
        assert!(web.contains(&host), "{web}");
        assert!(ask("connect 22").unwrap().starts_with("depends, EACCES: line"));
        let trace = ask("syscall ptrace").unwrap();
        assert!(
            trace.starts_with(&format!("refused, EPERM: line {}", line("\"ptrace\""))),
            "{trace}"
        );
        assert!(ask("socket inet dgram udp").unwrap().starts_with("refused, EACCES: line"));
        assert!(ask("connect a.example:53/udp").unwrap().contains("no udp socket of family inet"));
        let signal = ask("signal").unwrap();
        let scope = line("kind = \"signal\"");
        let refused = format!("refused, EPERM: line {scope}, [[scope]] signal: no signal leaves");
        assert!(signal.starts_with(&refused), "{signal}");
        assert!(ask("abstract-socket").unwrap().starts_with("refused, EPERM: line"));
        let files = ask("rlimit nofile").unwrap();
        let nofile = line("resource = \"nofile\"");
        assert!(
            files.starts_with(&format!("allowed: line {nofile}, [[rlimit]] nofile")),
            "{files}"
        );
        assert!(files.contains("soft limit 1024, hard limit 65536"), "{files}");
        let disk = ask("bound disk").unwrap();
        let bounds = DEVELOPER[..DEVELOPER.find("[bounds]").unwrap()].lines().count();
        assert!(disk.contains("[bounds] disk: a build,") && disk.contains("up to 64GiB"), "{disk}");
        assert!(disk.starts_with(&format!("allowed: line {}", bounds + 1)), "{disk} {bounds}");
        assert!(ask("env AWS_SECRET_ACCESS_KEY").unwrap().starts_with("refused\n"));
    }

    #[test]
    fn of_port_and_host_the_stricter_answer_counts() {
        let open =
            Decision { outcome: Outcome::Allowed, rule: None, errno: None, notes: Vec::new() };
        let closed = Decision { outcome: Outcome::Refused, ..open.clone() };
        for (port, host) in [(&open, &closed), (&closed, &open)] {
            let answer = Answer::Connect { port: port.clone(), host: host.clone() }.to_json();
            assert_eq!(answer["outcome"], "refused");
        }
        let both = Answer::Connect { port: open.clone(), host: open };
        assert_eq!(both.to_json()["outcome"], "allowed");
    }

    #[test]
    fn casemates_own_home_and_unknown_calls_are_said() {
        assert!(ask("/var/casemate/run/key").unwrap().contains("casemate's own"));
        assert!(!ask("/var/casemates").unwrap().contains("casemate's own"));
        let token = ask("/run/secrets/token").unwrap();
        let refused = "refused, EACCES\n         keys and tokens are mounted in /run/secrets: no policy grants them\n";
        assert_eq!(token.matches(refused).count(), 4, "{token}");
        assert!(!token.contains("allowed") && !token.contains("granted where"), "{token}");
        let first = ask("/proc/1/environ").unwrap();
        assert!(
            first.contains("read     depends, EACCES") && first.contains("of any other, pid 1"),
            "{first}"
        );
        assert!(ask("/proc/1/status").unwrap().contains("read     allowed"));
        assert!(ask("syscall opeen").unwrap_err().contains("no system call \"opeen\""));
    }
}
