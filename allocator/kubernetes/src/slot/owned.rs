//! Anchor, Secret and volume claim.

use std::collections::BTreeMap;

use casemate_protocol::tls::Certificate;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, Secret, ServiceAccount,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt as _};

use super::{Claim, Slot, Unbuildable, annotation};
use crate::resource::WorkerSession;
use crate::resource::profile::{AccessMode, Storage};

/// What a slot proves to be who it is by, and what its worker is told before it has a session.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its certificate; the SAN is the slot's name.
    pub certificate: Certificate,
    /// In PEM, who signed it.
    pub authority: String,
    /// The worker's configuration: a file of JSON. It names no session.
    pub config: String,
}

/// Refers to an owner who is the object's controller, as `kubectl drain` wants a Pod to have. Without `blockOwnerDeletion`, for
/// which an allocator would need rights on the owner's finalizers.
pub(super) fn owner<K: Resource<DynamicType = ()>>(_: &K, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// A slot's ServiceAccount: no token, no role. `session` is whose the slot is, and by which claim; `None`: the pool's.
///
/// # Errors
/// [`Unbuildable::NoIdentity`].
pub fn anchor(
    slot: Slot<'_>,
    session: Option<(&WorkerSession, &Claim)>,
) -> Result<ServiceAccount, Unbuildable> {
    let owner = match session {
        Some((session, _)) => {
            let uid = session.metadata.uid.as_deref().ok_or(Unbuildable::NoIdentity)?;
            owner(session, &session.name_any(), uid)
        }
        None => {
            let uid = slot.profile.metadata.uid.as_deref().ok_or(Unbuildable::NoIdentity)?;
            owner(slot.profile, &slot.profile.name_any(), uid)
        }
    };
    Ok(ServiceAccount {
        metadata: ObjectMeta {
            owner_references: Some(vec![owner]),
            annotations: session.map(|(_, claim)| claim.of_pod()),
            ..slot.metadata()
        },
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    })
}

/// Metadata of what belongs to the anchor, whose UID this is.
pub(super) fn anchored(slot: Slot<'_>, anchor: &str) -> ObjectMeta {
    let owner = owner(&ServiceAccount::default(), slot.name.as_str(), anchor);
    ObjectMeta { owner_references: Some(vec![owner]), ..slot.metadata() }
}

/// A slot's Secret: certificate, key, and the worker's configuration. `anchor`: the ServiceAccount's UID.
#[must_use]
pub fn secret(slot: Slot<'_>, anchor: &str, identity: &Identity) -> Secret {
    let files = [
        ("tls.crt", &identity.certificate.chain),
        ("tls.key", &identity.certificate.key),
        ("config.json", &identity.config),
    ];
    let data = files.map(|(name, text)| (name.to_owned(), ByteString(text.clone().into_bytes())));
    // Whom to believe is public, and is found again where the answer to its making was lost.
    let authority = (annotation::AUTHORITY.to_owned(), identity.authority.clone());
    Secret {
        metadata: ObjectMeta {
            annotations: Some(BTreeMap::from([authority])),
            ..anchored(slot, anchor)
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        immutable: Some(true),
        data: Some(BTreeMap::from(data)),
        ..Secret::default()
    }
}

/// A slot's volume claim; `None`: the profile's storage needs none. `claim` is whose it is from the start; `None`: the pool's.
#[must_use]
pub fn volume_claim(slot: Slot<'_>, claim: Option<&Claim>) -> Option<PersistentVolumeClaim> {
    let Storage::New(disk) = &slot.profile.spec.storage else { return None };
    let mut annotations = claim.map(Claim::of_volume).unwrap_or_default();
    annotations
        .insert(annotation::MADE_BY.to_owned(), format!("{}/{}", slot.installation.id, slot.name));
    let mut labels = slot.labels();
    labels.extend(claim.map(Claim::labels_of_volume).unwrap_or_default());
    let mode = match disk.access_mode {
        AccessMode::ReadWriteOncePod => "ReadWriteOncePod",
        AccessMode::ReadWriteOnce => "ReadWriteOnce",
    };
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            annotations: Some(annotations),
            labels: Some(labels),
            ..slot.metadata()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![mode.to_owned()]),
            storage_class_name: disk.class.clone().map(String::from),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([(
                    "storage".to_owned(),
                    Quantity(disk.size.to_string()),
                )])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    })
}
