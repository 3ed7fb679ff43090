//! The words between a session's two ends, as bytes. Pure: bytes in, values out.
//!
//! Both ends are the same binary, so numbers are in native order. A request is one [`Header`], then `length` bytes of
//! body; descriptors travel with the header. There is one request at a time, and one [`Reply`] to each. The supervisor
//! trusts the spawner and the other way round; a malformed message is a bug and ends the session's thread.

use std::ffi::CStr;

use super::watch::Bound;
use crate::wall::{Logging, Rlimit};

/// Above the kernel's own limit on arguments and environment together (execve(2): 6 MiB on a default stack).
pub(super) const MAX_BODY: usize = 8 << 20;
/// Length of a header.
pub(super) const HEADER: usize = 8;
/// Length of a reply before its extra numbers.
pub(super) const REPLY: usize = 16;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// To the session: a thread for this wall. Descriptors: the ruleset, if there is one, and the new thread's socket, on which
    /// it says how it came up: with the listener as a descriptor, or its errno, where there is something to be told.
    Wall = 1,
    /// To a wall's thread: start a command. Three descriptors.
    Spawn,
    /// To a wall's thread: try to open paths.
    Probe,
    /// To the session: end every process of it.
    KillAll,
    /// To the session, once: watch over this many tasks at most.
    Bound,
    /// To the session: what the watch has counted and measured. Numbers: [`super::Usage`]'s fields in their order.
    Usage,
    /// To the session: begin to measure these trees.
    Measure,
}

/// The head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) length: u32,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&(self.kind as u32).to_ne_bytes());
        bytes[4..].copy_from_slice(&self.length.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = match reader.u32()? {
            1 => Kind::Wall,
            2 => Kind::Spawn,
            3 => Kind::Probe,
            4 => Kind::KillAll,
            5 => Kind::Bound,
            6 => Kind::Usage,
            7 => Kind::Measure,
            _ => return None,
        };
        Some(Self { kind, length: reader.u32()? })
    }
}

/// The head of an answer: `step` is 0 for success, else a [`super::Step`]'s number; `extra` counts the `i32` that follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) step: i32,
    pub(super) errno: i32,
    pub(super) pid: i32,
    pub(super) extra: u32,
}

impl Reply {
    pub(super) fn encode(self) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[..4].copy_from_slice(&self.step.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.errno.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.extra.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(Self {
            step: reader.i32()?,
            errno: reader.i32()?,
            pid: reader.i32()?,
            extra: reader.u32()?,
        })
    }
}

/// A wall's filters, limits, what is logged and what is told; the ruleset is a descriptor beside it.
#[derive(Debug)]
pub(super) struct WallBody {
    pub(super) programs: Vec<Vec<libc::sock_filter>>,
    pub(super) rlimits: Vec<Rlimit>,
    pub(super) logging: Logging,
    /// What has the kernel ask; empty where nobody hears.
    pub(super) told: Vec<libc::sock_filter>,
    /// Where it is on, it stands for the filters.
    pub(super) alone: bool,
}

pub(super) fn encode_wall(
    programs: &[&[libc::sock_filter]],
    rlimits: &[Rlimit],
    logging: Logging,
    told: &[libc::sock_filter],
    alone: bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(u32::from(alone).to_ne_bytes());
    out.extend(logging.restrict_self.to_ne_bytes());
    out.extend(logging.filter.to_ne_bytes());
    put_len(&mut out, rlimits.len());
    for limit in rlimits {
        out.extend(limit.resource.to_ne_bytes());
        out.extend(limit.soft.to_ne_bytes());
        out.extend(limit.hard.to_ne_bytes());
    }
    put_len(&mut out, programs.len());
    for program in programs.iter().chain([&told]) {
        put_len(&mut out, program.len());
        for instruction in *program {
            out.extend(instruction.code.to_ne_bytes());
            out.extend([instruction.jt, instruction.jf]);
            out.extend(instruction.k.to_ne_bytes());
        }
    }
    out
}

pub(super) fn decode_wall(body: &[u8]) -> Option<WallBody> {
    let mut reader = Reader(body);
    let alone = reader.u32()? == 1;
    let logging = Logging { restrict_self: reader.u32()?, filter: reader.u32()? };
    let mut rlimits = Vec::new();
    for _ in 0..reader.u32()? {
        // Four bytes whatever the C library calls the type: unsigned in glibc, int in musl.
        let resource = libc::__rlimit_resource_t::from_ne_bytes(reader.array()?);
        rlimits.push(Rlimit { resource, soft: reader.u64()?, hard: reader.u64()? });
    }
    let mut programs = Vec::new();
    for _ in 0..reader.u32()? {
        programs.push(reader.program()?);
    }
    let told = reader.program()?;
    Some(WallBody { programs, rlimits, logging, told, alone })
}

/// A command as it is passed to execve(2): borrowed from the request's body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SpawnBody<'a> {
    pub(super) program: &'a CStr,
    pub(super) cwd: &'a CStr,
    pub(super) argv: Vec<&'a CStr>,
    pub(super) env: Vec<&'a CStr>,
    pub(super) terminal: bool,
}

pub(super) fn encode_spawn(body: &SpawnBody<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put_len(&mut out, body.argv.len());
    put_len(&mut out, body.env.len());
    out.extend(u32::from(body.terminal).to_ne_bytes());
    out.extend(body.program.to_bytes_with_nul());
    out.extend(body.cwd.to_bytes_with_nul());
    for text in body.argv.iter().chain(&body.env) {
        out.extend(text.to_bytes_with_nul());
    }
    out
}

pub(super) fn decode_spawn(body: &[u8]) -> Option<SpawnBody<'_>> {
    let mut reader = Reader(body);
    let argc = reader.u32()?;
    let envc = reader.u32()?;
    let terminal = reader.u32()? == 1;
    let program = reader.text()?;
    let cwd = reader.text()?;
    let argv = reader.texts(argc)?;
    let env = reader.texts(envc)?;
    Some(SpawnBody { program, cwd, argv, env, terminal })
}

pub(super) fn encode_probe(paths: &[&CStr]) -> Vec<u8> {
    let mut out = Vec::new();
    put_len(&mut out, paths.len());
    for path in paths {
        out.extend(path.to_bytes_with_nul());
    }
    out
}

pub(super) fn decode_probe(body: &[u8]) -> Option<Vec<&CStr>> {
    let mut reader = Reader(body);
    let count = reader.u32()?;
    reader.texts(count)
}

/// How many numbers answer [`Kind::Usage`].
pub(super) const USAGE: u32 = 12;

pub(super) fn encode_bound(bound: Bound) -> [u8; 8] {
    let (tasks, who) = match bound {
        Bound::Watch(tasks) => (tasks, 0_u32),
        Bound::Elsewhere(tasks) => (tasks, 1),
    };
    let mut body = [0; 8];
    body[..4].copy_from_slice(&tasks.to_ne_bytes());
    body[4..].copy_from_slice(&who.to_ne_bytes());
    body
}

pub(super) fn decode_bound(body: &[u8]) -> Option<Bound> {
    let mut reader = Reader(body);
    let tasks = reader.u32()?;
    match reader.u32()? {
        0 => Some(Bound::Watch(tasks)),
        1 => Some(Bound::Elsewhere(tasks)),
        _ => None,
    }
}

/// Lengths above `u32` would need a body above [`MAX_BODY`], which is refused before it is sent.
fn put_len(out: &mut Vec<u8>, length: usize) {
    out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
}

/// Takes values off the front of a body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    fn program(&mut self) -> Option<Vec<libc::sock_filter>> {
        let mut program = Vec::new();
        for _ in 0..self.u32()? {
            program.push(libc::sock_filter {
                code: u16::from_ne_bytes(self.array()?),
                jt: self.array::<1>()?[0],
                jf: self.array::<1>()?[0],
                k: self.u32()?,
            });
        }
        Some(program)
    }

    fn text(&mut self) -> Option<&'a CStr> {
        let text = CStr::from_bytes_until_nul(self.0).ok()?;
        self.0 = &self.0[text.to_bytes_with_nul().len()..];
        Some(text)
    }

    fn texts(&mut self, count: u32) -> Option<Vec<&'a CStr>> {
        let mut texts = Vec::new();
        for _ in 0..count {
            texts.push(self.text()?);
        }
        Some(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> SpawnBody<'static> {
        SpawnBody {
            program: c"/bin/sh",
            cwd: c"/",
            argv: vec![c"sh", c"", c"-c"],
            env: vec![c"A=1", c"B="],
            terminal: true,
        }
    }

    #[test]
    fn a_command_survives_with_its_empty_strings() {
        assert_eq!(decode_spawn(&encode_spawn(&command())).unwrap(), command());
        let paths = [c"/a", c"/b"];
        assert_eq!(decode_probe(&encode_probe(&paths)).unwrap(), paths);
    }

    #[test]
    fn a_wall_survives() {
        let instruction = libc::sock_filter { code: 0x15, jt: 1, jf: 2, k: 0x8000_0001 };
        let limit = Rlimit { resource: libc::RLIMIT_NOFILE, soft: 1, hard: u64::MAX };
        let logging = Logging { restrict_self: 5, filter: 2 };
        let body = encode_wall(&[&[instruction; 3], &[]], &[limit], logging, &[instruction], true);
        let wall = decode_wall(&body).unwrap();
        assert_eq!((wall.rlimits, wall.logging), (vec![limit], logging));
        assert_eq!(wall.programs.iter().map(Vec::len).collect::<Vec<_>>(), [3, 0]);
        assert_eq!((wall.told.len(), wall.alone), (1, true));
        let back = wall.programs[0][2];
        assert_eq!((back.code, back.jt, back.jf, back.k), (0x15, 1, 2, 0x8000_0001));
    }

    #[test]
    fn a_message_that_was_cut_off_is_none() {
        let limit = Rlimit { resource: libc::RLIMIT_NOFILE, soft: 1, hard: 2 };
        let instruction = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 };
        let wall = encode_wall(&[&[instruction; 2]], &[limit], Logging::default(), &[], false);
        let spawn = encode_spawn(&command());
        let probe = encode_probe(&[c"/a", c"/b"]);
        assert!((0..wall.len()).all(|end| decode_wall(&wall[..end]).is_none()));
        assert!((0..spawn.len()).all(|end| decode_spawn(&spawn[..end]).is_none()));
        assert!((0..probe.len()).all(|end| decode_probe(&probe[..end]).is_none()));
        let header = Header { kind: Kind::Spawn, length: 7 }.encode();
        assert!((0..HEADER).all(|end| Header::decode(&header[..end]).is_none()));
        assert_eq!(Header::decode(&header), Some(Header { kind: Kind::Spawn, length: 7 }));
        assert_eq!(Header::decode(&[9; HEADER]), None);
        let reply = Reply { step: 1, errno: 2, pid: -3, extra: 4 };
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }
}
