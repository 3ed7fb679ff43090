//! How far a Pod is.

use casemate_allocator_core::slot::{Cause, PodState, WorkerSeen};
use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod, PodStatus};

/// Whether whoever looks still waits for a Pod to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It does.
    Waits,
    /// The profile's `lifetime.start` has passed.
    Over,
}

/// An image that no wait brings.
const NO_IMAGE: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];
/// One that the registry may give yet.
const NO_IMAGE_YET: [&str; 3] = ["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"];

pub(super) fn state(pod: &Pod, worker: WorkerSeen, patience: Patience) -> PodState {
    let status = pod.status.clone().unwrap_or_default();
    let silent = matches!(worker, WorkerSeen::Silent);
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => PodState::Ended(super::cause(pod)),
        Some("Unknown") => PodState::Unknown,
        Some("Running") if silent && patience == Patience::Over => {
            PodState::Ended(Cause::StartTimeout("its worker does not answer".to_owned()))
        }
        Some("Running") => PodState::Running(worker),
        _ => {
            let what = waits_for(&status);
            let stuck = waiting(&status);
            match stuck.and_then(|one| one.reason.as_deref()) {
                Some(reason) if NO_IMAGE.contains(&reason) => {
                    PodState::Ended(Cause::ImagePull(what))
                }
                Some(reason) if NO_IMAGE_YET.contains(&reason) && patience == Patience::Over => {
                    PodState::Ended(Cause::ImagePull(what))
                }
                _ if patience == Patience::Over => PodState::Ended(Cause::StartTimeout(what)),
                _ => PodState::Pending(what),
            }
        }
    }
}

/// What a Pod that does not run yet waits for, in words.
#[must_use]
pub fn waits_for(status: &PodStatus) -> String {
    let conditions = status.conditions.iter().flatten();
    let unplaced =
        conditions.clone().find(|one| one.type_ == "PodScheduled" && one.status != "True");
    if let Some(unplaced) = unplaced {
        let why = unplaced.message.as_deref().unwrap_or("no node has taken it yet");
        return format!("a node: {why}");
    }
    let Some(stuck) = waiting(status) else { return "its node to start it".to_owned() };
    match (stuck.reason.as_deref(), stuck.message.as_deref()) {
        (Some("ContainerCreating" | "PodInitializing") | None, None) => {
            "its node to start it".to_owned()
        }
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(reason), None) => reason.to_owned(),
        (None, Some(message)) => message.to_owned(),
    }
}

fn waiting(status: &PodStatus) -> Option<&ContainerStateWaiting> {
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = all.filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    let first = waiting.clone().next();
    let known = |one: &&ContainerStateWaiting| {
        one.reason
            .as_deref()
            .is_some_and(|reason| NO_IMAGE.contains(&reason) || NO_IMAGE_YET.contains(&reason))
    };
    waiting.find(known).or(first)
}
