//! One line of the demo's result, and the list of all of them.

use casemate_inside::Attempt;
use casemate_inside::catalogue::outsider;
use casemate_protocol::tier::Tier;
use serde::Serialize;

use super::judge::{Verdict, Wall, promise};

/// What was tried, from where, what was promised, what the kernel answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    /// The step it belongs to.
    pub(crate) step: String,
    /// From where.
    pub(crate) from: String,
    /// What.
    pub(crate) tried: String,
    /// On what.
    pub(crate) target: String,
    /// The promise.
    pub(crate) expected: String,
    /// The answer.
    pub(crate) answered: String,
    /// More, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
    /// Whether the promise was kept.
    pub(crate) verdict: Verdict,
}

/// The result while it grows.
#[derive(Debug)]
pub(crate) struct Lines {
    tier: Tier,
    step: String,
    all: Vec<Line>,
}

// === impl Lines ===

impl Lines {
    pub(crate) fn new(tier: Tier) -> Self {
        Self { tier, step: String::new(), all: Vec::new() }
    }

    /// Lines belong to this step from now on.
    pub(crate) fn step(&mut self, title: &str) {
        title.clone_into(&mut self.step);
    }

    /// The tier whose promises are judged.
    pub(crate) fn tier(&self) -> Tier {
        self.tier
    }

    /// The number by which a session tries a process outside of it.
    pub(crate) fn seen(&self, outside: i32) -> i32 {
        if self.tier > Tier::Domain { outsider(outside) } else { outside }
    }

    pub(crate) fn all(&self) -> &[Line] {
        &self.all
    }

    pub(crate) fn wrong(&self) -> usize {
        self.count(Verdict::Wrong)
    }

    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.all.iter().filter(|line| line.verdict == verdict).count()
    }

    /// Judges attempts; `target` names their target for people.
    pub(crate) fn attempts(&mut self, from: &str, target: &str, wall: Wall, attempts: &[Attempt]) {
        for attempt in attempts {
            self.attempt(from, target, wall, attempt);
        }
    }

    /// Judges one attempt.
    pub(crate) fn attempt(&mut self, from: &str, target: &str, wall: Wall, attempt: &Attempt) {
        let promise = promise(wall, self.tier, &attempt.attack);
        self.all.push(Line {
            step: self.step.clone(),
            from: from.into(),
            tried: attempt.attack.clone(),
            target: target.into(),
            expected: promise.words(),
            answered: attempt.outcome.clone(),
            detail: attempt.detail.clone(),
            verdict: promise.judge(&attempt.outcome),
        });
    }

    /// Attacks on one kind of target that were answered alike; what went wrong is named.
    pub(crate) fn many(
        &mut self,
        from: &str,
        tried: &[&str],
        target: &str,
        answered: &str,
        verdict: Verdict,
    ) {
        let (tried, detail) = match verdict {
            Verdict::Wrong => (tried.join(", "), String::new()),
            Verdict::Ok | Verdict::Leak => (format!("{} attacks", tried.len()), tried.join(" ")),
        };
        self.all.push(Line {
            step: self.step.clone(),
            from: from.into(),
            tried,
            target: target.into(),
            expected: "the tier's promise".into(),
            answered: answered.into(),
            detail,
            verdict,
        });
    }

    /// Two values that must be the same.
    pub(crate) fn same(
        &mut self,
        from: &str,
        tried: &str,
        target: &str,
        expected: &str,
        answered: &str,
    ) {
        let verdict = if expected == answered { Verdict::Ok } else { Verdict::Wrong };
        self.all.push(Line {
            step: self.step.clone(),
            from: from.into(),
            tried: tried.into(),
            target: target.into(),
            expected: expected.into(),
            answered: answered.into(),
            detail: String::new(),
            verdict,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_hash_is_wrong() {
        let mut lines = Lines::new(Tier::Namespace);
        lines.same("A", "hash", "its file", "abc", "abc");
        assert_eq!(lines.wrong(), 0);
        lines.same("A", "hash", "its file", "abc", "abd");
        assert_eq!(lines.wrong(), 1);
    }
}
