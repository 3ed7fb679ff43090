//! One turn at a time.

use super::super::turns::{MOST_BYTES, MOST_WAITING, NOISY, PAUSE, QUIET};
use super::*;

#[test]
fn a_prompt_is_saved_and_journaled_as_the_conversation_shows_it() {
    let mut room = Room::talking();
    let line = r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"a"},{"x":1.0}]}}"#;
    let chunk = |block: &str| {
        format!(
            r#"journal s {{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"user_message_chunk","content":{block}}}}}}}"#
        )
    };
    assert_eq!(
        room.client(1, line),
        [
            "save s true".to_owned(),
            chunk(r#"{"type":"text","text":"a"}"#),
            chunk(r#"{"x":1.0}"#),
            format!("agent< {}", line.replace(r#""id":2"#, r#""id":3"#)),
        ]
    );
    assert_eq!(room.agent(&done(3)), [format!("1< {}", done(2))]);
    assert_eq!(
        room.client(1, &prompt("3", "s", "b")),
        [said("s", "b"), format!("agent< {}", prompt("4", "s", "b"))],
        "saved once"
    );
}

#[test]
fn a_second_prompt_waits_visibly_and_starts_when_the_first_is_answered() {
    let mut room = Room::in_turn();
    room.now = 7;
    let notice = room.client(1, &prompt("3", "s", "again"));
    assert_eq!(notice.len(), 1);
    for part in ["1< ", r#""sessionUpdate":"tool_call","#, "casemate-wait-7-1", "waiting for"] {
        assert!(notice[0].contains(part), "{part} in {notice:?}");
    }
    let next = room.agent(&done(3));
    assert_eq!(next[0], format!("1< {}", done(2)));
    assert!(next[1].contains(r#""toolCallId":"casemate-wait-7-1","status":"completed""#));
    assert_eq!(next[2..], [said("s", "again"), format!("agent< {}", prompt("4", "s", "again"))]);
}

#[test]
fn a_turn_of_another_conversation_is_waited_for_too() {
    let mut room = Room::in_turn();
    room.client(1, r#"{"id":8,"method":"session/new","params":{}}"#);
    room.agent(r#"{"id":4,"result":{"sessionId":"t"}}"#);
    assert!(room.client(1, &prompt("3", "t", "x"))[0].contains("tool_call"));
    assert_eq!(*room.agent(&done(3)).last().unwrap(), format!("agent< {}", prompt("5", "t", "x")));
}

#[test]
fn a_detached_turn_runs_to_its_end_and_the_next_client_waits_behind_it() {
    let mut room = Room::in_turn();
    assert_eq!(room.leave(1), none());
    let chunk = update("s", "agent_message_chunk", "unseen");
    assert_eq!(room.agent(&chunk), [format!("journal s {chunk}")]);
    room.join(2);
    room.client(2, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    assert_eq!(room.client(2, &prompt("2", "s", "next")).len(), 1);
    let chunk = update("s", "agent_message_chunk", "seen");
    assert_eq!(room.agent(&chunk), [format!("journal s {chunk}"), format!("2< {chunk}")]);
    let next = room.agent(&done(3));
    assert!(!next.iter().any(|action| action.contains("end_turn")), "the answer was client 1's");
    assert_eq!(*next.last().unwrap(), format!("agent< {}", prompt("4", "s", "next")));
    assert_eq!(room.agent(&done(4)), [format!("2< {}", done(2))]);
}

#[test]
fn a_waiting_prompt_is_dropped_with_its_connection() {
    let mut room = Room::in_turn();
    room.client(1, &prompt("3", "s", "never"));
    assert_eq!(room.leave(1), ["log"]);
    assert_eq!(room.agent(&done(3)), none());
    assert!(matches!(room.server.activity(0), Activity::Idle { .. }));
}

#[test]
fn a_client_that_prompts_without_a_load_sees_its_turn() {
    let mut room = Room::talking();
    room.leave(1);
    room.join(2);
    room.client(2, &prompt("1", "s", "x"));
    let chunk = update("s", "agent_message_chunk", "y");
    assert_eq!(room.agent(&chunk), [format!("journal s {chunk}"), format!("2< {chunk}")]);
}

#[test]
fn a_prompt_to_a_conversation_that_does_not_live_is_the_agents_to_refuse() {
    let mut room = Room::talking();
    assert_eq!(
        room.client(1, &prompt("2", "zz", "x")),
        ["save s true".to_owned(), format!("agent< {}", prompt("3", "zz", "x"))]
    );
    assert_eq!(
        room.agent(r#"{"id":3,"error":{"code":-32002,"message":"?"}}"#),
        [r#"1< {"id":2,"error":{"code":-32002,"message":"?"}}"#]
    );
    assert_eq!(room.client(1, &prompt("3", "s", "x")).len(), 2, "its turn is over");
}

#[test]
fn a_prompt_without_a_conversation_is_refused() {
    let mut room = Room::talking();
    let answer = room.client(1, r#"{"id":2,"method":"session/prompt","params":{"prompt":[]}}"#);
    assert!(answer[0].contains(r#""id":2,"error":{"code":-32602"#));
    assert!(matches!(room.server.activity(0), Activity::Idle { .. }));
}

#[test]
fn activity_counts_from_the_first_prompt_to_the_last_answer() {
    let mut room = Room::talking();
    room.now = 100;
    assert_eq!(room.server.activity(100), Activity::Idle { for_ms: 100 });
    room.client(1, &prompt("2", "s", "a"));
    room.now = 150;
    room.client(1, &prompt("3", "s", "b"));
    room.now = 200;
    room.agent(&done(3));
    assert_eq!(room.server.activity(250), Activity::Busy { for_ms: 150 });
    room.agent(&done(4));
    assert_eq!(room.server.activity(250), Activity::Idle { for_ms: 50 });
}

#[test]
fn quiesce_needs_rest_and_sends_new_prompts_to_another_worker() {
    let mut room = Room::in_turn();
    assert!(!room.server.quiesce());
    room.agent(&done(3));
    assert!(room.server.quiesce());
    assert_eq!(room.server.activity(0), Activity::Quiesced);
    let answer = room.client(1, &prompt("3", "s", "x"));
    assert_eq!(answer.len(), 1);
    assert!(answer[0].contains(r#""id":3,"error":{"code":-32050"#), "{answer:?}");
    assert!(
        answer[0].contains(r#""data":{"casemate":{"delivery":"not_delivered","reattach":true}}"#)
    );
    room.server.reopen();
    assert_eq!(room.client(1, &prompt("4", "s", "x")).len(), 2);
}

const CANCEL: &str = r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#;

#[test]
fn after_a_cancelled_turn_the_next_prompt_waits_until_the_agent_is_quiet() {
    let mut room = Room::in_turn();
    room.client(1, CANCEL);
    room.agent(&done(3));
    assert_eq!(room.client(1, &prompt("3", "s", "next")), none(), "no notice for so short a time");
    assert!(!room.server.quiesce());
    room.now = QUIET - 1;
    let late = update("s", "agent_message_chunk", "late");
    assert_eq!(room.agent(&late), [format!("journal s {late}")]);
    room.now = QUIET;
    assert_eq!(room.event(Event::Tick), none(), "it was not quiet");
    assert_eq!(room.server.deadline(), Some(2 * QUIET - 1));
    room.now = 2 * QUIET - 1;
    assert_eq!(
        room.event(Event::Tick),
        [said("s", "next"), format!("agent< {}", prompt("4", "s", "next"))]
    );
    assert_eq!(room.server.deadline(), None);
}

#[test]
fn what_an_agent_says_behind_any_answer_is_in_no_turn_of_a_prompt_that_waits() {
    let mut room = Room::in_turn();
    room.client(1, &prompt("3", "s", "next"));
    assert_eq!(room.hears(&done(3)), [format!("1< {}", done(2))]);
    room.now = PAUSE - 1;
    let late = update("s", "agent_message_chunk", "late");
    assert_eq!(room.hears(&late), [format!("journal s {late}")]);
    room.now = PAUSE;
    assert_eq!(room.event(Event::Tick), none(), "it was not quiet");
    room.now = PAUSE - 1 + QUIET;
    let next = room.event(Event::Tick);
    assert_eq!(*next.last().unwrap(), format!("agent< {}", prompt("4", "s", "next")));
    assert_eq!(room.server.deadline(), None);
}

#[test]
fn an_agent_that_is_never_quiet_does_not_hold_the_next_prompt_for_ever() {
    let mut room = Room::in_turn();
    room.client(1, r#"{"method":"$/cancel_request","params":{"requestId":2}}"#);
    room.agent(&done(3));
    room.client(1, &prompt("3", "s", "next"));
    let late = update("s", "agent_message_chunk", "late");
    for now in (0..NOISY).step_by(50) {
        room.now = now;
        assert_eq!(room.agent(&late).len(), 1, "at {now}");
    }
    assert_eq!(room.server.deadline(), Some(NOISY));
    room.now = NOISY;
    assert_eq!(room.event(Event::Tick).len(), 2);
}

#[test]
fn a_prompt_that_comes_when_the_agent_has_long_been_quiet_starts_at_once() {
    let mut room = Room::in_turn();
    room.client(1, CANCEL);
    room.agent(&done(3));
    room.now = QUIET;
    room.event(Event::Tick);
    assert_eq!(room.client(1, &prompt("3", "s", "next")).len(), 2);
}

#[test]
fn a_turn_whose_answer_is_not_passed_on_ends_with_an_error() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for result in [
        format!(r#""result":{{"x":{deep}}}"#),
        r#""result":{"stopReason":"end_turn","SessionId":"t"}"#.to_owned(),
        r#""result":{"stopReason":"end_turn"},"Method":"fs/read_text_file""#.to_owned(),
    ] {
        let mut room = Room::in_turn();
        let told = room.agent(&format!(r#"{{"jsonrpc":"2.0","id":3,{result}}}"#));
        assert_eq!(told[0], "log");
        assert!(
            told[1].starts_with(r#"1< {"jsonrpc":"2.0","id":2,"error":{"code":-32603"#),
            "{told:?}"
        );
        assert_eq!(
            room.client(1, &prompt("3", "s", "again")),
            [said("s", "again"), format!("agent< {}", prompt("4", "s", "again"))]
        );
    }
}

/// What a client is told whose prompt may not wait.
fn turned_away(told: &[String], id: &str) -> bool {
    let start = format!(r#"1< {{"jsonrpc":"2.0","id":{id},"error":{{"code":-32050,"#);
    told.len() == 1
        && told[0].starts_with(&start)
        && told[0].ends_with(r#""data":{"casemate":{"delivery":"not_delivered"}}}}"#)
}

#[test]
fn prompts_that_wait_are_bounded_in_number_and_whoever_finds_no_room_is_told() {
    let mut room = Room::in_turn();
    let first = 3;
    for id in first..first + MOST_WAITING {
        assert_eq!(room.client(1, &prompt(&id.to_string(), "s", "x")).len(), 1);
    }
    let told = room.client(1, &prompt("\"more\"", "s", "x"));
    assert!(turned_away(&told, "\"more\""), "{told:?}");
    room.agent(&done(3));
    let told = room.client(1, &prompt("\"again\"", "s", "x"));
    assert!(told[0].contains("waiting for"), "{told:?}");
}

#[test]
fn prompts_that_wait_are_bounded_in_bytes_but_one_alone_is_not() {
    let mut room = Room::in_turn();
    let long = "x".repeat(MOST_BYTES);
    assert!(room.client(1, &prompt("3", "s", &long))[0].contains("waiting for"));
    let told = room.client(1, &prompt("4", "s", "x"));
    assert!(turned_away(&told, "4"), "{told:?}");
    // Where it waits for a cancelled turn's rest as well.
    let mut room = Room::in_turn();
    room.client(1, CANCEL);
    room.agent(&done(3));
    assert_eq!(room.client(1, &prompt("3", "s", "x")), none());
    let told = room.client(1, &prompt("4", "s", &long));
    assert!(turned_away(&told, "4"), "{} bytes", told.concat().len());
}
