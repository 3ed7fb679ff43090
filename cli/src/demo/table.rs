//! The result for people: attempts on the same target with the same answer share a row.

use std::fmt::Write as _;

use casemate_protocol::tier::Tier;

use super::judge::Verdict;
use super::line::{Line, Lines};

/// Width of the columns; the verdict stands behind them.
const FROM: usize = 11;
const TRIED: usize = 36;
const TARGET: usize = 24;
const EXPECTED: usize = 18;
const ANSWER: usize = 14;

/// Several lines that differ in the attack only.
struct Row<'a> {
    tried: Vec<&'a str>,
    line: &'a Line,
}

/// The whole table, with a summary below.
pub(crate) fn render(lines: &Lines, tier: Tier, colour: bool) -> String {
    let mut text = format!(
        "  {:<FROM$} {:<TRIED$}  {:<TARGET$}  {:<EXPECTED$}  {:<ANSWER$}\n",
        "from", "tried", "on", "expected", "answered"
    );
    let mut step = "";
    for row in rows(lines.all()) {
        if row.line.step != step {
            step = &row.line.step;
            let _ = writeln!(text, "\n{}", paint(step, "1", colour));
        }
        put(&mut text, &row, colour);
    }
    let leaks = lines.count(Verdict::Leak);
    let wrong = lines.wrong();
    let _ = write!(
        text,
        "\ntier {tier}: {} tried, {} as promised",
        lines.all().len(),
        lines.count(Verdict::Ok)
    );
    if leaks > 0 {
        let _ = write!(text, ", {leaks} named leaks of this tier");
    }
    let _ = match wrong {
        0 => writeln!(text, ", {}", paint("none wrong", "32", colour)),
        _ => writeln!(text, ", {}", paint(&format!("{wrong} WRONG"), "31;1", colour)),
    };
    text
}

fn rows(lines: &[Line]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for line in lines {
        // Wrong ones stand alone, with their detail. The others may be up to a few rows apart.
        let same = rows.iter_mut().rev().take(6).find(|row| {
            let other = row.line;
            line.verdict != Verdict::Wrong
                && (&other.step, &other.from, &other.target, &other.answered, other.verdict)
                    == (&line.step, &line.from, &line.target, &line.answered, line.verdict)
        });
        match same {
            Some(row) if row.tried.contains(&line.tried.as_str()) => {}
            Some(row) => row.tried.push(&line.tried),
            None => rows.push(Row { tried: vec![&line.tried], line }),
        }
    }
    rows
}

fn put(text: &mut String, row: &Row<'_>, colour: bool) {
    let line = row.line;
    let verdict = match line.verdict {
        Verdict::Ok => paint("ok", "32", colour),
        Verdict::Leak => paint("leak", "33", colour),
        Verdict::Wrong => paint("WRONG", "31;1", colour),
    };
    let tried = wrap(&row.tried.join(", "), TRIED);
    let target = wrap(&line.target, TARGET);
    let expected = wrap(&line.expected, EXPECTED);
    let answer = wrap(&line.answered, ANSWER);
    let height = tried.len().max(target.len()).max(expected.len()).max(answer.len());
    for index in 0..height {
        let cell = |cells: &[String]| cells.get(index).cloned().unwrap_or_default();
        let from = if index == 0 { line.from.as_str() } else { "" };
        let row = format!(
            "  {from:<FROM$} {:<TRIED$}  {:<TARGET$}  {:<EXPECTED$}  {:<ANSWER$}",
            cell(&tried),
            cell(&target),
            cell(&expected),
            cell(&answer)
        );
        let _ = match index {
            0 => writeln!(text, "{row}  {verdict}"),
            _ => writeln!(text, "{}", row.trim_end()),
        };
    }
    if line.verdict == Verdict::Wrong {
        let _ = writeln!(text, "        expected {}; answered {}", line.expected, line.answered);
        if !line.detail.is_empty() {
            let _ = writeln!(text, "        {}", line.detail);
        }
    }
}

/// Breaks between words; a word that is longer (a hash) is cut short.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let short: String =
            word.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect();
        let word = if word.chars().count() > width { &short } else { word };
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn paint(text: &str, code: &str, colour: bool) -> String {
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use casemate_inside::Attempt;

    use super::super::judge::Wall;
    use super::*;

    fn lines(outcomes: &[(&str, &str)]) -> Lines {
        let mut lines = Lines::new(Tier::Namespace);
        lines.step("step one");
        for (attack, outcome) in outcomes {
            let attempt = Attempt {
                attack: (*attack).into(),
                target: "/x".into(),
                outcome: (*outcome).into(),
                detail: "because".into(),
            };
            lines.attempt("B", "A's file", Wall::File, &attempt);
        }
        lines
    }

    #[test]
    fn equal_answers_share_a_row() {
        let table =
            render(&lines(&[("read", "ENOENT"), ("delete", "ENOENT")]), Tier::Namespace, false);
        assert!(table.contains("read, delete"), "{table}");
        assert!(table.ends_with("tier namespace: 2 tried, 2 as promised, none wrong\n"), "{table}");
        assert!(!table.contains('\u{1b}'));
    }

    #[test]
    fn a_wrong_one_stands_alone_and_says_why() {
        let outcomes = [("read", "ENOENT"), ("delete", "succeeded"), ("stat", "succeeded")];
        let table = render(&lines(&outcomes), Tier::Namespace, false);
        assert_eq!(table.matches("WRONG").count(), 3, "{table}");
        assert_eq!(table.matches("expected ENOENT; answered succeeded").count(), 2, "{table}");
        assert!(table.contains("because"));
        assert!(table.contains("2 WRONG"));
    }

    #[test]
    fn long_texts_are_wrapped_between_words() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("abcdefgh b", 3), ["ab\u{2026}", "b"]);
    }
}
