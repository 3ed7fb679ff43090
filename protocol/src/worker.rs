//! What a worker is started with, what it says while it starts, and what it reports.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::audit::Head;
use crate::end::EndReason;
use crate::ids::{BootId, Epoch, Generation, Incarnation, SessionId, SlotId};
use crate::matrix::Matrix;
use crate::origin::Origin;
use crate::ports::PortPool;
use crate::tier::Tier;
use crate::tls::Certificate;
use crate::token::PublicKey;
use crate::usage::Usage;

/// Everything a worker needs to know, as JSON on the supervisor's stdin (one machine) or in a mounted file (Pod).
/// Never in arguments or environment: `/proc/PID/cmdline` is readable across Landlock domains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    /// The session that this worker serves.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its generation; a token of another one is refused.
    pub generation: Generation,
    /// The slot.
    pub slot: SlotId,
    /// Whose signature a token must carry.
    pub verify_key: PublicKey,
    /// The tier to set up. One that the kernel cannot give is a refusal ([`StartError::Tier`]), never a lower tier.
    pub tier: Tier,
    /// What no agent may be granted anything of but its own session's places: casemate's home with its keys, its store and
    /// the other slots. Absolute. Looked at in tier `domain`; in the others the agent does not see it.
    pub private: Vec<PathBuf>,
    /// The slot's directory on its volume: holds `sessions/<id>/{home,work,scratch}`, `state/` and `run/`.
    pub volume: PathBuf,
    /// Where the agent's repository comes from; none: an empty repository with one empty commit.
    pub repository: Option<Repository>,
    /// Read-only baseline, copied into a new HOME once.
    pub home_template: Option<PathBuf>,
    /// Central skills: read-only at the same path in each session, with a content revision in status.
    pub skills: Option<PathBuf>,
    /// Programs outside the system directories (the agent's own installation), readable and executable.
    pub programs: Vec<PathBuf>,
    /// The policy file's text.
    pub policy: String,
    /// The agent.
    pub agent: AgentCommand,
    /// Where the session's own TCP ports come from. Which it got, the agent reads in `CASEMATE_PORTS`; another generation
    /// may get others.
    pub ports: PortPool,
    /// Further TCP ports that the session may connect to (a model server on loopback, say).
    pub connect: Vec<u16>,
    /// Where to serve `/acp`. Port 0: the claim of the worker's range of ports ([`crate::ports`]), which no agent can get;
    /// [`StartEvent::Ready`] tells which.
    pub listen: SocketAddr,
    /// What the door's TLS is served with; none: it is plain HTTP, which it may be on loopback alone, or where `plain` says so.
    #[serde(default)]
    pub tls: Option<Certificate>,
    /// The door may be plain HTTP on an address that is not loopback: whoever listens on the way reads tokens and conversations. For
    /// where something else encrypts (a mesh).
    #[serde(default)]
    pub plain: bool,
    /// The pages that may attach at `/acp`, with a token of their own all the same; a request from any other is refused, whatever
    /// its token.
    #[serde(default)]
    pub origins: Vec<Origin>,
    /// How long a permission request waits for a client, in seconds.
    pub permission_ttl: u64,
    /// How many bytes are kept on the disk for a client that does not take what the agent says; above it the agent waits.
    #[serde(default = "kept")]
    pub kept: u64,
    /// How long it waits until its turn is cancelled, in seconds.
    #[serde(default = "blocked_ttl")]
    pub blocked_ttl: u64,
    /// How long the agent has between TERM and KILL, in seconds.
    pub grace: u64,
    /// Whom the worker runs as where the caller is root: the one user that the namespaces of tier `namespace` know, the user
    /// that a worker of tier `domain` becomes. `None`: the caller's own uid, which must not be root's.
    pub host_uid: Option<u32>,
    /// The process that starts the worker and at whose end, however it comes, the worker is to end at once; `None`: the
    /// worker outlives it.
    #[serde(default)]
    pub owner: Option<u32>,
    /// **No wall**: the session is to do whatever its user may, so that its policy is learned; but for these paths. For a person's
    /// own throw-away session; no session of a worker of many has it.
    #[serde(default)]
    pub learn: Option<Vec<PathBuf>>,
}

/// `POST /v1/keys`: whose signatures tokens may carry from now on. What is attached stays attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// One to [`Keys::MOST`] of them.
    pub accept: Vec<PublicKey>,
}

impl Keys {
    /// An old one, a new one, and those of other replicas that rotate at the same time.
    pub const MOST: usize = 4;
}

/// Of [`WorkerConfig::kept`]: 1 GiB.
#[must_use]
pub fn kept() -> u64 {
    1 << 30
}

/// Of [`WorkerConfig::blocked_ttl`]: ten minutes, in seconds.
#[must_use]
pub fn blocked_ttl() -> u64 {
    600
}

/// A logical repository seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Repository {
    /// The Git directory of a repository on this machine (`.git` or a bare one); visible while cloning only.
    Local(PathBuf),
    /// An `http://` or `https://` remote.
    Remote(String),
}

/// The agent's command line and what it gets besides the policy's environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCommand {
    /// Program and arguments. `{port}` in an argument stands for the first of the session's own ports, `{work}` for the worktree.
    pub argv: Vec<String>,
    /// Variables that the caller hands to the agent on purpose.
    pub env: BTreeMap<String, String>,
}

/// One line of JSON on the supervisor's stdout while it starts. After `ready` or `failed` nothing follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum StartEvent {
    /// What is being done now, for a person ("cloning https://…").
    Progress {
        /// The sentence.
        what: String,
    },
    /// Serving.
    Ready {
        /// Where `/acp` is.
        address: SocketAddr,
        /// This start.
        boot: BootId,
        /// The tier that was measured from inside.
        tier: Tier,
        /// The worktree's path as the agent sees it.
        worktree: PathBuf,
    },
    /// Did not start; the process exits with [`StartError::exit_code`].
    Failed {
        /// Why.
        error: StartError,
    },
}

/// Why a worker did not start. Each names the fix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum StartError {
    /// The configuration is wrong.
    #[error("worker configuration: {message}")]
    Config {
        /// What and how to mend it.
        message: String,
    },
    /// The policy is wrong, or would grant what no agent may have.
    #[error("policy: {message}")]
    Policy {
        /// What and how to mend it.
        message: String,
    },
    /// The profile's file is wrong.
    #[error("profile: {message}")]
    Profile {
        /// What and how to mend it.
        message: String,
    },
    /// What was asked for is not allowed: by the policy, or for this user or place.
    #[error("forbidden: {message}")]
    Forbidden {
        /// What and how to mend it.
        message: String,
    },
    /// The kernel lacks what the policy requires.
    #[error("kernel: {message}")]
    Kernel {
        /// What and how to mend it.
        message: String,
    },
    /// The tier that was asked for is not to be had.
    #[error("tier {wanted}: {message}")]
    Tier {
        /// The tier asked for.
        wanted: Tier,
        /// What and how to mend it.
        message: String,
    },
    /// The repository could not be cloned.
    #[error("repository: {message}")]
    Repository {
        /// What and how to mend it.
        message: String,
    },
    /// The agent's program does not exist inside.
    #[error("agent: {message}")]
    AgentNotFound {
        /// What and how to mend it.
        message: String,
    },
    /// The agent's program is there and cannot be run.
    #[error("agent: {message}")]
    AgentNotRunnable {
        /// What and how to mend it.
        message: String,
    },
    /// The address is taken.
    #[error("listen: {message}")]
    Listen {
        /// What and how to mend it.
        message: String,
    },
    /// No range of ports is free.
    #[error("ports: {message}")]
    Ports {
        /// What and how to mend it.
        message: String,
    },
    /// Disk full, permissions and other trouble with the volume.
    #[error("volume: {message}")]
    Volume {
        /// What and how to mend it.
        message: String,
    },
    /// Another live worker holds the slot.
    #[error("slot {slot} already has a live worker")]
    SlotBusy {
        /// The slot.
        slot: SlotId,
    },
    /// The slot has served this generation of the session, or a later one.
    #[error(
        "generation {generation} of incarnation {incarnation} was served here: start the session in a later one"
    )]
    Stale {
        /// Of the newest that was served.
        incarnation: Incarnation,
        /// The newest that was served.
        generation: Generation,
    },
    /// The shield probe could open what it must not.
    #[error("shield: {message}")]
    Shield {
        /// What was open.
        message: String,
    },
    /// Anything else.
    #[error("{message}")]
    Other {
        /// What happened.
        message: String,
    },
}

impl StartError {
    /// Its stable name, the `kind` of its JSON.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Config { .. } => "config",
            Self::Policy { .. } => "policy",
            Self::Profile { .. } => "profile",
            Self::Forbidden { .. } => "forbidden",
            Self::Kernel { .. } => "kernel",
            Self::Tier { .. } => "tier",
            Self::Repository { .. } => "repository",
            Self::AgentNotFound { .. } => "agent-not-found",
            Self::AgentNotRunnable { .. } => "agent-not-runnable",
            Self::Listen { .. } => "listen",
            Self::Ports { .. } => "ports",
            Self::Volume { .. } => "volume",
            Self::SlotBusy { .. } => "slot-busy",
            Self::Stale { .. } => "stale",
            Self::Shield { .. } => "shield",
            Self::Other { .. } => "other",
        }
    }

    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        use crate::codes::exit;
        match self {
            Self::Config { .. } | Self::Stale { .. } => exit::USAGE,
            Self::Policy { .. } | Self::Profile { .. } => exit::DATA,
            Self::Forbidden { .. } => exit::DENIED,
            Self::Kernel { .. } => exit::KERNEL,
            Self::Tier { .. } => exit::TIER,
            Self::Repository { .. } => exit::NO_INPUT,
            Self::AgentNotFound { .. } => exit::NOT_FOUND,
            Self::AgentNotRunnable { .. } => exit::NOT_RUNNABLE,
            Self::Listen { .. } | Self::Ports { .. } | Self::SlotBusy { .. } => exit::BUSY,
            Self::Volume { .. } => exit::CANNOT_CREATE,
            Self::Shield { .. } | Self::Other { .. } => exit::SOFTWARE,
        }
    }
}

/// `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The session.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// This worker's generation.
    pub generation: Generation,
    /// The slot.
    pub slot: SlotId,
    /// This start.
    pub boot: BootId,
    /// Measured from inside a session's domain.
    pub tier: Tier,
    /// The worktree as the agent sees it.
    pub worktree: PathBuf,
    /// The agent's process.
    pub agent: AgentState,
    /// What is going on.
    pub activity: Activity,
    /// The newest attachment, whether connected or not.
    pub epoch: Epoch,
    /// Connected clients (0 or 1 in the plain door).
    pub attachments: u32,
    /// Commands of `/v1/exec` that run. While there are any, the worker is busy.
    #[serde(default)]
    pub execs: u32,
    /// The agent's own id of the conversation that a load continues, if one was opened.
    pub acp_session: Option<String>,
    /// Sessions were prompted at least once in any generation.
    pub prompted: bool,
    /// A command of `/v1/exec` ran in this generation, to its end or not.
    #[serde(default)]
    pub commanded: bool,
    /// Content hash of the policy in force.
    pub policy_revision: String,
    /// Content hash of the skills, if any.
    pub skills_revision: Option<String>,
    /// What the kernel gave: one line a mechanism (`landlock abi 7`, `seccomp 61 rules`, `capabilities none`).
    pub enforcement: Vec<String>,
    /// What the walls stop and let through, as it was tried from inside before the agent started; for a worker of many
    /// sessions, before the first one of the same policy.
    #[serde(default)]
    pub matrix: Option<Matrix>,
    /// Unpushed work, as far as last looked at.
    pub evidence: Option<Evidence>,
    /// Environment variables handed to the agent on purpose: names only.
    pub handed_variables: Vec<String>,
    /// The newest line of the worker's audit log that is on the disk: kept elsewhere it shows later that the log was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_head: Option<Head>,
    /// What it takes of the machine, and may take.
    #[serde(default)]
    pub usage: Usage,
}

/// The agent's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum AgentState {
    /// Not started: nobody has said `initialize` yet.
    NotStarted,
    /// Running.
    Running {
        /// Its pid as the supervisor sees it.
        pid: i32,
    },
    /// Ended: the generation is over.
    Exited {
        /// What ended it, in words (`exit code 3`, `signal 9`).
        cause: String,
    },
}

/// Busy or idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Activity {
    /// A turn is running or waiting, or a command of `/v1/exec` runs.
    Busy {
        /// For how long, in milliseconds of the monotonic clock.
        for_ms: u64,
    },
    /// Nothing to do.
    Idle {
        /// For how long, in milliseconds of the monotonic clock.
        for_ms: u64,
    },
    /// Quiesced: new prompts are refused with "re-attach".
    Quiesced,
}

/// What would be lost with the worktree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evidence {
    /// Paths that `git status` names.
    pub dirty: u64,
    /// Commits on no remote-tracking ref.
    pub unpushed: u64,
    /// Stash entries.
    pub stashes: u64,
}

impl Evidence {
    /// For people: `1 changed file, 2 unpushed commits, 0 stashes`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let count = |number: u64, one: &str, many: &str| match number {
            1 => format!("1 {one}"),
            _ => format!("{number} {many}"),
        };
        let files = count(self.dirty, "changed file", "changed files");
        let commits = count(self.unpushed, "unpushed commit", "unpushed commits");
        let stashes = count(self.stashes, "stash", "stashes");
        format!("{files}, {commits}, {stashes}")
    }

    /// Nothing would be lost.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// `POST /v1/quiesce`'s answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Quiesce {
    /// Idle: new prompts are refused from now on.
    Quiesced {
        /// What the worktree holds; `None` where it could not be read.
        evidence: Option<Evidence>,
    },
    /// A turn or a command of `/v1/exec` is running or waiting; nothing changed.
    Busy,
}

/// `POST /v1/stop`'s body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Becomes the clients' close code and words.
    pub reason: EndReason,
}
