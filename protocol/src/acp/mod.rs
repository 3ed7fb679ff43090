//! What ACP itself asks of a relay, without any IO.
//!
//! [`frame`] finds the few fields of a JSON-RPC line that a relay reads, as byte ranges, and splices new values in;
//! everything else stays byte for byte. [`server`] is the supervisor's role: an ACP server towards clients and the
//! agent's one client. [`bridge`] is the role of `casemate acp`: one agent towards its host, a client of many workers.
//! [`continuity`] decides whether an agent that was replaced still has its conversation.

pub mod bridge;
pub mod continuity;
pub mod fault;
pub mod frame;
pub mod server;
