//! The objects of a slot: ServiceAccount, Secret, NetworkPolicy, volume claim and Pod, all of one random name.
//!
//! One name is what keeps a slot to one Pod: the API server refuses a second Pod of a name as long as the first one is there,
//! terminating ones included, whatever an allocator believes. The ServiceAccount is the anchor: it is made first, Secret,
//! NetworkPolicy and Pod belong to it, and it belongs to the profile while the slot is warm and to the session that claimed
//! it afterwards. The volume claim belongs to nobody: what is owned is deleted with its owner, and a restored claim whose owner
//! is another one is deleted within seconds.
//!
//! Nothing in a Pod's `spec` says whose it is: a claim is an annotation.

mod claim;
mod config;
mod marks;
mod network;
mod owned;
mod pod;
mod volumes;

pub use casemate_protocol::slot::paths::DOOR;
pub use claim::{Claim, claim_anchor, claim_pod, claim_volume, open_volume};
pub use config::{NoWorkspace, bind_terms, worker_config};
pub use marks::{annotation, label};
pub use network::network_policy;
pub use owned::{Identity, anchor, secret, volume_claim};
pub use pod::pod;

use std::collections::BTreeMap;

use casemate_protocol::ids::SlotId;

use crate::resource::WorkerProfile;
use crate::resource::profile::{Caller, Destination};
use crate::resource::text::Cidr;

/// What holds for all slots of an installation.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Its own id: it marks what this installation made.
    pub id: String,
    /// Where slots are.
    pub namespace: String,
    /// The allocator's Pods and its gateway's: they reach every worker's door.
    pub own: Vec<Caller>,
    /// The cluster's DNS.
    pub dns: Vec<Destination>,
    /// The cluster's own addresses, which `open` egress leaves out besides the private ones.
    pub cluster: Vec<Cidr>,
}

/// A slot that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    /// Its name, and that of each of its objects.
    pub name: &'a SlotId,
    /// What it is made by.
    pub profile: &'a WorkerProfile,
    /// Where.
    pub installation: &'a Installation,
}

/// What a profile asks for that is not to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unbuildable {
    /// Content is to be copied out of an image.
    CopiedImage {
        /// The field of the profile.
        field: &'static str,
    },
    /// A secret is for what no worker does with it yet.
    Credential {
        /// The field of the profile's credential.
        what: &'static str,
    },
    /// A caller without labels: every Pod of its namespaces.
    OpenCaller,
    /// The profile was not read from a cluster.
    NoIdentity,
}

impl std::fmt::Display for Unbuildable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CopiedImage { field } => write!(
                f,
                "`{field}`: content of a copied image is not to be had: use `imageVolume` (Kubernetes 1.35 or later) or `configMap`"
            ),
            Self::Credential { what } => write!(
                f,
                "`credentials`: `{what}` is not to be had yet: the agent gets a secret by `for.agentVariable`, or not at all"
            ),
            Self::OpenCaller => f.write_str(
                "a caller of workers is named by no label of its Pods, which would be every Pod: name one",
            ),
            Self::NoIdentity => {
                f.write_str("the profile has no name and UID: read it from the cluster")
            }
        }
    }
}

impl std::error::Error for Unbuildable {}

/// Labels by name.
type Labels = BTreeMap<String, String>;
