//! A configuration for unit tests.

use std::collections::BTreeMap;
use std::path::Path;

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::ports::PortPool;
use casemate_protocol::sharing::{SessionConfig, SharedWorkerConfig, Sharing};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::SigningSecret;
use casemate_protocol::worker::{AgentCommand, WorkerConfig};

/// A valid configuration in tier `domain`, with nothing optional.
pub(crate) fn config(volume: &Path) -> WorkerConfig {
    WorkerConfig {
        session: SessionId::random(),
        incarnation: Incarnation(1),
        generation: Generation(1),
        slot: SlotId::random(),
        verify_key: SigningSecret::generate().public(),
        tier: Tier::Domain,
        private: Vec::new(),
        volume: volume.to_owned(),
        repository: None,
        home_template: None,
        skills: None,
        programs: Vec::new(),
        policy: String::new(),
        agent: AgentCommand { argv: vec!["true".into()], env: BTreeMap::new() },
        ports: PortPool { first: 20_000, ranges: 8, preferred: 0 },
        connect: Vec::new(),
        listen: ([127, 0, 0, 1], 0).into(),
        permission_ttl: 60,
        grace: 2,
        host_uid: None,
        owner: None,
    }
}

/// A valid configuration of a worker of many sessions.
pub(crate) fn shared(volume: &Path) -> SharedWorkerConfig {
    let one = config(volume);
    SharedWorkerConfig {
        sharing: Sharing::User,
        user: "ann".parse().expect("a name"),
        slot: one.slot,
        verify_key: one.verify_key,
        private: one.private,
        volume: one.volume,
        ports: one.ports,
        listen: one.listen,
        host_uid: None,
        owner: None,
        linger: None,
    }
}

/// A valid session for it, with nothing optional.
pub(crate) fn hosted(worker: &SharedWorkerConfig) -> SessionConfig {
    let one = config(&worker.volume);
    SessionConfig {
        user: worker.user.clone(),
        session: one.session,
        incarnation: one.incarnation,
        generation: one.generation,
        tier: one.tier,
        repository: None,
        home_template: None,
        skills: None,
        programs: Vec::new(),
        policy: one.policy,
        agent: one.agent,
        preferred_ports: 0,
        connect: Vec::new(),
        permission_ttl: one.permission_ttl,
        grace: one.grace,
    }
}
