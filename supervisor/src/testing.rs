//! A configuration for unit tests.

use std::collections::BTreeMap;
use std::path::Path;

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::ports::PortPool;
use casemate_protocol::sharing::{SessionConfig, SharedWorkerConfig};
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
        tls: None,
        plain: false,
        origins: Vec::new(),
        permission_ttl: 60,
        kept: 1 << 30,
        blocked_ttl: 600,
        grace: 2,
        host_uid: None,
        owner: None,
        learn: None,
    }
}

/// A valid configuration of a worker of many sessions, which never ends by itself.
pub(crate) fn shared(volume: &Path) -> SharedWorkerConfig {
    let (worker, _) = config(volume).apart("ann".parse().expect("a name"), 0);
    SharedWorkerConfig { linger: None, ..worker }
}

/// A valid session for it, with nothing optional.
pub(crate) fn hosted(worker: &SharedWorkerConfig) -> SessionConfig {
    config(&worker.volume).apart(worker.user.clone(), 0).1
}
