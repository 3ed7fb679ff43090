//! A worker with the benchmark's agent.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::policy::DEVELOPER;
use casemate_protocol::ports::PortPool;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use casemate_protocol::worker::{AgentCommand, StartEvent, WorkerConfig};

use crate::client::Client;

pub(crate) struct Worker {
    root: tempfile::TempDir,
    child: Child,
    pub(crate) port: u16,
    pub(crate) token: String,
}

impl Worker {
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let volume = root.path().join("slots/w");
        fs::create_dir_all(&volume).unwrap();
        for path in [root.path(), &root.path().join("slots"), &volume] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Where an ordinary user may run it.
        let agent = root.path().join("agent");
        fs::copy(std::env::current_exe().unwrap(), &agent).unwrap();
        let secret = SigningSecret::generate();
        let root_runs = nix::unistd::geteuid().is_root();
        let config = WorkerConfig {
            session: SessionId::random(),
            incarnation: Incarnation(1),
            generation: Generation(1),
            slot: SlotId::random(),
            verify_key: secret.public(),
            tier: Tier::Domain,
            private: vec![root.path().join("slots")],
            volume,
            repository: None,
            home_template: None,
            skills: None,
            programs: vec![agent.clone()],
            policy: DEVELOPER.to_owned(),
            agent: AgentCommand {
                argv: vec![agent.display().to_string(), "agent".into()],
                env: BTreeMap::new(),
            },
            ports: PortPool { first: 21_008, ranges: 687, preferred: 0 },
            connect: Vec::new(),
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            plain: false,
            origins: Vec::new(),
            permission_ttl: 30,
            kept: 1 << 30,
            blocked_ttl: 600,
            grace: 2,
            host_uid: root_runs.then_some(1000),
            owner: None,
            learn: None,
        };
        if root_runs {
            let slots = root.path().join("slots");
            let done =
                Command::new("chown").args(["-hR", "1000:1000"]).arg(slots).status().unwrap();
            assert!(done.success());
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_casemate-supervisor"))
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let text = serde_json::to_vec(&config).unwrap();
        child.stdin.take().unwrap().write_all(&text).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = loop {
            match serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() {
                StartEvent::Ready { address, .. } => break address.port(),
                StartEvent::Progress { .. } => {}
                StartEvent::Failed { error } => panic!("{error}"),
            }
        };
        let token = secret.sign(&Claims {
            session: config.session,
            incarnation: config.incarnation,
            generation: config.generation,
            slot: config.slot,
            audience: Audience::Attach,
            expires: u64::MAX,
        });
        Self { root, child, port, token }
    }

    /// A client with a conversation.
    pub(crate) fn attach(&self) -> Client {
        let mut client = Client::attach(self.port, &self.token);
        client.ask(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#);
        client.ask(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#);
        client
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How much lies in the spool.
    pub(crate) fn spooled(&self) -> u64 {
        fn below(path: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                found.push(entry.path());
                below(&entry.path(), found);
            }
        }
        let mut found = Vec::new();
        below(&self.root.path().join("slots/w/state"), &mut found);
        let spooled =
            found.iter().filter(|path| path.components().any(|part| part.as_os_str() == "spool"));
        spooled
            .filter_map(|path| fs::metadata(path).ok())
            .filter(fs::Metadata::is_file)
            .map(|meta| meta.len())
            .sum()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
    }
}
