//! A host on pipes, and what it talks to.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// A casemate home, and an agent where an ordinary user may run it.
pub(crate) struct House {
    root: TempDir,
}

/// A conversation.
pub(crate) struct Scene {
    bridge: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Of the limit: its relay.
    relay: Option<Child>,
    session: String,
    next: u64,
    line: Vec<u8>,
}

// === impl House ===

impl House {
    pub(crate) fn new() -> Self {
        // The programs of the other crates, of the same build.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "casemate-supervisor"]);
        if Path::new(CASEMATE).parent().unwrap().ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success());
        let house = Self { root: TempDir::with_prefix("casemate-bench-").unwrap() };
        fs::set_permissions(house.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(house.programs()).unwrap();
        fs::copy(std::env::current_exe().unwrap(), house.programs().join("agent")).unwrap();
        house
    }

    fn programs(&self) -> PathBuf {
        self.root.path().join("programs")
    }

    fn casemate(&self) -> Command {
        let mut command = Command::new(CASEMATE);
        command.arg("--home").arg(self.root.path().join("home"));
        command
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.casemate().args(["up", "--stop"]).output();
    }
}

// === impl Scene ===

impl Scene {
    /// `casemate acp`, its worker, the agent.
    pub(crate) fn bridge(house: &House) -> Self {
        let mut command = house.casemate();
        command.arg("acp").arg("--program").arg(house.programs()).arg("--");
        command.arg(house.programs().join("agent")).arg("agent");
        Self::over(&mut command, None)
    }

    /// The least that both can be, the same agent.
    pub(crate) fn least() -> Self {
        let this = std::env::current_exe().unwrap();
        let mut relay = Command::new(&this)
            .args(["limit", &this.display().to_string(), "agent"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(relay.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self::over(Command::new(this).args(["least", port.trim()]), Some(relay))
    }

    fn over(command: &mut Command, relay: Option<Child>) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bridge = command.env_remove("CASEMATE_SESSION_KEY").spawn().unwrap();
        let stdout = BufReader::with_capacity(256 * 1024, bridge.stdout.take().unwrap());
        let stdin = bridge.stdin.take().unwrap();
        let (session, line) = (String::new(), Vec::new());
        let mut scene = Self { bridge, stdin, stdout, relay, session, next: 0, line };
        scene.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        let answer = scene.ask("session/new", &json!({"cwd": "/", "mcpServers": []}));
        scene.session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
        scene
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(method, params);
        self.until_answered();
        serde_json::from_slice(&self.line).unwrap()
    }

    pub(crate) fn prompt(&mut self, text: &str) {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", &json!({"sessionId": self.session, "prompt": prompt}));
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.next += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// How many updates of the agent's came before the answer to what was sent last, and their bytes. As a host does the least with
    /// them: where each begins is what it is.
    pub(crate) fn until_answered(&mut self) -> (usize, usize) {
        const CHUNK: &[u8] = b"agent_message_chunk";
        let (mut count, mut bytes) = (0, 0);
        loop {
            self.line.clear();
            let length = self.stdout.read_until(b'\n', &mut self.line).unwrap();
            assert!(length > 0, "the bridge has ended");
            let head = &self.line[..length.min(300)];
            if memchr::memmem::find(head, CHUNK).is_some() {
                (count, bytes) = (count + 1, bytes + length);
            } else if memchr::memmem::find(head, b"\"method\"").is_none() {
                let answer: Value = serde_json::from_slice(&self.line).unwrap();
                assert!(answer.get("error").is_none() && answer["id"] == self.next, "{answer}");
                return (count, bytes);
            }
        }
    }

    /// The bridge's own processor time: proc_pid_stat(5), fields 14 and 15.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.bridge.id())).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        // A hundredth of a second on every Linux (proc_pid_stat(5), sysconf(_SC_CLK_TCK)).
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.relay.is_none() && !std::thread::panicking() {
            // Ends the worker, which would wait for its bridge.
            self.ask("session/close", &json!({"sessionId": self.session}));
        }
        for child in [Some(&mut self.bridge), self.relay.as_mut()].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
