//! What is mounted into a worker. All of it read-only but the session's own files, and shared volumes that the profile says may be
//! written.

use casemate_protocol::slot::paths;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, ImageVolumeSource, KeyToPath,
    PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Slot, Unbuildable};
use crate::resource::profile::{Content, Policy, SharedUse, Storage};
use crate::resource::text::DataKey;

/// The volume of the session's own files.
const SESSION: &str = "session";
/// The supervisor's program has its place.
const PROGRAM: &str = "64Mi";
/// Owner and group read: the group is the volume's (`fsGroup`).
const PRIVATE: i32 = 0o440;
/// Everybody reads: what is public in the Pod.
const PUBLIC: i32 = 0o444;

/// A Pod's volumes and where they are in its worker.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    pub(super) volumes: Vec<Volume>,
    pub(super) mounts: Vec<VolumeMount>,
}

impl Mounts {
    /// All of a slot.
    ///
    /// # Errors
    /// [`Unbuildable`].
    pub(super) fn of(slot: Slot<'_>) -> Result<Self, Unbuildable> {
        let spec = &slot.profile.spec;
        let mut all = Self::default();
        all.session(slot);
        all.read(secret("slot", slot.name.as_str(), None), paths::SLOT);
        if spec.image.supervisor.is_some() {
            all.read(empty("program", PROGRAM), paths::PROGRAM);
        }
        if let Policy::ConfigMap { name, key, .. } = &spec.policy {
            all.read(config_map("policy", name.as_str(), Some(key)), paths::POLICY);
        }
        if let Some(skills) = &spec.skills {
            all.content("skills", &skills.content, paths::SKILLS)?;
        }
        if let Some(template) = &spec.home.template {
            all.content("home.template", template, paths::TEMPLATE)?;
        }
        if let Some(baseline) = &spec.home.baseline {
            all.content("home.baseline", baseline, paths::BASELINE)?;
        }
        if let Some(authority) = &spec.network.private_ca {
            let volume = config_map("authority", authority.name.as_str(), Some(&authority.key));
            all.read(volume, paths::AUTHORITY);
        }
        for (number, credential) in spec.credentials.iter().enumerate() {
            let of = &credential.secret;
            let volume = secret(&format!("credential-{number}"), of.name.as_str(), Some(&of.key));
            all.read(volume, &format!("{}/{number}", paths::CREDENTIALS));
        }
        for (number, shared) in spec.shared.iter().enumerate() {
            let read_only = shared.how == SharedUse::ReadOnly;
            let volume = claim(&format!("shared-{number}"), shared.claim_name.as_str(), read_only);
            all.add(volume, shared.mount_path.as_str(), read_only);
        }
        Ok(all)
    }

    /// The session's own files: one volume, each part of it at its place.
    fn session(&mut self, slot: Slot<'_>) {
        let (volume, below) = match &slot.profile.spec.storage {
            Storage::Ephemeral { size } => (empty(SESSION, size.as_str()), None),
            Storage::New(_) => (claim(SESSION, slot.name.as_str(), false), None),
            Storage::Borrowed { claim_name, sub_path } => {
                (claim(SESSION, claim_name.as_str(), false), sub_path.as_ref())
            }
        };
        self.volumes.push(volume);
        self.mounts.extend(paths::PARTS.map(|(part, place)| VolumeMount {
            name: SESSION.to_owned(),
            mount_path: place.to_owned(),
            read_only: Some(false),
            sub_path: Some(below.map_or_else(|| part.to_owned(), |dir| format!("{dir}/{part}"))),
            ..VolumeMount::default()
        }));
    }

    fn content(
        &mut self,
        field: &'static str,
        content: &Content,
        path: &str,
    ) -> Result<(), Unbuildable> {
        let name = field.replace('.', "-");
        let volume = match content {
            Content::ConfigMap { name: source } => config_map(&name, source.as_str(), None),
            Content::ImageVolume { reference } => Volume {
                name,
                image: Some(ImageVolumeSource {
                    reference: Some(reference.to_string()),
                    pull_policy: Some("IfNotPresent".to_owned()),
                }),
                ..Volume::default()
            },
            Content::CopiedImage { .. } => return Err(Unbuildable::CopiedImage { field }),
        };
        self.read(volume, path);
        Ok(())
    }

    fn read(&mut self, volume: Volume, path: &str) {
        self.add(volume, path, true);
    }

    fn add(&mut self, volume: Volume, path: &str, read_only: bool) {
        self.mounts.push(VolumeMount {
            name: volume.name.clone(),
            mount_path: path.to_owned(),
            read_only: Some(read_only),
            ..VolumeMount::default()
        });
        self.volumes.push(volume);
    }
}

fn empty(name: &str, size: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            size_limit: Some(Quantity(size.to_owned())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn claim(name: &str, claim_name: &str, read_only: bool) -> Volume {
    Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name.to_owned(),
            read_only: Some(read_only),
        }),
        ..Volume::default()
    }
}

fn secret(name: &str, source: &str, key: Option<&DataKey>) -> Volume {
    Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(source.to_owned()),
            default_mode: Some(PRIVATE),
            items: key.map(only),
            optional: Some(false),
        }),
        ..Volume::default()
    }
}

fn config_map(name: &str, source: &str, key: Option<&DataKey>) -> Volume {
    Volume {
        name: name.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: source.to_owned(),
            default_mode: Some(PUBLIC),
            items: key.map(only),
            optional: Some(false),
        }),
        ..Volume::default()
    }
}

fn only(key: &DataKey) -> Vec<KeyToPath> {
    vec![KeyToPath { key: key.to_string(), path: key.to_string(), mode: None }]
}
