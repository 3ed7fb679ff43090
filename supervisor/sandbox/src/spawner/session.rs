//! One session's first thread: it enters the session's signal scope, gives each wall a thread born inside it, and ends
//! the session's processes.
//!
//! A session without a scope is for whoever leaves that layer out: such a thread ends nobody, its owner has to.
//!
//! It wears no wall itself, so no policy can take kill(2) from it. It ends when its socket does: the session was dropped,
//! or the supervisor is gone; either way nothing of the session is left when the thread is gone.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::{Builder, JoinHandle};

use nix::errno::Errno;

use super::command::Step;
use super::requests::{Failure, Request, Requests, answer};
use super::scope::SignalScope;
use super::starter::{self, Starter};
use super::watch::Watch;
use super::wire::{self, Kind, Reply};

/// Enough for a thread's loop in an unoptimised build; request buffers are on the heap.
pub(super) const THREAD_STACK: usize = 256 << 10;

/// The thread's whole life.
pub(super) fn serve(socket: &UnixStream, scoped: bool) {
    let scope = match scoped.then(SignalScope::enter).transpose() {
        Ok(scope) => scope,
        Err(errno) => {
            // Whether the supervisor hears it or is gone, this thread ends.
            let _ = answer(socket, Err((Step::SignalScope, errno)), &[]);
            return;
        }
    };
    let mut starters = Vec::new();
    let mut watch = None;
    // A broken socket and a closed one mean the same: nobody is left who could ask for anything.
    let _ = requests(socket, scope.as_ref(), &mut starters, &mut watch);
    // Before the ends below, which only this thread waits for.
    drop(watch);
    // Their sockets are closed as well by now. A start that was under way ends first, or it would outlive the kill.
    for starter in starters {
        let _ = starter.join();
    }
    if let Some(scope) = scope {
        let _ = scope.kill_all();
        scope.wait_for_ends();
    }
}

fn requests(
    socket: &UnixStream,
    scope: Option<&SignalScope>,
    starters: &mut Vec<JoinHandle<()>>,
    watch: &mut Option<Watch>,
) -> Result<(), Errno> {
    answer(socket, Ok(Reply::default()), &[])?;
    let mut requests = Requests::new(socket);
    while let Some(request) = requests.next()? {
        let outcome = match request.kind {
            Kind::KillAll => scope
                .ok_or(Errno::EOPNOTSUPP)
                .and_then(SignalScope::kill_all)
                .map_err(|errno| (Step::SignalScope, errno)),
            Kind::Wall => {
                starters.retain(|starter| !starter.is_finished());
                start(scope, request).map(|starter| starters.push(starter))
            }
            Kind::Bound => {
                let bound = wire::decode_bound(request.body).ok_or(Errno::EBADMSG)?;
                match scope {
                    Some(scope) => Watch::start(scope, bound)
                        .map(|started| *watch = Some(started))
                        .map_err(errno),
                    None => Err((Step::SignalScope, Errno::EOPNOTSUPP)),
                }
            }
            Kind::Usage => {
                let usage = watch.as_ref().map(Watch::usage).unwrap_or_default().encode();
                let reply = Reply { extra: wire::USAGE, ..Reply::default() };
                answer(socket, Ok(reply), &usage)?;
                continue;
            }
            Kind::Measure => {
                let trees = wire::decode_probe(request.body).ok_or(Errno::EBADMSG)?;
                let trees = trees.iter().map(|path| path_of(path)).collect();
                watch.as_ref().map_or(Ok(()), |watch| watch.measure(trees)).map_err(errno)
            }
            Kind::Spawn | Kind::Probe => return Err(Errno::EBADMSG),
        };
        answer(socket, outcome.map(|()| Reply::default()), &[])?;
    }
    Ok(())
}

/// A thread for a wall; it says on its own socket how it came up.
fn start(scope: Option<&SignalScope>, request: Request<'_>) -> Result<JoinHandle<()>, Failure> {
    let malformed = (Step::Request, Errno::EBADMSG);
    let wall = wire::decode_wall(request.body).ok_or(malformed)?;
    let mut descriptors = request.descriptors;
    let socket = descriptors.pop().ok_or(malformed)?;
    let ruleset = descriptors.pop();
    let scope =
        scope.map(|scope| scope.ruleset().try_clone_to_owned()).transpose().map_err(errno)?;
    let (starter, socket) =
        (Starter { scope, ruleset, wall, nice: starter::nice() }, UnixStream::from(socket));
    Builder::new()
        .name("wall".to_owned())
        .stack_size(THREAD_STACK)
        .spawn(move || starter.serve(&socket))
        .map_err(errno)
}

fn path_of(text: &CStr) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.to_bytes()))
}

fn errno(error: std::io::Error) -> Failure {
    (Step::Clone, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN)))
}
