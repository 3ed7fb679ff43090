//! One attempt and what the kernel answered.

use std::io::{self, Write};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// [`Attempt::outcome`] where the kernel let it happen.
pub const SUCCEEDED: &str = "succeeded";

/// One line of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was tried (`open for reading`).
    pub attack: String,
    /// On what.
    pub target: String,
    /// The errno's name (`EACCES`), [`SUCCEEDED`], or a word of the verb's own (`nothing found`).
    pub outcome: String,
    /// More, for people; empty where there is no more to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// Where attempts go.
pub(crate) struct Report<'a> {
    out: &'a mut dyn Write,
}

/// The errno's name.
pub(crate) fn name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("{:?}", Errno::from_raw(number)),
        None => format!("{:?}", error.kind()),
    }
}

// === impl Report ===

impl<'a> Report<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self { out }
    }

    pub(crate) fn say(&mut self, attack: &str, target: &str, outcome: &str, detail: &str) {
        let attempt = Attempt {
            attack: attack.into(),
            target: target.into(),
            outcome: outcome.into(),
            detail: detail.into(),
        };
        if let Ok(line) = serde_json::to_string(&attempt) {
            // Nobody reads any more: there is nobody to tell.
            let _ = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        }
    }

    /// Says what came of it; true where it succeeded.
    pub(crate) fn result<T>(
        &mut self,
        attack: &str,
        target: &str,
        result: Result<T, impl Into<io::Error>>,
    ) -> bool {
        match result {
            Ok(_) => self.say(attack, target, SUCCEEDED, ""),
            Err(error) => {
                let error = error.into();
                self.say(attack, target, &name(&error), "");
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_keeps_its_name() {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out);
        assert!(!report.result("open", "/x", Err::<(), _>(io::Error::from_raw_os_error(13))));
        assert!(report.result("open", "/y", Ok::<_, io::Error>(())));
        let lines: Vec<Attempt> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0].outcome, "EACCES");
        assert_eq!(lines[1].outcome, SUCCEEDED);
    }
}
