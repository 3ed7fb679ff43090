//! Commands that a person runs in the session, beside its agent: `GET /v1/exec` (`casemate_protocol::exec`).
//!
//! A command starts behind the agent's own wall, from the same spawner, with the agent's environment; so it can do what
//! the agent can do and nothing more, and ends with the session. It is no turn. While one runs the worker is busy.
//!
//! | file | owns |
//! |---|---|
//! | [`running`] | which commands run, and the idleness that they interrupt |
//! | [`request`] | what a request means: pure |
//! | [`start`] | pipes or a terminal, and the process |
//! | [`wire`] | one WebSocket |
//! | [`serve`] | one command from the request to its end |
//! | [`ending`] | TERM, grace, KILL |

mod ending;
mod request;
pub mod running;
pub mod serve;
mod start;
mod stream;
mod wire;

use std::ffi::CString;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use casemate_sandbox::Wall;

use crate::audit::Audit;
use crate::process::reaper::Session;
use running::Running;

/// What every command of a session is started with.
#[derive(Debug, Clone)]
pub struct Door {
    /// Where it runs.
    pub session: Rc<Session>,
    /// The agent's wall.
    pub wall: Rc<Wall>,
    /// The agent's environment, `NAME=value` each.
    pub env: Vec<CString>,
    /// The worktree.
    pub work: PathBuf,
    /// Between TERM and KILL.
    pub grace: Duration,
    /// Those that run.
    pub running: Rc<Running>,
    /// The worker's log.
    pub audit: Audit,
}
