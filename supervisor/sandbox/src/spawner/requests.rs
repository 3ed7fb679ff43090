//! Takes requests off a socket, one after another, until its other end is closed.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;

use super::channel;
use super::command::Step;
use super::wire::{self, HEADER, Header, Kind, MAX_BODY, Reply};

/// What is kept between requests; a larger request's memory is given back.
const BUFFER: usize = 64 << 10;

/// A step that failed, and its errno.
pub(super) type Failure = (Step, Errno);

/// One end of the conversation: a socket and the buffer for what comes.
pub(super) struct Requests<'a> {
    socket: &'a UnixStream,
    buffer: Vec<u8>,
}

/// A request as it came.
pub(super) struct Request<'a> {
    pub(super) kind: Kind,
    pub(super) body: &'a [u8],
    pub(super) descriptors: Vec<OwnedFd>,
}

impl<'a> Requests<'a> {
    pub(super) fn new(socket: &'a UnixStream) -> Self {
        Self { socket, buffer: Vec::new() }
    }

    /// The next request; `None` where the other end is gone.
    pub(super) fn next(&mut self) -> Result<Option<Request<'_>>, Errno> {
        if self.buffer.len() != BUFFER {
            self.buffer = vec![0; BUFFER];
        }
        let mut descriptors = Vec::new();
        let mut have = 0;
        while have < HEADER {
            match channel::receive(self.socket, &mut self.buffer[have..], &mut descriptors)? {
                0 => return Ok(None),
                more => have += more,
            }
        }
        let header = Header::decode(&self.buffer).ok_or(Errno::EBADMSG)?;
        let length = usize::try_from(header.length).map_err(|_| Errno::EMSGSIZE)?;
        if length > MAX_BODY {
            return Err(Errno::EMSGSIZE);
        }
        let end = HEADER + length;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        if have < end {
            channel::read_exact(self.socket, &mut self.buffer[have..end])?;
        }
        Ok(Some(Request { kind: header.kind, body: &self.buffer[HEADER..end], descriptors }))
    }
}

/// Answers a request; the extra bytes follow the reply.
pub(super) fn answer(
    socket: &UnixStream,
    outcome: Result<Reply, Failure>,
    extra: &[u8],
) -> Result<(), Errno> {
    let reply = outcome.unwrap_or_else(|(step, errno)| Reply {
        step: step as i32,
        errno: errno as i32,
        ..Reply::default()
    });
    channel::send(socket, &wire::Reply::encode(reply), extra, &[])
}
