//! Whole messages with descriptors over a stream socket (unix(7)).

use std::io::{IoSlice, IoSliceMut, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recv, recvmsg, sendmsg,
};

/// Writes everything; the descriptors travel with the first byte.
pub(crate) fn send(
    socket: &UnixStream,
    head: &[u8],
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let raw: Vec<RawFd> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let parts = [IoSlice::new(head), IoSlice::new(body)];
    let mut sent = loop {
        // MSG_NOSIGNAL: a peer that is gone is an answer, not a death.
        match sendmsg::<UnixAddr>(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None)
        {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    if sent < head.len() {
        write(socket, &head[sent..])?;
        sent = head.len();
    }
    write(socket, &body[sent - head.len()..])
}

/// The rest of a message. Goes through sendmsg(2) as well, for MSG_NOSIGNAL.
fn write(socket: &UnixStream, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let parts = [IoSlice::new(bytes)];
        match sendmsg::<UnixAddr>(socket.as_raw_fd(), &parts, &[], MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            other => bytes = &bytes[other?..],
        }
    }
    Ok(())
}

/// Reads what has come, at least one byte, and takes the descriptors that came along (at most three, close-on-exec).
/// 0: the peer is gone.
pub(crate) fn receive(
    socket: &UnixStream,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = nix::cmsg_space!([RawFd; 3]);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = loop {
        match recvmsg::<UnixAddr>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            for fd in raw {
                // SAFETY: SCM_RIGHTS has just installed this descriptor in our table for us; nobody else knows it.
                descriptors.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
    Ok(message.bytes)
}

/// Fills the buffer.
pub(crate) fn read_exact(mut socket: &UnixStream, buffer: &mut [u8]) -> Result<(), Errno> {
    socket.read_exact(buffer).map_err(|error| match error.raw_os_error() {
        Some(number) => Errno::from_raw(number),
        None => Errno::EPIPE,
    })
}

/// Whether the peer is gone, of a socket on which nothing more is to come. Does not block.
pub(crate) fn has_ended(socket: &UnixStream) -> bool {
    !matches!(
        recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT),
        Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR)
    )
}
