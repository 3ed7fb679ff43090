//! A worker takes another one's place, whose agent was killed: what the new one's agent knows of the conversation, and what the
//! client is told of it.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use casemate_protocol::acp::continuity::prompt::Prompt;
use casemate_protocol::acp::continuity::record::Record;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{Slot, Who, Worker};

/// A slot, its worker and an attached client that has said `initialize`.
struct Place {
    slot: Slot,
    worker: Worker,
    client: Client,
}

impl Place {
    fn new() -> Self {
        Self::serve(Slot::new(Tier::Namespace, Who::User))
    }

    fn serve(slot: Slot) -> Self {
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        Self { slot, worker, client }
    }

    /// Kills the worker and starts the next generation.
    fn replaced(mut self) -> Self {
        self.worker.signal(Signal::SIGKILL);
        self.worker.wait();
        // What the launcher had started is still dying.
        let lock = fs::File::open(self.slot.config.volume.join("run/lock")).unwrap();
        crate::harness::eventually("the slot is free", || lock.try_lock().is_ok());
        drop(lock);
        self.slot.config.generation = self.slot.config.generation.next();
        Self::serve(self.slot)
    }

    fn opens(&mut self, method: &str, session: &str) -> Value {
        let params = json!({"sessionId": session, "cwd": "/", "mcpServers": []});
        self.client.call(method, params)
    }

    /// What a turn tells besides the agent's words.
    fn told(&mut self, session: &str, text: &str) -> Vec<String> {
        let id = self.client.prompt(session, text);
        let (answer, updates) = self.client.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let titles = updates.iter().map(|update| &update["params"]["update"]["title"]);
        let titles =
            titles.filter_map(Value::as_str).filter(|title| title.starts_with("casemate: "));
        titles.map(String::from).collect()
    }

    /// Where the agent keeps what was said.
    fn history(&self, session: &str) -> PathBuf {
        let home = self.slot.session().join("home");
        home.join(format!(".casemate-scripted-agent/{session}.jsonl"))
    }

    /// The record of prompts, the only one that there is.
    fn record(&self) -> PathBuf {
        let records = fs::read_dir(self.slot.config.volume.join("state/prompts")).unwrap();
        let mut records: Vec<PathBuf> = records.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

fn outcome(answer: &Value) -> &str {
    let meta = &answer["result"]["_meta"]["casemate"]["continuity"];
    let data = &answer["error"]["data"]["casemate"]["continuity"];
    meta.as_str().or(data.as_str()).unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_conversation_that_the_next_agent_shows_whole_is_reloaded_without_a_word() {
    let mut place = Place::new();
    let session = place.client.new_session();
    place.client.turn(&session, "one");
    assert_eq!(outcome(&place.opens("session/load", &session)), "resumed");
    // Killed in the middle of a turn: the prompt was written whole, and the agent has noted it.
    place.client.prompt(&session, "!sh touch begun; sleep 60");
    let begun = place.slot.session().join("work/begun");
    crate::harness::eventually("the turn begins", || begun.exists());
    let record = place.record();
    let text = fs::read(&record).unwrap();
    let sent = Record::read(&text).unwrap().sent;
    assert_eq!(sent.len(), 2, "{}", String::from_utf8_lossy(&text));
    assert_eq!(sent[0].prompt, Prompt::of(&[r#"{"type":"text","text":"one"}"#]));

    // As a crash of the machine may leave it.
    fs::OpenOptions::new().append(true).open(&record).unwrap().write_all(b"{\"n\":3,").unwrap();
    let mut place = place.replaced();
    assert_eq!(outcome(&place.opens("session/load", &session)), "reloaded");
    assert_eq!(place.told(&session, "two"), [""; 0]);

    let mut place = place.replaced();
    let id = place.client.request("session/resume", json!({"sessionId": session, "cwd": "/"}));
    let (answer, updates) = place.client.answer(id);
    assert_eq!(outcome(&answer), "reloaded");
    assert_eq!(updates, [Value::Null; 0], "a resume shows nothing of the past");
    let sent = Record::read(&fs::read(place.record()).unwrap()).unwrap().sent;
    assert_eq!(sent.iter().map(|sent| sent.n).collect::<Vec<_>>(), [1, 2, 3]);
    place.worker.stop();
}

#[test]
fn a_conversation_that_the_next_agent_does_not_know_is_reset_and_told_in_the_next_turn() {
    let mut place = Place::new();
    let lost = place.client.new_session();
    place.client.turn(&lost, "one");
    fs::remove_file(place.history(&lost)).unwrap();
    let mut place = place.replaced();
    let refused = place.opens("session/load", &lost);
    assert_eq!((outcome(&refused), &refused["error"]["code"]), ("reset", &json!(-32002)));
    let begun = place.client.call("session/new", json!({"cwd": "/", "mcpServers": []}));
    assert_eq!(outcome(&begun), "reset");
    let session = begun["result"]["sessionId"].as_str().unwrap().to_owned();
    // Nobody has been told yet, and the worker is gone again.
    let mut place = place.replaced();
    assert_eq!(outcome(&place.opens("session/load", &session)), "reloaded");
    let told = place.told(&session, "two");
    assert!(told.len() == 1 && told[0].starts_with("casemate: context reset: "), "{told:?}");
    assert_eq!(place.told(&session, "three"), [""; 0]);
    place.worker.stop();
}

#[test]
fn an_agent_that_accepts_what_it_does_not_know_is_found_out() {
    let mut place = Place::new();
    let session = place.client.new_session();
    for text in ["one", "two", "three"] {
        place.client.turn(&session, text);
    }
    // Part of it: the first prompt and its answer.
    let history = place.history(&session);
    let kept: Vec<String> =
        fs::read_to_string(&history).unwrap().lines().map(String::from).collect();
    let first = kept.iter().position(|line| line.contains("two")).unwrap();
    fs::write(&history, kept[..first].join("\n") + "\n").unwrap();
    let mut place = place.replaced();
    assert_eq!(outcome(&place.opens("session/load", &session)), "unverified");
    let told = place.told(&session, "four");
    assert!(told.len() == 1 && told[0].contains("of 3 prompts"), "{told:?}");

    // All of it.
    fs::write(place.history(&session), "").unwrap();
    let mut place = place.replaced();
    assert_eq!(outcome(&place.opens("session/load", &session)), "reset");
    let told = place.told(&session, "five");
    assert!(told.len() == 1 && told[0].contains("none of its 2 prompts"), "{told:?}");

    // And a record that somebody spoiled proves nothing.
    fs::write(place.record(), "{\"n\":1}\n").unwrap();
    let mut place = place.replaced();
    assert_eq!(outcome(&place.opens("session/load", &session)), "unverified");
    assert!(place.told(&session, "six")[0].contains("no record"));
    place.worker.stop();
}
