//! A second process of a supervisor's, for what its own filter refuses it while it serves: names, sockets, decoys.
//!
//! Forked while there is one thread, it puts on a list of its own (`shield/porter.calls`), a Landlock domain in which it writes
//! files in one place alone, and answers: a thread for each errand. What an errand is, and what comes of it, is its starter's to
//! say; here are the processes, their walls and the socket between them. It has no descriptor of the supervisor's but its log; of
//! its memory a copy of what was there when it was forked. It is gone as soon as the supervisor is.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Weak, mpsc};
use std::thread::Builder;

use casemate_protocol::words::chain;
use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus,
};
use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};

use crate::forked::{Standard, place_descriptors, quiet_signals};
use crate::shield::calls::{BadLine, Role};
use crate::shield::{Confined, confine, harden};
use crate::single::require_single_thread;
use crate::spawner::channel;

/// Enough for the C library's resolver and whatever it loads.
const THREAD_STACK: usize = 1 << 20;
/// No errand and no answer is longer, in bytes.
const LONGEST: u32 = 64 << 10;

/// What an errand brings back.
#[derive(Default)]
pub struct Answer {
    /// As its starter reads them.
    pub words: Vec<u8>,
    /// What goes with them: three at most.
    pub descriptors: Vec<OwnedFd>,
    /// Kept in the porter until whoever asked lets go of it, or is gone.
    pub held: Option<Box<dyn Any>>,
}

/// Handle of the porter process. Start it before any thread and any runtime.
#[derive(Debug)]
pub struct Porter {
    pid: i32,
    control: UnixStream,
    confined: Confined,
}

/// An errand that was run. Dropping it lets go of what the porter holds for it.
#[derive(Debug)]
pub struct Errand {
    /// The answer's.
    pub words: Vec<u8>,
    /// The answer's, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    _holds: UnixStream,
}

/// Why there is no porter.
#[derive(Debug, thiserror::Error)]
pub enum PorterError {
    /// This process has threads already, fork(2) failed, or the other process is gone at once.
    #[error("no porter process can be made; leave the user more processes")]
    Fork(#[source] io::Error),
    /// The porter's list cannot be read.
    #[error("the list of the porter's calls cannot be read; report this")]
    List(#[from] BadLine),
    /// It was made, and does not hold what it must; in its own words.
    #[error("the porter process is without its shield: {0}")]
    Shield(String),
}

// === impl Porter ===

impl Porter {
    /// Forks the porter, which runs `answer` for each errand, on a thread of its own. It makes, writes and removes files below
    /// `place` and nowhere else.
    ///
    /// # Errors
    /// [`PorterError`].
    pub fn start(
        place: &Path,
        answer: impl Fn(&[u8]) -> Answer + Clone + Send + 'static,
    ) -> Result<Self, PorterError> {
        require_single_thread().map_err(PorterError::Fork)?;
        let confined = Confined::by(Role::Porter, &Role::Porter.rules()?);
        let (control, theirs) = UnixStream::pair().map_err(PorterError::Fork)?;
        // SAFETY: this process has one thread, so the child's copy of every lock is free and it may run any code.
        let forked = unsafe { nix::unistd::fork() };
        match forked.map_err(|errno| PorterError::Fork(errno.into()))? {
            ForkResult::Child => {
                let code = i32::from(!run(theirs.into(), place, answer));
                // SAFETY: leaves without the supervisor's atexit handlers and buffers, which are not this process's, and
                // whatever its threads are at.
                unsafe { libc::_exit(code) }
            }
            ForkResult::Parent { child } => {
                drop(theirs);
                let porter = Self { pid: child.as_raw(), control, confined };
                match hear(&porter.control) {
                    Ok((words, _)) if words.is_empty() => Ok(porter),
                    Ok((words, _)) => {
                        porter.end();
                        Err(PorterError::Shield(String::from_utf8_lossy(&words).into_owned()))
                    }
                    Err(error) => {
                        porter.end();
                        Err(PorterError::Fork(error))
                    }
                }
            }
        }
    }

    /// Has an errand run. Blocks as long as that takes.
    ///
    /// # Errors
    /// The porter is gone, or out of descriptors or threads.
    pub fn ask(&self, words: &[u8]) -> io::Result<Errand> {
        let (socket, theirs) = UnixStream::pair()?;
        channel::send(&self.control, &[0], &[], &[theirs.as_fd()])?;
        drop(theirs);
        say(&socket, words, &[])?;
        let (words, descriptors) = hear(&socket)?;
        Ok(Errand { words, descriptors, _holds: socket })
    }

    /// No errand is run from now on, and those under way fail.
    pub fn close(&self) {
        // It fails where the porter is gone, which is what is wanted.
        let _ = self.control.shutdown(Shutdown::Both);
    }

    /// Ends the porter and returns when it is gone. Nobody else may wait for children in the meantime.
    pub fn end(self) {
        self.close();
        // Any error means that there is no such child: it was reaped before.
        while let Err(Errno::EINTR) = waitpid(Pid::from_raw(self.pid), None) {}
    }

    /// The porter's process id, for whoever waits for children.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What it wears.
    #[must_use]
    pub fn confined(&self) -> Confined {
        self.confined
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("descriptors", &self.descriptors).finish_non_exhaustive()
    }
}

/// Takes over the forked process; false where it did not come to serve.
fn run(
    control: OwnedFd,
    place: &Path,
    answer: impl Fn(&[u8]) -> Answer + Clone + Send + 'static,
) -> bool {
    let Ok(control) = settle(control) else { return false };
    let shielded = shield(place);
    // Empty: everything above worked.
    let words = shielded.as_ref().err().map(|error| chain(&**error)).unwrap_or_default();
    if say(&control, words.as_bytes(), &[]).is_err() || shielded.is_err() {
        return false;
    }
    serve(&control, &answer);
    true
}

/// Lets go of what came along with the fork.
fn settle(control: OwnedFd) -> Result<UnixStream, Errno> {
    nix::sys::prctl::set_name(c"casemate-porter")?;
    // Its group may get the terminal's signals.
    nix::unistd::setsid()?;
    quiet_signals()?;
    place_descriptors(control, &[], Standard::Log)
}

fn shield(place: &Path) -> Result<(), Box<dyn Error>> {
    harden()?;
    // What a session's scope needs is newer (ABI 6).
    let changes = AccessFs::from_write(ABI::V3);
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(changes)?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new(place)?, changes))?
        .restrict_self()?;
    if restricted.ruleset != RulesetStatus::FullyEnforced {
        return Err("Landlock is not enforced: boot with it".into());
    }
    confine(Role::Porter)?;
    Ok(())
}

/// Takes an errand's socket with each byte and gives it to a thread. Ends with the supervisor, and when what was held for it has
/// been let go of; errands that are still under way bring nothing to anybody.
fn serve(control: &UnixStream, answer: &(impl Fn(&[u8]) -> Answer + Clone + Send + 'static)) {
    let (holds, all_let_go) = mpsc::channel::<()>();
    let holds = Arc::new(holds);
    let mut byte = [0];
    loop {
        let mut handed = Vec::new();
        match channel::receive(control, &mut byte, &mut handed) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        for socket in handed.into_iter().map(UnixStream::from) {
            let (answer, holds) = (answer.clone(), Arc::downgrade(&holds));
            let thread = Builder::new().name("errand".to_owned()).stack_size(THREAD_STACK);
            // Where there is no thread the socket is dropped, which whoever asked hears.
            let _ = thread.spawn(move || errand(&socket, answer, &holds));
        }
    }
    drop(holds);
    // Nobody sends: it fails when the last that holds something is through.
    let _ = all_let_go.recv();
}

/// Whoever asked and is gone needs no answer.
fn errand(socket: &UnixStream, answer: impl Fn(&[u8]) -> Answer, holds: &Weak<mpsc::Sender<()>>) {
    let Ok((words, _)) = hear(socket) else { return };
    let Answer { words, descriptors, held } = answer(&words);
    // What is held goes first at the end.
    let _holds = holds.upgrade();
    let held = held;
    let handed: Vec<BorrowedFd<'_>> = descriptors.iter().map(|fd| fd.as_fd()).collect();
    if say(socket, &words, &handed).is_err() {
        return;
    }
    drop(descriptors);
    if held.is_some() {
        // Nothing more comes: this returns when the other end is closed.
        let mut waiting = socket;
        let _ = waiting.read(&mut [0]);
    }
}

/// A message: its length, its words, its descriptors with the first byte.
fn say(socket: &UnixStream, words: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(words.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or(Errno::E2BIG)?.to_ne_bytes();
    Ok(channel::send(socket, &length, words, descriptors)?)
}

fn hear(socket: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut descriptors = Vec::new();
    let mut head = [0; 4];
    let begun = channel::receive(socket, &mut head, &mut descriptors)?;
    if begun == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    channel::read_exact(socket, &mut head[begun..])?;
    let length = u32::from_ne_bytes(head);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut words = vec![0; usize::try_from(length).map_err(|_| Errno::E2BIG)?];
    channel::read_exact(socket, &mut words)?;
    Ok((words, descriptors))
}
