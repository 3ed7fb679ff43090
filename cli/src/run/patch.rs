//! The session's work as a patch, made by git inside the session.

use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;
use hyper::{Method, StatusCode};
use tempfile::NamedTempFile;

use crate::client::Client;
use crate::failure::Failure;
use crate::printable;

/// A patch against the commit that the session began with, new files included.
#[derive(Debug)]
pub(crate) struct Patch(Vec<u8>);

/// Where a patch goes.
#[derive(Debug)]
pub(crate) struct Target {
    option: &'static str,
    file: PathBuf,
    /// A file of that name is replaced.
    replace: bool,
}

/// How one file changed.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    file: String,
    added: usize,
    removed: usize,
    binary: bool,
}

// === impl Patch ===

impl Patch {
    /// Asks the worker.
    pub(crate) async fn of(worker: &Client) -> Result<Self, Failure> {
        let (status, body) = worker.call(Method::GET, "/v1/patch", None).await?;
        if status == StatusCode::OK {
            return Ok(Self(body.to_vec()));
        }
        let why = printable::line(String::from_utf8_lossy(&body).trim());
        // What the worker said is final; that it is ending is not.
        let code = match status {
            StatusCode::SERVICE_UNAVAILABLE => exit::UNAVAILABLE,
            _ => exit::FAILED,
        };
        Err(Failure::new(code, format!("no patch of the work: {why}")))
    }

    /// Nothing changed.
    pub(super) fn is_empty(&self) -> bool {
        changes(&self.0).is_empty()
    }

    /// What the worker could not put into it, in its words: lines ahead of the first file.
    pub(super) fn left_out(&self) -> Vec<String> {
        let ahead = self.0.split(|byte| *byte == b'\n');
        let ahead = ahead.map_while(|line| line.strip_prefix(b"# left out: "));
        ahead.map(|line| printable::line(&String::from_utf8_lossy(line))).collect()
    }

    /// One that was made without a worker.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// In words, one line a file.
    pub(crate) fn summary(&self) -> String {
        let changes = changes(&self.0);
        if changes.is_empty() {
            return "nothing changed in the worktree".into();
        }
        let lines = changes.iter().map(|change| {
            let file = printable::line(&change.file);
            match change {
                Change { binary: true, .. } => format!("\n  {file} binary"),
                Change { added, removed, .. } => format!("\n  {file} +{added} -{removed}"),
            }
        });
        let files = if changes.len() == 1 {
            "1 file changed:".into()
        } else {
            format!("{} files changed:", changes.len())
        };
        files + &lines.collect::<String>()
    }

    /// The patch itself.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

// === impl Target ===

impl Target {
    /// Before hours of work: is it free, and can it be written at all? `option`: the one that names it.
    pub(crate) fn check(
        option: &'static str,
        file: PathBuf,
        replace: bool,
    ) -> Result<Self, Failure> {
        // A signal, a `cd` of nobody's: the name means the same at the end as at the start.
        let file = std::path::absolute(&file).map_err(|error| {
            Failure::because(exit::USAGE, format!("{option} {}", file.display()), &error)
        })?;
        let target = Self { option, file, replace };
        if target.file.is_dir() {
            let text = format!("{}: is a directory; name a file", target.file.display());
            return Err(Failure::new(exit::CANNOT_CREATE, text));
        }
        if !replace && target.file.symlink_metadata().is_ok() {
            return Err(target.taken());
        }
        target.temporary().map(drop)?;
        Ok(target)
    }

    /// Where it is.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Writes the patch, whole or not at all.
    pub(crate) fn save(&self, patch: &Patch) -> Result<(), Failure> {
        let mut temporary = self.temporary()?;
        temporary.write_all(&patch.0).map_err(|error| self.failed(&error))?;
        let written = match self.replace {
            true => temporary.persist(&self.file),
            false => temporary.persist_noclobber(&self.file),
        };
        written.map(drop).map_err(|error| match error.error.kind() {
            ErrorKind::AlreadyExists => self.taken(),
            _ => self.failed(&error.error),
        })
    }

    fn temporary(&self) -> Result<NamedTempFile, Failure> {
        // An absolute path that is no directory has a parent.
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        NamedTempFile::new_in(directory).map_err(|error| self.failed(&error))
    }

    fn taken(&self) -> Failure {
        let text = format!(
            "{} {}: exists; name another file or add --force",
            self.option,
            self.file.display()
        );
        Failure::new(exit::CANNOT_CREATE, text)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let text = format!("cannot write {}", self.file.display());
        Failure::because(exit::CANNOT_CREATE, text, error)
    }
}

/// Counts by file. Lines of a hunk begin with a sign, so a line of content cannot look like the head of a file.
fn changes(patch: &[u8]) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let mut hunk = (0usize, 0usize);
    for line in patch.split(|byte| *byte == b'\n') {
        let Some(change) = changes.last_mut().filter(|_| hunk != (0, 0)) else {
            if let Some(names) = line.strip_prefix(b"diff --git ") {
                let names = String::from_utf8_lossy(names);
                let file = names.rsplit_once(" b/").map_or(&*names, |(_, file)| file).to_owned();
                changes.push(Change { file, added: 0, removed: 0, binary: false });
            } else if line == b"GIT binary patch" {
                if let Some(change) = changes.last_mut() {
                    change.binary = true;
                }
            } else if let Some(head) = line.strip_prefix(b"@@ -") {
                hunk = lengths(&String::from_utf8_lossy(head));
            }
            continue;
        };
        match line.first() {
            Some(b'+') => {
                change.added += 1;
                hunk.1 = hunk.1.saturating_sub(1);
            }
            Some(b'-') => {
                change.removed += 1;
                hunk.0 = hunk.0.saturating_sub(1);
            }
            Some(b'\\') => {}
            _ => hunk = (hunk.0.saturating_sub(1), hunk.1.saturating_sub(1)),
        }
    }
    changes
}

/// `1,7 +1,8 @@ …`: how many old and new lines follow.
fn lengths(head: &str) -> (usize, usize) {
    let length = |range: &str| match range.split_once(',') {
        Some((_, length)) => length.parse().unwrap_or(0),
        None => 1,
    };
    let mut parts = head.split(' ');
    let old = parts.next().map_or(0, length);
    let new = parts.next().map_or(0, length);
    (old, new)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_counted_and_content_that_looks_like_a_head_is_not() {
        let patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n a\n-b\n+diff --git a/y b/y\n+@@ -1 +1 @@\ndiff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+hi\n\\ No newline at end of file\n";
        let change = |file: &str, added, removed| Change {
            file: file.into(),
            added,
            removed,
            binary: false,
        };
        assert_eq!(changes(patch), [change("x", 2, 1), change("n", 1, 0)]);
        assert_eq!(Patch(patch.to_vec()).summary(), "2 files changed:\n  x +2 -1\n  n +1 -0");
        let binary = b"diff --git a/b b/b\nindex 1..2\nGIT binary patch\nliteral 1\n+x\n\n";
        assert_eq!(Patch(binary.to_vec()).summary(), "1 file changed:\n  b binary");
        assert_eq!(Patch(Vec::new()).summary(), "nothing changed in the worktree");
    }

    #[test]
    fn what_was_left_out_is_told_and_is_no_change() {
        let only = Patch(b"# left out: n is a Git repository of its own\n".to_vec());
        assert!(only.is_empty());
        assert_eq!(only.left_out(), ["n is a Git repository of its own"]);
        // Content is no word of the worker's.
        let file = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+# left out: y\n";
        assert!(Patch(file.to_vec()).left_out().is_empty());
    }

    #[test]
    fn a_target_that_cannot_be_written_is_found_early() {
        let directory = tempfile::tempdir().unwrap();
        let check = |file: &Path| Target::check("--output", file.to_owned(), true);
        assert!(check(&directory.path().join("a.patch")).is_ok());
        assert_eq!(check(directory.path()).unwrap_err().code(), exit::CANNOT_CREATE);
        assert_eq!(check(Path::new("/no/such/a.patch")).unwrap_err().code(), exit::CANNOT_CREATE);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_exists_is_not_replaced_unless_told_and_then_whole() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.patch");
        let check = |replace| Target::check("--patch", file.clone(), replace);
        let new = Patch(b"new".to_vec());
        let target = check(false).unwrap();
        fs::write(&file, "precious").unwrap();
        // Not even where it came to be while the agent worked.
        assert_eq!(target.save(&new).unwrap_err().code(), exit::CANNOT_CREATE);
        let refused = check(false).unwrap_err();
        assert!(refused.to_string().contains("--force"), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        check(true).unwrap().save(&new).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
