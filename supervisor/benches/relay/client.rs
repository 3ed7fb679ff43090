//! The benchmark's client, the same for every relay: one thread, large reads and writes, frames by hand; each message is taken
//! out as one of its own and compared with what it must be. At the resumable door it does what `docs/relay.md` asks of a client
//! and no more.

use std::io::Write as _;
use std::net::TcpStream;

use crate::websocket::{self, BINARY, Frames, TEXT};

const WINDOW: u64 = 1 << 20;
/// So much is taken before it is acknowledged.
const ACKNOWLEDGE: u64 = WINDOW / 4;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const PIECE: u8 = 3;
const LAST: u8 = 4;
const ACK: u8 = 5;

/// What the resumable door numbers.
#[derive(Default)]
struct Numbers {
    sent: u64,
    position: u64,
    limit: u64,
    got: u64,
    got_position: u64,
    told: u64,
}

pub(crate) struct Client {
    stream: TcpStream,
    frames: Frames<TcpStream>,
    out: Vec<u8>,
    door: Option<Numbers>,
    ticket: Vec<u8>,
    /// The last message that came.
    last: Vec<u8>,
    /// What a message of this length must be.
    pub(crate) expected: Vec<u8>,
}

impl Client {
    /// Of a relay that makes each line a message.
    pub(crate) fn plain(port: u16) -> Self {
        Self::over(websocket::connect(port, "/", ""), None)
    }

    /// Of the resumable door.
    pub(crate) fn attach(port: u16, token: &str) -> Self {
        let more = format!(
            "Authorization: Bearer {token}\r\nSec-WebSocket-Protocol: casemate.relay.v1\r\n"
        );
        let mut client =
            Self::over(websocket::connect(port, "/acp", &more), Some(Numbers::default()));
        client.greet();
        client
    }

    /// The connection breaks.
    pub(crate) fn cut(self) -> Self {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        self
    }

    /// Waits until so many messages have come since the attachment began.
    pub(crate) fn until(&mut self, messages: u64) {
        while self.door.as_ref().is_some_and(|numbers| numbers.got < messages) {
            self.read();
        }
    }

    /// Over a new connection.
    pub(crate) fn again(self, port: u16) -> Self {
        let ticket = String::from_utf8(self.ticket).unwrap();
        let more =
            format!("casemate-ticket: {ticket}\r\nSec-WebSocket-Protocol: casemate.relay.v1\r\n");
        let mut client = Self::over(websocket::connect(port, "/acp", &more), self.door);
        client.greet();
        client
    }

    fn over(stream: TcpStream, door: Option<Numbers>) -> Self {
        let frames = Frames::new(stream.try_clone().unwrap());
        Self {
            stream,
            frames,
            out: Vec::new(),
            door,
            ticket: Vec::new(),
            last: Vec::new(),
            expected: Vec::new(),
        }
    }

    fn greet(&mut self) {
        let numbers = self.door.as_mut().unwrap();
        numbers.told = numbers.got_position;
        let told = [numbers.got, numbers.got_position + WINDOW];
        standing(&mut self.out, HELLO, told);
        self.flush();
        while self.ticket.is_empty() {
            self.read();
        }
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, line: &[u8]) {
        let Some(numbers) = &mut self.door else {
            websocket::head(&mut self.out, TEXT, line.len(), Some([0; 4]));
            return self.out.extend_from_slice(line);
        };
        numbers.sent += 1;
        numbers.position += line.len() as u64;
        websocket::head(&mut self.out, BINARY, 9 + line.len(), Some([0; 4]));
        self.out.push(LAST);
        self.out.extend(numbers.sent.to_be_bytes());
        self.out.extend_from_slice(line);
    }

    /// Whether a message of this length may be sent now.
    pub(crate) fn may(&self, length: usize) -> bool {
        self.door.as_ref().is_none_or(|numbers| numbers.position + length as u64 <= numbers.limit)
    }

    /// Sends what is queued.
    pub(crate) fn flush(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// Waits for something and takes all that is there; how many messages were completed.
    pub(crate) fn read(&mut self) -> usize {
        self.frames.fill().unwrap();
        let mut count = 0;
        while let Some(frame) = self.frames.next() {
            let mut content = frame.payload;
            if frame.kind & 0xf > 2 {
                continue;
            }
            if let Some(numbers) = &mut self.door {
                let number =
                    |at: usize| u64::from_be_bytes(frame.payload[at..at + 8].try_into().unwrap());
                match content[0] {
                    PIECE | LAST => {
                        numbers.got_position += content.len() as u64 - 9;
                        if content[0] == PIECE {
                            continue;
                        }
                        numbers.got += 1;
                        assert_eq!(number(1), numbers.got, "lost or doubled");
                        content = &content[9..];
                    }
                    ACK => {
                        numbers.limit = numbers.limit.max(number(9));
                        continue;
                    }
                    WELCOME => {
                        numbers.limit = number(17);
                        self.ticket = content[25..].to_vec();
                        continue;
                    }
                    other => panic!("frame {other}: {}", String::from_utf8_lossy(content)),
                }
            }
            count += 1;
            self.last = content.to_vec();
            assert!(self.last.len() != self.expected.len() || self.last == self.expected);
        }
        if let Some(numbers) = &mut self.door
            && numbers.got_position - numbers.told >= ACKNOWLEDGE
        {
            numbers.told = numbers.got_position;
            standing(&mut self.out, ACK, [numbers.got, numbers.got_position + WINDOW]);
            self.flush();
        }
        count
    }

    /// Sends one request and waits for the next message.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.push(line.as_bytes());
        self.flush();
        while self.read() == 0 {}
        String::from_utf8(std::mem::take(&mut self.last)).unwrap()
    }
}

fn standing(out: &mut Vec<u8>, kind: u8, numbers: [u64; 2]) {
    websocket::head(out, BINARY, 17, Some([0; 4]));
    out.push(kind);
    numbers.iter().for_each(|number| out.extend(number.to_be_bytes()));
}
