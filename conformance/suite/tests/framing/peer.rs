//! Whoever speaks with the agent: a host over `casemate acp`, whose bytes are those of its stdin and stdout, or a client of the
//! plain door over a WebSocket.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use casemate_protocol::api::Attached;
use casemate_suite::place::Place;
use casemate_suite::recipe::{SESSION, SPELLED, write_in_pieces};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, coding::CloseCode};

const LONG: Duration = Duration::from_secs(60);

enum Way {
    Stdio { child: Child, stdin: Option<ChildStdin>, lines: Receiver<Vec<u8>> },
    Socket { runtime: Runtime, socket: Box<WebSocketStream<TcpStream>> },
}

/// See the module.
pub(crate) struct Peer {
    way: Way,
    /// How it spells the session, how the agent then reads it, and how it reads what the agent spells [`SPELLED`]. Raw JSON.
    pub(crate) spells: String,
    pub(crate) agent_reads: String,
    pub(crate) reads: String,
    /// Its own ids of the agent's requests, in place of the agent's.
    pub(crate) renames: bool,
}

// === impl Peer ===

impl Peer {
    /// A host with its bridge, with a session open.
    pub(crate) fn host(place: &Place) -> (Self, String) {
        use std::os::unix::process::CommandExt as _;
        let repository = place.repository().display().to_string();
        let mut command = place.bridge_to("casemate-framing-agent", &["--repo", &repository]);
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bridge starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout was asked for"));
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                let read = stdout.read_until(b'\n', &mut line);
                if !matches!(read, Ok(1..))
                    || line.pop() != Some(b'\n')
                    || sender.send(line).is_err()
                {
                    return;
                }
            }
        });
        let session = String::new();
        let mut peer = Self {
            way: Way::Stdio { child, stdin, lines },
            spells: session.clone(),
            agent_reads: format!("\"{SESSION}\""),
            reads: session,
            renames: true,
        };
        let session = peer.opens();
        peer.reads = format!("\"{session}\"");
        // Another text for the same name.
        peer.spells = format!("\"\\u{:04x}{}\"", u32::from(session.as_bytes()[0]), &session[1..]);
        (peer, session)
    }

    /// A client of the plain door, with the session open.
    pub(crate) fn client(attached: &Attached) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime is to be had");
        let address = attached.address;
        let token = format!("Bearer {}", attached.token);
        let socket = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("the worker listens");
            let mut request =
                format!("ws://{address}/acp").into_client_request().expect("it is one");
            request.headers_mut().insert("authorization", token.parse().expect("it is text"));
            let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
            let opened =
                tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
            opened.expect("the worker lets it in").0
        });
        let mut peer = Self {
            way: Way::Socket { runtime, socket: Box::new(socket) },
            spells: r#""framing\u002d1""#.into(),
            agent_reads: r#""framing\u002d1""#.into(),
            reads: SPELLED.into(),
            renames: false,
        };
        assert_eq!(peer.opens(), SESSION);
        peer
    }

    /// `initialize` and `session/new`; the session's name.
    fn opens(&mut self) -> String {
        self.write(
            br#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":1}}"#,
            "\n",
            &[],
        );
        let answer: Value = serde_json::from_slice(&self.read()).expect("it is JSON");
        assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
        self.write(
            br#"{"jsonrpc":"2.0","id":"n","method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#,
            "\n",
            &[],
        );
        let answer: Value = serde_json::from_slice(&self.read()).expect("it is JSON");
        answer["result"]["sessionId"].as_str().expect("a session").to_owned()
    }

    /// Writes a line in pieces: writes of their own on stdin, fragments of one message on a WebSocket, which needs no end.
    pub(crate) fn write(&mut self, line: &[u8], end: &str, pieces: &[usize]) {
        match &mut self.way {
            Way::Stdio { stdin, .. } => {
                let stdin = stdin.as_mut().expect("it is open");
                let line = [line, end.as_bytes()].concat();
                write_in_pieces(stdin, &line, pieces).expect("the bridge reads");
            }
            Way::Socket { runtime, socket } => runtime.block_on(async {
                let mut rest = line;
                let mut lengths = pieces.iter().copied().cycle();
                let mut first = true;
                loop {
                    let length = lengths.next().unwrap_or(rest.len()).min(rest.len());
                    let (piece, after) = rest.split_at(length);
                    let kind = OpCode::Data(if first { Data::Text } else { Data::Continue });
                    let frame = Frame::message(piece.to_vec(), kind, after.is_empty());
                    // One that refuses the message closes in the middle of it: what it says is read.
                    if socket.send(Message::Frame(frame)).await.is_err() {
                        return;
                    }
                    (rest, first) = (after, false);
                    if rest.is_empty() {
                        return;
                    }
                }
            }),
        }
    }

    /// The next line.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        match &mut self.way {
            Way::Stdio { lines, .. } => lines.recv_timeout(LONG).expect("a line comes"),
            Way::Socket { runtime, socket } => runtime.block_on(async {
                loop {
                    let message = tokio::time::timeout(LONG, socket.next()).await;
                    match message
                        .expect("a message comes")
                        .expect("it is open")
                        .expect("it is whole")
                    {
                        Message::Text(text) => return text.as_bytes().to_vec(),
                        Message::Close(close) => panic!("closed: {close:?}"),
                        _ => {}
                    }
                }
            }),
        }
    }

    /// The code of the close that comes next.
    pub(crate) fn closed(&mut self) -> Option<CloseCode> {
        let Way::Socket { runtime, socket } = &mut self.way else { return None };
        runtime.block_on(async {
            loop {
                match tokio::time::timeout(LONG, socket.next()).await.expect("an end comes") {
                    Some(Ok(Message::Close(close))) => return close.map(|close| close.code),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                }
            }
        })
    }

    /// The bridge's process.
    pub(crate) fn pid(&self) -> Option<i32> {
        match &self.way {
            Way::Stdio { child, .. } => Some(child.id().cast_signed()),
            Way::Socket { .. } => None,
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Way::Stdio { child, stdin, .. } = &mut self.way {
            stdin.take();
            child.kill().ok();
            child.wait().ok();
        }
    }
}
