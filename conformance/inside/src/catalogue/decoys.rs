//! What the attacks are aimed at: a tree of files and listeners that look like another session's, and the numbers of two
//! processes.
//!
//! [`Planted`] owns the tree and the listeners; it removes the one and closes the others when it is dropped.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use rustix::rand::GetRandomFlags;
use serde::{Deserialize, Serialize};

use super::{ATTACKS, Target};

/// Where everything is, as the attacking program is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decoys {
    /// The other session's tree, by its path outside.
    pub tree: PathBuf,
    /// A process of the other session.
    pub process: i32,
    /// Part of that process's command line.
    pub mark: String,
    /// The supervisor, as the attacker counts.
    pub supervisor: i32,
    /// A TCP port of loopback on which somebody outside listens.
    pub tcp: u16,
    /// A UDP port of loopback.
    pub udp: u16,
    /// Part of the names of the abstract sockets, and of whatever an attack gives a name of its own: random, since what
    /// an earlier run left has one, too.
    pub name: String,
}

/// The tree and the listeners, for as long as this lives.
#[derive(Debug)]
pub struct Planted {
    tree: PathBuf,
    tcp: u16,
    udp: u16,
    name: String,
    _listeners: Vec<OwnedFd>,
}

/// Run by whoever may run it: a victim must be a program, too.
const PROGRAM: &str = "#!/bin/sh\nexit 0\n";

/// Numbers in a new pid namespace begin at 1 and go up: a probe's do not come as far.
const EARLY: i32 = 10_000;
/// No process has a number from here on (`PID_MAX_LIMIT` of linux/threads.h).
const NOBODY: i32 = 4 << 20;

/// The number by which an attacker in a pid namespace of its own is to try a process outside, that has the number `outside` there.
///
/// In there it has none. A high one is tried as it is, and finds nobody. A low one, as everything has where an outer container has
/// just begun, is or comes to be one of the attacker's own, and to reach that proves nothing: one that nobody can have stands for it.
#[must_use]
pub fn outsider(outside: i32) -> i32 {
    if outside < EARLY { NOBODY + outside } else { outside }
}

// === impl Planted ===

impl Planted {
    /// Makes the tree, which must not exist yet, and listens. `owner`: whose it is, where that is not this process's user.
    ///
    /// # Errors
    /// Whatever the file system or the network says.
    pub fn plant(tree: &Path, owner: Option<u32>) -> io::Result<Self> {
        fs::create_dir(tree)?;
        let mut planted = Self {
            tree: tree.to_owned(),
            tcp: 0,
            udp: 0,
            name: String::new(),
            _listeners: Vec::new(),
        };
        planted.files()?;
        planted.listen()?;
        if let Some(owner) = owner {
            give(tree, owner)?;
        }
        Ok(planted)
    }

    /// With the processes that belong to them.
    #[must_use]
    pub fn decoys(&self, process: i32, mark: &str, supervisor: i32) -> Decoys {
        Decoys {
            tree: self.tree.clone(),
            process,
            mark: mark.to_owned(),
            supervisor,
            tcp: self.tcp,
            udp: self.udp,
            name: self.name.clone(),
        }
    }

    fn files(&self) -> io::Result<()> {
        let at = |name: &str| self.tree.join(name);
        for folder in [
            "victims",
            "folder",
            "empty",
            "home",
            "git",
            "git/hooks",
            "git/refs",
            "git/objects",
            "git/objects/info",
        ] {
            fs::create_dir(at(folder))?;
        }
        for folder in ["house", "house/profiles", "house/values", "house/state"] {
            fs::create_dir(at(folder))?;
        }
        for file in ["secret", "folder/deep", "git/HEAD", "git/index"] {
            fs::write(at(file), "the other session's\n")?;
        }
        for file in ["house/endpoint", "house/seed", "house/store", "house/lock"] {
            fs::write(at(file), "casemate's\n")?;
        }
        for file in ["house/state/journal", "house/values/session"] {
            fs::write(at(file), "casemate's\n")?;
        }
        fs::write(at("git/config"), "[core]\n\tbare = true\n")?;
        program(&at("program"))?;
        symlink("secret", at("link"))?;
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        for attack in ATTACKS.iter().flat_map(|part| part.iter()) {
            if matches!(attack.target, Target::Files | Target::Git | Target::House) {
                program(&self.tree.join("victims").join(attack.id))?;
            }
        }
        Ok(())
    }

    fn listen(&mut self) -> io::Result<()> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        (self.tcp, self.udp) = (tcp.local_addr()?.port(), udp.local_addr()?.port());
        self.name = name()?;
        let of = |kind: &str| SocketAddr::from_abstract_name(format!("{}-{kind}", self.name));
        let streams = UnixListener::bind_addr(&of("stream")?)?;
        let datagrams = UnixDatagram::bind_addr(&of("datagram")?)?;
        let packets = packets(&format!("{}-packets", self.name))?;
        // A path may be longer than an address holds.
        let folder = fs::File::open(&self.tree)?;
        let at = |name: &str| {
            use std::os::fd::AsRawFd as _;
            format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())
        };
        let by_path = UnixListener::bind(at("stream"))?;
        let by_path_datagrams = UnixDatagram::bind(at("datagram"))?;
        for socket in ["stream", "datagram"] {
            fs::set_permissions(self.tree.join(socket), Permissions::from_mode(0o777))?;
        }
        self._listeners = vec![
            tcp.into(),
            udp.into(),
            streams.into(),
            datagrams.into(),
            packets,
            by_path.into(),
            by_path_datagrams.into(),
        ];
        Ok(())
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        // In a mount namespace that was entered since, the tree is not there; whoever made the namespace removes it.
        let _ = fs::remove_dir_all(&self.tree);
    }
}

// === impl Decoys ===

impl Decoys {
    /// The file that the attack of this id may destroy.
    pub(super) fn victim(&self, id: &str) -> PathBuf {
        self.tree.join("victims").join(id)
    }
}

fn name() -> io::Result<String> {
    let mut bytes = [0; 8];
    // The call itself, whole up to 256 bytes (getrandom(2)): made in a forked process, which has not its parent's descriptors.
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("casemate-decoy-{:016x}", u64::from_ne_bytes(bytes)))
}

fn packets(name: &str) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, 8)?;
    Ok(socket)
}

fn program(path: &Path) -> io::Result<()> {
    fs::write(path, PROGRAM)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

fn give(path: &Path, owner: u32) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        return std::os::unix::fs::lchown(path, Some(owner), Some(owner));
    }
    chown(path, Some(owner), Some(owner))?;
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), owner)?;
        }
    }
    Ok(())
}
