//! Starts and ends the processes of sessions, from a small process of its own.
//!
//! Forking a supervisor whose heap has grown is dear, and `kill(-1)` from it would end everything. So a process forked
//! off at the very start does both: a thread for each session enters a Landlock signal scope ([`scope`]) and ends exactly
//! what is in it; a thread for each wall, born inside, starts the session's processes by vfork ([`starter`], [`child`]).
//!
//! This module is the supervisor's side. A started process is the *supervisor's* child: it alone waits for it. The session's
//! thread lives as long as its [`SessionSpawner`]; dropping that, or dying, ends the session's processes. What is held for
//! the worker's life (its lock, its claim of ports) the spawner holds as well, so that the kernel gives it back only when
//! the last process of the last session is gone, even where the supervisor was killed.

pub(crate) mod channel;
mod child;
mod command;
mod process;
mod requests;
mod scope;
mod session;
mod stack;
mod starter;
mod watch;
mod wire;

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};

pub use command::{Command, ProbeAnswer, SpawnError, Step};
pub(crate) use scope::SignalScope;
use watch::Bound;
pub use watch::Usage;

use crate::listener::Telling;
use crate::single::require_single_thread;
use crate::wall::{Wall, WallId};
use wire::{Header, Kind, Reply, SpawnBody};

/// Handle of the spawner process. Start it before any thread and any runtime.
#[derive(Debug)]
pub struct Spawner {
    pid: i32,
    control: UnixStream,
}

impl Spawner {
    /// Forks the spawner process. It gets copies of `kept` and holds them until its last session has ended; nothing that
    /// it starts gets any.
    ///
    /// # Errors
    /// fork(2)'s; `EBUSY` where this process has threads already; `EPIPE` where the new process could not set itself up.
    pub fn start(kept: &[BorrowedFd<'_>]) -> io::Result<Self> {
        require_single_thread()?;
        let (control, theirs) = UnixStream::pair()?;
        // SAFETY: this process has one thread, so the child's copy of every lock is free and it may run any code.
        match unsafe { nix::unistd::fork() }? {
            ForkResult::Child => {
                let code = process::run(OwnedFd::from(theirs), kept);
                // SAFETY: leaves without the supervisor's atexit handlers and buffers, which are not this process's.
                unsafe { libc::_exit(code) }
            }
            ForkResult::Parent { child } => {
                drop(theirs);
                channel::read_exact(&control, &mut [0])?;
                Ok(Self { pid: child.as_raw(), control })
            }
        }
    }

    /// A thread in an outer signal-scope domain of its own.
    ///
    /// # Errors
    /// [`Step::SignalScope`] where the kernel has no Landlock signal scope (ABI 6, Linux 6.12).
    pub fn session(&self) -> Result<SessionSpawner, SpawnError> {
        self.session_that_keeps(None)
    }

    /// As [`Spawner::session`]; the thread gets a copy of `kept` (the session's claim of ports) and holds it until the
    /// session's last process is gone, even where the supervisor was killed. Nothing that it starts gets it.
    ///
    /// # Errors
    /// As there.
    pub fn session_that_keeps(
        &self,
        kept: Option<BorrowedFd<'_>>,
    ) -> Result<SessionSpawner, SpawnError> {
        self.begin(&[0], kept)
    }

    /// A thread without a signal scope, for kernels that have none and for whoever leaves the layer out. What it starts may
    /// signal whom the kernel lets it, this process included, and is not ended with it: the caller has to, by reaping.
    /// [`SessionSpawner::kill_all`] fails.
    ///
    /// # Errors
    /// [`Step::Spawner`].
    pub fn session_without_scope(&self) -> Result<SessionSpawner, SpawnError> {
        self.begin(&process::UNSCOPED, None)
    }

    fn begin(
        &self,
        kind: &[u8],
        kept: Option<BorrowedFd<'_>>,
    ) -> Result<SessionSpawner, SpawnError> {
        let (socket, theirs) = pair()?;
        let handed: Vec<BorrowedFd<'_>> = std::iter::once(theirs.as_fd()).chain(kept).collect();
        channel::send(&self.control, kind, &[], &handed).map_err(lost)?;
        drop(theirs);
        read_reply(&socket)?;
        Ok(SessionSpawner {
            client: Mutex::new(Client { socket, walls: VecDeque::new(), coming: None }),
        })
    }

    /// Ends the spawner and returns when it is gone, and with it what it kept. Its [`SessionSpawner`]s must have been
    /// dropped before: it lives as long as any of them. Nobody else may wait for children in the meantime.
    pub fn end(self) {
        let Self { pid, control } = self;
        drop(control);
        // Any error means that there is no such child: it was reaped before.
        while let Err(Errno::EINTR) = waitpid(Pid::from_raw(pid), None) {}
    }

    /// The spawner's process id, so that the reaper's owner knows its end from a session's.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

/// Starts and ends the processes of one session. Calls block for about a millisecond. Dropping it ends the session's
/// processes.
#[derive(Debug)]
pub struct SessionSpawner {
    client: Mutex<Client>,
}

/// How many walls of a session keep a thread; the one made first loses its own first.
const MAX_WALLS: usize = 8;

/// The session's first thread, and one for each wall that was used lately. One request at a time: a kill meets no
/// start that is under way.
#[derive(Debug)]
struct Client {
    socket: UnixStream,
    walls: VecDeque<(WallId, UnixStream)>,
    /// A wall whose thread is putting it on.
    coming: Option<(WallId, UnixStream)>,
}

impl SessionSpawner {
    /// Starts a command behind a wall; its parent is the caller's process, which alone waits for it.
    ///
    /// The process may have ended, and been reaped by another thread, before this returns. One that failed here is
    /// reaped as a child of unknown pid with code 127.
    ///
    /// # Errors
    /// The step that failed and its errno: [`Step::Exec`] with `ENOENT` where there is no such program.
    pub fn spawn(&self, command: Command, wall: &Wall) -> Result<i32, SpawnError> {
        let program = c_path(&command.program)?;
        let cwd = c_path(&command.cwd)?;
        let body = wire::encode_spawn(&SpawnBody {
            program: &program,
            cwd: &cwd,
            argv: command.argv.iter().map(CString::as_c_str).collect(),
            env: command.env.iter().map(CString::as_c_str).collect(),
            terminal: command.terminal,
        });
        let stdio = [command.stdin.as_fd(), command.stdout.as_fd(), command.stderr.as_fd()];
        let (reply, _) = self.locked(|client| client.behind(wall, Kind::Spawn, &body, &stdio))?;
        Ok(reply.pid)
    }

    /// Tries to open each path (reading, then writing) behind the wall; the errno of each try, 0 where it opened.
    ///
    /// The probing process is reaped as a child of unknown pid with code 0.
    ///
    /// # Errors
    /// The step that failed and its errno.
    pub fn probe(&self, paths: &[PathBuf], wall: &Wall) -> Result<Vec<ProbeAnswer>, SpawnError> {
        let texts = paths.iter().map(|path| c_path(path)).collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<&CStr> = texts.iter().map(CString::as_c_str).collect();
        let body = wire::encode_probe(&texts);
        let (_, numbers) = self.locked(|client| client.behind(wall, Kind::Probe, &body, &[]))?;
        let answers = paths.iter().zip(numbers.chunks_exact(2)).map(|(path, pair)| ProbeAnswer {
            path: path.clone(),
            read_errno: pair[0],
            write_errno: pair[1],
        });
        Ok(answers.collect())
    }

    /// Begins to put up a wall that will soon be used, and does not wait for it: the kernel compiles its programs meanwhile. What
    /// goes wrong there, the first request behind it tells.
    ///
    /// # Errors
    /// The spawner is gone, or has no thread left for it.
    pub fn prepare(&self, wall: &Wall) -> Result<(), SpawnError> {
        self.locked(|client| {
            client.coming = Some(client.hand_over(wall)?);
            Ok(())
        })
    }

    /// SIGKILL to every process of the session, daemons included, and to nothing else. They end soon after; the
    /// supervisor reaps them.
    ///
    /// # Errors
    /// The spawner is gone.
    pub fn kill_all(&self) -> Result<(), SpawnError> {
        self.locked(|client| call(&client.socket, Kind::KillAll, &[], &[])).map(drop)
    }

    /// From now on, more than `tasks` processes and threads end the session's processes: counted and killed by a thread of
    /// the spawner's, whatever the supervisor is busy with. How late that may be: see [`Usage`].
    ///
    /// # Errors
    /// The spawner is gone, or has no thread left for it.
    pub fn bound(&self, tasks: u32) -> Result<(), SpawnError> {
        self.set(Bound::Watch(tasks))
    }

    /// From now on what the session runs is counted, and nothing is ended for it: the kernel starts no more than `tasks`
    /// ([`Wall::limit_tasks`]), or, without, it may run as much as it likes.
    ///
    /// # Errors
    /// As [`bound`](Self::bound)'s.
    pub fn count(&self, tasks: Option<u32>) -> Result<(), SpawnError> {
        self.set(Bound::Elsewhere(tasks.unwrap_or(u32::MAX)))
    }

    fn set(&self, bound: Bound) -> Result<(), SpawnError> {
        let body = wire::encode_bound(bound);
        self.locked(|client| call(&client.socket, Kind::Bound, &body, &[])).map(drop)
    }

    /// Begins to measure trees, in the spawner and behind everything else that wants a processor; a walk that is under way goes
    /// on instead. [`Usage::walks`] tells when one has ended. Only after [`bound`](Self::bound).
    ///
    /// # Errors
    /// The spawner is gone, or has no thread left for it.
    pub fn measure(&self, trees: &[PathBuf]) -> Result<(), SpawnError> {
        let texts = trees.iter().map(|path| c_path(path)).collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<&CStr> = texts.iter().map(CString::as_c_str).collect();
        let body = wire::encode_probe(&texts);
        self.locked(|client| call(&client.socket, Kind::Measure, &body, &[])).map(drop)
    }

    /// What the session runs, as last counted; nothing, where [`bound`](Self::bound) was not called.
    ///
    /// # Errors
    /// The spawner is gone.
    pub fn usage(&self) -> Result<Usage, SpawnError> {
        let (_, numbers) = self.locked(|client| call(&client.socket, Kind::Usage, &[], &[]))?;
        Usage::decode(&numbers).ok_or(SpawnError::new(Step::Spawner, libc::EBADMSG))
    }

    /// Ends the session's processes and its threads in the spawner; every call after this fails. What dropping does, for
    /// whoever cannot be sure to hold the last reference.
    pub fn close(&self) {
        let _ = self.locked(|client| {
            client.walls.clear();
            client.coming = None;
            client
                .socket
                .shutdown(Shutdown::Write)
                .map_err(|source| SpawnError { step: Step::Spawner, source })
        });
    }

    /// After [`SessionSpawner::close`]: whether the session's threads and its last process are gone. Does not block.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.locked(|client| Ok(channel::has_ended(&client.socket))).unwrap_or(true)
    }

    fn locked<T>(
        &self,
        request: impl FnOnce(&mut Client) -> Result<T, SpawnError>,
    ) -> Result<T, SpawnError> {
        // A panic elsewhere cannot leave half a request: requests do not panic.
        request(&mut self.client.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Client {
    /// A request to the wall's thread, which is made where there is none.
    fn behind(
        &mut self,
        wall: &Wall,
        kind: Kind,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<i32>), SpawnError> {
        if let Some((_, socket)) = self.walls.iter().find(|(id, _)| *id == wall.id()) {
            return call(socket, kind, body, fds);
        }
        let (_, coming) = self
            .coming
            .take_if(|(id, _)| *id == wall.id())
            .map_or_else(|| self.hand_over(wall), Ok)?;
        let socket = stands(wall, coming)?;
        let answer = call(&socket, kind, body, fds);
        if self.walls.len() == MAX_WALLS {
            self.walls.pop_front();
        }
        self.walls.push_back((wall.id(), socket));
        answer
    }

    /// Gives the session a wall; the socket of its thread, which has not said yet that it stands.
    fn hand_over(&self, wall: &Wall) -> Result<(WallId, UnixStream), SpawnError> {
        let programs: Vec<_> = wall.programs().iter().map(crate::Program::instructions).collect();
        let telling = wall.telling();
        let told = telling.map_or(&[][..], |telling| telling.program().instructions());
        let alone = telling.is_some_and(Telling::alone);
        let parts = wire::encode_wall(&programs, wall.rlimits(), wall.logging(), told, alone);
        let (socket, theirs) = pair()?;
        let handed: Vec<_> = wall.ruleset_fd().into_iter().chain([theirs.as_fd()]).collect();
        call(&self.socket, Kind::Wall, &parts, &handed)?;
        Ok((wall.id(), socket))
    }
}

/// Waits until the thread of a wall has it on.
fn stands(wall: &Wall, socket: UnixStream) -> Result<UnixStream, SpawnError> {
    let (reply, listener) = first_reply(&socket)?;
    if let Some(telling) = wall.telling() {
        match listener {
            // Where it gets no thread the socket is dropped, and with it the only thread behind this wall.
            Some(descriptor) => telling
                .serve(descriptor)
                .map_err(|source| SpawnError { step: Step::Clone, source })?,
            None => telling
                .deaf(reply.errno)
                .map_err(|source| SpawnError { step: Step::Seccomp, source })?,
        }
    }
    Ok(socket)
}

fn call(
    socket: &UnixStream,
    kind: Kind,
    body: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(Reply, Vec<i32>), SpawnError> {
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= wire::MAX_BODY)
        .ok_or(SpawnError::new(Step::Request, libc::E2BIG))?;
    channel::send(socket, &Header { kind, length }.encode(), body, fds).map_err(lost)?;
    read_reply(socket)
}

fn pair() -> Result<(UnixStream, UnixStream), SpawnError> {
    UnixStream::pair().map_err(|source| SpawnError { step: Step::Spawner, source })
}

fn read_reply(socket: &UnixStream) -> Result<(Reply, Vec<i32>), SpawnError> {
    let mut head = [0; wire::REPLY];
    channel::read_exact(socket, &mut head).map_err(lost)?;
    let reply = Reply::decode(&head).ok_or(SpawnError::new(Step::Spawner, libc::EBADMSG))?;
    if reply.step != 0 {
        return Err(SpawnError::new(Step::from_wire(reply.step), reply.errno));
    }
    let mut numbers = Vec::new();
    for _ in 0..reply.extra {
        let mut bytes = [0; size_of::<i32>()];
        channel::read_exact(socket, &mut bytes).map_err(lost)?;
        numbers.push(i32::from_ne_bytes(bytes));
    }
    Ok((reply, numbers))
}

/// A wall's first reply, and the listener that may come along.
fn first_reply(socket: &UnixStream) -> Result<(Reply, Option<OwnedFd>), SpawnError> {
    let (mut head, mut have, mut descriptors) = ([0; wire::REPLY], 0, Vec::new());
    while have < head.len() {
        match channel::receive(socket, &mut head[have..], &mut descriptors).map_err(lost)? {
            0 => return Err(lost(Errno::EPIPE)),
            more => have += more,
        }
    }
    let reply = Reply::decode(&head).ok_or(SpawnError::new(Step::Spawner, libc::EBADMSG))?;
    if reply.step != 0 {
        return Err(SpawnError::new(Step::from_wire(reply.step), reply.errno));
    }
    Ok((reply, descriptors.pop()))
}

fn lost(errno: Errno) -> SpawnError {
    SpawnError::new(Step::Spawner, errno as i32)
}

fn c_path(path: &Path) -> Result<CString, SpawnError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| SpawnError::new(Step::Request, libc::EINVAL))
}
