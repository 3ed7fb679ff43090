//! One session's thread: inside the session's signal scope, it serves one request after another.
//!
//! Owns the session's walls, the child's stack and the request buffer. It ends when its socket does: the session was
//! dropped, or the supervisor is gone; either way the session's processes are ended first.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::null;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;

use super::channel;
use super::child::{self, Errand, Plan};
use super::command::Step;
use super::scope::SignalScope;
use super::stack::Stack;
use super::wire::{self, Header, Kind, Reply, WallBody};
use crate::wall::WallId;

/// What is kept between requests; a larger request's memory is given back.
const BUFFER: usize = 64 << 10;

type Failure = (Step, Errno);

/// A wall that was handed over, kept so that a start needs no more than its name.
struct KeptWall {
    id: WallId,
    ruleset: OwnedFd,
    body: WallBody,
}

struct Session {
    scope: SignalScope,
    stack: Stack,
    walls: VecDeque<KeptWall>,
}

/// The thread's whole life.
pub(super) fn serve(socket: &UnixStream) {
    let session = SignalScope::enter()
        .map_err(|errno| (Step::SignalScope, errno))
        .and_then(|scope| Ok((scope, Stack::new().map_err(|errno| (Step::Stack, errno))?)));
    let (scope, stack) = match session {
        Ok(ready) => ready,
        Err(failure) => {
            // Whether the supervisor hears it or is gone, this thread ends.
            let _ = channel::send(socket, &failed(failure).encode(), &[], &[]);
            return;
        }
    };
    let mut session = Session { scope, stack, walls: VecDeque::new() };
    // A broken channel and a closed one mean the same: nobody is left who could ask for anything.
    let _ = session.requests(socket);
    let _ = session.scope.kill_all();
}

impl Session {
    fn requests(&mut self, socket: &UnixStream) -> Result<(), Errno> {
        channel::send(socket, &Reply::default().encode(), &[], &[])?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let mut descriptors = Vec::new();
            let mut have = 0;
            while have < wire::HEADER {
                match channel::receive(socket, &mut buffer[have..], &mut descriptors)? {
                    0 => return Ok(()),
                    more => have += more,
                }
            }
            let header = Header::decode(&buffer).ok_or(Errno::EBADMSG)?;
            let length = usize::try_from(header.length).map_err(|_| Errno::EMSGSIZE)?;
            if length > wire::MAX_BODY {
                return Err(Errno::EMSGSIZE);
            }
            let end = wire::HEADER + length;
            if buffer.len() < end {
                buffer.resize(end, 0);
            }
            if have < end {
                channel::read_exact(socket, &mut buffer[have..end])?;
            }
            let body = &buffer[wire::HEADER..end];
            let (reply, extra) = self.answer(header, body, descriptors);
            channel::send(socket, &reply.encode(), &extra, &[])?;
            if buffer.len() > BUFFER {
                buffer = vec![0; BUFFER];
            }
        }
    }

    fn answer(&mut self, header: Header, body: &[u8], fds: Vec<OwnedFd>) -> (Reply, Vec<u8>) {
        let outcome = match header.kind {
            Kind::Wall => {
                self.keep(header.wall, body, fds).map(|()| (Reply::default(), Vec::new()))
            }
            Kind::Spawn => self
                .spawn(header.wall, body, &fds)
                .map(|pid| (Reply { pid, ..Reply::default() }, Vec::new())),
            Kind::Probe => self.probe(header.wall, body).map(|numbers| {
                let extra = u32::try_from(numbers.len()).unwrap_or(0);
                let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
                (Reply { extra, ..Reply::default() }, bytes)
            }),
            Kind::KillAll => self
                .scope
                .kill_all()
                .map(|()| (Reply::default(), Vec::new()))
                .map_err(|errno| (Step::SignalScope, errno)),
        };
        outcome.unwrap_or_else(|failure| (failed(failure), Vec::new()))
    }

    fn keep(&mut self, id: WallId, body: &[u8], fds: Vec<OwnedFd>) -> Result<(), Failure> {
        let body = wire::decode_wall(body).ok_or((Step::Request, Errno::EBADMSG))?;
        let ruleset = fds.into_iter().next().ok_or((Step::Request, Errno::EBADMSG))?;
        if self.walls.len() == wire::MAX_WALLS {
            self.walls.pop_front();
        }
        self.walls.push_back(KeptWall { id, ruleset, body });
        Ok(())
    }

    fn spawn(&mut self, wall: WallId, body: &[u8], fds: &[OwnedFd]) -> Result<i32, Failure> {
        let request = wire::decode_spawn(body).ok_or((Step::Request, Errno::EBADMSG))?;
        let stdio = stdio(fds)?;
        let argv = pointers(&request.argv);
        let env = pointers(&request.env);
        let errand = Errand::Exec {
            program: request.program.as_ptr(),
            cwd: request.cwd.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            stdio,
        };
        self.start(wall, errand)
    }

    fn probe(&mut self, wall: WallId, body: &[u8]) -> Result<Vec<i32>, Failure> {
        let paths = wire::decode_probe(body).ok_or((Step::Request, Errno::EBADMSG))?;
        let paths: Vec<*const c_char> = paths.iter().map(|path| path.as_ptr()).collect();
        // A child that died on the way has opened nothing, and has proved nothing either.
        let unanswered = || AtomicI32::new(libc::ECANCELED);
        let answers: Vec<[AtomicI32; 2]> =
            paths.iter().map(|_| [unanswered(), unanswered()]).collect();
        self.start(wall, Errand::Probe { paths: &paths, answers: &answers })?;
        let numbers: Vec<i32> =
            answers.iter().flatten().map(|number| number.load(Ordering::Acquire)).collect();
        if numbers.contains(&libc::ECANCELED) {
            return Err((Step::Clone, Errno::ECANCELED));
        }
        Ok(numbers)
    }

    fn start(&mut self, id: WallId, errand: Errand<'_>) -> Result<i32, Failure> {
        let wall =
            self.walls.iter().find(|wall| wall.id == id).ok_or((Step::Request, Errno::EBADMSG))?;
        let programs = wall
            .body
            .programs
            .iter()
            .map(|program| {
                let len =
                    u16::try_from(program.len()).map_err(|_| (Step::Seccomp, Errno::E2BIG))?;
                Ok(libc::sock_fprog { len, filter: program.as_ptr().cast_mut() })
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        let around = child::Wall {
            scope: self.scope.ruleset().as_raw_fd(),
            ruleset: wall.ruleset.as_raw_fd(),
            programs: &programs,
            rlimits: &wall.body.rlimits,
        };
        let plan = Plan::new(around, errand);
        child::start(&plan, &mut self.stack)
    }
}

/// The three descriptors; all above 2, for the spawner keeps 0, 1 and 2 occupied.
fn stdio(fds: &[OwnedFd]) -> Result<[RawFd; 3], Failure> {
    match fds {
        [stdin, stdout, stderr] => {
            let raw = [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()];
            if raw.iter().any(|fd| *fd < 3) {
                return Err((Step::Descriptors, Errno::EBADF));
            }
            Ok(raw)
        }
        _ => Err((Step::Request, Errno::EBADMSG)),
    }
}

/// A list as execve(2) takes it, with its terminating null pointer.
fn pointers(texts: &[&CStr]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([null()]).collect()
}

fn failed((step, errno): Failure) -> Reply {
    Reply { step: step as i32, errno: errno as i32, ..Reply::default() }
}
