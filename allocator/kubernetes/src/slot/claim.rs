//! What claims a slot: changes that name the object they were decided about.
//!
//! Each is a JSON merge patch (RFC 7396) with the object's UID and version in it. The API server refuses it with 409 where either
//! is no longer the one that was looked at, so a claim is a compare-and-swap.

use casemate_protocol::ids::{Generation, Incarnation, SessionId};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::annotation;
use super::owned::owner;
use crate::resource::WorkerSession;

/// Which worker of which session a slot is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The session.
    pub session: SessionId,
    /// The name of its `WorkerSession`.
    pub object: String,
    /// The digest of its key (`casemate_protocol::key::Key::digest`).
    pub key: String,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The worker's generation.
    pub generation: Generation,
}

/// Claims a Pod of the pool that was looked at with this UID and version.
#[must_use]
pub fn claim_pod(uid: &str, version: &str, claim: &Claim) -> Value {
    json!({"metadata": {"uid": uid, "resourceVersion": version, "annotations": claim.of_pod()}})
}

/// Claims a volume of the pool. It is opened to nobody yet.
#[must_use]
pub fn claim_volume(uid: &str, version: &str, claim: &Claim) -> Value {
    json!({"metadata": {
        "uid": uid, "resourceVersion": version,
        "annotations": claim.of_volume(), "labels": claim.labels_of_volume(),
    }})
}

/// Opens a session's volume to the worker of this generation in this Pod: no deletion that was decided before is carried out after it.
#[must_use]
pub fn open_volume(uid: &str, version: &str, generation: Generation, pod: &str) -> Value {
    json!({"metadata": {"uid": uid, "resourceVersion": version, "annotations": {
        annotation::GENERATION: generation.to_string(),
        annotation::OPENED_TO: pod,
    }}})
}

/// Marks a slot's anchor as claimed, and gives it to the session; `None`: the session was not read from a cluster.
#[must_use]
pub fn claim_anchor(
    uid: &str,
    version: &str,
    session: &WorkerSession,
    claim: &Claim,
) -> Option<Value> {
    let owner = owner(session, &session.name_any(), session.metadata.uid.as_ref()?);
    Some(json!({"metadata": {
        "uid": uid, "resourceVersion": version,
        "ownerReferences": [owner], "annotations": claim.of_pod(),
    }}))
}
