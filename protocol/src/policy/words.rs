//! The words that a policy file may use, each with what it means to the kernel.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What may be done with files. Rights are independent: `write` does not contain `read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Open files for reading, list directories.
    Read,
    /// Run files with execve(2).
    Execute,
    /// Open for writing, truncate, create, rename, link and delete; connect to sockets there.
    Write,
    /// ioctl(2) on device files.
    Device,
}

impl Access {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Execute, Self::Write, Self::Device];
}

/// What Landlock keeps within the session (landlock(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Signals to processes outside.
    Signal,
    /// Connections to abstract UNIX sockets that were made outside.
    AbstractUnixSocket,
}

/// What a refused caller sees (errno(3)). The numbers are those of x86-64 and aarch64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Errno {
    /// Operation not permitted.
    Eperm,
    /// Permission denied.
    Eacces,
    /// Invalid argument.
    Einval,
    /// Function not implemented: the caller's library falls back to an older way.
    Enosys,
    /// Protocol not supported.
    Eprotonosupport,
    /// Operation not supported.
    Eopnotsupp,
    /// Address family not supported.
    Eafnosupport,
}

// === impl Errno ===

impl Errno {
    /// The kernel's number.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Eperm => 1,
            Self::Eacces => 13,
            Self::Einval => 22,
            Self::Enosys => 38,
            Self::Eprotonosupport => 93,
            Self::Eopnotsupp => 95,
            Self::Eafnosupport => 97,
        }
    }
}

/// How many bits of an argument the kernel looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// `int`, `unsigned int`, `pid_t`: the upper half is ignored, as the kernel ignores it.
    Bits32,
    /// `unsigned long`, pointers.
    Bits64,
}

/// A test of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal.
    Equal(u64),
    /// Not equal.
    NotEqual(u64),
    /// Less, unsigned.
    Less(u64),
    /// Greater, unsigned.
    Greater(u64),
    /// Equal in the bits of `mask`.
    MaskedEqual {
        /// The bits compared.
        mask: u64,
        /// Their value.
        value: u64,
    },
    /// At least one of these bits is set.
    AnyBits(u64),
}

/// A socket's address family (address_families(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketFamily {
    /// AF_UNIX.
    Unix,
    /// AF_INET.
    Inet,
    /// AF_INET6.
    Inet6,
    /// AF_NETLINK.
    Netlink,
    /// AF_ALG.
    Alg,
    /// AF_VSOCK.
    Vsock,
}

// === impl SocketFamily ===

impl SocketFamily {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Unix, Self::Inet, Self::Inet6, Self::Netlink, Self::Alg, Self::Vsock];

    /// The kernel's number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Unix => 1,
            Self::Inet => 2,
            Self::Inet6 => 10,
            Self::Netlink => 16,
            Self::Alg => 38,
            Self::Vsock => 40,
        }
    }
}

/// A system call that makes sockets. A pair is connected to itself; what socket(2) makes can be connected to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketCall {
    /// socket(2).
    Socket,
    /// socketpair(2).
    Socketpair,
}

// === impl SocketCall ===

impl SocketCall {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Socket, Self::Socketpair];

    /// As in syscalls(2).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Socketpair => "socketpair",
        }
    }
}

/// A socket's type (socket(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketType {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Dgram,
    /// SOCK_RAW.
    Raw,
    /// SOCK_SEQPACKET.
    Seqpacket,
}

// === impl SocketType ===

impl SocketType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Stream, Self::Dgram, Self::Raw, Self::Seqpacket];

    /// The kernel's number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Stream => 1,
            Self::Dgram => 2,
            Self::Raw => 3,
            Self::Seqpacket => 5,
        }
    }
}

/// Whose refusals the kernel writes to its audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogSource {
    /// Landlock's: files, ports, scopes (landlock(7), from ABI 7).
    Landlock,
    /// The system call filter's (seccomp(2), `SECCOMP_FILTER_FLAG_LOG`).
    Seccomp,
}

/// Whether whoever prompts is told of what the walls refuse, where the kernel can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Telling {
    /// In the turn, with the lines that would allow it.
    #[default]
    Told,
    /// By the errno alone.
    Quiet,
}

/// Whether a run may be made with the walls open, to learn what it needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learning {
    /// By a person who asks for it.
    #[default]
    Allowed,
    /// By nobody.
    Forbidden,
}

/// What setrlimit(2) limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Address space, in bytes.
    As,
    /// Core dumps, in bytes.
    Core,
    /// CPU time, in seconds.
    Cpu,
    /// Data segment, in bytes.
    Data,
    /// Size of a file, in bytes.
    Fsize,
    /// Locked memory, in bytes.
    Memlock,
    /// Open descriptors.
    Nofile,
    /// Processes of the uid. Counts every process of the uid, other sessions' too: not a bound per session.
    Nproc,
    /// Stack, in bytes.
    Stack,
}

// === impl Resource ===

impl Resource {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::As,
        Self::Core,
        Self::Cpu,
        Self::Data,
        Self::Fsize,
        Self::Memlock,
        Self::Nofile,
        Self::Nproc,
        Self::Stack,
    ];
}

// === impl Display: each word as it is written in a file ===

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Execute => "execute",
            Self::Write => "write",
            Self::Device => "device",
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "signal",
            Self::AbstractUnixSocket => "abstract-unix-socket",
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eperm => "EPERM",
            Self::Eacces => "EACCES",
            Self::Einval => "EINVAL",
            Self::Enosys => "ENOSYS",
            Self::Eprotonosupport => "EPROTONOSUPPORT",
            Self::Eopnotsupp => "EOPNOTSUPP",
            Self::Eafnosupport => "EAFNOSUPPORT",
        })
    }
}

impl fmt::Display for SocketFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unix => "unix",
            Self::Inet => "inet",
            Self::Inet6 => "inet6",
            Self::Netlink => "netlink",
            Self::Alg => "alg",
            Self::Vsock => "vsock",
        })
    }
}

impl fmt::Display for SocketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stream => "stream",
            Self::Dgram => "dgram",
            Self::Raw => "raw",
            Self::Seqpacket => "seqpacket",
        })
    }
}

impl fmt::Display for LogSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        })
    }
}

impl fmt::Display for Telling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Told => "told",
            Self::Quiet => "quiet",
        })
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::As => "as",
            Self::Core => "core",
            Self::Cpu => "cpu",
            Self::Data => "data",
            Self::Fsize => "fsize",
            Self::Memlock => "memlock",
            Self::Nofile => "nofile",
            Self::Nproc => "nproc",
            Self::Stack => "stack",
        })
    }
}

impl Comparison {
    /// Whether it holds for a value, all of whose bits count.
    #[must_use]
    pub fn holds(self, value: u64) -> bool {
        match self {
            Self::Equal(other) => value == other,
            Self::NotEqual(other) => value != other,
            Self::Less(other) => value < other,
            Self::Greater(other) => value > other,
            Self::MaskedEqual { mask, value: other } => value & mask == other,
            Self::AnyBits(bits) => value & bits != 0,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(value) => write!(f, "is {value:#x}"),
            Self::NotEqual(value) => write!(f, "is not {value:#x}"),
            Self::Less(value) => write!(f, "is less than {value:#x}"),
            Self::Greater(value) => write!(f, "is greater than {value:#x}"),
            Self::MaskedEqual { mask, value } => write!(f, "is {value:#x} in the bits {mask:#x}"),
            Self::AnyBits(bits) => write!(f, "has a bit of {bits:#x}"),
        }
    }
}
