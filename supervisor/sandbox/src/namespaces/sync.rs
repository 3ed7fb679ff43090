//! The few words that launcher, middle and worker exchange while the namespaces are made.
//!
//! A word is one byte; `Born` is followed by a pid, `Failed` by step, errno and path. The receiver knows what it waits
//! for, so anything else is a failure.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::error::{Failure, NamespaceStep as Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Word {
    /// Middle: the namespaces exist.
    Unshared = 1,
    /// Launcher: the maps are written.
    Mapped,
    /// Middle: the worker's pid follows.
    Born,
    /// Launcher: you are my child now.
    Go,
    /// Worker: all done.
    Standing,
    /// Middle or worker: the failure follows.
    Failed,
}

pub(super) fn say(socket: &UnixStream, word: Word) -> Result<(), Failure> {
    write(socket, &[word as u8])
}

pub(super) fn say_pid(socket: &UnixStream, pid: Pid) {
    let mut message = vec![Word::Born as u8];
    message.extend(pid.as_raw().to_ne_bytes());
    // A launcher that is gone waits for nothing.
    let _ = write(socket, &message);
}

pub(super) fn fail(socket: &UnixStream, failure: &Failure) {
    let path = failure.path.as_os_str().as_bytes();
    let mut message = vec![Word::Failed as u8];
    message.extend((failure.step as u32).to_ne_bytes());
    message.extend((failure.errno as i32).to_ne_bytes());
    message.extend(u32::try_from(path.len()).unwrap_or(0).to_ne_bytes());
    message.extend(path);
    // A launcher that is gone waits for nothing.
    let _ = write(socket, &message);
}

pub(super) fn expect(socket: &UnixStream, word: Word) -> Result<(), Failure> {
    let [heard] = read::<1>(socket)?;
    if heard == word as u8 {
        return Ok(());
    }
    if heard == Word::Failed as u8 {
        return Err(read_failure(socket)?);
    }
    Err(Step::Lost.failed(Errno::EPROTO))
}

pub(super) fn expect_pid(socket: &UnixStream) -> Result<Pid, Failure> {
    expect(socket, Word::Born)?;
    Ok(Pid::from_raw(i32::from_ne_bytes(read(socket)?)))
}

fn read_failure(mut socket: &UnixStream) -> Result<Failure, Failure> {
    let step = Step::from_wire(u32::from_ne_bytes(read(socket)?));
    let errno = Errno::from_raw(i32::from_ne_bytes(read(socket)?));
    let length = usize::try_from(u32::from_ne_bytes(read(socket)?)).unwrap_or(0);
    let mut path = vec![0; length];
    socket.read_exact(&mut path).map_err(|_| Step::Lost.failed(Errno::EPIPE))?;
    Ok(Failure { step, errno, path: PathBuf::from(OsString::from_vec(path)) })
}

fn read<const N: usize>(mut socket: &UnixStream) -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes).map_err(|_| Step::Lost.failed(Errno::EPIPE))?;
    Ok(bytes)
}

fn write(mut socket: &UnixStream, bytes: &[u8]) -> Result<(), Failure> {
    socket.write_all(bytes).map_err(|_| Step::Lost.failed(Errno::EPIPE))
}
