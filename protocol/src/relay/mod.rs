//! The resumable door: subprotocol `casemate.relay.v1` as two state machines. No IO, no clock.
//!
//! One *attachment* carries numbered messages both ways over any number of connections, one after the other. Each side
//! keeps what it sent until the other has acknowledged it, and sends exactly the missing part over the next connection.
//! `docs/relay.md` is the specification; a client can be written from it alone.
//!
//! | part | owns |
//! |---|---|
//! | [`frame`] | the bytes of a frame |
//! | [`outgoing`] | messages that are not acknowledged: in memory, then in the driver's spool |
//! | [`incoming`] | what was received: reassembly, duplicates, acknowledgement, the window |
//! | [`flow`] | both of one end, and the greeting of each connection |
//! | [`ticket`] | what reconnects, for the current epoch of one worker alone |
//! | [`supervisor`] | the worker's end: how long a cut attachment is kept, how it ends |
//! | [`bridge`] | the client's end: when to dial again, when to give up |
//! | [`reach`] | how far a message got, as a word for the one who waits for its answer |
//!
//! Invariants: each message is given out once, in order, or its attachment ends; nothing is dropped to save memory: a
//! driver that cannot keep more stops its source.

pub mod bridge;
pub mod flow;
pub mod frame;
pub mod incoming;
pub mod outgoing;
pub mod reach;
pub mod supervisor;
#[cfg(test)]
mod tests;
pub mod ticket;

/// The name that a client offers in `Sec-WebSocket-Protocol` (RFC 6455 section 11.3.4).
pub const SUBPROTOCOL: &str = "casemate.relay.v1";

/// The request header that carries a ticket, in place of `Authorization`.
pub const TICKET_HEADER: &str = "casemate-ticket";

/// The header of a refusal that tells why a ticket does not reconnect ([`ticket::Refused`]).
pub const REFUSAL_HEADER: &str = "casemate-refusal";

/// The longest piece of a message, in bytes.
pub const PIECE: usize = 1024 * 1024;

/// How many bytes a receiver takes ahead of what it has dealt with.
pub const WINDOW: u64 = 1024 * 1024;

/// The longest message of which a copy may go ahead of others, in bytes.
pub const LANE: usize = 64 * 1024;

/// How long the worker keeps an attachment whose connection is cut, in milliseconds.
pub const KEEP_MS: u64 = 10 * 60 * 1000;

/// How long a worker that is ending waits for a cut client to come and hear it, in milliseconds.
pub const FAREWELL_MS: u64 = 2_000;

/// What a peer did that the specification forbids. The attachment is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Violation {
    /// Not a frame.
    #[error("a frame is malformed")]
    Malformed,
    /// No greeting first, or a second one, or the other side's.
    #[error("a connection begins with one greeting")]
    Greeting,
    /// A message number was left out, or a piece belongs to another message.
    #[error("message {got} came where {wanted} was due")]
    Gap {
        /// The number that was due.
        wanted: u64,
        /// The number that came.
        got: u64,
    },
    /// More bytes than the window allows.
    #[error("more was sent than the window allows")]
    Window,
    /// A piece is longer than [`PIECE`].
    #[error("a piece is longer than 1 MiB")]
    LongPiece,
    /// A copy that goes ahead is longer than [`LANE`].
    #[error("a copy that goes ahead is longer than 64 KiB")]
    LongCopy,
    /// A message is longer than [`crate::acp::frame::MAX_LINE`].
    #[error("a message is longer than 64 MiB")]
    LongMessage,
    /// An acknowledgement of what was not sent, or a greeting by one who has forgotten what it acknowledged.
    #[error("the peer does not know where the attachment stands")]
    Lost,
}
