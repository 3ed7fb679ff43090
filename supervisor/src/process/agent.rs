//! The agent's process: pipes, stderr, end.
//!
//! Owns nothing global. The stdout that it hands out is read by the relay alone; stdin is written by a task that keeps
//! the relay from waiting for a slow agent, bounded by [`Stdin::pending`].

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use casemate_sandbox::{Command, Exit, Wall};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::confined::RunError;
use super::lines::Lines;
use super::reaper::Session;
use super::stderr::StderrLog;

/// How to start it, ready to be started any number of times.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Absolute path inside the walls.
    pub program: PathBuf,
    /// Arguments, the zeroth included, placeholders replaced.
    pub argv: Vec<CString>,
    /// Its whole environment.
    pub env: Vec<CString>,
    /// The worktree.
    pub cwd: PathBuf,
    /// Where its stderr is kept.
    pub stderr_log: PathBuf,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    /// Its process id, which is its process group's as well.
    pub pid: i32,
    /// Its end.
    pub end: oneshot::Receiver<Exit>,
    /// What it says.
    pub stdout: Lines<pipe::Receiver>,
    /// What it is told.
    pub stdin: Stdin,
    stderr: Rc<RefCell<StderrLog>>,
    stderr_ended: JoinHandle<()>,
}

/// How long the last of stderr may take after the agent's end.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What the pipes to and from an agent hold, in bytes (pipe(7)).
const PIPE: i32 = 256 * 1024;

/// How many bytes go to the agent by one write(2), but for a longer line.
const AT_ONCE: usize = 64 * 1024;

/// A line of so many bytes is written from where it is, not copied to others first.
const LARGE: usize = 16 * 1024;

/// What goes to the agent, in order.
enum Word {
    Line(Bytes),
    /// To be done once all before it is written.
    Then(Box<dyn FnOnce()>),
}

/// Lines on their way to the agent.
#[derive(Debug)]
pub struct Stdin {
    words: mpsc::UnboundedSender<Word>,
    pending: Rc<Cell<usize>>,
    answers: Rc<Cell<usize>>,
    /// Notified whenever a line has been written.
    pub drained: Rc<Notify>,
}

// === impl Agent ===

impl Agent {
    /// Starts the agent behind its wall.
    ///
    /// # Errors
    /// [`RunError`] with the step that failed.
    pub fn start(session: &Session, wall: &Wall, recipe: &Recipe) -> Result<Self, RunError> {
        let (stdin_out, stdin) = io::pipe().map_err(RunError::Descriptors)?;
        let (stdout, stdout_in) = io::pipe().map_err(RunError::Descriptors)?;
        widen(&stdin);
        widen(&stdout);
        let (stderr, stderr_in) = io::pipe().map_err(RunError::Descriptors)?;
        let stdin = pipe::Sender::from_owned_fd(stdin.into()).map_err(RunError::Descriptors)?;
        let stdout = pipe::Receiver::from_owned_fd(stdout.into()).map_err(RunError::Descriptors)?;
        let stderr = pipe::Receiver::from_owned_fd(stderr.into()).map_err(RunError::Descriptors)?;
        let pid = session.spawner.spawn(
            Command {
                program: recipe.program.clone(),
                argv: recipe.argv.clone(),
                env: recipe.env.clone(),
                cwd: recipe.cwd.clone(),
                stdin: stdin_out.into(),
                stdout: stdout_in.into(),
                stderr: stderr_in.into(),
                terminal: false,
            },
            wall,
        )?;
        let (stderr, stderr_ended) = keep_stderr(&recipe.stderr_log, stderr);
        Ok(Self {
            pid,
            end: session.end_of(pid),
            stdout: Lines::new(stdout),
            stdin: Stdin::over(stdin),
            stderr,
            stderr_ended,
        })
    }

    /// Sends a signal to its process group.
    pub fn signal(&self, signal: Signal) {
        signal_group(self.pid, signal);
    }

    /// The end of what it wrote to stderr, after its own end.
    pub async fn stderr_tail(&mut self) -> String {
        let _ = timeout(LAST_WORDS, &mut self.stderr_ended).await;
        self.stderr.borrow().tail()
    }
}

/// A pipe as it comes holds less than one long line: whoever writes and whoever reads would wait for each other several times a
/// line. Where the user has many pipes already the kernel says no, and it stays as it is.
fn widen(pipe: &impl AsFd) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE));
}

/// Sends a signal to a process group; one that is gone already is no error.
pub fn signal_group(group: i32, signal: Signal) {
    if let Err(error) = killpg(Pid::from_raw(group), signal) {
        tracing::debug!(%error, group, %signal, "no signal sent");
    }
}

fn keep_stderr(path: &Path, mut pipe: pipe::Receiver) -> (Rc<RefCell<StderrLog>>, JoinHandle<()>) {
    let log = Rc::new(RefCell::new(StderrLog::open(path)));
    let writer = Rc::clone(&log);
    let ended = tokio::task::spawn_local(async move {
        let mut piece = Vec::with_capacity(4096);
        while let Ok(1..) = pipe.read_buf(&mut piece).await {
            writer.borrow_mut().write(&piece);
            piece.clear();
        }
    });
    (log, ended)
}

// === impl Stdin ===

impl Stdin {
    fn over(mut pipe: pipe::Sender) -> Self {
        let (words, mut queue) = mpsc::unbounded_channel();
        let pending = Rc::new(Cell::new(0));
        let drained = Rc::new(Notify::new());
        let (counted, tell) = (Rc::clone(&pending), Rc::clone(&drained));
        tokio::task::spawn_local(async move {
            // What could not be written whole is not acknowledged, and neither is what follows.
            let mut whole = true;
            let (mut bytes, mut lengths, mut acts) = (Vec::new(), 0, Vec::new());
            let mut large = Bytes::new();
            while let Some(first) = queue.recv().await {
                // As many as there are, in one write(2).
                let mut next = Some(first);
                while let Some(word) = next {
                    match word {
                        Word::Line(line) => {
                            lengths += line.len();
                            if line.len() >= LARGE {
                                large = line;
                            } else {
                                bytes.extend_from_slice(&line);
                                bytes.push(b'\n');
                            }
                        }
                        Word::Then(act) => acts.push(act),
                    }
                    let more = large.is_empty() && bytes.len() < AT_ONCE;
                    next = if more { queue.try_recv().ok() } else { None };
                }
                let end = if large.is_empty() { "" } else { "\n" };
                let tail = std::mem::take(&mut large).chain(end.as_bytes());
                let mut all = Buf::chain(&bytes[..], tail);
                // A broken pipe is not the end: what the agent still says comes through stdout, and its death is seen
                // by the reaper. Later lines are dropped in the same way.
                if let Err(error) = pipe.write_all_buf(&mut all).await {
                    whole = false;
                    tracing::warn!(%error, "a line did not reach the agent's stdin");
                }
                bytes.clear();
                bytes.shrink_to(2 * AT_ONCE);
                counted.set(counted.get() - std::mem::take(&mut lengths));
                acts.drain(..).filter(|_| whole).for_each(|act: Box<dyn FnOnce()>| act());
                tell.notify_one();
            }
        });
        Self { words, pending, answers: Rc::default(), drained }
    }

    /// Queues one line.
    pub fn send(&self, line: Bytes) {
        self.pending.set(self.pending.get() + line.len());
        // The writer task ends only with this sender.
        let _ = self.words.send(Word::Line(line));
    }

    /// Queues an answer of ours to a request of the agent's own.
    pub fn answer(&self, line: Bytes) {
        let length = line.len();
        self.answers.set(self.answers.get() + length);
        self.send(line);
        let answers = Rc::clone(&self.answers);
        self.then(move || answers.set(answers.get() - length));
    }

    /// Does something once all that was queued is written whole; never, where it was not.
    pub fn then(&self, act: impl FnOnce() + 'static) {
        // As above.
        let _ = self.words.send(Word::Then(Box::new(act)));
    }

    /// Bytes of [`Self::answer`] that the agent has not read yet, or never will.
    #[must_use]
    pub fn unread_answers(&self) -> usize {
        self.answers.get()
    }

    /// Bytes that the agent has not read yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.get()
    }
}
