//! WebSocket (RFC 6455) by hand, blocking, for measuring alone: the least that both sides of a benchmark need.

use std::io::{self, Read, Write as _};
use std::net::TcpStream;

use base64::Engine as _;

pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;

/// The head of a whole message.
pub(crate) fn head(out: &mut Vec<u8>, kind: u8, length: usize, mask: Option<[u8; 4]>) {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    out.push(kind);
    match length {
        0..126 => out.push(masked | u8::try_from(length).unwrap()),
        126..65_536 => {
            out.push(masked | 126);
            out.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {
            out.push(masked | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend(mask.iter().flatten());
}

pub(crate) fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let (words, rest) = bytes.as_chunks_mut::<4>();
    for word in words {
        *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(mask)).to_ne_bytes();
    }
    rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

/// One frame as it lies in the buffer.
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) mask: [u8; 4],
    pub(crate) payload: &'a [u8],
}

/// Frames of a stream.
pub(crate) struct Frames<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: vec![0; 256 * 1024], start: 0, end: 0 }
    }

    /// Reads once.
    pub(crate) fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        match self.from.read(&mut self.buffer[self.end..])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                self.end += length;
                Ok(())
            }
        }
    }

    /// The next frame, if it is whole.
    pub(crate) fn next(&mut self) -> Option<Frame<'_>> {
        let bytes = &self.buffer[self.start..self.end];
        let (kind, second) = (*bytes.first()?, *bytes.get(1)?);
        let (length, mut head) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?)), 4),
            127 => (u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?), 10),
            length => (u64::from(length), 2),
        };
        let mut mask = [0; 4];
        if second & 0x80 != 0 {
            mask = *bytes.get(head..)?.first_chunk()?;
            head += 4;
        }
        let end = head + usize::try_from(length).unwrap();
        let payload = bytes.get(head..end)?;
        self.start += end;
        Some(Frame { kind, mask, payload })
    }
}

/// Up to the end of an HTTP head.
fn http_head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// The server's handshake.
pub(crate) fn accept(stream: &mut TcpStream) {
    let head = http_head(stream);
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )
    .unwrap();
}

/// The client's handshake with further header lines.
pub(crate) fn connect(port: u16, path: &str, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let key = base64::engine::general_purpose::STANDARD.encode([7; 16]);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {key}\r\n{more}\r\n"
    )
    .unwrap();
    let head = http_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}
