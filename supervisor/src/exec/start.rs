//! Starts a command: on three pipes, or on a terminal of its own.
//!
//! A terminal is a pair out of the devpts that this process sees: in tier `namespace` the session's own. The other end is
//! had from the master itself and not by its path, so nobody can exchange it, and no policy has to grant it.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use casemate_protocol::exec::{ExecEnd, TerminalSize};
use casemate_sandbox::{Command, Exit, SpawnError, Step};
use nix::errno::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use tokio::sync::oneshot;

use super::Door;
use super::ending::Leader;
use super::request::Wanted;
use super::stream::Stream;
use crate::words::chain;

/// A running command.
#[derive(Debug)]
pub(super) struct Child {
    /// Itself.
    pub(super) leader: Leader,
    pub(super) end: oneshot::Receiver<Exit>,
    pub(super) ends: Ends,
}

/// Our ends of its descriptors. Of a terminal there is one, the master, for all that goes in and out.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) stdin: Rc<Stream>,
    pub(super) stdout: Rc<Stream>,
    pub(super) stderr: Option<Rc<Stream>>,
    pub(super) is_terminal: bool,
}

/// Its ends.
struct Theirs {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    terminal: bool,
}

/// Starts it; what to answer where that fails.
pub(super) fn start(door: &Door, wanted: &Wanted) -> Result<Child, ExecEnd> {
    let (ends, theirs) = open(wanted.tty).map_err(|error| ExecEnd::NotRunnable {
        message: format!("no descriptors for the command: {error}"),
    })?;
    let mut refused = None;
    // What is not here is not there: this process sees all that the session sees.
    for candidate in wanted.candidates.iter().filter(|place| place.symlink_metadata().is_ok()) {
        let spawned = theirs.command(candidate.clone(), wanted).and_then(|command| {
            door.session.spawner.spawn(command, &door.wall).map_err(Failed::Spawn)
        });
        match spawned {
            // Registered without a suspension in between: the reaper loses no end.
            Ok(pid) => {
                let end = door.session.end_of(pid);
                return Ok(Child { leader: Leader::of(pid), end, ends });
            }
            Err(Failed::Spawn(error)) if is_absent(&error) => {}
            // As execvp(3): a place that is closed is passed over, and named where no other has the program.
            Err(Failed::Spawn(error)) if is_closed(&error) => {
                refused = refused.or(Some(error));
            }
            Err(error) => return Err(ExecEnd::NotRunnable { message: error.words() }),
        }
    }
    Err(match refused {
        Some(error) => ExecEnd::NotRunnable { message: chain(&error) },
        None => ExecEnd::NotFound { message: not_found(&wanted.candidates) },
    })
}

enum Failed {
    Spawn(SpawnError),
    Descriptors(io::Error),
}

impl Failed {
    fn words(&self) -> String {
        match self {
            Self::Spawn(error) => chain(error),
            Self::Descriptors(error) => format!("no descriptors for the command: {error}"),
        }
    }
}

impl Theirs {
    fn command(&self, program: PathBuf, wanted: &Wanted) -> Result<Command, Failed> {
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(Failed::Descriptors);
        Ok(Command {
            program,
            argv: wanted.argv.clone(),
            env: wanted.env.iter().map(CString::clone).collect(),
            cwd: wanted.cwd.clone(),
            stdin: copy(&self.stdin)?,
            stdout: copy(&self.stdout)?,
            stderr: copy(&self.stderr)?,
            terminal: self.terminal,
        })
    }
}

fn is_absent(error: &SpawnError) -> bool {
    error.step == Step::Exec
        && [Errno::ENOENT as i32, Errno::ENOTDIR as i32].contains(&error.errno())
}

fn is_closed(error: &SpawnError) -> bool {
    error.step == Step::Exec && error.errno() == Errno::EACCES as i32
}

fn not_found(candidates: &[PathBuf]) -> String {
    let places: Vec<_> = candidates.iter().map(|place| place.display().to_string()).collect();
    format!("no such program in the session (looked at {})", places.join(", "))
}

fn open(tty: Option<TerminalSize>) -> io::Result<(Ends, Theirs)> {
    match tty {
        Some(size) => terminal(size),
        None => pipes(),
    }
}

fn pipes() -> io::Result<(Ends, Theirs)> {
    let (stdin_out, stdin) = io::pipe()?;
    let (stdout, stdout_in) = io::pipe()?;
    let (stderr, stderr_in) = io::pipe()?;
    let ends = Ends {
        stdin: Rc::new(Stream::over(stdin.into())?),
        stdout: Rc::new(Stream::over(stdout.into())?),
        stderr: Some(Rc::new(Stream::over(stderr.into())?)),
        is_terminal: false,
    };
    let theirs = Theirs {
        stdin: stdin_out.into(),
        stdout: stdout_in.into(),
        stderr: stderr_in.into(),
        terminal: false,
    };
    Ok((ends, theirs))
}

fn terminal(size: TerminalSize) -> io::Result<(Ends, Theirs)> {
    // NOCTTY: it is to be the command's controlling terminal and not this process's.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&master)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    let master = Rc::new(Stream::over(master)?);
    let ends = Ends { stdin: Rc::clone(&master), stdout: master, stderr: None, is_terminal: true };
    resize(&ends.stdout, size);
    let theirs = Theirs {
        stdin: slave.try_clone()?,
        stdout: slave.try_clone()?,
        stderr: slave,
        terminal: true,
    };
    Ok((ends, theirs))
}

/// Tells a terminal its size; its foreground group gets SIGWINCH (ioctl_tty(2)).
pub(super) fn resize(master: &Stream, size: TerminalSize) {
    let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
    if let Err(error) = rustix::termios::tcsetwinsize(master.fd(), size) {
        tracing::debug!(%error, "a terminal was not resized");
    }
}
