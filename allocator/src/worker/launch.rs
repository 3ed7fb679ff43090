//! Starts `casemate-supervisor worker`. Two steps, so that no crash leaves a worker that nobody knows: first the
//! process, which is told nothing and therefore does nothing; then, once its identity is durable, its configuration.
//! A process whose stdin ends without a configuration exits.

use std::fs::OpenOptions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use casemate_allocator_core::record::{Process, Serving};
use casemate_protocol::ids::BootId;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{StartError, StartEvent};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::process;

/// A log is set aside when it has grown so large.
const LOG_LIMIT: u64 = 8 * 1024 * 1024;
/// The longest line of a starting worker.
const LINE_LIMIT: u64 = 1024 * 1024;

/// A worker that has been told nothing yet.
#[derive(Debug)]
pub(crate) struct Launched {
    child: Child,
    process: Process,
}

/// Why a worker did not become ready. Its process is gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The supervisor's program cannot be run.
    #[error("cannot run {program}: {source}; build it, or name it with --supervisor")]
    Spawn { program: String, source: io::Error },
    /// Its log cannot be opened.
    #[error("cannot open {path}: {source}")]
    Log { path: String, source: io::Error },
    /// It said why.
    #[error("{0}")]
    Start(StartError),
    /// It said nothing and went.
    #[error("the worker ended while starting ({words})")]
    Ended { words: String },
    /// Nothing moved for too long.
    #[error("the worker made no progress for {seconds} s (last: {last})")]
    Stuck { seconds: u64, last: String },
    /// Somebody ended the start.
    #[error("the start was cut short")]
    Cancelled,
}

/// Makes the process. Must run within tokio.
pub(crate) fn spawn(supervisor: &Path, log: &Path) -> Result<Launched, LaunchError> {
    let log_error = |source| LaunchError::Log { path: log.display().to_string(), source };
    if log.metadata().is_ok_and(|meta| meta.len() > LOG_LIMIT) {
        std::fs::rename(log, log.with_extension("log.old")).map_err(log_error)?;
    }
    let stderr =
        OpenOptions::new().create(true).append(true).mode(0o600).open(log).map_err(log_error)?;
    let spawn_error =
        |source| LaunchError::Spawn { program: supervisor.display().to_string(), source };
    let child = Command::new(supervisor)
        .arg("worker")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        // A Ctrl-C at the terminal of `up` is not for the workers.
        .process_group(0)
        .kill_on_drop(false)
        .spawn()
        .map_err(spawn_error)?;
    let process = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(process::identify)
        .ok_or_else(|| LaunchError::Ended { words: "at once".to_owned() })?;
    Ok(Launched { child, process })
}

impl Launched {
    /// The process's identity.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Tells it what it is and waits until it serves. `patience` is the longest time without a sign of progress.
    pub(crate) async fn start(
        mut self,
        config: &impl Serialize,
        patience: Duration,
        cancelled: impl Future<Output = ()>,
        progress: impl Fn(&str),
    ) -> Result<(Child, Serving), LaunchError> {
        let result = tokio::select! {
            result = self.converse(config, patience, progress) => result,
            () = cancelled => Err(LaunchError::Cancelled),
        };
        match result {
            Ok(serving) => Ok((self.child, serving)),
            Err(error) => Err(self.abandon(error).await),
        }
    }

    /// Ends a worker that has been told nothing.
    pub(crate) async fn discard(self) {
        self.abandon(LaunchError::Cancelled).await;
    }

    async fn converse(
        &mut self,
        config: &impl Serialize,
        patience: Duration,
        progress: impl Fn(&str),
    ) -> Result<Serving, LaunchError> {
        let ended = |words: &str| LaunchError::Ended { words: words.to_owned() };
        let mut stdin = self.child.stdin.take().ok_or_else(|| ended("stdin is closed"))?;
        let stdout = self.child.stdout.take().ok_or_else(|| ended("stdout is closed"))?;
        let text = serde_json::to_vec(config).expect("a configuration is plain data");
        // A worker that fails early closes its stdin early; its own words count, not our EPIPE.
        let _ = stdin.write_all(&text).await;
        drop(stdin);
        let mut lines = BufReader::new(stdout.take(LINE_LIMIT));
        let mut last = "nothing".to_owned();
        loop {
            let mut line = String::new();
            match timeout(patience, lines.read_line(&mut line)).await {
                Err(_) => return Err(LaunchError::Stuck { seconds: patience.as_secs(), last }),
                Ok(Err(error)) => return Err(ended(&error.to_string())),
                Ok(Ok(0)) => return Err(ended("no word on its standard output")),
                Ok(Ok(_)) => {}
            }
            lines.get_mut().set_limit(LINE_LIMIT);
            match serde_json::from_str(&line) {
                Ok(StartEvent::Progress { what }) => {
                    progress(&what);
                    last = what;
                }
                Ok(StartEvent::Ready { address, boot, tier, worktree: _ }) => {
                    return serving(address, boot, tier);
                }
                Ok(StartEvent::Failed { error }) => return Err(LaunchError::Start(error)),
                Err(error) => return Err(ended(&format!("a line that is no event: {error}"))),
            }
        }
    }

    /// Ends the process and collects it; a silent death is told with its exit status.
    async fn abandon(mut self, error: LaunchError) -> LaunchError {
        // One that is about to exit by itself keeps its own status.
        let limit = match error {
            LaunchError::Cancelled | LaunchError::Stuck { .. } => Duration::ZERO,
            _ => Duration::from_millis(500),
        };
        let status = match timeout(limit, self.child.wait()).await {
            Ok(status) => status.ok(),
            Err(_) => {
                let _ = self.child.start_kill();
                self.child.wait().await.ok()
            }
        };
        match (error, status) {
            (LaunchError::Ended { words }, Some(status)) => {
                LaunchError::Ended { words: format!("{status}; {words}") }
            }
            (error, _) => error,
        }
    }
}

fn serving(address: SocketAddr, boot: BootId, tier: Tier) -> Result<Serving, LaunchError> {
    if !address.ip().is_loopback() {
        // A token in plain text would travel.
        return Err(LaunchError::Ended {
            words: format!("it serves on {address}, not on loopback"),
        });
    }
    // Whoever issued its certificate knows whom to believe.
    Ok(Serving { address, boot, tier, pin: None })
}

/// The last line of a worker's log: the message of a JSON line, shortened.
pub(crate) fn last_words(log: &Path) -> Option<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = std::fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(8192))).ok()?;
    let mut bytes = Vec::new();
    file.take(8192).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let message = serde_json::from_str::<serde_json::Value>(line).ok().and_then(|value| {
        let fields = value.get("fields").unwrap_or(&value);
        fields.get("message").and_then(|message| message.as_str().map(str::to_owned))
    });
    Some(message.unwrap_or_else(|| line.to_owned()).chars().take(300).collect())
}
