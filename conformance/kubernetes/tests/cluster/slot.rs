//! A slot's Pod as the allocator builds it: the supervisor waits in it, is bound by a signed message, and serves a turn.
//!
//! The calls come from another Pod, which the slot's NetworkPolicy lets in. It listens itself, at the canary's target, which the slot must
//! not reach, and which it sees answering afterwards.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use casemate_cluster::{Cluster, Namespace, pod};
use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::slot::{Bind, BindEvent, BindRefusal, Terms, paths};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use casemate_protocol::worker::{AgentCommand, StartError, WorkerStatus};
use casemate_suite::processes::until;
use casemate_suite::skip::skip;
use serde_json::{Value, json};

use crate::web;

const AGENT: &str = "/usr/bin/scripted-agent";

/// A slot, and the client that may call it and that it must not reach.
pub(crate) struct Scene {
    pub(crate) namespace: Namespace,
    secret: SigningSecret,
    slot: SlotId,
    address: String,
    client: String,
}

impl Scene {
    /// With the scripted agent. `within`: how long the canary is tried, in seconds. `closed`: the slot's policy is there.
    fn new(purpose: &str, within: u64, closed: bool) -> Option<Self> {
        let image = std::env::var("CASEMATE_WORKER_IMAGE").unwrap_or_default();
        if image.is_empty() {
            skip(
                "an image on the Kubernetes with a supervisor, an agent and git (CASEMATE_WORKER_IMAGE; conformance/README.md)",
            );
            return None;
        }
        Self::of(purpose, &image, within, closed.then(|| policy(&json!([]))).as_ref())
    }

    /// With an image and a policy of the slot.
    pub(crate) fn of(
        purpose: &str,
        image: &str,
        within: u64,
        policy: Option<&Value>,
    ) -> Option<Self> {
        let cluster = Cluster::of_environment()?;
        let namespace = Namespace::new(&cluster, purpose);
        namespace.run(&pod::restricted(&cluster, "client", web::SERVER));
        let secret = SigningSecret::generate();
        let config = json!({
            "name": SlotId::random(),
            "verify_key": secret.public(),
            "tier": "pod",
            "listen": format!("0.0.0.0:{}", paths::DOOR),
            "plain": true,
            "canary": {"refused": {"within": within}},
            "policy": {"built-in": "developer"},
            "ports": {"first": 20_000, "ranges": 1, "preferred": 0},
        });
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "slot"}, "stringData": {"config.json": config.to_string()}},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "slot"}, "spec": {
                "accessModes": ["ReadWriteOncePod"],
                "resources": {"requests": {"storage": "64Mi"}},
            }},
        ]});
        let said = namespace.create(&objects);
        assert!(said.success, "{}", said.err);
        if let Some(policy) = policy {
            let said = namespace.create(policy);
            assert!(said.success, "{}", said.err);
        }
        namespace.run(&slot_pod(image));
        let uid =
            namespace.must(&["get", "pod", "slot", "--output", "jsonpath={.metadata.uid}"], "");
        Some(Self {
            slot: SlotId::of_uid(&uid).unwrap(),
            address: namespace.address("slot"),
            client: namespace.address("client"),
            namespace,
            secret,
        })
    }

    /// The client is seen to listen.
    fn listens(&self) {
        let listens = until(Duration::from_secs(30), || {
            web::served(&web::get(&self.namespace, "client", &self.client, 8080)).then_some(())
        });
        assert!(listens.is_some(), "the canary's target listens");
    }

    /// A bind for it.
    pub(crate) fn bind(&self) -> Bind {
        self.listens();
        Bind {
            slot: self.slot.clone(),
            session: SessionId::random(),
            incarnation: Incarnation(1),
            generation: Generation(1),
            expires: u64::MAX,
            canary: Some(format!("{}:8080", self.client).parse().unwrap()),
            answered: None,
            terms: Terms {
                repository: None,
                agent: AgentCommand { argv: vec![AGENT.to_owned()], env: [].into() },
                policy_revision: None,
                skills_revision: None,
                connect: Vec::new(),
                origins: Vec::new(),
                permission_ttl: 30,
                kept: 1 << 20,
                blocked_ttl: 60,
                grace: 2,
            },
        }
    }

    /// One call from the client's Pod: the status line's number and the body.
    fn call(&self, request: &str) -> (u16, String) {
        let mut nc = self.connect();
        nc.input.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        nc.output.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        (status, body.unwrap_or_default())
    }

    fn ask(&self, signed: &str) -> (u16, String) {
        let length = signed.len();
        self.call(&format!("POST /v1/bind HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{signed}"))
    }

    /// What is said, up to the last word or, where nobody has said that the target answers, up to where that is asked for.
    fn hear(&self, bind: &Bind) -> Vec<BindEvent> {
        let signed = self.secret.sign_bind(bind);
        let mut nc = self.connect();
        let length = signed.len();
        write!(nc.input, "POST /v1/bind HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{signed}")
            .unwrap();
        let mut lines = nc.output.by_ref().lines().map(Result::unwrap);
        let status = lines.next().unwrap_or_default();
        assert!(status.contains(" 200 "), "{status}");
        let mut events = Vec::new();
        for line in lines.skip_while(|line| !line.is_empty()).skip(1) {
            let event = serde_json::from_str(&line).unwrap();
            let asks = matches!(event, BindEvent::Refused { .. }) && bind.answered.is_none();
            events.push(event);
            if asks {
                break;
            }
        }
        events
    }

    /// As an allocator binds.
    pub(crate) fn events(&self, bind: &Bind) -> Vec<BindEvent> {
        let events = self.hear(bind);
        let Some(BindEvent::Refused { refusal, .. }) = events.last() else { return events };
        self.listens();
        self.hear(&Bind { answered: Some(refusal.clone()), ..bind.clone() })
    }

    pub(crate) fn token(&self, bind: &Bind, audience: Audience) -> String {
        self.secret.sign(&Claims {
            session: bind.session.clone(),
            incarnation: bind.incarnation,
            generation: bind.generation,
            slot: bind.slot.clone(),
            audience,
            expires: u64::MAX,
        })
    }

    pub(crate) fn connect(&self) -> Connection {
        let door = paths::DOOR.to_string();
        Connection::new(&self.namespace, &["nc", &self.address, &door])
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.namespace.kubectl(&["logs", "slot", "--tail=40"], "");
            eprintln!("the worker: {}{}", said.out, said.err);
        }
    }
}

/// Closed both ways, but for the client and the door, and where `egress` leads.
pub(crate) fn policy(egress: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "slot"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "slot"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{
                "from": [{"podSelector": {"matchLabels": {"app": "client"}}}],
                "ports": [{"port": paths::DOOR, "protocol": "TCP"}],
            }],
            "egress": egress,
        },
    })
}

/// As `allocator/kubernetes` builds it.
fn slot_pod(image: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut mounts: Vec<Value> = paths::PARTS
        .iter()
        .map(|(part, place)| json!({"name": "session", "mountPath": place, "subPath": part}))
        .collect();
    mounts.push(json!({"name": "slot", "mountPath": paths::SLOT, "readOnly": true}));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "slot", "labels": {"app": "slot"}},
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [
                {"name": "session", "persistentVolumeClaim": {"claimName": "slot"}},
                {"name": "slot", "secret": {"secretName": "slot", "defaultMode": 0o440}},
            ],
            "containers": [{
                "name": "worker",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["casemate-supervisor", "worker", "--slot", paths::CONFIG],
                "env": [
                    field(paths::variable::POD_UID, "metadata.uid"),
                    field(paths::variable::POD_IP, "status.podIP"),
                    field(paths::variable::HOST_IP, "status.hostIP"),
                ],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": paths::DOOR}, "periodSeconds": 1},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": true,
                    "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": mounts,
            }],
        },
    })
}

/// A connection that a Pod makes by a program of its own.
pub(crate) struct Connection {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Connection {
    fn new(namespace: &Namespace, command: &[&str]) -> Self {
        let mut child = namespace
            .command(&[&["exec", "-i", "client", "--"], command].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// The WebSocket handshake of `/acp` (RFC 6455 section 4).
    pub(crate) fn upgrade(&mut self, token: &str) {
        write!(
            self.input,
            "GET /acp HTTP/1.1\r\nHost: slot\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        )
        .unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 101"), "{line}");
        while line.trim_end() != "" {
            line.clear();
            self.output.read_line(&mut line).unwrap();
        }
    }

    /// A text message in one frame, masked with zeroes (section 5.3).
    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let length = u16::try_from(text.len()).unwrap();
        let mut frame = vec![0x81, 0x80 | 126];
        frame.extend(length.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.input.write_all(&frame).unwrap();
        self.input.flush().unwrap();
    }

    /// The next text message. A ping is answered (section 5.5.3): who does not is taken for gone after a minute.
    fn receive(&mut self) -> Value {
        loop {
            let mut head = [0; 2];
            self.output.read_exact(&mut head).unwrap();
            let length = match head[1] & 0x7f {
                126 => {
                    let mut bytes = [0; 2];
                    self.output.read_exact(&mut bytes).unwrap();
                    usize::from(u16::from_be_bytes(bytes))
                }
                127 => panic!("no message here is that long"),
                length => usize::from(length),
            };
            let mut payload = vec![0; length];
            self.output.read_exact(&mut payload).unwrap();
            match head[0] {
                0x81 => return serde_json::from_slice(&payload).unwrap(),
                0x88 => panic!("closed: {}", String::from_utf8_lossy(&payload)),
                0x89 => {
                    let mut pong = vec![0x8a, 0x80 | head[1]];
                    pong.extend([0; 4]);
                    pong.extend(&payload);
                    self.input.write_all(&pong).unwrap();
                    self.input.flush().unwrap();
                }
                _ => {}
            }
        }
    }

    /// A request's answer and all text of the agent before it.
    pub(crate) fn request(&mut self, id: u64, method: &str, params: &Value) -> (Value, String) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut text = String::new();
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return (message, text);
            }
            text += message["params"]["update"]["content"]["text"].as_str().unwrap_or_default();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_restricted_pod_waits_is_bound_and_serves_a_turn() {
    let Some(scene) = Scene::new("slot", 30, true) else { return };
    let bind = scene.bind();
    let forged = SigningSecret::generate().sign_bind(&bind);
    let theirs = Bind { slot: SlotId::random(), ..bind.clone() };
    for (signed, status) in [(forged, 401), (scene.secret.sign_bind(&theirs), 403)] {
        assert_eq!(scene.ask(&signed).0, status);
    }
    let events = scene.events(&bind);
    assert!(matches!(&events[0], BindEvent::Bound(bound) if bound.session == bind.session));
    let last = events.last().unwrap();
    let ready = BindEvent::Ready { tier: Tier::Pod, worktree: paths::WORK.into() };
    assert_eq!(last, &ready, "{events:?}");
    let other = Bind { session: SessionId::random(), ..bind.clone() };
    let (status, said) = scene.ask(&scene.secret.sign_bind(&other));
    assert_eq!(status, 409);
    let refusal: BindRefusal = serde_json::from_str(&said).unwrap();
    assert!(matches!(refusal, BindRefusal::BoundOtherwise { .. }), "{refusal}");

    let control = scene.token(&bind, Audience::Control);
    let ask = format!("GET /v1/status HTTP/1.0\r\nAuthorization: Bearer {control}\r\n\r\n");
    let (status, said) = scene.call(&ask);
    assert_eq!(status, 200, "{said}");
    let status: WorkerStatus = serde_json::from_str(&said).unwrap();
    assert_eq!((status.tier, &status.slot), (Tier::Pod, &scene.slot));
    let policy = status.enforcement.iter().find(|line| line.starts_with("network policy in force"));
    println!("{}", policy.unwrap_or_else(|| panic!("{:?}", status.enforcement)));

    let mut acp = scene.connect();
    acp.upgrade(&scene.token(&bind, Audience::Attach));
    let capabilities = json!({"protocolVersion": 1, "clientCapabilities": {}});
    acp.request(1, "initialize", &capabilities);
    let (opened, _) = acp.request(2, "session/new", &json!({"cwd": "/host", "mcpServers": []}));
    let conversation = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let mut turn = |id: u64, command: &str| {
        let prompt = json!([{"type": "text", "text": format!("!sh {command}")}]);
        let params = json!({"sessionId": conversation, "prompt": prompt});
        let (answer, text) = acp.request(id, "session/prompt", &params);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        text
    };
    let said =
        turn(3, "pwd; git rev-parse --abbrev-ref HEAD; echo x >file && git status --porcelain");
    assert!(
        said.contains("/work") && said.contains(&format!("casemate/{}", bind.session)),
        "{said}"
    );
    assert!(said.contains("?? file"), "{said}");
    // Whoever has the agent's uid reads the slot's Secret, but for the wall.
    let said =
        turn(4, "cat /casemate/slot/config.json /casemate/state/audit.ndjson 2>&1; echo over");
    assert_eq!(said.matches("Permission denied").count(), 2, "{said}");

    // The kubelet's TERM: long before it would kill.
    let begun = std::time::Instant::now();
    let _ = scene.namespace.must(&["delete", "pod", "slot", "--timeout=60s"], "");
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[test]
fn a_slot_that_no_policy_closes_serves_nobody() {
    let Some(scene) = Scene::new("open", 2, false) else { return };
    let events = scene.events(&scene.bind());
    let Some(BindEvent::Failed { error: StartError::Shield { message } }) = events.last() else {
        panic!("{events:?}");
    };
    assert!(message.contains("NetworkPolicy is not in force"), "{message}");
    assert_eq!(scene.namespace.exit_code("slot"), 70);
}
