//! Who answers when the agent asks whether it may.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value, json};

use crate::printable;
use crate::run::screen::Screen;

/// How permission requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Permission {
    /// Each one is allowed, once.
    All,
    /// Each one is refused.
    None,
    /// The person at the terminal is asked; where there is no terminal, refused.
    Ask,
}

// === impl Permission ===

impl Permission {
    /// The `outcome` of `session/request_permission`.
    pub(super) async fn decide(self, params: &Value, screen: &mut Screen) -> Value {
        let options = params["options"].as_array().map_or(&[][..], Vec::as_slice);
        let title = printable::line(params["toolCall"]["title"].as_str().unwrap_or("something"));
        let chosen = match self {
            Self::All => pick(options, &["allow_once", "allow_always"]),
            Self::None => pick(options, &["reject_once", "reject_always"]),
            Self::Ask => {
                screen.turn_ends();
                let question = question(&title, options);
                let count = options.len();
                let asked = tokio::task::spawn_blocking(move || ask(&question, count)).await;
                match asked.ok().flatten() {
                    Some(at) => options.get(at),
                    None => {
                        screen.say("refused, since nobody could be asked; see --allow");
                        pick(options, &["reject_once", "reject_always"])
                    }
                }
            }
        };
        let words = chosen.and_then(|option| option["name"].as_str()).unwrap_or("cancelled");
        screen.say(&format!("{title}: {}", printable::line(words)));
        match chosen.and_then(|option| option["optionId"].as_str()) {
            Some(option) => json!({"outcome": "selected", "optionId": option}),
            None => json!({"outcome": "cancelled"}),
        }
    }
}

fn pick<'a>(options: &'a [Value], kinds: &[&str]) -> Option<&'a Value> {
    kinds.iter().find_map(|kind| options.iter().find(|option| option["kind"] == *kind))
}

fn question(title: &str, options: &[Value]) -> String {
    let mut text = format!("The agent asks: {title}\n");
    for (at, option) in options.iter().enumerate() {
        let name = printable::line(option["name"].as_str().unwrap_or("?"));
        text.push_str(&format!("  {}) {name}\n", at + 1));
    }
    text + "Your choice: "
}

/// The index of the choice; `None` without a terminal or an answer.
fn ask(question: &str, count: usize) -> Option<usize> {
    let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    let mut lines = BufReader::new(terminal.try_clone().ok()?).lines();
    loop {
        terminal.write_all(question.as_bytes()).ok()?;
        let line = lines.next()?.ok()?;
        if let Ok(choice) = line.trim().parse::<usize>()
            && (1..=count).contains(&choice)
        {
            return Some(choice - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> Value {
        json!({"toolCall": {"title": "rm"}, "options": [
            {"optionId": "ever", "kind": "allow_always", "name": "Always"},
            {"optionId": "once", "kind": "allow_once", "name": "Once"},
            {"optionId": "no", "kind": "reject_once", "name": "No"}]})
    }

    #[tokio::test(flavor = "current_thread")]
    async fn all_means_once_and_none_means_a_refusal() {
        let mut screen = Screen::new(false);
        let outcome = Permission::All.decide(&params(), &mut screen).await;
        assert_eq!(outcome["optionId"], "once");
        let outcome = Permission::None.decide(&params(), &mut screen).await;
        assert_eq!(outcome["optionId"], "no");
        let outcome = Permission::None.decide(&json!({}), &mut screen).await;
        assert_eq!(outcome["outcome"], "cancelled");
    }
}
