//! A slot's Pod: what Pod Security *restricted* demands, always; what a profile chooses beside it; nothing of a session.

use std::collections::BTreeMap;

use casemate_protocol::slot::paths::{self, variable};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    LocalObjectReference, ObjectFieldSelector, Pod, PodSecurityContext, PodSpec, Probe,
    ResourceRequirements, SeccompProfile, SecurityContext, TopologySpreadConstraint, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::owned::anchored;
use super::volumes::Mounts;
use super::{Claim, DOOR, Slot, Unbuildable, annotation};
use crate::resource::profile::{PullPolicy, Resources, UserIds};
use crate::resource::text::ResourceName;

/// The agent's grace comes out of the Pod's; what is left is the supervisor's to reap and to flush.
const BEYOND_GRACE: i64 = 10;
/// Where a container fails, the end of what it printed is its termination message: a worker's last line is its error, in words and typed.
const LAST_WORDS: &str = "FallbackToLogsOnError";

/// A slot's Pod. `anchor`: the ServiceAccount's UID. `authority`: in PEM, who signed its certificate. `claim`: whose it is from the
/// start; `None`: the pool's.
///
/// # Errors
/// [`Unbuildable`].
pub fn pod(
    slot: Slot<'_>,
    anchor: &str,
    authority: &str,
    claim: Option<&Claim>,
) -> Result<Pod, Unbuildable> {
    let spec = &slot.profile.spec;
    let mut annotations = claim.map(Claim::of_pod).unwrap_or_default();
    annotations.insert(annotation::AUTHORITY.to_owned(), authority.to_owned());
    if let Some(generation) = slot.profile.metadata.generation {
        annotations.insert(annotation::PROFILE_GENERATION.to_owned(), generation.to_string());
    }
    let Mounts { volumes, mounts } = Mounts::of(slot)?;
    let placement = &spec.placement;
    let grace = spec.lifetime.grace.duration().as_secs();
    let grace = i64::try_from(grace).unwrap_or(i64::MAX).saturating_add(BEYOND_GRACE);
    let given = spec.pod.termination_grace.as_ref().map(|given| given.duration().as_secs());
    let given = given.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
    Ok(Pod {
        metadata: ObjectMeta { annotations: Some(annotations), ..anchored(slot, anchor) },
        spec: Some(PodSpec {
            service_account_name: Some(slot.name.to_string()),
            automount_service_account_token: Some(false),
            // Addresses of every Service of the namespace are nobody's business.
            enable_service_links: Some(false),
            // A worker that ended is looked into and replaced by the allocator; a container that is started again would be
            // another worker under the same Pod.
            restart_policy: Some("Never".to_owned()),
            host_users: spec.pod.host_users,
            runtime_class_name: text(spec.pod.runtime_class_name.as_ref()),
            node_selector: some(placement.node_selector.clone(), BTreeMap::is_empty),
            affinity: placement
                .node_affinity
                .clone()
                .map(|node| Affinity { node_affinity: Some(node), ..Affinity::default() }),
            tolerations: some(placement.tolerations.clone(), Vec::is_empty),
            topology_spread_constraints: some(spread(slot), Vec::is_empty),
            priority_class_name: text(placement.priority_class_name.as_ref()),
            scheduler_name: text(placement.scheduler_name.as_ref()),
            image_pull_secrets: some(
                spec.image
                    .pull_secrets
                    .iter()
                    .map(|name| LocalObjectReference { name: name.to_string() })
                    .collect(),
                Vec::is_empty,
            ),
            termination_grace_period_seconds: Some(given.unwrap_or(grace)),
            security_context: Some(whole(&spec.pod.user_ids)),
            init_containers: installs(slot).map(|one| vec![one]),
            containers: vec![worker(slot, mounts)],
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    })
}

fn worker(slot: Slot<'_>, mounts: Vec<VolumeMount>) -> Container {
    let spec = &slot.profile.spec;
    let program = match spec.image.supervisor {
        Some(_) => format!("{}/casemate-supervisor", paths::PROGRAM),
        None => "casemate-supervisor".to_owned(),
    };
    Container {
        name: "worker".to_owned(),
        image: Some(spec.image.reference.to_string()),
        image_pull_policy: Some(pull(spec.image.pull_policy)),
        command: Some(vec![program, "worker".into(), "--slot".into(), paths::CONFIG.into()]),
        env: Some(environment(slot)),
        ports: Some(vec![ContainerPort {
            name: Some("door".to_owned()),
            container_port: DOOR.into(),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/healthz".to_owned()),
                port: IntOrString::Int(DOOR.into()),
                scheme: Some("HTTPS".to_owned()),
                ..HTTPGetAction::default()
            }),
            // A start is waited for.
            period_seconds: Some(1),
            ..Probe::default()
        }),
        resources: Some(resources(&spec.resources)),
        security_context: Some(restricted()),
        volume_mounts: Some(mounts),
        termination_message_policy: Some(LAST_WORDS.to_owned()),
        ..Container::default()
    }
}

/// The container that brings the supervisor along.
fn installs(slot: Slot<'_>) -> Option<Container> {
    let image = &slot.profile.spec.image;
    let supervisor = image.supervisor.as_ref()?;
    Some(Container {
        name: "supervisor".to_owned(),
        image: Some(supervisor.to_string()),
        image_pull_policy: Some(pull(image.pull_policy)),
        command: Some(["casemate-supervisor", "install", paths::PROGRAM].map(str::to_owned).into()),
        resources: Some(resources(&slot.profile.spec.resources)),
        security_context: Some(restricted()),
        volume_mounts: Some(vec![VolumeMount {
            name: "program".to_owned(),
            mount_path: paths::PROGRAM.to_owned(),
            ..VolumeMount::default()
        }]),
        termination_message_policy: Some(LAST_WORDS.to_owned()),
        ..Container::default()
    })
}

/// A constraint that selects no Pods counts none, so one without a selector is about the profile's own.
fn spread(slot: Slot<'_>) -> Vec<TopologySpreadConstraint> {
    let own = slot.of_profile();
    let mut all = slot.profile.spec.placement.topology_spread.clone();
    for one in all.iter_mut().filter(|one| one.label_selector.is_none()) {
        one.label_selector =
            Some(LabelSelector { match_labels: Some(own.clone()), match_expressions: None });
    }
    all
}

/// What the supervisor cannot find out itself. The agent's own variables are in its configuration.
fn environment(slot: Slot<'_>) -> Vec<EnvVar> {
    let network = &slot.profile.spec.network;
    let is = |name: &str, value: String| EnvVar {
        name: name.to_owned(),
        value: Some(value),
        value_from: None,
    };
    let field = |(name, path): (&str, &str)| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    };
    let told = [
        (variable::POD_UID, "metadata.uid"),
        (variable::POD_IP, "status.podIP"),
        (variable::HOST_IP, "status.hostIP"),
    ];
    let mut all: Vec<EnvVar> = told.into_iter().map(field).collect();
    if let Some(proxy) = &network.proxy {
        // Programs read either case.
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            all.push(is(name, proxy.url.to_string()));
        }
        for name in ["NO_PROXY", "no_proxy"] {
            all.push(is(name, proxy.except.join(",")));
        }
    }
    if let Some(authority) = &network.private_ca {
        all.push(is("CASEMATE_AUTHORITY", format!("{}/{}", paths::AUTHORITY, authority.key)));
    }
    all
}

/// The Pod's half of what *restricted* demands.
fn whole(ids: &UserIds) -> PodSecurityContext {
    let (user, group) = match ids {
        UserIds::Fixed { uid, gid } => (Some(*uid), Some(*gid)),
        UserIds::Assigned {} => (None, None),
    };
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: user,
        run_as_group: group,
        fs_group: group,
        // A volume of many small files is not walked at each start.
        fs_group_change_policy: group.map(|_| "OnRootMismatch".to_owned()),
        seccomp_profile: Some(runtime_default()),
        ..PodSecurityContext::default()
    }
}

/// A container's half.
fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        privileged: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        seccomp_profile: Some(runtime_default()),
        ..SecurityContext::default()
    }
}

fn runtime_default() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }
}

fn resources(given: &Resources) -> ResourceRequirements {
    let all =
        |of: &BTreeMap<ResourceName, crate::resource::text::Quantity>| -> BTreeMap<String, Quantity> {
            of.iter().map(|(name, amount)| (name.to_string(), Quantity(amount.to_string()))).collect()
        };
    ResourceRequirements {
        limits: Some(all(&given.limits)),
        requests: some(all(&given.requests), BTreeMap::is_empty),
        claims: None,
    }
}

fn pull(policy: PullPolicy) -> String {
    match policy {
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Always => "Always",
        PullPolicy::Never => "Never",
    }
    .to_owned()
}

fn text(name: Option<&crate::resource::text::ObjectName>) -> Option<String> {
    name.map(ToString::to_string)
}

fn some<T>(value: T, is_empty: impl Fn(&T) -> bool) -> Option<T> {
    if is_empty(&value) { None } else { Some(value) }
}
