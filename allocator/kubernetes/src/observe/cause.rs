//! Why a Pod ended, out of its status.

use casemate_allocator_core::slot::Cause;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod, PodStatus};

/// The condition that says what the cluster ended a Pod for (Kubernetes documentation, "Pod disruption conditions").
const DISRUPTED: &str = "DisruptionTarget";

/// Why a Pod whose phase is `Failed` or `Succeeded` is over.
#[must_use]
pub fn cause(pod: &Pod) -> Cause {
    let Some(status) = &pod.status else { return Cause::Deleted };
    let message = status.message.clone().unwrap_or_default();
    match status.reason.as_deref() {
        // The kubelet evicts for the node's sake, and for a limit of the Pod's own.
        Some("Evicted") if message.contains("ephemeral") && message.contains("limit") => {
            return Cause::DiskLimit;
        }
        Some("Evicted") => return Cause::Evicted(message),
        Some("NodeLost") => return Cause::NodeLost,
        Some("Preempting") => return Cause::Preempted,
        _ => {}
    }
    if let Some(cause) = disrupted(status) {
        return cause;
    }
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let ended: Vec<&ContainerStateTerminated> =
        all.filter_map(|one| one.state.as_ref()?.terminated.as_ref()).collect();
    if ended.iter().any(|one| one.reason.as_deref() == Some("OOMKilled")) {
        return Cause::OutOfMemory;
    }
    let failed = ended.iter().find(|one| one.exit_code != 0).or(ended.last());
    failed.map_or(Cause::Deleted, |one| Cause::Exit(one.exit_code))
}

fn disrupted(status: &PodStatus) -> Option<Cause> {
    let mut conditions = status.conditions.iter().flatten();
    let found = conditions.rfind(|one| one.type_ == DISRUPTED && one.status == "True")?;
    Some(match found.reason.as_deref().unwrap_or_default() {
        "PreemptionByScheduler" => Cause::Preempted,
        "DeletionByPodGC" => Cause::NodeLost,
        "TerminationByKubelet" => Cause::Evicted(found.message.clone().unwrap_or_default()),
        _ => Cause::Deleted,
    })
}
