//! The relay's share of `/v1/status`.

use casemate_protocol::acp::server::Saved;
use casemate_protocol::worker::{Activity, AgentState, Evidence};

/// What goes on.
#[derive(Debug, Clone)]
pub struct View {
    /// The agent.
    pub agent: AgentState,
    /// Busy or idle.
    pub activity: Activity,
    /// Attachments ever made.
    pub epoch: u64,
    /// Clients connected.
    pub attachments: u32,
    /// What is kept over generations.
    pub saved: Saved,
    /// The last look at the worktree.
    pub evidence: Option<Evidence>,
}
