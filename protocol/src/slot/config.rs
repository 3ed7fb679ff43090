//! What a worker that waits is started with, and how it becomes a worker's whole configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Bind, paths};
use crate::ids::SlotId;
use crate::ports::PortPool;
use crate::tier::Tier;
use crate::tls::Certificate;
use crate::token::PublicKey;
use crate::worker::{AgentCommand, WorkerConfig};

/// What a slot gives its worker before there is a session: a file of JSON in its Secret. Everything that it names is in the Pod
/// already; nothing in it is of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotConfig {
    /// The slot's name: that of its Pod, and of its certificate.
    pub name: SlotId,
    /// Whose signature a bind or token must carry.
    pub verify_key: PublicKey,
    /// Or one of these: an old key's, a later one's, while keys are rotated. With the one above at most
    /// [`crate::worker::Keys::MOST`].
    #[serde(default)]
    pub verify_also: Vec<PublicKey>,
    /// The tier that must be measured: by what there is to see of the Pod before the worker waits, by the probe when it is bound. A worker
    /// that measures less fails.
    pub tier: Tier,
    /// Where to serve: every address of the Pod, at [`paths::DOOR`].
    pub listen: SocketAddr,
    /// What the door's TLS is served with; none: as [`WorkerConfig::tls`].
    #[serde(default)]
    pub tls: Option<CertificateFiles>,
    /// As [`WorkerConfig::plain`].
    #[serde(default)]
    pub plain: bool,
    /// What must be refused before anything of a session runs.
    pub canary: Canary,
    /// The policy of every session of this slot.
    pub policy: SlotPolicy,
    /// As [`WorkerConfig::skills`].
    #[serde(default)]
    pub skills: Option<PathBuf>,
    /// As [`WorkerConfig::home_template`].
    #[serde(default)]
    pub home_template: Option<PathBuf>,
    /// As [`WorkerConfig::programs`]: the baseline and the private authority as well, which the agent reads.
    #[serde(default)]
    pub programs: Vec<PathBuf>,
    /// Variables that the agent is handed from mounted Secrets: the file of each. Status names the variables.
    #[serde(default)]
    pub secrets: BTreeMap<String, PathBuf>,
    /// As [`WorkerConfig::ports`].
    pub ports: PortPool,
}

/// A certificate's files, as a Secret of type `kubernetes.io/tls` has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// The chain, in PEM.
    pub chain: PathBuf,
    /// The key, in PEM.
    pub key: PathBuf,
}

/// Whether the Pod's NetworkPolicy must be seen in force. Policies take effect late on fresh Pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Canary {
    /// A connection to the target that the bind names ([`Bind::canary`]) must be refused while the target answers others ([`Bind::answered`]).
    Refused {
        /// How long it is tried again while it is let through, and then how long it is waited for whoever has seen it answer: in seconds.
        within: u64,
    },
    /// Not tried, and status says so: the cluster enforces no policies, and the profile takes that.
    NotTried,
}

/// Where a policy comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SlotPolicy {
    /// One that comes with casemate, by name ([`crate::policy::BUILT_IN`]).
    BuiltIn(String),
    /// A mounted file.
    File {
        /// Where.
        path: PathBuf,
        /// The SHA-256 of its text, in hexadecimal; a worker that reads another does not start. None: any.
        #[serde(default)]
        revision: Option<String>,
    },
}

/// What a worker has read that its configuration names.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// The policy's text.
    pub policy: String,
    /// The values of [`SlotConfig::secrets`].
    pub secrets: BTreeMap<String, String>,
}

// === impl Content ===

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.secrets.keys().collect();
        f.debug_struct("Content").field("secrets", &names).finish_non_exhaustive()
    }
}

// === impl SlotConfig ===

impl SlotConfig {
    /// The configuration of the one session that it is bound to. `tls` is the door's affair, which is open by then.
    #[must_use]
    pub fn bound(&self, bind: Bind, content: Content) -> WorkerConfig {
        let Bind { session, incarnation, generation, slot, terms, .. } = bind;
        let mut env = terms.agent.env;
        env.extend(content.secrets);
        WorkerConfig {
            session,
            incarnation,
            generation,
            slot,
            verify_key: self.verify_key,
            tier: self.tier,
            private: vec![paths::VOLUME.into()],
            volume: paths::VOLUME.into(),
            repository: terms.repository,
            home_template: self.home_template.clone(),
            skills: self.skills.clone(),
            programs: self.programs.clone(),
            policy: content.policy,
            agent: AgentCommand { argv: terms.agent.argv, env },
            ports: self.ports,
            connect: terms.connect,
            listen: self.listen,
            tls: None::<Certificate>,
            // The slot's own certificate is served with.
            plain: self.plain || self.tls.is_some(),
            origins: terms.origins,
            permission_ttl: terms.permission_ttl,
            kept: terms.kept,
            blocked_ttl: terms.blocked_ttl,
            grace: terms.grace,
            host_uid: None,
            owner: None,
            // To open its walls would open them to whatever its volume holds.
            learn: None,
        }
    }
}
