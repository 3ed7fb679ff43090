//! Unix sockets by path: other sessions', and those of the user's own programs. Whatever listens there acts as the user.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

use casemate_protocol::tier::Tier;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, listen, sendto,
    socket, socketpair,
};

use super::cell::{Site, call, errno, free, give};

/// The first Landlock ABI that restricts connections to paths; from there on sockets can be made in tier `domain` too.
fn landlock_restricts_paths() -> bool {
    casemate_sandbox::landlock_abi().unwrap() >= 9
}

fn make(kind: SockType) -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?)
}

fn pair(kind: SockType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?)
}

fn connected(kind: SockType, path: &Path) -> io::Result<()> {
    Ok(connect(make(kind)?.as_raw_fd(), &UnixAddr::new(path)?)?)
}

fn sent(from: &OwnedFd, path: &Path) -> io::Result<()> {
    sendto(from.as_raw_fd(), b"stolen", &UnixAddr::new(path)?, MsgFlags::MSG_DONTWAIT)?;
    Ok(())
}

type Attack = (&'static str, fn(&Site) -> io::Result<()>);

/// On `other/stream`, `other/packets` and `other/datagrams`, which listen.
const ATTACKS: &[Attack] = &[
    ("connect", |site| connected(SockType::Stream, &site.path("other/stream"))),
    ("connect a seqpacket", |site| connected(SockType::SeqPacket, &site.path("other/packets"))),
    ("connect a datagram", |site| connected(SockType::Datagram, &site.path("other/datagrams"))),
    ("send a datagram", |site| sent(&make(SockType::Datagram)?, &site.path("other/datagrams"))),
    ("connect through a link", |site| connected(SockType::Stream, &site.path("work/link"))),
    ("connect through O_PATH", |site| {
        let folder = nix::fcntl::open(
            &site.path("other"),
            nix::fcntl::OFlag::O_PATH,
            nix::sys::stat::Mode::empty(),
        )?;
        let path = format!("/proc/self/fd/{}/stream", folder.as_raw_fd());
        connected(SockType::Stream, Path::new(&path))
    }),
    ("send from a datagram pair", |site| {
        sent(&pair(SockType::Datagram)?.0, &site.path("other/datagrams"))
    }),
    ("connect a datagram pair again", |site| {
        let (end, _other) = pair(SockType::Datagram)?;
        connect(end.as_raw_fd(), &UnixAddr::new(&site.path("other/datagrams"))?)?;
        Ok(nix::unistd::write(&end, b"stolen").map(drop)?)
    }),
];

/// Listens on everything that [`ATTACKS`] aims at.
fn victims(site: &Site) -> (UnixListener, OwnedFd, UnixDatagram) {
    let stream = UnixListener::bind(site.path("other/stream")).unwrap();
    stream.set_nonblocking(true).unwrap();
    let packets = make(SockType::SeqPacket).unwrap();
    bind(packets.as_raw_fd(), &UnixAddr::new(&site.path("other/packets")).unwrap()).unwrap();
    listen(&packets, Backlog::new(16).unwrap()).unwrap();
    let datagrams = UnixDatagram::bind(site.path("other/datagrams")).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    symlink(site.path("other/stream"), site.path("work/link")).unwrap();
    for name in ["stream", "packets", "datagrams"] {
        give(&site.path("other").join(name));
    }
    (stream, packets, datagrams)
}

#[test]
fn no_socket_outside_is_reached_by_its_path() {
    for (name, attack) in ATTACKS {
        let site = Site::new();
        let (stream, _packets, datagrams) = victims(&site);
        free(|| attack(&site))
            .unwrap_or_else(|error| panic!("{name} fails without a wall: {error}"));
        // What came of that.
        while stream.accept().is_ok() || datagrams.recv(&mut [0; 16]).is_ok() {}
        let refused = site.confined(|| attack(&site)).unwrap_err();
        assert_eq!(errno(&refused), libc::EACCES, "{name}");
        let unheard =
            |result: io::Result<()>| result.unwrap_err().kind() == io::ErrorKind::WouldBlock;
        assert!(unheard(stream.accept().map(drop)), "{name} arrived");
        assert!(unheard(datagrams.recv(&mut [0; 16]).map(drop)), "{name} arrived");
    }
}

/// Below ABI 9 the refusal is of socket(2) and of datagram pairs, before any path is looked at.
#[test]
fn in_tier_domain_no_socket_is_made_that_could_be_connected() {
    let kinds = [SockType::Stream, SockType::Datagram, SockType::SeqPacket];
    Site::new().confined(|| {
        for kind in kinds {
            for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK] {
                let number = kind as i32 | flags;
                let arguments = [libc::AF_UNIX as u64, number as u64, 0, 0, 0, 0];
                let made = call(libc::SYS_socket, arguments);
                if landlock_restricts_paths() {
                    made.unwrap();
                } else {
                    assert_eq!(made, Err(libc::EACCES), "{kind:?} {flags:x}");
                }
            }
            let made = pair(kind).map(drop);
            if kind == SockType::Datagram && !landlock_restricts_paths() {
                assert_eq!(errno(&made.unwrap_err()), libc::EACCES);
            } else {
                made.unwrap();
            }
        }
    });
}

/// Why stream pairs may stay: the kernel connects none of them a second time, not even a widowed one.
#[test]
fn an_end_of_a_stream_pair_cannot_be_turned_elsewhere() {
    let site = Site::new();
    let _victims = victims(&site);
    let attack = |kind, name: &str, widowed: bool| {
        let (end, other) = pair(kind).unwrap();
        let _other = (!widowed).then_some(other);
        let path = UnixAddr::new(&site.path("other").join(name)).unwrap();
        let nowhere = [libc::AF_UNSPEC as u16];
        let dissolved = [end.as_raw_fd() as u64, nowhere.as_ptr() as u64, 2, 0, 0, 0];
        // EINVAL; for datagrams it dissolves the connection.
        assert_eq!(call(libc::SYS_connect, dissolved), Err(libc::EINVAL));
        // Nor can it listen, bound or not.
        let own = UnixAddr::new(&site.path("scratch").join(format!("{name}{widowed}"))).unwrap();
        bind(end.as_raw_fd(), &own).unwrap();
        listen(&end, Backlog::new(1).unwrap()).unwrap_err();
        (
            connect(end.as_raw_fd(), &path),
            sendto(end.as_raw_fd(), b"x", &path, MsgFlags::MSG_NOSIGNAL),
        )
    };
    site.confined(|| {
        for (kind, name) in [(SockType::Stream, "stream"), (SockType::SeqPacket, "packets")] {
            for widowed in [false, true] {
                let (connected, sent) = attack(kind, name, widowed);
                assert_eq!(connected, Err(nix::errno::Errno::EISCONN), "{kind:?} {widowed}");
                // A seqpacket's address is ignored: the packet goes to the other end.
                let elsewhere = sent.is_ok() && kind == SockType::Stream;
                assert!(!elsewhere, "{kind:?} {widowed} {sent:?}");
            }
        }
    });
}

/// Where the session has mounts of its own, it has sockets of its own.
#[test]
fn in_tier_namespace_ones_own_sockets_work() {
    let site = Site::in_tier(Tier::Namespace);
    site.confined(|| {
        let path = site.path("home/socket");
        let listener = UnixListener::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        let path = site.path("scratch/datagrams");
        let receiver = UnixDatagram::bind(&path).unwrap();
        UnixDatagram::unbound().unwrap().send_to(b"x", &path).unwrap();
        assert_eq!(receiver.recv(&mut [0; 4]).unwrap(), 1);
        UnixDatagram::pair().unwrap();
        fs::remove_file(&path).unwrap();
    });
}
