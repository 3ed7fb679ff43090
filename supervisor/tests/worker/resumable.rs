//! The resumable door: what a client gets back after its connection broke, and who gets nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use casemate_protocol::relay::flow::{Brought, Flow};
use casemate_protocol::relay::outgoing::Kept;
use casemate_protocol::relay::{REFUSAL_HEADER, SUBPROTOCOL, TICKET_HEADER};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::client::Client;
use crate::harness::{LONG, Slot, Who, eventually};

type Socket = WebSocketStream<TcpStream>;

/// A client by the specification, that does each thing when it is told to.
pub(crate) struct Door {
    runtime: Runtime,
    address: SocketAddr,
    flow: Flow,
    socket: Option<Socket>,
    ticket: String,
    /// What came and was not looked at.
    got: Vec<Value>,
    received: u64,
    bye: Option<(u16, String)>,
    /// How many of them came.
    byes: u32,
    next: u64,
}

/// A refusal: the status, and the worker's word about the ticket.
pub(crate) type Refusal = (u16, Option<String>);

fn open(
    runtime: &Runtime,
    address: SocketAddr,
    name: &str,
    value: &str,
) -> Result<Socket, Refusal> {
    let connected = runtime.block_on(async {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut request = format!("ws://{address}/acp").into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("sec-websocket-protocol", SUBPROTOCOL.parse().unwrap());
        let name: hyper::header::HeaderName = name.parse().unwrap();
        headers.insert(name, value.parse().unwrap());
        tokio_tungstenite::client_async(request, stream).await
    });
    match connected {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], SUBPROTOCOL);
            Ok(socket)
        }
        Err(Error::Http(response)) => {
            let word = response.headers().get(REFUSAL_HEADER);
            let word = word.map(|word| word.to_str().unwrap().to_owned());
            Err((response.status().as_u16(), word))
        }
        Err(error) => panic!("{error}"),
    }
}

// === impl Door ===

impl Door {
    pub(crate) fn attach(address: SocketAddr, token: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bearer = format!("Bearer {token}");
        let socket = open(&runtime, address, "authorization", &bearer).unwrap();
        let mut flow = Flow::client();
        flow.opened();
        let mut door = Self {
            runtime,
            address,
            flow,
            socket: Some(socket),
            ticket: String::new(),
            got: Vec::new(),
            received: 0,
            bye: None,
            byes: 0,
            next: 0,
        };
        door.flush();
        while door.ticket.is_empty() {
            door.read();
        }
        door
    }

    /// The connection breaks.
    pub(crate) fn cut(&mut self) {
        self.socket = None;
        self.flow.cut();
    }

    /// Another one, by the ticket.
    pub(crate) fn again(&mut self) -> Result<(), Refusal> {
        self.socket = Some(open(&self.runtime, self.address, TICKET_HEADER, &self.ticket)?);
        self.flow.opened();
        self.flush();
        Ok(())
    }

    fn flush(&mut self) {
        let Some(socket) = &mut self.socket else { return };
        while let Some(frame) = self.flow.frame() {
            self.runtime.block_on(socket.send(Message::binary(frame))).unwrap();
        }
    }

    /// One frame, acknowledged at once.
    fn read(&mut self) {
        let message = self.next_within(LONG).expect("no frame");
        self.take(message);
    }

    /// What comes in this time, acknowledged at once.
    pub(crate) fn listen(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(message) = self.next_within(until.saturating_duration_since(Instant::now()))
        {
            self.take(message);
        }
    }

    fn next_within(&mut self, time: Duration) -> Option<Message> {
        let socket = self.socket.as_mut().expect("a connection");
        let next = async { tokio::time::timeout(time, socket.next()).await };
        let message = self.runtime.block_on(next).ok()?;
        Some(message.expect("an end").expect("a broken connection"))
    }

    /// The number of the last message of ours that was acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.flow.reach().acked
    }

    /// How many messages came.
    pub(crate) fn taken(&self) -> u64 {
        self.received
    }

    /// The number of the last message of which anything was sent.
    pub(crate) fn sent(&self) -> u64 {
        self.flow.reach().sent
    }

    fn take(&mut self, message: Message) {
        let Message::Binary(frame) = message else { return };
        match self.flow.take(&frame).unwrap() {
            Brought::Nothing | Brought::Ahead(..) => {}
            Brought::Welcome { ticket, .. } => self.ticket = ticket,
            Brought::Message(seq, line) => {
                self.received += 1;
                assert_eq!(seq, self.received, "lost or doubled");
                self.got.push(serde_json::from_slice(&line).unwrap());
                self.flow.settled(seq);
            }
            Brought::Bye(code, reason) => {
                self.bye = Some((code, reason));
                self.byes += 1;
            }
        }
        self.flush();
    }

    /// Bytes on the connection, below the WebSocket.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let stream = self.socket.as_mut().expect("a connection").get_mut();
        self.runtime.block_on(stream.write_all(bytes)).unwrap();
    }

    /// The code of the WebSocket's close, which ends all that the worker says.
    pub(crate) fn closed(&mut self) -> Option<u16> {
        let socket = self.socket.as_mut().expect("a connection");
        loop {
            let next = async { tokio::time::timeout(LONG, socket.next()).await };
            let message = self.runtime.block_on(next).expect("no close").expect("an end");
            match message.expect("a broken connection") {
                Message::Close(frame) => return frame.map(|frame| frame.code.into()),
                // What came whole is had: it will not come again.
                Message::Binary(frame) => match self.flow.take(&frame).unwrap() {
                    Brought::Message(seq, line) => {
                        self.received += 1;
                        self.got.push(serde_json::from_slice(&line).unwrap());
                        self.flow.settled(seq);
                    }
                    Brought::Bye(code, reason) => {
                        self.bye = Some((code, reason));
                        self.byes += 1;
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Reads until the worker ends the attachment; how.
    pub(crate) fn until_bye(&mut self) -> (u16, String) {
        loop {
            match self.bye.clone() {
                Some(bye) => return bye,
                None => self.read(),
            }
        }
    }

    /// How the worker ended the attachment.
    pub(crate) fn bye(&self) -> Option<(u16, String)> {
        self.bye.clone()
    }

    fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        assert_eq!(self.flow.push(line.to_string().into_bytes()), Kept::Here);
        self.flush();
        self.next
    }

    /// A message that nobody answers; its number.
    pub(crate) fn notify(&mut self, method: &str, params: Value) -> u64 {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params});
        assert_eq!(self.flow.push(line.to_string().into_bytes()), Kept::Here);
        self.flush();
        self.next += 1;
        self.next
    }

    fn answered(&self, id: u64) -> Option<usize> {
        self.got.iter().position(|message| message["id"] == id && message.get("method").is_none())
    }

    /// The answer, and all that came before it.
    pub(crate) fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        while self.answered(id).is_none() {
            self.read();
        }
        let at = self.answered(id).unwrap();
        let before = self.got.drain(..at).collect();
        (self.got.remove(0), before)
    }

    pub(crate) fn session(&mut self) -> String {
        let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let id = self.request("initialize", hello);
        self.answer(id);
        let id = self.request("session/new", json!({"cwd": "/host", "mcpServers": []}));
        self.answer(id).0["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    /// Asks for a session of before; the request's id.
    pub(crate) fn load(&mut self, session: &str) -> u64 {
        let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let id = self.request("initialize", hello);
        self.answer(id);
        self.request("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []}))
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }
}

/// The numbers of the agent's chunks, in their order.
pub(crate) fn numbers(messages: &[Value]) -> Vec<u64> {
    let text = |message: &Value| {
        let text = message["params"]["update"]["content"]["text"].as_str()?.to_owned();
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    messages.iter().filter_map(text).collect()
}

#[test]
fn a_turn_goes_on_over_cuts_and_nothing_of_it_is_lost_or_doubled() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    for cut_after in 1..20 {
        door.got.clear();
        let id = door.prompt(&session, "!updates 40 100");
        while door.answered(id).is_none() {
            if door.got.len().is_multiple_of(cut_after) {
                door.cut();
                door.again().unwrap();
            }
            let before = door.got.len();
            while door.got.len() == before {
                door.read();
            }
        }
        let (answer, updates) = door.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        let numbers = numbers(&updates);
        assert!(numbers.len() == 40 && numbers.is_sorted(), "{numbers:?}");
    }
    let status = slot.status(address);
    assert_eq!((status.epoch.0, status.attachments), (1, 1), "one attachment all the time");
    worker.stop();
}

#[test]
fn what_is_sent_while_cut_reaches_the_agent_once() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    for round in 0..10 {
        // Even rounds are cut after the prompt was sent, odd ones before.
        if round % 2 == 1 {
            door.cut();
        }
        let id = door.prompt(&session, &format!("!sh echo {round} >> prompts"));
        door.cut();
        door.again().unwrap();
        assert_eq!(door.answer(id).0["result"]["stopReason"], "end_turn");
    }
    let prompts = std::fs::read_to_string(slot.session().join("work/prompts")).unwrap();
    assert_eq!(prompts, (0..10).map(|round| format!("{round}\n")).collect::<String>());
    worker.stop();
}

#[test]
fn what_a_client_that_is_away_does_not_take_lies_on_the_disk_until_it_comes() {
    let slot = Slot::new(Tier::Namespace, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let id = door.prompt(&session, "!updates 3000 10000");
    door.cut();
    let spool = slot.config.volume.join("state/spool");
    let bytes = || {
        let files = std::fs::read_dir(&spool).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum::<u64>()
    };
    eventually("the turn ends without its client", || bytes() > 28_000_000);
    door.again().unwrap();
    let (answer, updates) = door.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let numbers = numbers(&updates);
    assert!(numbers.len() == 3000 && numbers.is_sorted(), "{}", numbers.len());
    assert_eq!(bytes(), 0);
    door.cut();
    drop(door);
    worker.stop();
}

#[test]
fn a_permission_that_is_asked_while_cut_is_delivered_once_and_answered_once() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let id = door.prompt(&session, "!perm");
    door.cut();
    door.again().unwrap();
    let asks = |got: &[Value]| {
        got.iter().filter(|line| line["method"] == "session/request_permission").count()
    };
    while asks(&door.got) == 0 {
        door.read();
    }
    door.cut();
    let ask = door
        .got
        .iter()
        .find(|line| line.get("method").is_some_and(|m| m == "session/request_permission"));
    let option = ask.unwrap()["params"]["options"][0]["optionId"].clone();
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
    let answer = json!({"jsonrpc": "2.0", "id": ask.unwrap()["id"], "result": outcome});
    assert_eq!(door.flow.push(answer.to_string().into_bytes()), Kept::Here);
    door.again().unwrap();
    let (answer, before) = door.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(asks(&before), 1);
    worker.stop();
}

#[test]
fn a_ticket_opens_its_own_attachment_of_its_own_worker_alone() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let token = slot.token(Audience::Attach);
    let mut door = Door::attach(address, &token);
    door.session();
    let refused = |ticket: &str| open(&door.runtime, address, TICKET_HEADER, ticket).unwrap_err();
    let unknown = (401, Some("unknown".to_owned()));
    assert_eq!(refused("1.AAAA"), unknown);
    assert_eq!(refused(&token), unknown);
    assert!(!worker.log().contains(&door.ticket), "a ticket in the log");

    // A newer attachment takes over: it is said on the connection, and to whoever comes back later.
    let mut newer = Door::attach(address, &token);
    while door.bye.is_none() {
        door.read();
    }
    assert_eq!(door.bye.as_ref().unwrap().0, 4001);
    door.cut();
    assert_eq!(door.again(), Err((409, Some("superseded".to_owned()))));

    // So does a plain client.
    newer.cut();
    let plain = Client::attach(address, &token).unwrap();
    eventually("the plain client took over", || {
        newer.again() == Err((409, Some("superseded".to_owned())))
    });
    drop(plain);

    // One that was left is over.
    let mut left = Door::attach(address, &token);
    left.flow.bye(1000, "detach", true);
    left.flush();
    while left.bye.is_none() {
        left.read();
    }
    left.cut();
    assert_eq!(left.again(), Err((410, Some("over".to_owned()))));
    let mut last = Door::attach(address, &token);
    worker.stop();
    last.cut();

    // The next worker of the slot is another boot.
    slot.config.generation = slot.config.generation.next();
    let (worker, address) = slot.serve();
    last.address = address;
    assert_eq!(last.again(), Err(unknown));
    worker.stop();
}

#[test]
fn a_breach_ends_the_attachment_with_1002() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let socket = door.socket.as_mut().unwrap();
    door.runtime.block_on(socket.send(Message::text("{}"))).unwrap();
    while door.bye.is_none() {
        door.read();
    }
    assert_eq!(door.bye, Some((1002, "a frame is a binary message".to_owned())));
    door.cut();
    assert_eq!(door.again(), Err((410, Some("over".to_owned()))));
    worker.stop();
}

#[test]
fn the_agents_end_is_told_after_its_last_words_also_to_a_client_that_was_away() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (mut worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let id = door.prompt(&session, "!die KILL");
    door.cut();
    std::thread::sleep(Duration::from_millis(500));
    door.again().unwrap();
    let (answer, _) = door.answer(id);
    assert_eq!(answer["error"]["data"]["casemate"]["delivery"], "interrupted", "{answer}");
    while door.bye.is_none() {
        door.read();
    }
    assert_eq!(door.bye.as_ref().unwrap().0, 4003);
    // Answered, and nothing follows: the answer to a BYE is none that is answered.
    door.flow.bye(1000, "", false);
    door.flush();
    assert_eq!((door.closed(), door.byes), (None, 1));
    drop(door);
    assert_eq!(worker.wait().code(), Some(137));
}

#[test]
fn a_prompt_that_waits_for_a_turn_is_not_acknowledged() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let first = door.prompt(&session, "!sleep 30");
    let second = door.prompt(&session, "second");
    // Said when it waits; what came before it is acknowledged soon.
    let sent = door.flow.reach().sent;
    while door.flow.reach().acked < sent - 1 {
        door.read();
    }
    assert_eq!(door.flow.reach().acked, sent - 1);
    let cancel =
        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
    assert_eq!(door.flow.push(cancel.to_string().into_bytes()), Kept::Here);
    door.flush();
    assert_eq!(door.answer(second).0["result"]["stopReason"], "cancelled");
    assert_eq!(door.answer(first).0["result"]["stopReason"], "cancelled");
    while door.flow.reach().acked < sent + 1 {
        door.read();
    }
    worker.stop();
}

#[test]
fn a_cancel_passes_a_long_prompt_and_ends_its_own_turn_alone() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let first = door.prompt(&session, "!sleep 600");
    // Three MiB, of which the connection carries one piece and no more for now.
    let text = format!("next {}", "x".repeat(3 << 20));
    let prompt = json!([{"type": "text", "text": text}]);
    door.next += 1;
    let second = door.next;
    let line = json!({"jsonrpc": "2.0", "id": second, "method": "session/prompt",
        "params": {"sessionId": session, "prompt": prompt}});
    assert_eq!(door.flow.push(line.to_string().into_bytes()), Kept::Here);
    let piece = door.flow.frame().expect("a piece");
    assert_eq!(piece.to_bytes()[0], 3, "a piece that is not the last");
    let socket = door.socket.as_mut().unwrap();
    door.runtime.block_on(socket.send(Message::binary(piece))).unwrap();
    let cancel =
        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
    // Messages: initialize, session/new, the first prompt, the second, the cancel.
    assert_eq!(door.flow.hurry(cancel.to_string().into_bytes(), 3), Kept::Here);
    let copy = door.flow.frame().expect("a copy");
    assert_eq!(copy.to_bytes()[0], 7, "a copy that goes ahead");
    let socket = door.socket.as_mut().unwrap();
    door.runtime.block_on(socket.send(Message::binary(copy))).unwrap();
    let began = std::time::Instant::now();
    while door.answered(first).is_none() {
        let socket = door.socket.as_mut().unwrap();
        let next = door.runtime.block_on(async { tokio::time::timeout(LONG, socket.next()).await });
        let Message::Binary(frame) = next.expect("no answer").unwrap().unwrap() else { continue };
        if let Brought::Message(seq, line) = door.flow.take(&frame).unwrap() {
            door.received += 1;
            door.got.push(serde_json::from_slice(&line).unwrap());
            door.flow.settled(seq);
        }
    }
    println!("cancelled after {:?}", began.elapsed());
    assert_eq!(door.answer(first).0["result"]["stopReason"], "cancelled");
    // A cut in the middle of the second: it and the cancel come whole over the next connection, which changes nothing.
    door.cut();
    door.again().unwrap();
    let (answer, updates) = door.answer(second);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(serde_json::to_string(&updates).unwrap().contains("echo: next"));
    worker.stop();
}

#[test]
fn a_client_of_whom_nothing_is_heard_for_60_s_is_cut_and_comes_back_to_everything() {
    // Neither reads, so neither answers a ping. One is owed more than the window, the other nothing.
    let (slot, quiet) = (Slot::new(Tier::Domain, Who::User), Slot::new(Tier::Domain, Who::User));
    let ((worker, address), (other, quiet_address)) = (slot.serve(), quiet.serve());
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let _plain = Client::attach(quiet_address, &quiet.token(Audience::Attach)).unwrap();
    let session = door.session();
    let id = door.prompt(&session, "!updates 3000 1000");
    let since = Instant::now();
    for worker in [&worker, &other] {
        while !worker.log().contains("silent for 60 s") {
            assert!(since.elapsed() < Duration::from_secs(150), "{}", worker.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    assert!(since.elapsed() > Duration::from_secs(59), "{:?}", since.elapsed());
    door.cut();
    door.again().unwrap();
    let (answer, updates) = door.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let numbers = numbers(&updates);
    assert!(numbers.len() == 3000 && numbers.is_sorted(), "{}", numbers.len());
    worker.stop();
    other.stop();
}
