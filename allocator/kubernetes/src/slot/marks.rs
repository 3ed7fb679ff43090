//! Labels and annotations.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Claim, Labels, Slot};

/// Labels of every object of a slot.
pub mod label {
    /// The slot.
    pub const SLOT: &str = "casemate.dev/slot";
    /// The UID of the profile that it was made by.
    pub const PROFILE: &str = "casemate.dev/profile-uid";
    /// On a volume: the name of the session whose files are on it.
    pub const SESSION: &str = "casemate.dev/session";
    /// The installation that made it.
    pub const INSTALLATION: &str = "casemate.dev/installation";
    /// What it is, as the Kubernetes documentation advises.
    pub const NAME: &str = "app.kubernetes.io/name";
    /// Who keeps it.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
}

/// Annotations.
pub mod annotation {
    /// On an anchor or a Pod: the session that has claimed it.
    pub const SESSION: &str = "casemate.dev/session";
    /// On an anchor, a Pod or a volume: the session's incarnation.
    pub const INCARNATION: &str = "casemate.dev/incarnation";
    /// On an anchor or a Pod: the worker's generation. On a volume: the newest one that it was opened to; none is ever given again that
    /// is not above.
    pub const GENERATION: &str = "casemate.dev/generation";
    /// On a volume: the UID of the Pod that it was opened to last.
    pub const OPENED_TO: &str = "casemate.dev/opened-to";
    /// On a volume: the digest of the key whose files are on it.
    pub const KEY: &str = "casemate.dev/key";
    /// On a volume: that this installation made it, and as which slot's. One without is not ours to delete.
    pub const MADE_BY: &str = "casemate.dev/made-by";
    /// On a Secret and a Pod: the authority whose certificate its door shows, in PEM.
    pub const AUTHORITY: &str = "casemate.dev/authority";
    /// On a Pod: the profile's `metadata.generation` that it was made by.
    pub const PROFILE_GENERATION: &str = "casemate.dev/profile-generation";
}

impl Slot<'_> {
    /// The labels of each of its objects.
    pub(super) fn labels(&self) -> Labels {
        let mut labels = self.selector();
        labels.insert(label::NAME.to_owned(), "casemate-worker".to_owned());
        labels.insert(label::MANAGED_BY.to_owned(), "casemate".to_owned());
        labels.insert(label::INSTALLATION.to_owned(), self.installation.id.clone());
        labels.append(&mut self.of_profile());
        labels
    }

    /// What selects the slots of its profile.
    pub(super) fn of_profile(&self) -> Labels {
        let uid = self.profile.metadata.uid.clone();
        uid.map(|uid| (label::PROFILE.to_owned(), uid)).into_iter().collect()
    }

    /// What selects its objects and no others.
    pub(super) fn selector(&self) -> Labels {
        BTreeMap::from([(label::SLOT.to_owned(), self.name.to_string())])
    }

    /// Its objects' metadata but for owner and annotations.
    pub(super) fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.to_string()),
            namespace: Some(self.installation.namespace.clone()),
            labels: Some(self.labels()),
            ..ObjectMeta::default()
        }
    }
}

impl Claim {
    /// What a claimed anchor or Pod is marked with.
    pub(super) fn of_pod(&self) -> Labels {
        BTreeMap::from([
            (annotation::SESSION.to_owned(), self.session.to_string()),
            (annotation::INCARNATION.to_owned(), self.incarnation.to_string()),
            (annotation::GENERATION.to_owned(), self.generation.to_string()),
        ])
    }

    /// By what a claimed volume is found where nothing but its session's name is known.
    pub(super) fn labels_of_volume(&self) -> Labels {
        BTreeMap::from([(label::SESSION.to_owned(), self.object.clone())])
    }

    /// What a claimed volume is marked with. It is opened to nobody yet.
    pub(super) fn of_volume(&self) -> Labels {
        BTreeMap::from([
            (annotation::KEY.to_owned(), self.key.clone()),
            (annotation::INCARNATION.to_owned(), self.incarnation.to_string()),
        ])
    }
}
