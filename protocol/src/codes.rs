//! Numbers and words that other programs see: exit codes, WebSocket close codes, JSON-RPC error codes.

use serde::{Deserialize, Serialize};

/// Process exit codes, after sysexits.h where that has one. A command's own death is `128 + signal` (as in sh(1)).
pub mod exit {
    /// Success.
    pub const OK: u8 = 0;
    /// A check did not hold: `demo` found a hole, `doctor` found the wanted tier missing.
    pub const FAILED: u8 = 1;
    /// EX_USAGE: the command line or a configuration value is wrong.
    pub const USAGE: u8 = 64;
    /// EX_DATAERR: a policy or profile file is wrong.
    pub const DATA: u8 = 65;
    /// EX_NOINPUT: a named repository, profile or file does not exist.
    pub const NO_INPUT: u8 = 66;
    /// EX_UNAVAILABLE: the allocator, the worker or a remote is not to be reached.
    pub const UNAVAILABLE: u8 = 69;
    /// EX_SOFTWARE: a broken invariant of ours.
    pub const SOFTWARE: u8 = 70;
    /// EX_OSERR: the kernel lacks what the policy requires.
    pub const KERNEL: u8 = 71;
    /// EX_CANTCREAT: a file could not be made (full disk, permissions).
    pub const CANNOT_CREATE: u8 = 73;
    /// EX_TEMPFAIL: busy, in use, or an address is taken: try again.
    pub const BUSY: u8 = 75;
    /// The session took more of the machine than its policy's bounds allow.
    pub const BOUNDS: u8 = 76;
    /// EX_NOPERM: a token or an identity was refused, or the policy forbids what was asked for (to learn).
    pub const DENIED: u8 = 77;
    /// EX_CONFIG: the isolation that was asked for is not to be had here.
    pub const TIER: u8 = 78;
    /// The command took longer than it was given (as in timeout(1)).
    pub const TIMED_OUT: u8 = 124;
    /// The agent's program or a command was found but could not be run (as in sh(1)).
    pub const NOT_RUNNABLE: u8 = 126;
    /// The agent's program or a command was not found (as in sh(1)).
    pub const NOT_FOUND: u8 = 127;
}

/// WebSocket close codes (RFC 6455 section 7.4; 4000 to 4999 are private use).
pub mod close {
    /// The peer ended the conversation in order.
    pub const NORMAL: u16 = 1000;
    /// The worker is going away (stop, idle).
    pub const GOING_AWAY: u16 = 1001;
    /// The first message was not `initialize`, or a frame broke the protocol.
    pub const PROTOCOL: u16 = 1002;
    /// A text message was not UTF-8.
    pub const NOT_TEXT: u16 = 1007;
    /// A message was larger than the limit.
    pub const TOO_BIG: u16 = 1009;
    /// Something broke on the worker's side (its spool): attach anew.
    pub const INTERNAL: u16 = 1011;
    /// A newer attachment took over: do not reconnect.
    pub const SUPERSEDED: u16 = 4001;
    /// The worker was stopped for being idle: re-attach with the next prompt.
    pub const IDLE: u16 = 4002;
    /// The agent's process ended; the generation is over.
    pub const AGENT_GONE: u16 = 4003;
}

/// JSON-RPC error codes.
pub mod rpc {
    /// Invalid JSON was received.
    pub const PARSE: i64 = -32700;
    /// The JSON is not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method, or one that a confined agent may not ask the host for.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Parameters are wrong.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Internal error.
    pub const INTERNAL: i64 = -32603;
    /// ACP: resource not found (an unknown session).
    pub const NOT_FOUND: i64 = -32002;
    /// LSP and ACP: the request was cancelled by `$/cancel_request`.
    pub const CANCELLED: i64 = -32800;
    /// casemate: the worker is lost or could not be started; `data.casemate` says why.
    pub const WORKER: i64 = -32050;
}

/// What happened to a request whose answer is lost (`data.casemate.delivery`). Only `not_delivered` may be resent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It never reached the agent's stdin.
    NotDelivered,
    /// It may have reached the agent.
    Unknown,
    /// It reached the agent, which ended before it answered.
    Interrupted,
}
