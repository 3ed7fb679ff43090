//! Frames: one binary WebSocket message each. A type, then big-endian numbers, then bytes to the message's end.

use std::borrow::Cow;

use bytes::Bytes;

use super::Violation;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const PIECE: u8 = 3;
const LAST: u8 = 4;
const ACK: u8 = 5;
const BYE: u8 = 6;
const AHEAD: u8 = 7;

/// The bytes of a piece before its content.
pub const PIECE_HEAD: usize = 9;

/// What one side tells the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The client's greeting.
    Hello(Standing),
    /// The worker's greeting.
    Welcome {
        /// Names the attachment within its worker.
        epoch: u64,
        /// Where the worker stands.
        standing: Standing,
        /// What reconnects.
        ticket: Cow<'a, str>,
    },
    /// A part of a message.
    Piece {
        /// The message's number; the first is 1.
        seq: u64,
        /// It is the message's last.
        last: bool,
        /// Its content.
        bytes: Cow<'a, [u8]>,
    },
    /// Where the receiver stands.
    Ack(Standing),
    /// A copy of a whole message that goes ahead of those before it.
    Ahead {
        /// The number under which the message itself will come.
        seq: u64,
        /// Its content.
        bytes: Cow<'a, [u8]>,
    },
    /// Nothing follows, on any connection.
    Bye {
        /// A code of [`crate::codes::close`].
        code: u16,
        /// For people.
        reason: Cow<'a, str>,
    },
}

/// A frame to send, whose bytes are those of both parts. A piece shares its content with the message, whoever sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    head: Option<[u8; PIECE_HEAD]>,
    /// What follows the head.
    pub body: Bytes,
}

/// How far a receiver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// In a greeting: the last message that was received whole. In an acknowledgement: the last that was dealt with.
    pub seq: u64,
    /// Up to which position bytes may be sent. The position of a byte is the length of all messages before its own,
    /// plus its place in its own.
    pub limit: u64,
}

// === impl Frame ===

impl<'a> Frame<'a> {
    /// Reads one.
    ///
    /// # Errors
    /// [`Violation::Malformed`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Violation> {
        let (kind, rest) = bytes.split_first().ok_or(Violation::Malformed)?;
        match *kind {
            HELLO => alone(rest).map(Self::Hello),
            ACK => alone(rest).map(Self::Ack),
            WELCOME => {
                let (epoch, rest) = number(rest)?;
                let (standing, rest) = standing(rest)?;
                Ok(Self::Welcome { epoch, standing, ticket: text(rest)? })
            }
            PIECE | LAST => {
                let (seq, rest) = number(rest)?;
                Ok(Self::Piece { seq, last: *kind == LAST, bytes: rest.into() })
            }
            AHEAD => {
                let (seq, rest) = number(rest)?;
                Ok(Self::Ahead { seq, bytes: rest.into() })
            }
            BYE => {
                let (code, rest) = rest.split_first_chunk().ok_or(Violation::Malformed)?;
                Ok(Self::Bye { code: u16::from_be_bytes(*code), reason: text(rest)? })
            }
            _ => Err(Violation::Malformed),
        }
    }

    /// Writes it.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from(match self {
            Self::Hello(standing) => with_standing(vec![HELLO], *standing),
            Self::Ack(standing) => with_standing(vec![ACK], *standing),
            Self::Welcome { epoch, standing, ticket } => {
                let mut out = vec![WELCOME];
                out.extend(epoch.to_be_bytes());
                let mut out = with_standing(out, *standing);
                out.extend(ticket.as_bytes());
                out
            }
            Self::Piece { seq, last, bytes } => {
                let mut out = Vec::with_capacity(PIECE_HEAD + bytes.len());
                out.push(if *last { LAST } else { PIECE });
                out.extend(seq.to_be_bytes());
                out.extend_from_slice(bytes);
                out
            }
            Self::Ahead { seq, bytes } => {
                let mut out = vec![AHEAD];
                out.extend(seq.to_be_bytes());
                out.extend_from_slice(bytes);
                out
            }
            Self::Bye { code, reason } => {
                let mut out = vec![BYE];
                out.extend(code.to_be_bytes());
                out.extend(reason.as_bytes());
                out
            }
        })
    }
}

// === impl Packet ===

impl Packet {
    /// A part of a message.
    #[must_use]
    pub fn piece(seq: u64, last: bool, bytes: Bytes) -> Self {
        let mut head = [0; PIECE_HEAD];
        head[0] = if last { LAST } else { PIECE };
        head[1..].copy_from_slice(&seq.to_be_bytes());
        Self { head: Some(head), body: bytes }
    }

    /// What stands before the body.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.head.as_ref().map_or(&[], |head| head)
    }

    /// All of it.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.head {
            None => self.body.clone(),
            Some(head) => [&head, &self.body[..]].concat().into(),
        }
    }
}

impl From<Packet> for Bytes {
    fn from(packet: Packet) -> Self {
        packet.to_bytes()
    }
}

impl From<&Frame<'_>> for Packet {
    fn from(frame: &Frame<'_>) -> Self {
        Self { head: None, body: frame.to_bytes() }
    }
}

fn with_standing(mut out: Vec<u8>, standing: Standing) -> Vec<u8> {
    out.extend(standing.seq.to_be_bytes());
    out.extend(standing.limit.to_be_bytes());
    out
}

fn number(bytes: &[u8]) -> Result<(u64, &[u8]), Violation> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Violation::Malformed)?;
    Ok((u64::from_be_bytes(*number), rest))
}

fn standing(bytes: &[u8]) -> Result<(Standing, &[u8]), Violation> {
    let (seq, rest) = number(bytes)?;
    let (limit, rest) = number(rest)?;
    Ok((Standing { seq, limit }, rest))
}

fn alone(bytes: &[u8]) -> Result<Standing, Violation> {
    match standing(bytes)? {
        (standing, []) => Ok(standing),
        _ => Err(Violation::Malformed),
    }
}

fn text(bytes: &[u8]) -> Result<Cow<'_, str>, Violation> {
    std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| Violation::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<(Frame<'static>, Vec<u8>)> {
        let standing = Standing { seq: 2, limit: 0x0010_0000 };
        let told = [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0x10, 0, 0];
        let with = |head: &[u8], tail: &[u8]| [head, &told[..], tail].concat();
        let piece = |last| Frame::Piece { seq: 3, last, bytes: b"{}"[..].into() };
        vec![
            (Frame::Hello(standing), with(&[1], b"")),
            (
                Frame::Welcome { epoch: 7, standing, ticket: "7.abc".into() },
                with(&[2, 0, 0, 0, 0, 0, 0, 0, 7], b"7.abc"),
            ),
            (piece(false), b"\x03\0\0\0\0\0\0\0\x03{}".to_vec()),
            (piece(true), b"\x04\0\0\0\0\0\0\0\x03{}".to_vec()),
            (Frame::Ack(standing), with(&[5], b"")),
            (
                Frame::Ahead { seq: 3, bytes: b"{}"[..].into() },
                b"\x07\0\0\0\0\0\0\0\x03{}".to_vec(),
            ),
            (Frame::Bye { code: 4003, reason: "gone".into() }, b"\x06\x0f\xa3gone".to_vec()),
        ]
    }

    #[test]
    fn frames_have_the_bytes_of_the_specification() {
        for (frame, bytes) in examples() {
            assert_eq!(frame.to_bytes(), bytes, "{frame:?}");
            assert_eq!(Frame::parse(&bytes).as_ref(), Ok(&frame));
        }
    }

    #[test]
    fn what_is_cut_short_too_long_or_unknown_is_no_frame() {
        for (frame, bytes) in examples() {
            let head = match frame {
                Frame::Hello(_) | Frame::Ack(_) => 17,
                Frame::Welcome { .. } => 25,
                Frame::Piece { .. } | Frame::Ahead { .. } => 9,
                Frame::Bye { .. } => 3,
            };
            for short in 0..head {
                assert_eq!(Frame::parse(&bytes[..short]), Err(Violation::Malformed));
            }
        }
        for wrong in [&[0][..], &[8, 0, 0], &[1; 18], b"\x06\x0f\xa3\xff"] {
            assert_eq!(Frame::parse(wrong), Err(Violation::Malformed), "{wrong:?}");
        }
    }
}
