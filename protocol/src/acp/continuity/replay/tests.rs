//! Replays as real agents show them, and any that one could make up.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::acp::continuity::prompt::Prompt;

/// Prompts of text alone, numbered from 1.
fn texts(texts: &[&str]) -> Vec<Sent> {
    blocks(
        &texts.iter().map(|text| vec![json!({"type": "text", "text": text})]).collect::<Vec<_>>(),
    )
}

fn blocks(prompts: &[Vec<serde_json::Value>]) -> Vec<Sent> {
    let of = |blocks: &Vec<serde_json::Value>| {
        let raw: Vec<String> = blocks.iter().map(ToString::to_string).collect();
        Prompt::of(&raw.iter().map(String::as_str).collect::<Vec<_>>())
    };
    prompts.iter().map(of).zip(1..).map(|(prompt, n)| Sent { n, prompt }).collect()
}

fn user(replay: &mut Replay, id: Option<&str>, text: &str) {
    let mut update = json!({"content": {"type": "text", "text": text}});
    if let Some(id) = id {
        update["messageId"] = id.into();
    }
    replay.hear("user_message_chunk", &update.to_string());
}

fn agent(replay: &mut Replay) {
    replay.hear("agent_message_chunk", r#"{"content":{"type":"text","text":"x"}}"#);
}

#[test]
fn blocks_of_one_message_are_one_prompt() {
    // opencode 1.18.33, claude-agent-acp 0.101.0, codex-acp 2.6.0.
    let mut replay = Replay::new(&texts(&["one", "  two \nsecond é漢🙂\n\t", "one"]));
    user(&mut replay, Some("a"), "one");
    agent(&mut replay);
    user(&mut replay, Some("b"), "  two \n");
    user(&mut replay, Some("b"), "second é漢🙂\n\t");
    agent(&mut replay);
    user(&mut replay, Some("c"), "one");
    assert_eq!(replay.finish(), Shown { found: 3, missing: vec![], users: 4 });
}

#[test]
fn prompts_without_an_answer_follow_each_other_without_ids() {
    // codex-acp 0.16.0, where turns were cancelled.
    let mut replay = Replay::new(&texts(&["one", "two", "three"]));
    for text in ["one", "two", "three"] {
        user(&mut replay, None, text);
    }
    assert_eq!(replay.finish().missing, [0u64; 0]);
}

#[test]
fn links_files_and_pictures_are_shown_as_the_agent_likes() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let link = json!({"type": "resource_link", "uri": "file:///w/README", "name": "README"});
    let sent = blocks(&[vec![text("with a link"), link, text("after")], vec![text("more")]]);
    for shown in [
        &["with a link", "[@README](file:///w/README)", "after"][..],
        &["with a link[@README](file:///w/README)after"],
        &[
            "with a link",
            "Called the Read tool with the following input",
            "File not found",
            "after",
        ],
        &["with a link"],
    ] {
        let mut replay = Replay::new(&sent);
        for part in shown {
            user(&mut replay, Some("a"), part);
        }
        user(&mut replay, Some("b"), "more");
        assert_eq!(replay.finish().missing, [0u64; 0], "{shown:?}");
    }
    let mut replay = Replay::new(&sent);
    user(&mut replay, Some("a"), "with a lin");
    user(&mut replay, Some("b"), "more");
    assert_eq!(replay.finish().missing, [1]);
}

#[test]
fn words_of_the_agents_own_are_passed_over() {
    let mut replay = Replay::new(&texts(&["one", "two"]));
    for (id, text) in [
        ("a", "one"),
        ("b", "[Request interrupted by user]"),
        ("c", "two"),
        ("d", "[Request interrupted by user]"),
    ] {
        user(&mut replay, Some(id), text);
    }
    assert_eq!(replay.finish(), Shown { found: 2, missing: vec![], users: 4 });
}

#[test]
fn the_longest_that_was_sent_is_not_taken_for_a_shorter_one_that_comes_later() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let picture = json!({"type": "image", "mimeType": "image/png", "data": ""});
    let sent = blocks(&[vec![text("help"), text(" me")], vec![text("help"), picture]]);
    let mut replay = Replay::new(&sent);
    user(&mut replay, Some("a"), "help");
    user(&mut replay, Some("a"), " me");
    user(&mut replay, Some("b"), "help");
    assert_eq!(replay.finish().missing, [0u64; 0]);
}

#[test]
fn another_order_is_not_the_conversation() {
    let mut replay = Replay::new(&texts(&["one", "two"]));
    user(&mut replay, Some("a"), "two");
    user(&mut replay, Some("b"), "one");
    assert_eq!(replay.finish().missing, [1]);
}

#[test]
fn only_the_newest_are_looked_for() {
    let names: Vec<String> = (0..MOST + 2).map(|n| format!("prompt {n}")).collect();
    let sent = texts(&names.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(Replay::new(&sent).finish().missing.len(), MOST);
    let mut replay = Replay::new(&sent);
    for name in &names {
        user(&mut replay, None, name);
        agent(&mut replay);
    }
    assert_eq!(replay.finish(), Shown { found: MOST, missing: vec![], users: MOST + 2 });
}

/// How an agent shows a prompt.
#[derive(Debug, Clone, Copy)]
enum Style {
    /// A chunk a block, with the message's id.
    Blocks,
    /// The same without.
    Nameless,
    /// One chunk.
    Joined,
    /// One chunk, with words of the agent's before and after the message.
    Wordy,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Each prompt that is shown is found, and each that is not is missing.
    #[test]
    fn what_is_shown_is_found_and_nothing_else(
        prompts in prop::collection::vec((prop::collection::vec("[a-zé漢 \n]{0,8}", 1..4), any::<bool>()), 0..12),
        style in prop::sample::select(vec![Style::Blocks, Style::Nameless, Style::Joined, Style::Wordy]),
        answered in any::<bool>(),
    ) {
        // Each begins unlike all others, so that none can be taken for another.
        let cut: Vec<Vec<String>> = prompts.iter().enumerate().map(|(n, (parts, _))| {
            let mut parts = parts.clone();
            parts[0].insert_str(0, &format!("{n}:"));
            parts
        }).collect();
        let joined: Vec<String> = cut.iter().map(|parts| parts.concat()).collect();
        let mut replay = Replay::new(&texts(&joined.iter().map(String::as_str).collect::<Vec<_>>()));
        let mut missing = Vec::new();
        for (n, (parts, (_, lost))) in cut.iter().zip(&prompts).enumerate() {
            if *lost {
                missing.push(n as u64 + 1);
                continue;
            }
            let id = n.to_string();
            match style {
                Style::Blocks => parts.iter().for_each(|part| user(&mut replay, Some(&id), part)),
                Style::Nameless => parts.iter().for_each(|part| user(&mut replay, None, part)),
                Style::Joined => user(&mut replay, None, &parts.concat()),
                Style::Wordy => {
                    user(&mut replay, Some(&id), "words before");
                    user(&mut replay, Some(&id), &parts.concat());
                    user(&mut replay, Some(&id), "words after");
                }
            }
            // A nameless message of several chunks ends with the agent's answer alone.
            if answered || matches!(style, Style::Nameless) {
                agent(&mut replay);
            }
        }
        prop_assert_eq!(replay.finish().missing, missing);
    }

    /// Whatever an agent shows, no prompt is found that it did not show.
    #[test]
    fn nothing_is_found_in_foreign_words(
        shown in prop::collection::vec((prop::option::of(0..3u8), "[a-c]{0,5}"), 0..40),
    ) {
        let mut replay = Replay::new(&texts(&["one", "two", "three"]));
        for (id, text) in shown {
            user(&mut replay, id.map(|id| id.to_string()).as_deref(), &text);
        }
        prop_assert_eq!(replay.finish().found, 0);
    }
}
