//! `[bounds]`: how much of the machine one session may take.
//!
//! Limits of setrlimit(2) hold for a process, or for a user; these hold for a session, and the supervisor counts. A policy
//! without the table has the defaults: no session is without bounds by omission.

use std::fmt;

use serde::Deserialize;
use toml::Spanned;

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) processes: Option<Spanned<toml::Value>>,
    pub(super) disk: Option<Spanned<toml::Value>>,
    pub(super) files: Option<Spanned<toml::Value>>,
    pub(super) reason: Spanned<String>,
}

/// What one session may use at a time; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Processes and threads together, as the kernel counts tasks; from [`LEAST_TASKS`] on.
    pub processes: Option<u32>,
    /// Bytes on disk of worktree, HOME and scratch, as `du` counts them.
    pub disk: Option<u64>,
    /// Files and directories in worktree, HOME and scratch.
    pub files: Option<u64>,
    /// The line of `[bounds]` in the file, from 1; `None`: the defaults.
    pub line: Option<usize>,
}

/// One of them, to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// [`Bounds::processes`].
    Processes,
    /// [`Bounds::disk`].
    Disk,
    /// [`Bounds::files`].
    Files,
}

/// Below this no agent that runs commands gets far: Node alone has eleven threads.
pub const LEAST_TASKS: u32 = 32;

/// A build with a process for each of many cores, a language server, a browser of a test: a few hundred tasks. A bomb has as
/// many as it gets.
const TASKS: u32 = 2048;
const DISK: u64 = 64 << 30;
const FILES: u64 = 4_000_000;

impl Bound {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Processes, Self::Disk, Self::Files];
}

/// As in a policy.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::Files => "files",
        })
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self { processes: Some(TASKS), disk: Some(DISK), files: Some(FILES), line: None }
    }
}

impl Bounds {
    /// The bounds by name, each as a number for comparison and in words.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64, String); 3] {
        let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        let words = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
        let tasks = self.processes.map(u64::from);
        let disk = self.disk.map_or("unlimited".to_owned(), |bytes| Size(bytes).to_string());
        [
            ("processes", number(tasks), words(tasks)),
            ("disk", number(self.disk), disk),
            ("files", number(self.files), words(self.files)),
        ]
    }
}

/// `processes 2048, disk 64GiB, files 4000000`.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.named().map(|(name, _, words)| format!("{name} {words}"));
        f.write_str(&named.join(", "))
    }
}

/// Bytes, as a policy writes them: `20GiB`, in the largest unit that leaves no rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl Size {
    /// Reads a whole number of a unit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (number, shift) =
            UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))?;
        let number: u64 = number.trim_end().parse().ok()?;
        number.checked_mul(1 << shift).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |shift: &u32| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        match UNITS.iter().find(|(_, shift)| whole(shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;

    fn with(table: &str) -> Result<Bounds, String> {
        let text = format!("{}\n{table}\n", super::super::tests::FRAME);
        Policy::parse(&text).map(|policy| policy.bounds).map_err(|error| error.to_string())
    }

    #[test]
    fn a_policy_without_the_table_has_the_defaults() {
        assert_eq!(with("").unwrap(), Bounds::default());
        let table = "[bounds]\nreason = \"r\"";
        let bounds = with(table).unwrap();
        assert!(bounds.line.is_some());
        assert_eq!(Bounds { line: None, ..bounds }, Bounds::default());
    }

    #[test]
    fn each_bound_is_read_in_its_unit_and_may_be_unlimited() {
        let bounds = with(
            "[bounds]\nprocesses = 100\ndisk = \"3GiB\"\nfiles = \"unlimited\"\nreason = \"r\"",
        )
        .unwrap();
        assert_eq!((bounds.processes, bounds.disk, bounds.files), (Some(100), Some(3 << 30), None));
        assert_eq!(bounds.to_string(), "processes 100, disk 3GiB, files unlimited");
    }

    #[test]
    fn what_is_no_bound_is_refused_where_it_stands() {
        for (line, says) in [
            ("processes = 31", "at least 32"),
            ("processes = -1", "not a limit"),
            ("processes = 4294967296", "not a limit"),
            ("disk = 1000", "not a size"),
            ("disk = \"3 gigabytes\"", "not a size"),
            ("disk = \"99999999TiB\"", "not a size"),
            ("files = 1.5", "not a limit"),
            ("memory = 1", "unknown field"),
        ] {
            let error = with(&format!("[bounds]\n{line}\nreason = \"r\"")).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        assert!(with("[bounds]\nreason = \" \"").unwrap_err().contains("reason is empty"));
    }

    #[test]
    fn sizes_are_shown_as_they_are_written() {
        for text in ["20GiB", "1TiB", "1536MiB", "3KiB"] {
            assert_eq!(Size::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Size(1000).to_string(), "1000 bytes");
        assert_eq!(Size::parse("2 GiB"), Some(Size(2 << 30)));
    }
}
