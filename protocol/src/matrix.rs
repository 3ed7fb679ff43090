//! What a session's walls stop and what they let through, as it was tried from inside: by target and answer.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::tier::Tier;

/// What became of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It succeeded against another session or the supervisor, or where the policy in force refuses it: no worker serves with
    /// such a wall.
    Broken,
    /// Nothing shows that the tier keeps what it promises here: neither success nor a refusal that it knows, and the machine
    /// has what it takes to try. No worker serves with such a wall either.
    Unproven,
    /// It succeeded, the built-in policies refuse it, and the policy in force does not.
    Open,
    /// It succeeded, and the tier says so: a named leak.
    Leaks,
    /// What it reaches is the session's own in this tier.
    Own,
    /// It was refused, and as the tier promises.
    Holds,
    /// There was nothing on this machine to try it on, or no answer that says anything of a wall.
    Untried,
}

/// Attacks on the same kind of thing that the kernel answered alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What they are aimed at: `files`, `git`, `house`, `processes`, `supervisor`, `network`, `ipc`, `kernel`, `machine`.
    pub target: String,
    /// What became of them.
    pub verdict: Verdict,
    /// The errno's name, a signal's, or `succeeded`.
    pub answer: String,
    /// How many.
    pub count: u32,
    /// Which; not told of those that hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attacks: Vec<String>,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// The tier whose walls they are.
    pub tier: Tier,
    /// How long it took, in milliseconds of the monotonic clock.
    pub took_ms: u64,
    /// By target, then verdict, then answer.
    pub rows: Vec<Row>,
}

// === impl Verdict ===

impl Verdict {
    /// As people read it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Broken => "BROKEN",
            Self::Unproven => "UNPROVEN",
            Self::Open => "open",
            Self::Leaks => "leaks",
            Self::Own => "own",
            Self::Holds => "holds",
            Self::Untried => "untried",
        }
    }
}

// === impl Matrix ===

impl Matrix {
    /// How many were tried, or could not be.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.rows.iter().map(|row| row.count).sum()
    }

    /// How many ended so.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> u32 {
        self.rows.iter().filter(|row| row.verdict == verdict).map(|row| row.count).sum()
    }

    /// Those that ended so, by their ids.
    pub fn named(&self, verdict: Verdict) -> impl Iterator<Item = &str> {
        let rows = self.rows.iter().filter(move |row| row.verdict == verdict);
        rows.flat_map(|row| row.attacks.iter().map(String::as_str))
    }

    /// One line: `325 attacks in tier domain: 280 hold, 41 leak, 4 untried (92 ms)`.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = format!("{} attacks in tier {}:", self.total(), self.tier);
        let counted = [
            (Verdict::Holds, "hold"),
            (Verdict::Leaks, "leak"),
            (Verdict::Own, "reach the session's own"),
            (Verdict::Open, "open by policy"),
            (Verdict::Broken, "BROKEN"),
            (Verdict::Unproven, "UNPROVEN"),
            (Verdict::Untried, "untried"),
        ];
        let counted = counted.map(|(verdict, word)| (self.count(verdict), word));
        let counted = counted.iter().filter(|(count, _)| *count > 0);
        let counted: Vec<_> = counted.map(|(count, word)| format!("{count} {word}")).collect();
        let _ = write!(text, " {} ({} ms)", counted.join(", "), self.took_ms);
        text
    }

    /// A table for people, with the names of whatever does not hold.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let _ = write!(
                text,
                "  {:<10}  {:<8}  {:<12}  {:>3}",
                row.target,
                row.verdict.word(),
                row.answer,
                row.count
            );
            if !row.attacks.is_empty() {
                let _ = write!(text, "  {}", row.attacks.join(" "));
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let row = |verdict, answer: &str, count, attacks: &[&str]| Row {
            target: "files".into(),
            verdict,
            answer: answer.into(),
            count,
            attacks: attacks.iter().map(|id| (*id).to_owned()).collect(),
        };
        Matrix {
            tier: Tier::Domain,
            took_ms: 90,
            rows: vec![
                row(Verdict::Leaks, "succeeded", 2, &["file-stat", "file-chmod"]),
                row(Verdict::Holds, "EACCES", 40, &[]),
            ],
        }
    }

    #[test]
    fn it_is_summed_up_in_a_line() {
        assert_eq!(matrix().summary(), "42 attacks in tier domain: 40 hold, 2 leak (90 ms)");
        assert_eq!(matrix().named(Verdict::Leaks).collect::<Vec<_>>(), ["file-stat", "file-chmod"]);
    }

    #[test]
    fn what_holds_is_counted_and_what_does_not_is_named() {
        let table = matrix().table();
        assert!(table.contains("holds     EACCES         40\n"), "{table}");
        assert!(table.contains("2  file-stat file-chmod\n"), "{table}");
    }
}
