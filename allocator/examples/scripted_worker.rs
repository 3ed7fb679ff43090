//! A stand-in for `casemate-supervisor` that fails, hangs, is busy or dies on cue. It isolates nothing and runs no agent.
//!
//! The real supervisor cannot be made to stop between two of its steps, to be busy without an agent, or to have been idle
//! for an hour; the allocator's rules for these need tests all the same. It speaks what the allocator hears: `check`,
//! start events, the slot's lock, `/v1/status`, `/v1/quiesce`, `/v1/stop`. Cues: the variable `SCRIPT` handed to the agent
//! (`serve`, `fail`, `die`, `hang`, `garble`), and `run/script.json` in the slot, read at each call.
#![allow(clippy::unwrap_used, reason = "a stand-in that cannot go on ends there")]

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use casemate_protocol::ids::{BootId, Epoch};
use casemate_protocol::kernel::KernelReport;
use casemate_protocol::tier::Tier;
use casemate_protocol::usage::Usage;
use casemate_protocol::worker::{
    Activity, AgentState, Evidence, Quiesce, StartError, StartEvent, WorkerConfig, WorkerStatus,
};
use serde::{Deserialize, Serialize};

/// `run/script.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cue {
    busy: bool,
    idle_ms: Option<u64>,
    prompted: bool,
    commanded: bool,
    attachments: u32,
    evidence: Evidence,
    exited: bool,
    /// `/v1/stop` is heard and not obeyed.
    deaf: bool,
}

struct Worker {
    config: WorkerConfig,
    boot: BootId,
    since: Instant,
    quiesced: AtomicBool,
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("check") => say(&KernelReport {
            release: "scripted".into(),
            landlock_abi: 7,
            checks: Vec::new(),
            tier: Some(Tier::Namespace),
        }),
        Some("worker") => work(),
        _ => panic!("check or worker"),
    }
}

fn say(value: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", serde_json::to_string(value).unwrap());
    let _ = out.flush();
}

fn leave(code: i32) -> ! {
    #[expect(clippy::exit, reason = "a stand-in owns no process")]
    std::process::exit(code)
}

fn work() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let Ok(config) = serde_json::from_str::<WorkerConfig>(&text) else { leave(64) };
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(config.volume.join("run/lock"))
        .unwrap();
    if lock.try_lock().is_err() {
        say(&StartEvent::Failed { error: StartError::SlotBusy { slot: config.slot } });
        leave(75);
    }
    lock.set_len(0).unwrap();
    writeln!(&lock, "{}", std::process::id()).unwrap();
    eprintln!(
        "{{\"fields\":{{\"message\":\"scripted worker, generation {}\"}}}}",
        config.generation
    );
    match config.agent.env.get("SCRIPT").map(String::as_str) {
        Some("fail") => {
            let message = "the remote is on fire".to_owned();
            say(&StartEvent::Failed { error: StartError::Repository { message } });
            leave(66);
        }
        Some("die") => leave(3),
        Some("garble") => {
            println!("hello");
            std::thread::sleep(Duration::from_secs(600));
        }
        Some("hang") => {
            say(&StartEvent::Progress { what: "cloning for ever".into() });
            std::thread::sleep(Duration::from_secs(600));
        }
        _ => {}
    }
    let home = config.volume.join("sessions").join(config.session.as_str());
    std::fs::create_dir_all(home.join("work")).unwrap();
    serve(config, &lock);
}

fn serve(config: WorkerConfig, _lock: &File) {
    let listener = TcpListener::bind(config.listen).unwrap();
    let worker = Arc::new(Worker {
        boot: BootId::random(),
        since: Instant::now(),
        quiesced: AtomicBool::new(false),
        config,
    });
    say(&StartEvent::Ready {
        address: listener.local_addr().unwrap(),
        boot: worker.boot.clone(),
        tier: worker.config.tier,
        worktree: "/work".into(),
    });
    for stream in listener.incoming().flatten() {
        let worker = Arc::clone(&worker);
        std::thread::spawn(move || worker.answer(stream));
    }
}

impl Worker {
    fn cue(&self) -> Cue {
        let path = self.config.volume.join("run/script.json");
        read(&path).unwrap_or_default()
    }

    fn answer(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut first = String::new();
        reader.read_line(&mut first).ok()?;
        let (mut token, mut length) = (String::new(), 0usize);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "authorization" => value.strip_prefix("Bearer ")?.clone_into(&mut token),
                "content-length" => length = value.parse().ok()?,
                _ => {}
            }
        }
        reader.take(length as u64).read_to_end(&mut Vec::new()).ok()?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
        let config = &self.config;
        let claims = config.verify_key.verify(&token, now);
        if !claims.is_ok_and(|claims| {
            claims.generation == config.generation && claims.session == config.session
        }) {
            return reply(&stream, 401, "{}");
        }
        let cue = self.cue();
        if first.starts_with("GET /v1/status") {
            reply(&stream, 200, &serde_json::to_string(&self.status(&cue)).ok()?)
        } else if first.starts_with("POST /v1/quiesce") {
            let answer = if cue.busy {
                Quiesce::Busy
            } else {
                self.quiesced.store(true, Ordering::SeqCst);
                Quiesce::Quiesced { evidence: Some(cue.evidence) }
            };
            reply(&stream, 200, &serde_json::to_string(&answer).ok()?)
        } else if first.starts_with("POST /v1/keys") {
            // Its allocators keep their key.
            reply(&stream, 204, "")
        } else {
            reply(&stream, 200, "{}");
            if cue.deaf {
                return Some(());
            }
            leave(0)
        }
    }

    fn status(&self, cue: &Cue) -> WorkerStatus {
        let elapsed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let for_ms = cue.idle_ms.unwrap_or(elapsed);
        let activity = match (self.quiesced.load(Ordering::SeqCst), cue.busy) {
            (true, _) => Activity::Quiesced,
            (_, true) => Activity::Busy { for_ms },
            _ => Activity::Idle { for_ms },
        };
        let config = &self.config;
        WorkerStatus {
            session: config.session.clone(),
            incarnation: config.incarnation,
            generation: config.generation,
            slot: config.slot.clone(),
            boot: self.boot.clone(),
            tier: config.tier,
            worktree: "/work".into(),
            agent: if cue.exited {
                AgentState::Exited { cause: "exit code 3".into() }
            } else {
                AgentState::NotStarted
            },
            activity,
            epoch: Epoch::ZERO,
            attachments: cue.attachments,
            execs: 0,
            acp_session: None,
            prompted: cue.prompted,
            commanded: cue.commanded,
            policy_revision: String::new(),
            skills_revision: None,
            enforcement: Vec::new(),
            matrix: None,
            evidence: None,
            handed_variables: Vec::new(),
            audit_head: None,
            usage: Usage::default(),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn reply(mut stream: &TcpStream, status: u16, body: &str) -> Option<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok()
}
