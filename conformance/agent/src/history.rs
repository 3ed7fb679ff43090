//! What was said, kept below `HOME`, so that `session/load` works in a later process.
//!
//! One file a session: a line is one `update` object as it was sent. Appended before it is sent, so a replay never
//! shows less than the client saw.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use serde_json::Value;

/// The directory of all sessions' histories.
#[derive(Debug, Clone)]
pub(crate) struct History {
    dir: PathBuf,
}

// === impl History ===

impl History {
    /// Below the environment's `HOME`, else below the working directory.
    pub(crate) fn below_home() -> Self {
        let home = std::env::var_os("HOME").unwrap_or_else(|| ".".into());
        Self { dir: PathBuf::from(home).join(".casemate-scripted-agent") }
    }

    /// `None` for a name that is not one of ours: it must not become a path.
    fn path(&self, session: &str) -> Option<PathBuf> {
        let plain = !session.is_empty()
            && session.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        plain.then(|| self.dir.join(format!("{session}.jsonl")))
    }

    pub(crate) fn create(&self, session: &str) -> io::Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let path = self.path(session).ok_or(io::ErrorKind::InvalidInput)?;
        File::create_new(path).map(drop)
    }

    pub(crate) fn exists(&self, session: &str) -> bool {
        self.path(session).is_some_and(|path| path.is_file())
    }

    pub(crate) fn append(&self, session: &str, update: &Value) -> io::Result<()> {
        let path = self.path(session).ok_or(io::ErrorKind::InvalidInput)?;
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.write_all(format!("{update}\n").as_bytes())
    }

    /// All updates, oldest first. A line cut short by a kill is left out.
    pub(crate) fn read(&self, session: &str) -> io::Result<Vec<Value>> {
        let path = self.path(session).ok_or(io::ErrorKind::InvalidInput)?;
        let lines = BufReader::new(File::open(path)?).lines();
        lines
            .map(|line| Ok(serde_json::from_str(&line?).ok()))
            .filter_map(Result::transpose)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_cannot_name_a_file_elsewhere() {
        let history = History { dir: PathBuf::from("/h") };
        assert_eq!(history.path("a-1"), Some(PathBuf::from("/h/a-1.jsonl")));
        for id in ["", "../x", "a/b", "a.b"] {
            assert_eq!(history.path(id), None, "{id}");
        }
    }
}
