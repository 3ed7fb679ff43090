//! Where things are in a worker's Pod: the same in every Pod of every profile, so that whatever an agent keeps by path (its
//! conversations, by its working directory) is found again in the next one.
//!
//! The session's volume is mounted in parts, each by its `subPath` ([`PARTS`]). The kubelet makes these directories: they are
//! root's, and the volume's group (`fsGroup`) may write them.

/// The port of a worker's door.
pub const DOOR: u16 = 8443;

/// Part of the session's volume and where it is mounted.
pub const PARTS: [(&str, &str); 5] =
    [("work", WORK), ("home", HOME), ("scratch", SCRATCH), ("state", STATE), ("run", RUN)];

/// The worktree.
pub const WORK: &str = "/work";
/// The agent's HOME.
pub const HOME: &str = "/home/agent";
/// The agent's TMPDIR.
pub const SCRATCH: &str = "/tmp";
/// The supervisor's own; no agent is ever granted anything of it.
pub const STATE: &str = "/casemate/state";
/// The supervisor's lock and what it tries its walls on.
pub const RUN: &str = "/casemate/run";
/// What [`STATE`] and [`RUN`] are below: as a worker's volume elsewhere.
pub const VOLUME: &str = "/casemate";

/// The supervisor, where it comes from an image of its own.
pub const PROGRAM: &str = "/casemate/bin";
/// The slot's certificate and configuration.
pub const SLOT: &str = "/casemate/slot";
/// In [`SLOT`]: the worker's configuration.
pub const CONFIG: &str = "/casemate/slot/config.json";
/// In [`SLOT`]: the certificate's chain.
pub const CHAIN: &str = "/casemate/slot/tls.crt";
/// In [`SLOT`]: its key.
pub const KEY: &str = "/casemate/slot/tls.key";
/// The policy.
pub const POLICY: &str = "/casemate/policy";
/// What a new HOME is copied from.
pub const TEMPLATE: &str = "/casemate/template";
/// Secrets, a directory each by its number in the profile.
pub const CREDENTIALS: &str = "/casemate/credentials";
/// Configuration beside HOME, for the agent to read.
pub const BASELINE: &str = "/baseline";
/// The private certificate authority, for the agent to read.
pub const AUTHORITY: &str = "/authority";
/// Skills, for the agent to read.
pub const SKILLS: &str = "/skills";

/// Variables of the worker's container that the downward API fills.
pub mod variable {
    /// `metadata.uid`.
    pub const POD_UID: &str = "CASEMATE_POD_UID";
    /// `status.podIP`: an address of the worker's own network.
    pub const POD_IP: &str = "CASEMATE_POD_IP";
    /// `status.hostIP`: an address of the node's, which is none of the worker's own.
    pub const HOST_IP: &str = "CASEMATE_HOST_IP";
}
