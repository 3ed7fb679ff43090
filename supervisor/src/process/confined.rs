//! Runs one short command behind a wall to its end: git, in a tree that an agent may have prepared.
//!
//! Its output is an agent's word: capped, and read no longer than the command lives, since what it leaves behind may
//! hold the pipe.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use casemate_sandbox::{Command, Exit, SpawnError, Wall};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::reaper::Session;

/// More output than any answer that is read here.
const MOST_OUTPUT: usize = 4 * 1024 * 1024;
/// How long output may follow the command's end.
const AFTER_END: Duration = Duration::from_millis(200);

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments, without the zeroth.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Where it runs.
    pub cwd: PathBuf,
}

/// What came of it.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// Its stdout, capped.
    pub stdout: Vec<u8>,
    /// Its stderr, capped.
    pub stderr: String,
}

/// Why it did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Pipes or `/dev/null`.
    #[error("no descriptors for the command; raise the limit of open files")]
    Descriptors(#[source] io::Error),
    /// An argument, or an environment variable, holds a NUL byte.
    #[error("an argument of the command holds a NUL byte")]
    Nul,
    /// It could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It took too long and was killed.
    #[error("the command took longer than {0:?} and was killed")]
    TimeOut(Duration),
    /// Its end was never seen.
    #[error("the command's end was not seen")]
    Lost,
}

/// Words as the spawner wants them.
///
/// # Errors
/// [`RunError::Nul`].
pub fn c_strings(words: impl IntoIterator<Item = String>) -> Result<Vec<CString>, RunError> {
    words.into_iter().map(|word| CString::new(word).map_err(|_| RunError::Nul)).collect()
}

/// Variables as the spawner wants them.
///
/// # Errors
/// [`RunError::Nul`].
pub fn c_variables<'a>(
    variables: impl IntoIterator<Item = &'a (String, String)>,
) -> Result<Vec<CString>, RunError> {
    c_strings(variables.into_iter().map(|(name, value)| format!("{name}={value}")))
}

/// Runs a command to its end.
///
/// # Errors
/// [`RunError`]; a command that ends with an error of its own is an [`Output`].
pub async fn run(
    session: &Session,
    wall: &Wall,
    job: Job,
    limit: Duration,
) -> Result<Output, RunError> {
    run_up_to(session, wall, job, limit, MOST_OUTPUT).await
}

/// As [`run`], with a cap of its own: output that is longer than `most` bytes is cut somewhere behind them.
///
/// # Errors
/// [`RunError`]; a command that ends with an error of its own is an [`Output`].
pub async fn run_up_to(
    session: &Session,
    wall: &Wall,
    job: Job,
    limit: Duration,
    most: usize,
) -> Result<Output, RunError> {
    let name = job.program.to_string_lossy().into_owned();
    let argv = c_strings(std::iter::once(name).chain(job.args))?;
    let env = c_variables(&job.env)?;
    let (stdout, stdout_in) = io::pipe().map_err(RunError::Descriptors)?;
    let (stderr, stderr_in) = io::pipe().map_err(RunError::Descriptors)?;
    let null = File::open("/dev/null").map_err(RunError::Descriptors)?;
    let pid = session.spawner.spawn(
        Command {
            program: job.program,
            argv,
            env,
            cwd: job.cwd,
            stdin: null.into(),
            stdout: stdout_in.into(),
            stderr: stderr_in.into(),
            terminal: false,
        },
        wall,
    )?;
    let end = session.end_of(pid);
    let mut stdout = Capture::of(stdout.into(), most)?;
    let mut stderr = Capture::of(stderr.into(), MOST_OUTPUT)?;
    let ended = tokio::time::timeout(limit, async {
        let mut end = std::pin::pin!(end);
        loop {
            tokio::select! {
                exit = &mut end => return exit.map_err(|_| RunError::Lost),
                () = stdout.read() => {}
                () = stderr.read() => {}
            }
        }
    })
    .await;
    let Ok(exit) = ended else {
        // The command leads a process group of its own; what left it is killed with the session.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        return Err(RunError::TimeOut(limit));
    };
    let exit = exit?;
    let _ = tokio::time::timeout(AFTER_END, async {
        tokio::join!(stdout.read_all(), stderr.read_all())
    })
    .await;
    Ok(Output {
        exit,
        stdout: stdout.bytes,
        stderr: String::from_utf8_lossy(&stderr.bytes).into_owned(),
    })
}

/// A pipe's reading end and what it gave.
struct Capture {
    pipe: pipe::Receiver,
    most: usize,
    bytes: Vec<u8>,
    ended: bool,
}

// === impl Capture ===

impl Capture {
    fn of(pipe: OwnedFd, most: usize) -> Result<Self, RunError> {
        let pipe = pipe::Receiver::from_owned_fd(pipe).map_err(RunError::Descriptors)?;
        Ok(Self { pipe, most, bytes: Vec::new(), ended: false })
    }

    /// Reads once; never completes after the end, so that it can be selected over.
    async fn read(&mut self) {
        if self.ended {
            return std::future::pending().await;
        }
        if self.bytes.len() > self.most {
            // Drained and dropped: a full pipe would stop the command.
            let mut dropped = [0; 8192];
            self.ended = matches!(self.pipe.read(&mut dropped).await, Ok(0) | Err(_));
            return;
        }
        self.ended = matches!(self.pipe.read_buf(&mut self.bytes).await, Ok(0) | Err(_));
    }

    async fn read_all(&mut self) {
        while !self.ended {
            self.read().await;
        }
    }
}
