//! Whether a new agent process still has the conversation of the one before it.
//!
//! Compared are the user's prompts: what of them was written whole to an agent ([`record`]) with what the agent shows of
//! them in the replay of a `session/load` ([`replay`]). What agents say themselves differs between live and replay on good
//! agents, so it is not compared. No IO; the record lies in `state/`, where no agent can write.

pub mod meta;
pub mod prompt;
pub mod quirks;
pub mod record;
pub mod replay;

use std::fmt;

use replay::Shown;

/// What became of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The agent's process that holds it lives on.
    Resumed,
    /// Another process loaded it, and has shown every prompt that can be compared.
    Reloaded,
    /// It is lost: the agent does not know it, or has shown nothing of it.
    Reset,
    /// The agent says that it goes on, and that cannot be shown, or only in part.
    Unverified,
}

/// The outcome of a load or resume that an agent has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// See there.
    pub outcome: Outcome,
    /// What the user must learn, in one sentence; nothing where nothing is lost.
    pub notice: Option<String>,
    /// The numbers of the prompts that the agent has not shown, which are not looked for again.
    pub missing: Vec<u64>,
}

// === impl Outcome ===

impl Outcome {
    /// As in `_meta`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resumed => "resumed",
            Self::Reloaded => "reloaded",
            Self::Reset => "reset",
            Self::Unverified => "unverified",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Verdict ===

impl Verdict {
    /// Of a conversation with so many recorded prompts (`None`: there is no record), and of what the agent has shown
    /// (`None`: it was not asked to).
    #[must_use]
    pub fn of(sent: Option<usize>, shown: Option<Shown>) -> Self {
        let unverified = |words: &str| Self {
            outcome: Outcome::Unverified,
            notice: Some(format!(
                "the earlier conversation goes on, as the agent says, but {words}, so that is not verified"
            )),
            missing: Vec::new(),
        };
        let Some(sent) = sent else { return unverified("there is no record of it") };
        if sent == 0 {
            return Self { outcome: Outcome::Reloaded, notice: None, missing: Vec::new() };
        }
        let Some(shown) = shown else { return unverified("the agent does not show it") };
        let looked_for = shown.found + shown.missing.len();
        if looked_for == 0 {
            return unverified("none of its prompts can be compared");
        }
        let (outcome, notice) = if shown.missing.is_empty() {
            (Outcome::Reloaded, None)
        } else if shown.users == 0 {
            let text = format!(
                "context reset: the agent accepted to load the earlier conversation and shows none of its {}; {FILES}",
                prompts(looked_for)
            );
            (Outcome::Reset, Some(text))
        } else {
            let text = format!(
                "context may be lost: of {} that the agent was sent it shows {}; {FILES}",
                prompts(looked_for),
                shown.found
            );
            (Outcome::Unverified, Some(text))
        };
        Self { outcome, notice, missing: shown.missing }
    }
}

/// What a user who lost a conversation must know of the worktree.
const FILES: &str = "the files are as they were";

/// What to say in a conversation that was begun because an earlier one could not be loaded.
#[must_use]
pub fn begun_anew(why: &str) -> String {
    format!("context reset: the earlier conversation could not be loaded ({why}); {FILES}")
}

fn prompts(count: usize) -> String {
    if count == 1 { "1 prompt".into() } else { format!("{count} prompts") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(found: usize, missing: &[u64], users: usize) -> Option<Shown> {
        Some(Shown { found, missing: missing.to_vec(), users })
    }

    #[test]
    fn the_table_of_outcomes() {
        use Outcome::{Reloaded, Reset, Unverified};
        for (sent, replay, outcome, words) in [
            (Some(0), None, Reloaded, None),
            (Some(0), shown(0, &[], 3), Reloaded, None),
            (Some(2), shown(2, &[], 2), Reloaded, None),
            (Some(2), shown(2, &[], 5), Reloaded, None),
            (Some(3), shown(2, &[], 2), Reloaded, None),
            (Some(2), shown(0, &[1, 2], 0), Reset, Some("none of its 2 prompts")),
            (Some(1), shown(0, &[1], 0), Reset, Some("none of its 1 prompt;")),
            (
                Some(2),
                shown(1, &[2], 1),
                Unverified,
                Some("of 2 prompts that the agent was sent it shows 1"),
            ),
            (Some(2), shown(0, &[1, 2], 1), Unverified, Some("it shows 0")),
            (Some(2), shown(0, &[], 4), Unverified, Some("none of its prompts can be compared")),
            (Some(2), None, Unverified, Some("does not show it")),
            (None, shown(0, &[], 4), Unverified, Some("no record")),
            (None, None, Unverified, Some("no record")),
        ] {
            let verdict = Verdict::of(sent, replay.clone());
            assert_eq!(verdict.outcome, outcome, "{sent:?} {replay:?}");
            assert_eq!(verdict.notice.is_some(), words.is_some(), "{verdict:?}");
            assert!(verdict.notice.iter().all(|text| text.contains(words.unwrap())), "{verdict:?}");
            assert_eq!(
                verdict.notice.is_none(),
                outcome == Reloaded,
                "lost context is never silent"
            );
        }
    }
}
