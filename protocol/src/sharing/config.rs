//! What a worker of many sessions and each of its sessions are started with: the two parts of a [`WorkerConfig`], taken apart
//! and put together here alone.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::UserId;
use crate::ids::{Generation, Incarnation, SessionId, SlotId};
use crate::origin::Origin;
use crate::ports::PortPool;
use crate::tier::Tier;
use crate::tls::Certificate;
use crate::token::PublicKey;
use crate::worker::{AgentCommand, Repository, WorkerConfig};

/// Says that a configuration is a [`SharedWorkerConfig`]; one of a single session does not have the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Sessions of one user share the worker.
    User,
}

/// What a worker of many sessions is started with, as [`WorkerConfig`] is for one: it begins with none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedWorkerConfig {
    /// Always `user`.
    pub sharing: Sharing,
    /// The one user whose sessions it takes, now and in every later start in this slot.
    pub user: UserId,
    /// The slot.
    pub slot: SlotId,
    /// Whose signature a token must carry.
    pub verify_key: PublicKey,
    /// As [`WorkerConfig::private`]; the slot itself is private in any case.
    pub private: Vec<PathBuf>,
    /// The slot's directory: holds `sessions/<place>/{home,work,scratch}`, `state/<session>/` and `run/`.
    pub volume: PathBuf,
    /// Where the worker's own port and each session's ports come from.
    pub ports: PortPool,
    /// As [`WorkerConfig::listen`].
    pub listen: SocketAddr,
    /// As [`WorkerConfig::tls`].
    #[serde(default)]
    pub tls: Option<Certificate>,
    /// As [`WorkerConfig::plain`].
    #[serde(default)]
    pub plain: bool,
    /// As [`WorkerConfig::host_uid`].
    pub host_uid: Option<u32>,
    /// As [`WorkerConfig::owner`].
    #[serde(default)]
    pub owner: Option<u32>,
    /// For how long a worker without a session waits for the next one before it ends by itself, in seconds; `None`: for ever.
    #[serde(default)]
    pub linger: Option<u64>,
}

/// `POST /v1/sessions`: a session to be hosted. The fields mean what they mean in [`WorkerConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    /// Whose session it is; another user's than the worker's is refused.
    pub user: UserId,
    /// The session.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its generation: above every one that was ever hosted in this slot of the session's incarnation.
    pub generation: Generation,
    /// `domain`; any other is refused.
    pub tier: Tier,
    /// Where the agent's repository comes from.
    pub repository: Option<Repository>,
    /// Copied into a new HOME once.
    pub home_template: Option<PathBuf>,
    /// Central skills.
    pub skills: Option<PathBuf>,
    /// Programs outside the system directories.
    pub programs: Vec<PathBuf>,
    /// The policy file's text.
    pub policy: String,
    /// The agent, with the credentials that it is handed.
    pub agent: AgentCommand,
    /// The range of ports to be tried first, below the pool's `ranges`.
    pub preferred_ports: u16,
    /// Further TCP ports that the session may connect to.
    pub connect: Vec<u16>,
    /// The pages that may attach to it.
    #[serde(default)]
    pub origins: Vec<Origin>,
    /// How long a permission request waits for a client, in seconds.
    pub permission_ttl: u64,
    /// How many bytes are kept on the disk for a client that does not take what the agent says; above it the agent waits.
    #[serde(default = "crate::worker::kept")]
    pub kept: u64,
    /// How long it waits until its turn is cancelled, in seconds.
    #[serde(default = "crate::worker::blocked_ttl")]
    pub blocked_ttl: u64,
    /// How long the agent has between TERM and KILL, in seconds.
    pub grace: u64,
}

// === impl SharedWorkerConfig ===

impl SharedWorkerConfig {
    /// The configuration of one of its sessions, as if it had a worker of its own. The slot is closed to it but for its own
    /// places.
    #[must_use]
    pub fn host(&self, session: SessionConfig) -> WorkerConfig {
        let mut private = self.private.clone();
        private.push(self.volume.clone());
        WorkerConfig {
            session: session.session,
            incarnation: session.incarnation,
            generation: session.generation,
            slot: self.slot.clone(),
            verify_key: self.verify_key,
            tier: session.tier,
            private,
            volume: self.volume.clone(),
            repository: session.repository,
            home_template: session.home_template,
            skills: session.skills,
            programs: session.programs,
            policy: session.policy,
            agent: session.agent,
            ports: PortPool { preferred: session.preferred_ports, ..self.ports },
            connect: session.connect,
            listen: self.listen,
            tls: self.tls.clone(),
            plain: self.plain,
            origins: session.origins,
            permission_ttl: session.permission_ttl,
            kept: session.kept,
            blocked_ttl: session.blocked_ttl,
            grace: session.grace,
            host_uid: self.host_uid,
            owner: self.owner,
            // To open its walls would open them beside the user's other sessions.
            learn: None,
        }
    }
}

// === impl WorkerConfig ===

impl WorkerConfig {
    /// Of a session that is to have no worker of its own: what its user's worker is started with, to wait `linger` seconds for
    /// the next session, and what that one is asked for. [`SharedWorkerConfig::host`] is the way back.
    #[must_use]
    pub fn apart(self, user: UserId, linger: u64) -> (SharedWorkerConfig, SessionConfig) {
        let session = SessionConfig {
            user: user.clone(),
            session: self.session,
            incarnation: self.incarnation,
            generation: self.generation,
            tier: self.tier,
            repository: self.repository,
            home_template: self.home_template,
            skills: self.skills,
            programs: self.programs,
            policy: self.policy,
            agent: self.agent,
            preferred_ports: self.ports.preferred,
            connect: self.connect,
            origins: self.origins,
            permission_ttl: self.permission_ttl,
            kept: self.kept,
            blocked_ttl: self.blocked_ttl,
            grace: self.grace,
        };
        let worker = SharedWorkerConfig {
            sharing: Sharing::User,
            user,
            slot: self.slot,
            verify_key: self.verify_key,
            private: self.private,
            volume: self.volume,
            ports: self.ports,
            listen: self.listen,
            tls: self.tls,
            plain: self.plain,
            host_uid: self.host_uid,
            owner: self.owner,
            linger: Some(linger),
        };
        (worker, session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::SigningSecret;

    #[test]
    fn what_was_taken_apart_is_hosted_as_it_was_in_a_slot_that_is_closed() {
        let config = WorkerConfig {
            session: SessionId::random(),
            incarnation: Incarnation(2),
            generation: Generation(3),
            slot: SlotId::random(),
            verify_key: SigningSecret::generate().public(),
            tier: Tier::Domain,
            private: vec!["/casemate".into()],
            volume: "/casemate/slots/one".into(),
            repository: Some(Repository::Local("/repository".into())),
            home_template: Some("/template".into()),
            skills: Some("/skills".into()),
            programs: vec!["/program".into()],
            policy: "policy".into(),
            agent: AgentCommand {
                argv: vec!["agent".into()],
                env: [("NAME".to_owned(), "value".to_owned())].into(),
            },
            ports: PortPool { first: 21_008, ranges: 9, preferred: 7 },
            connect: vec![4000],
            listen: ([127, 0, 0, 1], 4001).into(),
            tls: Some(Certificate { chain: "chain".into(), key: "key".into() }),
            plain: true,
            origins: vec!["https://app.example".parse().unwrap()],
            permission_ttl: 11,
            kept: 13,
            blocked_ttl: 14,
            grace: 12,
            host_uid: Some(1000),
            owner: Some(13),
            learn: None,
        };
        let (worker, session) = config.clone().apart("tenant/ann".parse().unwrap(), 14);
        assert_eq!((worker.linger, &worker.user), (Some(14), &session.user));
        let mut private = config.private.clone();
        private.push(config.volume.clone());
        assert_eq!(worker.host(session), WorkerConfig { private, ..config });
    }
}
