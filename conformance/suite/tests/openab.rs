//! The real OpenAB in front of `casemate acp`: two chat threads, a restart of the broker, nothing mixed up.

use std::ffi::OsStr;
use std::time::Duration;

use casemate_suite::chat_gateway::ChatGateway;
use casemate_suite::llm_stub::LlmStub;
use casemate_suite::openab::{self, OpenAb};
use casemate_suite::place::{Place, program};
use casemate_suite::{opencode, processes, skip};

const PATIENCE: Duration = Duration::from_secs(90);

/// OpenAB's words when it could not load a session and opened a new one: the conversation was lost.
const LOST: &str = "Session expired";

/// `casemate acp` with these options and this agent, as OpenAB's configuration wants it.
fn bridge(place: &Place, options: &[&str], agent: &[&str]) -> Vec<String> {
    let program = program("casemate").display().to_string();
    let repository = place.repository().display().to_string();
    [&[program.as_str(), "acp", "--repo", &repository], options, &["--"], agent]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// Says `text` in a thread and waits for `answer` there.
fn talk(gateway: &ChatGateway, thread: &str, text: &str, answer: &str) {
    assert!(gateway.say(thread, text), "the broker is connected");
    let got = gateway.expect(thread, answer, PATIENCE);
    assert!(got.is_some(), "{thread}: no {answer:?} in {:#?}", gateway.posted(thread));
}

/// Nothing that was said in one thread shows in the other, and no conversation was lost.
fn assert_apart(gateway: &ChatGateway, mine: (&str, &str), other: (&str, &str)) {
    for ((thread, _), (_, foreign)) in [(mine, other), (other, mine)] {
        let posted = gateway.posted(thread);
        assert!(posted.iter().all(|text| !text.contains(foreign)), "{thread}: {posted:#?}");
        assert!(posted.iter().all(|text| !text.contains(LOST)), "{thread}: {posted:#?}");
    }
}

/// Once the broker has gone no bridge is left; workers stay for their idle TTL.
fn assert_no_bridge_left(place: &Place) {
    let bridges = || -> Vec<_> {
        let ours = processes::ours();
        ours.into_iter().filter(|process| process.is_casemate("acp")).collect()
    };
    let gone = processes::until(Duration::from_secs(10), || bridges().is_empty().then_some(()));
    assert!(gone.is_some(), "left behind: {:#?}", bridges());
    let expected = ["casemate-supervisor", "casemate-scripted-agent", "opencode"];
    for process in processes::ours() {
        let known =
            process.is_casemate("up") || expected.iter().any(|part| process.command.contains(part));
        // A kernel that is still tearing a process down shows it without a command line.
        assert!(known || process.command.is_empty(), "not known: {process}");
    }
    assert_eq!(place.living().expect("the allocator answers").len(), 2, "a session for a thread");
}

#[test]
fn without_casemate_one_thread_reads_what_the_other_wrote() {
    let Some(binary) = openab::binary() else {
        return skip::skip("OPENAB_BIN does not name a binary");
    };
    let place = Place::new();
    let gateway = ChatGateway::start().unwrap();
    let agent = vec![place.scripted_agent().display().to_string()];
    let broker = OpenAb::start(&binary, &place, &gateway, &agent).unwrap();
    talk(&gateway, "A", "!sh echo apple > mine; cat mine", "apple");
    talk(&gateway, "B", "!sh cat mine", "apple");
    assert!(broker.stop(&place), "openab ends on SIGTERM");
}

#[test]
fn two_threads_go_on_after_the_broker_was_restarted() {
    let Some(binary) = openab::binary() else {
        return skip::skip("OPENAB_BIN does not name a binary");
    };
    let place = Place::new();
    let gateway = ChatGateway::start().unwrap();
    let agent = place.scripted_agent();
    let directory = agent.parent().and_then(|path| path.to_str()).unwrap();
    let command = bridge(&place, &["--program", directory], &[agent.to_str().unwrap()]);

    let broker = OpenAb::start(&binary, &place, &gateway, &command).unwrap();
    talk(&gateway, "A", "!sh echo apple > mine; cat mine", "apple");
    talk(&gateway, "B", "!sh echo banana > mine; cat mine", "banana");
    talk(&gateway, "B", "!sh ls; echo listed", "listed");
    assert!(!broker.agents().is_empty());
    assert!(broker.stop(&place), "openab ends on SIGTERM");
    assert_no_bridge_left(&place);

    let broker = OpenAb::start(&binary, &place, &gateway, &command).unwrap();
    talk(&gateway, "A", "!sh echo after the restart: $(cat mine)", "after the restart: apple");
    talk(&gateway, "B", "!sh echo after the restart: $(cat mine)", "after the restart: banana");
    assert_apart(&gateway, ("A", "apple"), ("B", "banana"));
    assert!(broker.stop(&place), "openab ends on SIGTERM");
    assert_no_bridge_left(&place);
}

#[test]
fn opencode_remembers_the_conversation_over_a_restart_of_the_broker() {
    let Some(binary) = openab::binary() else {
        return skip::skip("OPENAB_BIN does not name a binary");
    };
    let Some(agent) = opencode::installed() else {
        return skip::skip("opencode-ai in conformance/.cache/npm");
    };
    let place = Place::new();
    let gateway = ChatGateway::start().unwrap();
    let stub = LlmStub::start().unwrap();
    let template = place.path().join("template");
    opencode::home_template(&template, &stub).unwrap();
    let text = |path: &OsStr| path.to_str().unwrap().to_owned();
    let port = stub.port().to_string();
    let template = text(template.as_os_str());
    let directory = text(agent.parent().unwrap().as_os_str());
    let command = bridge(
        &place,
        &["--home-template", &template, "--connect", &port, "--program", &directory],
        &[&text(agent.as_os_str()), "acp", "--port", "{port}"],
    );

    let broker = OpenAb::start(&binary, &place, &gateway, &command).unwrap();
    talk(&gateway, "A", "remember the apple", "the stub heard you");
    talk(&gateway, "B", "remember the banana", "the stub heard you");
    assert!(broker.stop(&place), "openab ends on SIGTERM");

    let broker = OpenAb::start(&binary, &place, &gateway, &command).unwrap();
    talk(&gateway, "A", "do: recall", "2 user texts");
    talk(&gateway, "B", "do: recall", "2 user texts");
    assert!(gateway.posted("A").iter().any(|text| text.contains("remember the apple")));
    assert!(gateway.posted("B").iter().any(|text| text.contains("remember the banana")));
    assert_apart(&gateway, ("A", "apple"), ("B", "banana"));
    assert!(broker.stop(&place), "openab ends on SIGTERM");
    assert_no_bridge_left(&place);
}
