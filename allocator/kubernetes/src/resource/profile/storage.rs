//! Where a session's files lie, and what lies beside them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::text::{AbsolutePath, Label, ObjectName, Quantity};

/// Where a session's HOME, worktree and state lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Storage {
    /// In the Pod: gone with it. A session that sleeps begins anew.
    #[serde(rename_all = "camelCase")]
    Ephemeral {
        /// The most that it may hold.
        size: Quantity,
    },
    /// In a volume of its own, made and deleted by the allocator.
    #[serde(rename_all = "camelCase")]
    New(Disk),
    /// In a volume that somebody else made. It is used by one session at a time and never deleted.
    #[serde(rename_all = "camelCase")]
    Borrowed {
        /// The claim, in this namespace.
        claim_name: ObjectName,
        /// The directory in it that sessions lie below. Absent: its root.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(
            length(min = 1, max = 256),
            regex(pattern = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
        )]
        sub_path: Option<String>,
    },
}

/// A volume of a session's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Disk {
    /// How big.
    pub size: Quantity,
    /// The storage class. Absent: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ObjectName>,
    /// Who may mount it at a time.
    #[serde(default)]
    pub access_mode: AccessMode,
    /// Whether the class keeps a second Pod from a ReadWriteOncePod volume, as `casemate doctor` found it. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once_pod_enforced: Option<bool>,
}

/// Who may mount a volume at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// One Pod.
    #[default]
    ReadWriteOncePod,
    /// The Pods of one node: for classes that have no other.
    ReadWriteOnce,
}

/// A volume of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.use == 'Shared' ? self.paths.size() > 0 : self.paths.size() == 0")
        .message("a shared resource says what is written where: give `paths` with `use: Shared`, and with no other")
        .field_path(".paths"),
    validation = Rule::new("!['/work', '/home', '/tmp', '/casemate', '/skills', '/baseline', '/authority', '/programs', '/proc', '/sys', '/dev', '/etc', '/usr', '/bin', '/sbin', '/lib', '/run', '/var'].exists(p, self.mountPath == p || self.mountPath.startsWith(p + '/'))")
        .message("this place is casemate's own or the system's: mount it elsewhere, below /shared or /data")
        .field_path(".mountPath")
)]
pub struct SharedResource {
    /// What it is called in status and refusals.
    pub name: Label,
    /// The claim, in this namespace.
    pub claim_name: ObjectName,
    /// Where it is in the worker.
    pub mount_path: AbsolutePath,
    /// How it is shared.
    #[serde(rename = "use")]
    pub how: SharedUse,
    /// What sessions do with it.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub paths: Vec<PathRule>,
    /// Why sessions have it, for whoever reviews the profile.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
}

/// How a volume is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SharedUse {
    /// One session at a time has it; others wait.
    Exclusive,
    /// Everybody reads it, nobody writes.
    ReadOnly,
    /// Everybody has it, by the rules in `paths`.
    Shared,
}

/// What sessions do below one path of a shared volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PathRule {
    /// Below the mount; `/` is all of it.
    #[schemars(
        length(min = 1, max = 512),
        regex(
            pattern = r"^/([A-Za-z0-9_+@-][A-Za-z0-9_.+@-]*(/[A-Za-z0-9_+@-][A-Za-z0-9_.+@-]*)*)?$"
        )
    )]
    pub path: String,
    /// What is allowed there.
    pub access: PathAccess,
}

/// What is allowed below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PathAccess {
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}
