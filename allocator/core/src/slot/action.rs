//! What there is to do. Each names what it was decided about, so that it is refused where that has changed.

use casemate_protocol::ids::Generation;

use super::{Claim, Session, Uid, Version};

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing: something is under way that ends by itself. In words, for status.
    Wait(String),
    /// Nothing: something outside has to change. In words, for status.
    Blocked(Obstacle, String),
    /// Write the session, with the version that was read.
    Write(Box<Session>),
    /// Make the slot's ServiceAccount, claimed. What is made is refused by the API server where its name is taken; then look again.
    CreateAnchor(Claim),
    /// Mark the ServiceAccount as the session's in this generation, and give it to the session. A deletion that was decided before
    /// does not take the worker along.
    ClaimAnchor(Uid, Version, Claim),
    /// Make its Secret, owned by this ServiceAccount.
    CreateSecret(Uid),
    /// Make its NetworkPolicy, owned by this ServiceAccount.
    CreatePolicy(Uid),
    /// Make its volume claim, marked as the session's and opened to nobody.
    CreateVolume(Claim),
    /// Make its Pod, owned by this ServiceAccount and claimed.
    CreatePod(Uid, Claim),
    /// Mark a volume of the pool as the session's, opened to nobody.
    ClaimVolume(Uid, Version, Claim),
    /// Mark the session's volume with the generation and the Pod that are about to work in it. What has neither was never worked in.
    OpenTo(Uid, Version, Generation, Uid),
    /// Mark a Pod of the pool as the session's.
    ClaimPod(Uid, Version, Claim),
    /// Tell the worker in this Pod whose it is. The worker takes it where the Pod's UID is its own and it has no other session.
    Bind(Uid, Claim),
    /// Have the worker in this Pod take no more prompts, if it is idle.
    Quiesce(Uid),
    /// Delete the Pod.
    DeletePod(Uid, Version),
    /// Delete the ServiceAccount, and Secret and NetworkPolicy with it.
    DeleteAnchor(Uid, Version),
    /// Delete the volume.
    DeleteVolume(Uid, Version),
}

/// What has to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// A former Pod is not proven gone.
    PreviousWorker,
    /// Something of the slot's name is not the slot's.
    ForeignObject,
    /// Its volume is missing, or another one.
    VolumeLost,
}
