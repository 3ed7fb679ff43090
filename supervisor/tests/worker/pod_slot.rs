//! A slot's Pod as a kubelet and a container runtime make it, without them: mount and pid namespaces, a read-only root, the parts of
//! the session's volume at their places and owned by root, the supervisor as PID 1, uid 1000, no capability. The network is the
//! machine's, or one of its own ([`Network`]); which addresses are whose, the downward API would say.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::slot::paths::{self, variable};
use casemate_protocol::slot::{
    Bind, BindEvent, BindRefusal, Canary, CertificateFiles, SlotClaims, SlotConfig, SlotPolicy,
    SlotStatus, Terms,
};
use casemate_protocol::tier::Tier;
use casemate_protocol::tls::Certificate;
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use casemate_protocol::worker::{AgentCommand, StartEvent};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::client::Client;
use crate::harness::{LONG, POOL, Worker, agent_program, call, raw};
use crate::pod_network::Network;

/// `$1`: the Pod's root to be; `$2`: the volume; `$3`: the slot's Secret; `$4`: programs; `$5`: skills; `$6`: the supervisor; `$7`: where
/// traces go, or nothing; the rest stands before the supervisor.
const POD: &str = r#"
set -e
root=$1 volume=$2 secret=$3 programs=$4 skills=$5 supervisor=$6 traces=$7
shift 7
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
for dir in usr bin sbin lib lib32 lib64 libx32 etc; do
    if [ -L "/$dir" ]; then cp -a "/$dir" "$dir"
    elif [ -d "/$dir" ]; then mkdir "$dir"; mount --rbind "/$dir" "$dir"; fi
done
mkdir -p proc dev var/run work home/agent tmp casemate/state casemate/run casemate/slot casemate/bin programs skills
mount -t proc proc proc
mount --rbind /dev dev
part() {
    mkdir -p "$volume/$1"
    chown 0:1000 "$volume/$1"
    chmod 2775 "$volume/$1"
    mount --bind "$volume/$1" "$root$2"
}
part work /work; part home /home/agent; part scratch /tmp; part state /casemate/state; part run /casemate/run
for ro in "$secret:casemate/slot" "$programs:programs" "$skills:skills"; do
    mount --bind "${ro%%:*}" "${ro##*:}"
    mount -o remount,bind,ro "${ro##*:}"
done
touch casemate/bin/casemate-supervisor
mount --bind "$supervisor" casemate/bin/casemate-supervisor
[ -z "$EXTRA" ] || mkdir -p "$root/$EXTRA"
[ -z "$traces" ] || { mkdir traces; mount --bind "$traces" traces; }
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --bounding-set=-all --pdeathsig KILL "$@" \
    /casemate/bin/casemate-supervisor worker --slot /casemate/slot/config.json
"#;

/// A slot and its volume.
pub(crate) struct Pod {
    root: tempfile::TempDir,
    pub(crate) secret: SigningSecret,
    pub(crate) config: SlotConfig,
    /// The Pod's UID.
    pub(crate) uid: String,
    /// What the downward API says of the node.
    pub(crate) node: String,
    /// A directory that should not be in a Pod.
    pub(crate) extra: String,
    /// None: the machine's.
    pub(crate) network: Option<Network>,
}

impl Pod {
    /// `None` where nobody may make one.
    pub(crate) fn new() -> Option<Self> {
        if !geteuid().is_root() {
            println!("SKIP: only root makes a Pod's mounts by hand");
            return None;
        }
        let root = tempfile::Builder::new().prefix("casemate-test-").tempdir().unwrap();
        for name in ["root", "volume", "slot", "skills"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let secret = SigningSecret::generate();
        let config = SlotConfig {
            name: SlotId::random(),
            verify_key: secret.public(),
            verify_also: Vec::new(),
            tier: Tier::Pod,
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            plain: false,
            canary: Canary::NotTried,
            policy: SlotPolicy::BuiltIn("developer".to_owned()),
            skills: None,
            home_template: None,
            programs: vec!["/programs/scripted-agent".into()],
            secrets: BTreeMap::new(),
            ports: POOL,
        };
        let uid = "9f3c1b52-0a77-4f2e-8d31-5c6b7a8f9012".to_owned();
        let node = "198.51.100.7".to_owned();
        Some(Self { root, secret, config, uid, node, extra: String::new(), network: None })
    }

    /// One with a network of its own, which wants a canary.
    pub(crate) fn apart(within: u64) -> Option<Self> {
        let mut pod = Self::new()?;
        let network = Network::new();
        pod.config.listen = (network.inside, 0).into();
        pod.config.plain = true;
        pod.config.canary = Canary::Refused { within };
        pod.node = network.outside.to_string();
        pod.network = Some(network);
        Some(pod)
    }

    /// What is `/casemate/slot` and `/skills` in there: `slot`, `skills`.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// On the volume.
    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.at("volume").join(name)
    }

    /// As a Secret of type `kubernetes.io/tls` has it.
    pub(crate) fn give_certificate(&mut self, certificate: &Certificate) {
        fs::write(self.at("slot").join("tls.crt"), &certificate.chain).unwrap();
        fs::write(self.at("slot").join("tls.key"), &certificate.key).unwrap();
        self.config.tls =
            Some(CertificateFiles { chain: paths::CHAIN.into(), key: paths::KEY.into() });
    }

    pub(crate) fn slot(&self) -> SlotId {
        SlotId::of_uid(&self.uid).unwrap()
    }

    pub(crate) fn start(&self) -> Worker {
        let file = self.at("slot").join("config.json");
        fs::write(&file, serde_json::to_string(&self.config).unwrap()).unwrap();
        // As `defaultMode` and `fsGroup` make it: the worker's group reads it, and so would its agent without a wall.
        for path in [self.at("slot"), file] {
            assert!(Command::new("chown").arg("0:1000").arg(path).status().unwrap().success());
        }
        let log = self.at("worker.log");
        let stderr = fs::File::options().create(true).append(true).open(&log).unwrap();
        let programs = agent_program();
        let within = self.network.as_ref().map(Network::before).into_iter().flatten();
        let words: Vec<String> = within.chain(["unshare".to_owned()]).collect();
        let own = self.network.as_ref().map_or([127, 0, 0, 1].into(), |network| network.inside);
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", POD, "sh"])
            .args([self.at("root"), self.at("volume"), self.at("slot")])
            .arg(programs.parent().unwrap())
            .arg(self.at("skills"))
            .arg(env!("CARGO_BIN_EXE_casemate-supervisor"))
            .args(traced())
            .env(variable::POD_UID, &self.uid)
            .env(variable::POD_IP, own.to_string())
            .env(variable::HOST_IP, &self.node)
            .env("EXTRA", &self.extra)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Worker::of(child, log)
    }

    /// Starts, and waits until it waits.
    pub(crate) fn wait(&self) -> (Worker, SocketAddr) {
        let mut worker = self.start();
        let event = worker.outcome();
        let StartEvent::Ready { address, tier, worktree, .. } = event else {
            panic!("{event:?}\n{}", worker.log());
        };
        assert_eq!((tier, worktree.to_str()), (Tier::Pod, Some(paths::WORK)));
        (worker, address)
    }

    /// A bind of a new session that would be taken.
    pub(crate) fn bind(&self) -> Bind {
        Bind {
            slot: self.slot(),
            session: SessionId::random(),
            incarnation: Incarnation(1),
            generation: Generation(1),
            expires: u64::MAX,
            canary: None,
            answered: None,
            terms: Terms {
                repository: None,
                agent: AgentCommand {
                    argv: vec!["/programs/scripted-agent".to_owned()],
                    env: BTreeMap::new(),
                },
                policy_revision: None,
                skills_revision: None,
                connect: Vec::new(),
                origins: Vec::new(),
                permission_ttl: 30,
                kept: 1 << 30,
                blocked_ttl: 600,
                grace: 2,
            },
        }
    }

    /// Asks for it, signed as it should be: the status, and what was said.
    pub(crate) fn ask(&self, address: SocketAddr, bind: &Bind) -> (u16, String) {
        send(address, &self.secret.sign_bind(bind))
    }

    /// Binds and waits for the last word.
    pub(crate) fn events(&self, address: SocketAddr, bind: &Bind) -> Vec<BindEvent> {
        let (status, said) = self.ask(address, bind);
        assert_eq!(status, 200, "{said}");
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Binds, and hears each line as it comes.
    pub(crate) fn hear(&self, address: SocketAddr, bind: &Bind) -> Hearing {
        let signed = self.secret.sign_bind(bind);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let length = signed.len();
        write!(stream, "POST /v1/bind HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{signed}")
            .unwrap();
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next().unwrap().unwrap();
        assert!(status.contains(" 200 "), "{status}");
        while lines.next().unwrap().unwrap() != "" {}
        Hearing(lines)
    }

    /// Binds, and attaches a client with a conversation.
    pub(crate) fn serve(&self, address: SocketAddr, bind: &Bind) -> (Client, String) {
        let events = self.events(address, bind);
        let last = events.last().unwrap();
        assert!(matches!(last, BindEvent::Ready { tier: Tier::Pod, .. }), "{events:?}");
        let token = self.token(bind, Audience::Attach);
        let mut client = Client::attach(address, &token).unwrap();
        client.initialize();
        let conversation = client.new_session();
        (client, conversation)
    }

    /// A token of the session that a bind is for.
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

    /// The slot's own token.
    pub(crate) fn own_token(&self) -> String {
        self.secret.sign_slot(&SlotClaims { slot: self.slot(), expires: u64::MAX })
    }

    pub(crate) fn status(&self, address: SocketAddr) -> SlotStatus {
        let (code, body) = call(address, "GET", "/v1/status", Some(&self.own_token()), "");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

/// Where traces go, and what has to stand before the supervisor for them: it is there under another name.
fn traced() -> Vec<String> {
    let mut words = crate::traced::before("worker");
    let Some(file) = words.pop() else { return vec![String::new()] };
    let folder = Path::new(&file).parent().unwrap().display().to_string();
    std::iter::once(folder).chain(words).chain(["/traces/trace".to_owned()]).collect()
}

/// What is said in answer to a bind.
pub(crate) struct Hearing(Lines<BufReader<TcpStream>>);

impl Iterator for Hearing {
    type Item = BindEvent;

    fn next(&mut self) -> Option<BindEvent> {
        Some(serde_json::from_str(&self.0.next()?.unwrap()).unwrap())
    }
}

/// Sends what may be a bind. HTTP/1.0: the body comes without chunks, up to the end of the connection.
pub(crate) fn send(address: SocketAddr, body: &str) -> (u16, String) {
    let head = format!("POST /v1/bind HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    raw(address, &format!("{head}{body}"))
}

pub(crate) fn refusal((status, body): (u16, String)) -> BindRefusal {
    let refusal: BindRefusal =
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{status} {body}"));
    assert_eq!(status, refusal.status());
    refusal
}

/// As a kubelet tells PID 1, which is a child of unshare(1)'s.
pub(crate) fn signal(worker: &Worker, signal: Signal) {
    kill(Pid::from_raw(worker.descendants()[0]), signal).unwrap();
}
