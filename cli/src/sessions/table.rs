//! Sessions as text for people. Widths and words only; no IO.

use std::fmt::Write as _;

use casemate_protocol::api::{Phase, SessionView};
use casemate_protocol::matrix::Verdict;
use casemate_protocol::worker::{Activity, Evidence};

use crate::printable;

/// Beside the path of a worktree: git's configuration in there is the agent's, and so is what it makes git run.
const TRAP: &str =
    "the agent's: run no git, editor or direnv in it, which could run what the agent planted";

/// One line a session.
pub(super) fn list(sessions: &[SessionView], now: u64) -> String {
    if sessions.is_empty() {
        return "no sessions; `casemate acp` and `casemate run` make them\n".into();
    }
    let mut rows =
        vec![["SESSION", "STATE", "TIER", "AGE", "AGENT", "CONVERSATION"].map(String::from)];
    rows.extend(sessions.iter().map(|view| {
        [
            view.id.to_string(),
            state(view),
            view.worker.as_ref().map_or_else(|| "-".into(), |worker| worker.tier.to_string()),
            span(now.saturating_sub(view.created)),
            agent(view),
            printable::line(&view.key.thread),
        ]
    }));
    aligned(&rows)
}

/// Everything about one.
pub(super) fn one(view: &SessionView, now: u64) -> String {
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |name: &str, value: String| rows.push([name.into(), value]);
    row("session", view.id.to_string());
    row("state", state(view));
    row("conversation", printable::line(&view.key.to_string()));
    row("agent", printable::line(&view.intent.agent.join(" ")));
    row(
        "repository",
        view.intent.repository.as_deref().map_or_else(|| "-".into(), printable::line),
    );
    row("profile", printable::line(&view.intent.profile));
    row("made", format!("{} ago", span(now.saturating_sub(view.created))));
    row(
        "slot",
        format!("{}, generation {}, incarnation {}", view.slot, view.generation, view.incarnation),
    );
    if let Some(worker) = &view.worker {
        row("worker", format!("process {}, tier {}", worker.pid, worker.tier));
        if let Some(matrix) = &worker.matrix {
            row("walls", printable::line(&matrix.summary()));
            for verdict in [Verdict::Broken, Verdict::Unproven, Verdict::Open, Verdict::Leaks] {
                let named: Vec<&str> = matrix.named(verdict).collect();
                if !named.is_empty() {
                    row(verdict.word(), printable::line(&named.join(" ")));
                }
            }
        }
        if let Some(usage) = &worker.usage {
            row("takes", usage.to_string());
        }
        row("worktree", worker.worktree.display().to_string());
        row("", TRAP.into());
        row("take home", format!("casemate sessions patch {} --output FILE", view.id));
    }
    for path in &view.programs {
        row("may run", printable::line(&path.display().to_string()));
    }
    if let Some(last) = &view.last_end {
        row(
            "last end",
            format!("{}, {} ago", printable::line(&last.detail), span(now.saturating_sub(last.at))),
        );
        if let Some(found) = last.evidence.as_ref().and_then(unfinished) {
            row("kept work", found);
        }
    }
    if let Some(trees) = &view.kept {
        row("kept in", trees.join("work").display().to_string());
        row("", TRAP.into());
        row("take home", format!("casemate sessions patch {} --output FILE", view.id));
        row("delete", format!("casemate sessions close {} --discard", view.id));
    }
    if let Some(next) = &view.next {
        let when = span(next.after_idle_seconds);
        row("next", format!("{} after {when} more of idleness: {}", next.action, next.because));
    }
    aligned(&rows)
}

/// What a close did.
pub(super) fn closed(view: &SessionView) -> String {
    let mut text = format!("{}: closed\n", view.id);
    let evidence = view.last_end.as_ref().and_then(|last| last.evidence.as_ref());
    if let Some(found) = evidence.and_then(unfinished) {
        let _ = writeln!(text, "its worktree held {found}");
    }
    if let Some(trees) = &view.kept {
        let _ = writeln!(
            text,
            "it is kept, in {}: `casemate sessions patch {} --output FILE` takes it home, `casemate sessions close {} --discard` \
             deletes it",
            trees.join("work").display(),
            view.id,
            view.id
        );
    }
    text
}

/// The phase in one word.
pub(super) fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Active => "active",
        Phase::Asleep => "asleep",
        Phase::Stopping => "stopping",
        Phase::Ended => "ended",
    }
}

fn state(view: &SessionView) -> String {
    let activity = view.worker.as_ref().and_then(|worker| worker.activity);
    match activity {
        Some(Activity::Busy { for_ms }) => format!("busy {}", span(for_ms / 1000)),
        Some(Activity::Idle { for_ms }) => format!("idle {}", span(for_ms / 1000)),
        Some(Activity::Quiesced) | None => phase(view.phase).into(),
    }
}

fn agent(view: &SessionView) -> String {
    let program = view.intent.agent.first().map_or("-", String::as_str);
    printable::line(program.rsplit('/').next().unwrap_or(program))
}

fn unfinished(evidence: &Evidence) -> Option<String> {
    (!evidence.is_clean()).then(|| evidence.in_words())
}

fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| printable::width(&row[column])).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            if column + 1 == N {
                text.push_str(cell);
            } else {
                text.push_str(&printable::column(cell, widths[column]));
                text.push_str("  ");
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a".to_owned(), "b".to_owned()], ["long".to_owned(), "c".to_owned()]];
        assert_eq!(aligned(&rows), "a     b\nlong  c\n");
    }

    #[test]
    fn spans_are_short_and_never_nought_of_a_bigger_unit() {
        assert_eq!(
            ["0s", "119s", "2m", "2h", "2d"],
            [0, 119, 120, 7200, 172_800].map(span).each_ref().map(String::as_str)
        );
    }

    #[test]
    fn a_name_neither_moves_the_cursor_nor_a_column() {
        let rows = [["中文".to_owned(), "b".to_owned()], ["a".to_owned(), "c".to_owned()]];
        assert_eq!(aligned(&rows), "中文  b\na     c\n");
    }
}
