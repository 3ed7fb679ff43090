//! What a request means: a command line, an environment and the places where the program may be. Pure.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use casemate_protocol::exec::{ExecEnd, ExecRequest, TerminalSize};

use crate::environment::DEFAULT_PATH;

/// A checked request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: PathBuf,
    /// Where the program may be, in the order in which execvp(3) would try.
    pub(super) candidates: Vec<PathBuf>,
    pub(super) tty: Option<TerminalSize>,
    pub(super) timeout: Option<Duration>,
}

/// Checks a request. `env` is the agent's environment, `work` the worktree.
pub(super) fn read(text: &str, env: &[CString], work: &Path) -> Result<Wanted, ExecEnd> {
    let request: ExecRequest =
        serde_json::from_str(text).map_err(|error| refused(error.to_string()))?;
    let Some(name) = request.argv.first().filter(|name| !name.is_empty()) else {
        return Err(refused("argv is empty: name a program"));
    };
    if request.timeout_ms == Some(0) {
        return Err(refused("timeout_ms is 0: leave it out for a command that may run for ever"));
    }
    let env = environment(env, &request)?;
    let path = variable(&env, "PATH").unwrap_or_else(|| DEFAULT_PATH.to_owned());
    let cwd = work.join(request.cwd.as_deref().unwrap_or(Path::new("")));
    let argv = request
        .argv
        .iter()
        .map(|word| CString::new(word.as_str()).map_err(|_| refused("argv holds a NUL byte")))
        .collect::<Result<_, _>>()?;
    Ok(Wanted {
        argv,
        candidates: candidates(name, &path, &cwd),
        env,
        cwd,
        tty: request.tty,
        timeout: request.timeout_ms.map(Duration::from_millis),
    })
}

fn refused(message: impl Into<String>) -> ExecEnd {
    ExecEnd::Refused { message: message.into() }
}

/// The agent's variables, then the request's.
fn environment(agents: &[CString], request: &ExecRequest) -> Result<Vec<CString>, ExecEnd> {
    let mut all: Vec<CString> = agents
        .iter()
        .filter(|entry| !request.env.keys().any(|name| is_of(entry, name)))
        .cloned()
        .collect();
    for (name, value) in &request.env {
        if name.is_empty() || name.contains('=') {
            return Err(refused(format!("env: `{name}` is not a variable's name")));
        }
        if name.starts_with("CASEMATE_") {
            return Err(refused(format!("env: {name} is the session's own; choose another name")));
        }
        let entry = CString::new(format!("{name}={value}"))
            .map_err(|_| refused(format!("env: {name} holds a NUL byte")))?;
        all.push(entry);
    }
    Ok(all)
}

fn is_of(entry: &CString, name: &str) -> bool {
    entry.as_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
}

fn variable(env: &[CString], name: &str) -> Option<String> {
    let entry = env.iter().find(|entry| is_of(entry, name))?;
    Some(entry.to_str().ok()?.get(name.len() + 1..)?.to_owned())
}

/// An empty element of PATH means the working directory (execvp(3)); a person's `ls` is not to be the agent's.
fn candidates(name: &str, path: &str, cwd: &Path) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![cwd.join(name)];
    }
    path.split(':')
        .filter(|place| !place.is_empty())
        .map(|place| cwd.join(place).join(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents() -> Vec<CString> {
        [c"PATH=/usr/bin::/bin", c"HOME=/h", c"CASEMATE_SESSION=s"].map(CString::from).to_vec()
    }

    fn asked(text: &str) -> Result<Wanted, ExecEnd> {
        read(text, &agents(), Path::new("/work"))
    }

    #[test]
    fn a_program_is_looked_for_in_the_sessions_path_and_never_in_an_empty_element() {
        let wanted = asked(r#"{"argv":["ls","-l"],"cwd":"sub"}"#).unwrap();
        assert_eq!(wanted.candidates, ["/usr/bin/ls", "/bin/ls"].map(PathBuf::from));
        assert_eq!(wanted.cwd, Path::new("/work/sub"));
        let own = asked(r#"{"argv":["./x"],"cwd":"sub"}"#).unwrap();
        assert_eq!(own.candidates, [PathBuf::from("/work/sub/./x")]);
        let other = asked(r#"{"argv":["ls"],"env":{"PATH":"/opt"}}"#).unwrap();
        assert_eq!(other.candidates, [PathBuf::from("/opt/ls")]);
    }

    #[test]
    fn variables_replace_the_agents_but_not_ours() {
        let wanted = asked(r#"{"argv":["a"],"env":{"HOME":"/x","B":"1=2"}}"#).unwrap();
        let expected = [c"PATH=/usr/bin::/bin", c"CASEMATE_SESSION=s", c"B=1=2", c"HOME=/x"];
        assert_eq!(wanted.env, expected.map(CString::from));
        for wrong in [
            r#"{"argv":["a"],"env":{"CASEMATE_SESSION":"forged"}}"#,
            r#"{"argv":["a"],"env":{"A=B":"x"}}"#,
            r#"{"argv":["a"],"env":{"":"x"}}"#,
            r#"{"argv":["a\u0000b"]}"#,
            r#"{"argv":["a"],"env":{"A":"\u0000"}}"#,
            r#"{"argv":[]}"#,
            r#"{"argv":[""]}"#,
            r#"{"argv":["a"],"timeout_ms":0}"#,
            r#"{"argv":["a"],"privileged":true}"#,
            "nonsense",
        ] {
            assert!(matches!(asked(wrong), Err(ExecEnd::Refused { .. })), "{wrong}");
        }
    }
}
