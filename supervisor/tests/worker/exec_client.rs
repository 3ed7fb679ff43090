//! A client of `/v1/exec`, blocking, for tests.

use std::net::SocketAddr;

use casemate_protocol::exec::{
    self, ExecEnd, ExecRequest, TerminalSize, Window, channel, read_taken,
};
use casemate_protocol::token::Audience;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::harness::{LONG, Slot};

pub(crate) struct Exec {
    runtime: Runtime,
    socket: WebSocketStream<TcpStream>,
    stdin: Window,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) closed: Vec<u8>,
    /// False: what comes is kept, and never said to have been taken.
    pub(crate) takes: bool,
}

pub(crate) fn request(argv: &[&str]) -> ExecRequest {
    ExecRequest { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..Default::default() }
}

pub(crate) fn sh(script: &str) -> ExecRequest {
    request(&["sh", "-c", script])
}

pub(crate) fn on_terminal(script: &str) -> ExecRequest {
    ExecRequest { tty: Some(TerminalSize { width: 90, height: 25 }), ..sh(script) }
}

/// Runs a command to its end, without stdin: end, stdout, stderr.
pub(crate) fn ran(
    slot: &Slot,
    address: SocketAddr,
    request: &ExecRequest,
) -> (ExecEnd, String, String) {
    Exec::start(slot, address, request).outcome()
}

pub(crate) fn exited(code: u8) -> ExecEnd {
    ExecEnd::Exited { code, signal: None }
}

// === impl Exec ===

impl Exec {
    pub(crate) fn start(slot: &Slot, address: SocketAddr, request: &ExecRequest) -> Self {
        Self::with(address, &slot.token(Audience::Exec), request)
    }

    /// Starts a command with this token.
    pub(crate) fn with(address: SocketAddr, token: &str, request: &ExecRequest) -> Self {
        let mut exec = Self::connect(address, token).unwrap();
        exec.send(Message::text(serde_json::to_string(request).unwrap()));
        exec
    }

    /// Connects; the HTTP status where that is refused.
    pub(crate) fn connect(address: SocketAddr, token: &str) -> Result<Self, u16> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connected = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let mut request = format!("ws://{address}/v1/exec").into_client_request().unwrap();
            let bearer = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", bearer);
            tokio_tungstenite::client_async(request, stream).await
        });
        match connected {
            Ok((socket, _)) => Ok(Self {
                runtime,
                socket,
                stdin: Window::default(),
                stdout: Vec::new(),
                stderr: Vec::new(),
                closed: Vec::new(),
                takes: true,
            }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn send(&mut self, message: Message) {
        self.runtime.block_on(self.socket.send(message)).unwrap();
    }

    pub(crate) fn say(&mut self, channel: u8, data: &[u8]) {
        self.send(Message::binary(exec::message(channel, data)));
    }

    pub(crate) fn close_stdin(&mut self) {
        self.say(channel::CLOSE, &[channel::STDIN]);
    }

    /// Sends all of it, as there is room.
    pub(crate) fn feed(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let room = self.stdin.room().min(data.len()).min(exec::MAX_MESSAGE - 1);
            if room == 0 {
                assert_eq!(self.next(), None, "no end before everything was read");
                continue;
            }
            let (now, rest) = data.split_at(room);
            self.say(channel::STDIN, now);
            self.stdin.sent(room);
            data = rest;
        }
    }

    /// Room for stdin; falls while the command takes nothing.
    pub(crate) fn room(&self) -> usize {
        self.stdin.room()
    }

    /// Takes one message; the end, if it is that.
    pub(crate) fn next(&mut self) -> Option<ExecEnd> {
        let message = self.runtime.block_on(async {
            tokio::time::timeout(LONG, self.socket.next()).await.expect("no message")
        });
        let Message::Binary(message) = message.expect("a message").expect("a message") else {
            return None;
        };
        let data = &message[1..];
        match message[0] {
            output @ (channel::STDOUT | channel::STDERR) => {
                let kept =
                    if output == channel::STDOUT { &mut self.stdout } else { &mut self.stderr };
                kept.extend_from_slice(data);
                let total = kept.len() as u64;
                if self.takes {
                    self.send(Message::binary(exec::taken(output, total)));
                }
                None
            }
            channel::CLOSE => {
                self.closed.push(data[0]);
                None
            }
            channel::TAKEN => {
                let (of, total) = read_taken(data).unwrap();
                assert!(of == channel::STDIN && self.stdin.taken(total));
                None
            }
            channel::STATUS => Some(serde_json::from_slice(data).unwrap()),
            other => panic!("channel {other}"),
        }
    }

    pub(crate) fn end(&mut self) -> ExecEnd {
        loop {
            if let Some(end) = self.next() {
                return end;
            }
        }
    }

    /// Waits until stdout holds this.
    pub(crate) fn until(&mut self, words: &str) {
        while !String::from_utf8_lossy(&self.stdout).contains(words) {
            let end = self.next();
            assert_eq!(end, None, "{:?} {:?}", self.text(), String::from_utf8_lossy(&self.stderr));
        }
    }

    /// Without stdin, to its end: end, stdout, stderr.
    pub(crate) fn outcome(mut self) -> (ExecEnd, String, String) {
        self.close_stdin();
        let end = self.end();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (end, text(&self.stdout), text(&self.stderr))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Whether nothing more comes for a while.
    pub(crate) fn is_quiet(&mut self, time: std::time::Duration) -> bool {
        self.runtime
            .block_on(async { tokio::time::timeout(time, self.socket.next()).await.is_err() })
    }

    /// How the connection was closed.
    pub(crate) fn close_code(&mut self) -> Option<u16> {
        loop {
            let message = self.runtime.block_on(async {
                tokio::time::timeout(LONG, self.socket.next()).await.expect("no close")
            });
            match message {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }
}
