//! A slot whose worker hosts many sessions of one user, and what its holder may ask of it.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use casemate_protocol::ids::{Generation, Incarnation, SessionId};
use casemate_protocol::sharing::{
    SessionConfig, SessionList, SessionSummary, SharedWorkerConfig, Sharing, WorkerClaims,
};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims};
use casemate_protocol::worker::{AgentCommand, StartEvent};
use nix::unistd::Pid;

use crate::client::Client;
use crate::harness::{Slot, Who, Worker, agent_program, call, raw};

/// A slot, and the worker's configuration to change before it is started.
pub(crate) struct Many {
    slot: Slot,
    pub(crate) config: SharedWorkerConfig,
}

impl Many {
    pub(crate) fn new(who: Who) -> Self {
        let slot = Slot::new(Tier::Domain, who);
        let one = &slot.config;
        let config = SharedWorkerConfig {
            sharing: Sharing::User,
            user: "tenant/ann".parse().unwrap(),
            slot: one.slot.clone(),
            verify_key: one.verify_key,
            private: one.private.clone(),
            volume: one.volume.clone(),
            ports: one.ports,
            listen: one.listen,
            tls: one.tls.clone(),
            plain: one.plain,
            host_uid: one.host_uid,
            owner: None,
            linger: None,
        };
        Self { slot, config }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.slot.root.path().to_owned()
    }

    pub(crate) fn hand_over(&self, path: &Path) {
        self.slot.hand_over(path);
    }

    pub(crate) fn start(&self) -> Worker {
        self.start_after(|_| {})
    }

    /// As [`Many::start`], and does something to the process before it has its configuration.
    pub(crate) fn start_after(&self, first: impl FnOnce(Pid)) -> Worker {
        for path in [self.root(), self.root().join("slots")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        self.slot.hand_over(&self.root().join("slots"));
        let config = serde_json::to_string(&self.config).unwrap();
        Worker::start_after(self.slot.who, &config, &self.root(), first)
    }

    pub(crate) fn serve(&self) -> (Worker, SocketAddr) {
        let mut worker = self.start();
        let event = worker.outcome();
        let StartEvent::Ready { address, .. } = event else {
            panic!("{event:?}\n{}", worker.log());
        };
        (worker, address)
    }

    /// A session that nobody has asked for yet.
    pub(crate) fn session(&self) -> SessionConfig {
        let agent = agent_program();
        SessionConfig {
            user: self.config.user.clone(),
            session: SessionId::random(),
            incarnation: Incarnation(1),
            generation: Generation(1),
            tier: Tier::Domain,
            repository: None,
            home_template: None,
            skills: None,
            programs: vec![agent.clone()],
            policy: include_str!("../../../policies/developer.toml").to_owned(),
            agent: AgentCommand { argv: vec![agent.display().to_string()], env: BTreeMap::new() },
            preferred_ports: 0,
            connect: Vec::new(),
            origins: Vec::new(),
            permission_ttl: 30,
            kept: 1 << 30,
            blocked_ttl: 600,
            grace: 2,
        }
    }

    pub(crate) fn claims(&self) -> WorkerClaims {
        WorkerClaims {
            slot: self.config.slot.clone(),
            user: self.config.user.clone(),
            expires: u64::MAX,
        }
    }

    /// The worker's own token.
    pub(crate) fn own_token(&self) -> String {
        self.slot.secret.sign_worker(&self.claims())
    }

    pub(crate) fn sign(&self, claims: &WorkerClaims) -> String {
        self.slot.secret.sign_worker(claims)
    }

    /// A session's token.
    pub(crate) fn token(&self, session: &SessionConfig, audience: Audience) -> String {
        self.slot.secret.sign(&self.session_claims(session, audience))
    }

    pub(crate) fn session_claims(&self, session: &SessionConfig, audience: Audience) -> Claims {
        Claims {
            session: session.session.clone(),
            incarnation: session.incarnation,
            generation: session.generation,
            slot: self.config.slot.clone(),
            audience,
            expires: u64::MAX,
        }
    }

    /// Asks for a session: the status, and what was said.
    pub(crate) fn ask(&self, address: SocketAddr, session: &SessionConfig) -> (u16, String) {
        self.ask_with(address, &self.own_token(), session)
    }

    pub(crate) fn ask_with(
        &self,
        address: SocketAddr,
        token: &str,
        session: &SessionConfig,
    ) -> (u16, String) {
        let body = serde_json::to_string(session).unwrap();
        // HTTP/1.0: the body comes without chunks, up to the end of the connection.
        raw(
            address,
            &format!(
                "POST /v1/sessions HTTP/1.0\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
    }

    /// Asks for a session and waits until it is served.
    pub(crate) fn begin(&self, address: SocketAddr, session: &SessionConfig) -> StartEvent {
        let (status, said) = self.ask(address, session);
        assert_eq!(status, 200, "{said}");
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    }

    /// A new session that is served, and a client with a conversation in it.
    pub(crate) fn hosted(&self, address: SocketAddr) -> Hosted {
        self.hosted_as(address, self.session())
    }

    pub(crate) fn hosted_as(&self, address: SocketAddr, config: SessionConfig) -> Hosted {
        let event = self.begin(address, &config);
        let StartEvent::Ready { worktree, tier, .. } = event else { panic!("{event:?}") };
        assert_eq!(tier, Tier::Domain);
        let mut client = Client::attach(address, &self.token(&config, Audience::Attach)).unwrap();
        client.initialize();
        let conversation = client.new_session();
        Hosted { config, worktree, client, conversation }
    }

    pub(crate) fn end(&self, address: SocketAddr, session: &SessionId, how: &str) -> (u16, String) {
        let path = format!("/v1/sessions/{session}?{how}");
        call(address, "DELETE", &path, Some(&self.own_token()), "")
    }

    pub(crate) fn list(&self, address: SocketAddr) -> Vec<SessionSummary> {
        let (status, body) = call(address, "GET", "/v1/sessions", Some(&self.own_token()), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<SessionList>(&body).unwrap().sessions
    }

    /// How many entries a directory of the slot has.
    pub(crate) fn count(&self, name: &str) -> usize {
        fs::read_dir(self.config.volume.join(name)).unwrap().count()
    }
}

/// A session that is served.
pub(crate) struct Hosted {
    pub(crate) config: SessionConfig,
    pub(crate) worktree: PathBuf,
    pub(crate) client: Client,
    pub(crate) conversation: String,
}

impl Hosted {
    /// What a shell command in the session prints.
    pub(crate) fn shell(&mut self, command: &str) -> String {
        self.client.shell(&self.conversation, command)
    }

    /// The session's own directory.
    pub(crate) fn place(&self) -> PathBuf {
        self.worktree.parent().unwrap().to_owned()
    }
}
