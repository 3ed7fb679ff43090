//! A slot's objects in the core's words.

mod cause;
mod pod;

pub use cause::cause;
pub use pod::{Patience, waits_for};

use std::collections::BTreeMap;

use casemate_allocator_core::slot::{Anchor, Claim, Object, Pod, Volume, WorkerSeen, World};
use casemate_protocol::ids::{Generation, Incarnation, SlotId};
use k8s_openapi::api::core::v1::{self, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::slot::{annotation, label};

/// Whose slot is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Looked<'a> {
    /// This installation's id.
    pub installation: &'a str,
    /// The slot's name.
    pub slot: &'a SlotId,
}

/// All objects of one name, as they were read one after the other.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// The ServiceAccount.
    pub anchor: Option<ServiceAccount>,
    /// The Secret's metadata: its content is nobody's business but the kubelet's.
    pub secret: Option<ObjectMeta>,
    /// The NetworkPolicy.
    pub policy: Option<NetworkPolicy>,
    /// The volume claim.
    pub volume: Option<PersistentVolumeClaim>,
    /// The Pod.
    pub pod: Option<v1::Pod>,
}

/// What a look at a slot found. `worker`: what the worker in the Pod said, if it was asked.
#[must_use]
pub fn world(of: Looked<'_>, objects: &Objects, worker: WorkerSeen, patience: Patience) -> World {
    World {
        anchor: objects.anchor.as_ref().map(|anchor| Anchor {
            object: object(of, &anchor.metadata),
            claim: claim(&anchor.metadata),
        }),
        secret: objects.secret.as_ref().map(|secret| object(of, secret)),
        policy: objects.policy.as_ref().map(|policy| object(of, &policy.metadata)),
        volume: objects.volume.as_ref().map(|claim| volume(of, claim)),
        pod: objects.pod.as_ref().map(|pod| Pod {
            object: object(of, &pod.metadata),
            claim: claim(&pod.metadata),
            state: pod::state(pod, worker, patience),
        }),
    }
}

fn object(of: Looked<'_>, meta: &ObjectMeta) -> Object {
    let owners = meta.owner_references.iter().flatten();
    let has = |name: &str, value: &str| {
        meta.labels.as_ref().and_then(|all| all.get(name)).is_some_and(|found| found == value)
    };
    Object {
        uid: meta.uid.clone().unwrap_or_default(),
        version: meta.resource_version.clone().unwrap_or_default(),
        ours: has(label::SLOT, of.slot.as_str()) && has(label::INSTALLATION, of.installation),
        owner: owners
            .clone()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.clone()),
        terminating: meta.deletion_timestamp.is_some(),
    }
}

fn volume(of: Looked<'_>, found: &PersistentVolumeClaim) -> Volume {
    let mut object = object(of, &found.metadata);
    let made_by = format!("{}/{}", of.installation, of.slot);
    // Labels are for whoever looks for it; that it was made here is said by this alone.
    object.ours &= text(&found.metadata, annotation::MADE_BY) == Some(made_by.as_str());
    let number = |name| text(&found.metadata, name).and_then(|text| text.parse().ok());
    Volume {
        object,
        key: text(&found.metadata, annotation::KEY).map(str::to_owned),
        incarnation: number(annotation::INCARNATION).map_or(Incarnation::ZERO, Incarnation),
        floor: number(annotation::GENERATION).map_or(Generation::ZERO, Generation),
        opened_to: text(&found.metadata, annotation::OPENED_TO).map(str::to_owned),
    }
}

/// Whose an anchor or a Pod is. What is half a claim is nobody's: it was not written here.
fn claim(meta: &ObjectMeta) -> Option<Claim> {
    Some(Claim {
        session: text(meta, annotation::SESSION)?.parse().ok()?,
        incarnation: Incarnation(text(meta, annotation::INCARNATION)?.parse().ok()?),
        generation: Generation(text(meta, annotation::GENERATION)?.parse().ok()?),
    })
}

fn text<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    let all: Option<&BTreeMap<String, String>> = meta.annotations.as_ref();
    all?.get(name).map(String::as_str)
}
