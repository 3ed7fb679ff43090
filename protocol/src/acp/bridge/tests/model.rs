//! Whatever three sessions of one bridge do, no id crosses and nothing else of a line changes.

use super::*;

/// One thing that a host or an agent does in the model below; numbers choose the session.
#[derive(Debug, Clone)]
enum Deed {
    Prompt(usize, String),
    Update(usize, String),
    Ask(usize, &'static str),
    AnswerAll,
    Finish(usize),
    Cancel(usize),
    Break(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    let text = "[ a-z\\\\\"é🙂]{0,12}";
    let ask = prop::sample::select(vec![
        "session/request_permission",
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/kill",
        "_vendor/x",
        "elicitation/create",
        "",
    ]);
    prop_oneof![
        (0..3usize, text).prop_map(|(at, text)| Deed::Prompt(at, text)),
        (0..3usize, text).prop_map(|(at, text)| Deed::Update(at, text)),
        (0..3usize, ask).prop_map(|(at, method)| Deed::Ask(at, method)),
        Just(Deed::AnswerAll),
        (0..3usize).prop_map(Deed::Finish),
        (0..3usize).prop_map(Deed::Cancel),
        (0..3usize).prop_map(Deed::Break),
    ]
}

struct Room {
    link: Option<Link>,
    session: SessionId,
    acp: String,
    open: Vec<u64>,
}

proptest! {
    #[test]
    fn ids_never_cross_and_nothing_else_changes(deeds in prop::collection::vec(deed(), 1..60)) {
        let mut stage = Stage::initialized(None);
        let mut rooms: Vec<Room> = (0..3)
            .map(|n| {
                let acp = format!("AGENT{n}");
                let (link, session) = stage.opens(&acp);
                Room { link: Some(link), session, acp, open: Vec::new() }
            })
            .collect();
        let mut asked: Vec<(Value, usize)> = Vec::new();
        for deed in deeds {
            let mut copy: Option<String> = None;
            match deed {
                Deed::Prompt(at, text) => {
                    stage.next_id += 1;
                    let id = stage.next_id;
                    // Odd spacing, escapes and numbers, as a host may write them.
                    let line = format!(
                        r#" {{ "params":{{"x":1.0e+2,"sessionId":"{}", "prompt":[{{"text":{}}}]}},"id":{id} ,"method":"session/prompt" }}"#,
                        rooms[at].session, json!(text)
                    );
                    stage.happens(Event::FromHost(line.as_bytes()));
                    rooms[at].open.push(id);
                    copy = Some(line.replace(rooms[at].session.as_str(), &rooms[at].acp));
                    if rooms[at].link.is_none() {
                        let (session, acp) = (rooms[at].session.clone(), rooms[at].acp.clone());
                        let link = stage.attaches(&session, Some(&acp), false);
                        stage.answers(link, "casemate", json!({}));
                        rooms[at].link = Some(link);
                    }
                    let link = rooms[at].link.unwrap();
                    prop_assert!(stage.said.contains(&Action::ToWorker(link, copy.take().unwrap().into_bytes())));
                }
                Deed::Update(at, text) => {
                    let Some(link) = rooms[at].link else { continue };
                    let line = format!(
                        r#"{{"method":"session/update", "params":{{"update":{{"t":{},"n":-0.0}} ,"sessionId":"{}"}},"_meta":null}}"#,
                        json!(text), rooms[at].acp
                    );
                    stage.happens(Event::FromWorker(link, line.as_bytes()));
                    copy = Some(line.replace(&rooms[at].acp, rooms[at].session.as_str()));
                }
                Deed::Ask(at, method) => {
                    let Some(link) = rooms[at].link else { continue };
                    stage.worker(link, &json!({"id":format!("own-{at}"),"method":method,"params":{"sessionId":rooms[at].acp}}));
                }
                Deed::AnswerAll => {
                    for (id, at) in asked.drain(..) {
                        stage.said.clear();
                        stage.host(&json!({"id":id,"result":{}}));
                        let own = format!("own-{at}");
                        for action in &stage.said {
                            let Action::ToWorker(link, line) = action else { continue };
                            prop_assert_eq!(Some(*link), rooms[at].link);
                            prop_assert!(String::from_utf8_lossy(line).contains(&own));
                        }
                    }
                }
                Deed::Finish(at) => {
                    let (Some(link), Some(id)) = (rooms[at].link, rooms[at].open.pop()) else { continue };
                    stage.answers(link, id, json!({"stopReason":"end_turn","sessionId":rooms[at].acp}));
                    let told = stage.told();
                    prop_assert_eq!(&told.last().unwrap()["id"], &json!(id));
                    prop_assert_eq!(&told.last().unwrap()["result"]["sessionId"], &json!(rooms[at].session));
                }
                Deed::Cancel(at) => {
                    stage.host(&json!({"method":"session/cancel","params":{"sessionId":rooms[at].session}}));
                }
                Deed::Break(at) => {
                    let Some(link) = rooms[at].link.take() else { continue };
                    stage.ends(link, None);
                    let lost = rooms[at].open.drain(..).count();
                    prop_assert_eq!(stage.told().len(), lost);
                    asked.retain(|(_, owner)| *owner != at);
                }
            }
            if let Some(copy) = copy {
                prop_assert!(stage.said.contains(&Action::ToHost(copy.into_bytes())));
            }
            for action in std::mem::take(&mut stage.said) {
                match action {
                    Action::ToHost(line) => {
                        let text = String::from_utf8(line).unwrap();
                        prop_assert!(!text.contains("AGENT"), "an agent's id reached the host: {}", text);
                        prop_assert!(!text.contains("fs/") && !text.contains("terminal/"), "{}", text);
                        let line: Value = serde_json::from_str(&text).unwrap();
                        if line.get("method").is_some() && line.get("id").is_some() {
                            let at = rooms.iter().position(|room| line["params"]["sessionId"] == room.session.as_str());
                            asked.push((line["id"].clone(), at.unwrap()));
                        }
                    }
                    Action::ToWorker(link, line) => {
                        let text = String::from_utf8(line).unwrap();
                        let at = rooms.iter().position(|room| room.link == Some(link));
                        for (n, room) in rooms.iter().enumerate() {
                            prop_assert!(!text.contains(room.session.as_str()), "{}", text);
                            prop_assert!(at == Some(n) || !text.contains(&room.acp), "{}", text);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
