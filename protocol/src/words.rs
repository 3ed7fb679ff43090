//! An error and what caused it, as one line that people read: what is wrong, why, and then what to do.

use std::error::Error;

/// Between what is wrong and what to do about it, in the words of an error.
const ADVICE: &str = "; ";

/// An error's words with its causes'. What is said once is not said again, and advice (behind the first `; ` of an error that has a cause)
/// comes last.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    because("", error)
}

/// [`chain`] behind what was being done.
#[must_use]
pub fn because(what: &str, error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let said: Vec<String> = causes.map(ToString::to_string).collect();
    let (mut line, mut advice) = (String::new(), String::new());
    let last = said.len();
    for (index, words) in std::iter::once(what).chain(said.iter().map(String::as_str)).enumerate() {
        let (wrong, more) = match words.split_once(ADVICE) {
            Some((wrong, more)) if index < last => (wrong, Some(more)),
            _ => (words, None),
        };
        if !wrong.is_empty() && !line.ends_with(wrong) {
            let colon = if line.is_empty() { "" } else { ": " };
            line += &format!("{colon}{wrong}");
        }
        if let Some(more) = more {
            advice += &format!("{ADVICE}{more}");
        }
    }
    line + &advice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{words}")]
    struct Said {
        words: &'static str,
        source: Option<Box<Said>>,
    }

    fn said(words: &[&'static str]) -> Said {
        let source = (words.len() > 1).then(|| Box::new(said(&words[1..])));
        Said { words: words[0], source }
    }

    #[test]
    fn the_cause_comes_before_the_advice_and_nothing_is_said_twice() {
        for (words, expected) in [
            (
                &["cannot open /x; mend it", "no such file"][..],
                "cannot open /x: no such file; mend it",
            ),
            (&["a", "a", "b"], "a: b"),
            (&["a: b", "b"], "a: b"),
            (&["a; do this", "b; do that", "c"], "a: b: c; do this; do that"),
            // Without a cause it is as it was written, and so is the last one's.
            (&["a; b: c"], "a; b: c"),
            (&["a", "b; do that"], "a: b; do that"),
        ] {
            assert_eq!(chain(&said(words)), expected);
        }
        assert_eq!(because("--learn x", &said(&["no room", "disk"])), "--learn x: no room: disk");
        assert_eq!(because("no room", &said(&["no room"])), "no room");
    }
}
