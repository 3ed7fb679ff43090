//! On listeners that are not the session's, by every way that a port rule might not see.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, ipproto,
};

use super::attack::{Attack, Defence::*, Run, Target};
use super::files::{fd_path, path_handle};
use super::procfs::read;
use super::shot::Shot;

const fn port(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    Attack::new(Target::Network, id, does, source, run).by(&[PortRules]).refused(&["EACCES"])
}

/// The filter refuses to make the socket at all.
const fn socket(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    port(id, does, source, run).by(&[SocketList])
}

/// A socket in the other session's tree: tier `domain` makes none that reaches a path, the namespace has no such path.
const fn path(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    socket(id, does, source, run).namespace(&["ENOENT"])
}

/// An abstract socket: there is none to make in tier `domain`, and the scope stands behind it. Where a newer kernel or a
/// policy lets it be made, the scope is what answers.
const fn scoped(id: &'static str, does: &'static str, run: Run) -> Attack {
    socket(id, does, "unix(7), landlock(7)", run)
        .by(&[SocketList, SocketScope])
        .domain(&["EACCES", "EPERM"])
        .namespace(&["EPERM"])
}

pub(super) const ATTACKS: &[Attack] = &[
    // ---- TCP
    port("tcp-connect", "connects to a listener of loopback", "connect(2)", |shot| {
        TcpStream::connect((Ipv4Addr::LOCALHOST, shot.decoys.tcp)).map(drop)
    }),
    port("tcp-connect-any", "connects by the address of no address", "0.0.0.0 day", |shot| {
        TcpStream::connect((Ipv4Addr::UNSPECIFIED, shot.decoys.tcp)).map(drop)
    }),
    port(
        "tcp-connect-mapped",
        "connects by an IPv6 address that is an IPv4 one",
        "ipv6(7)",
        |shot| {
            TcpStream::connect((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), shot.decoys.tcp)).map(drop)
        },
    ),
    port("tcp-connect-later", "connects without waiting", "connect(2) EINPROGRESS", |shot| {
        let socket = tcp(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        match rustix::net::connect(&socket, &address(shot.decoys.tcp)) {
            Err(Errno::INPROGRESS) => Ok(()),
            other => Ok(other?),
        }
    }),
    port(
        "tcp-connect-again",
        "disconnects a socket and connects it elsewhere",
        "connect(2) AF_UNSPEC",
        |shot| {
            let socket = tcp(SocketFlags::CLOEXEC)?;
            let _ = rustix::net::connect_unspec(&socket);
            Ok(rustix::net::connect(&socket, &address(shot.decoys.tcp))?)
        },
    ),
    port(
        "tcp-fast-open-option",
        "lets the first write connect",
        "tcp(7) TCP_FASTOPEN_CONNECT",
        |shot| {
            let socket = tcp(SocketFlags::CLOEXEC)?;
            casemate_raw::connect_by_write(std::os::fd::AsFd::as_fd(&socket))?;
            rustix::net::connect(&socket, &address(shot.decoys.tcp))?;
            Ok(rustix::net::send(&socket, b"fast", SendFlags::NOSIGNAL).map(drop)?)
        },
    ),
    port(
        "tcp-fast-open",
        "sends and connects in one",
        "landlock-lsm/linux #41, MSG_FASTOPEN",
        |shot| {
            let socket = tcp(SocketFlags::CLOEXEC)?;
            Ok(rustix::net::sendto(&socket, b"fast", FAST_OPEN, &address(shot.decoys.tcp))
                .map(drop)?)
        },
    )
    .by(&[CallRules])
    .refused(&["EPERM"]),
    port("tcp-fast-open-message", "the same by sendmsg", "sendmsg(2) MSG_FASTOPEN", |shot| {
        let socket = tcp(SocketFlags::CLOEXEC)?;
        let (data, mut none) = ([io::IoSlice::new(b"fast")], SendAncillaryBuffer::default());
        let to = address(shot.decoys.tcp);
        Ok(rustix::net::sendmsg_addr(&socket, &to, &data, &mut none, FAST_OPEN).map(drop)?)
    })
    .by(&[CallRules])
    .refused(&["EPERM"]),
    port("tcp-bind", "takes a port of another session's", "bind(2)", |_| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop)
    }),
    port("tcp-bind-mapped", "takes it by IPv6", "bind(2)", |_| {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).map(drop)
    }),
    port(
        "tcp-bind-reuse",
        "binds beside a listener and takes its clients",
        "socket(7) SO_REUSEPORT",
        |_| {
            let socket = tcp(SocketFlags::CLOEXEC)?;
            rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
            Ok(rustix::net::bind(&socket, &address(0))?)
        },
    ),
    port("tcp-listen-unbound", "listens without bind and is given a port", "listen(2)", |_| {
        let socket = tcp(SocketFlags::CLOEXEC)?;
        Ok(rustix::net::listen(&socket, 1)?)
    })
    .leaks_always(),
    socket("mptcp-connect", "connects by multipath TCP", "landlock(7), MPTCP", |shot| {
        let socket = make(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP))?;
        Ok(rustix::net::connect(&socket, &address(shot.decoys.tcp))?)
    }),
    // ---- Datagrams
    socket("udp-send", "sends a datagram to a listener of loopback", "cplt #241", |shot| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.send_to(b"x", (Ipv4Addr::LOCALHOST, shot.decoys.udp)).map(drop)
    }),
    socket("udp-send-unbound", "sends from a socket without an address", "udp(7)", |shot| {
        let socket = make(AddressFamily::INET, SocketType::DGRAM, None)?;
        let to = address(shot.decoys.udp);
        Ok(rustix::net::sendto(&socket, b"x", SendFlags::empty(), &to).map(drop)?)
    }),
    socket("udp-send-mapped", "sends by an IPv6 socket", "ipv6(7)", |shot| {
        let socket = make(AddressFamily::INET6, SocketType::DGRAM, None)?;
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), shot.decoys.udp));
        Ok(rustix::net::sendto(&socket, b"x", SendFlags::empty(), &to).map(drop)?)
    }),
    socket(
        "udp-name-lookup",
        "carries data out in the labels of a name",
        "NVIDIA/OpenShell #1169",
        |shot| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect((Ipv4Addr::LOCALHOST, shot.decoys.udp))?;
            socket.send(b"\x04data\x07example\x00").map(drop)
        },
    ),
    socket("udp-listen", "listens for datagrams", "bind(2)", |_| {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map(drop)
    }),
    socket("udplite-send", "sends by UDP-Lite", "udplite(7)", |_| protocol(SocketType::DGRAM, 136)),
    socket("icmp-send", "makes a ping socket", "icmp(7)", |_| protocol(SocketType::DGRAM, 1))
        .kernel(&["EACCES"]),
    socket("sctp-connect", "makes an SCTP socket", "sctp(7)", |_| {
        protocol(SocketType::STREAM, 132)
    })
    .kernel(&["EACCES"]),
    socket("raw-send", "makes a raw socket in a network of its own", "raw(7)", |_| {
        super::mounts::privileged(nix::sched::CloneFlags::CLONE_NEWNET, || {
            protocol(SocketType::RAW, 1)
        })
    })
    .by(&[SocketList, CallRules])
    .refused(&["EPERM", "EACCES"]),
    socket("packet-send", "makes a packet socket in a network of its own", "packet(7)", |_| {
        super::mounts::privileged(nix::sched::CloneFlags::CLONE_NEWNET, || {
            make(AddressFamily::PACKET, SocketType::RAW, None).map(drop)
        })
    })
    .by(&[SocketList, CallRules])
    .refused(&["EPERM", "EACCES"]),
    socket("xdp-send", "makes an XDP socket in a network of its own", "AF_XDP", |_| {
        super::mounts::privileged(nix::sched::CloneFlags::CLONE_NEWNET, || {
            family(44, SocketType::RAW)
        })
    })
    .by(&[SocketList, CallRules])
    .refused(&["EPERM", "EACCES"]),
    socket("vsock-connect", "speaks with the hypervisor", "vsock(7), NVIDIA/OpenShell", |_| {
        family(40, SocketType::STREAM)
    }),
    socket("crypto-socket", "uses the kernel's ciphers", "AF_ALG, CVE-2026-31431", |_| {
        family(38, SocketType::SEQPACKET)
    })
    .kernel(&["EACCES"]),
    // ---- Netlink
    socket("netlink-sockets", "asks for everybody's sockets", "sock_diag(7)", |_| netlink(4)),
    socket(
        "netlink-uevents",
        "listens to devices as they come",
        "netlink(7) KOBJECT_UEVENT",
        |_| netlink(15),
    ),
    socket("netlink-generic", "speaks with drivers", "netlink(7) GENERIC", |_| netlink(16)),
    socket("netlink-netfilter", "speaks with the firewall", "netlink(7) NETFILTER", |_| {
        netlink(12)
    }),
    socket("netlink-audit", "speaks with the audit system", "netlink(7) AUDIT", |_| netlink(9))
        .kernel(&["EACCES"]),
    socket("netlink-xfrm", "speaks with the IPsec rules", "netlink(7) XFRM, CVE-2017-7184", |_| {
        netlink(6)
    })
    .kernel(&["EACCES"]),
    socket(
        "netlink-connector",
        "listens to processes as they come",
        "netlink(7) CONNECTOR",
        |_| netlink(11),
    )
    .kernel(&["EACCES"]),
    // ---- Unix
    path("unix-connect", "connects to another session's socket", "Zouuup/landrun #43", |shot| {
        connect(SocketType::STREAM, &shot.tree("stream"))
    }),
    path("unix-send", "sends a datagram to another session's socket", "unix(7)", |shot| {
        send(make(AddressFamily::UNIX, SocketType::DGRAM, None)?, &shot.tree("datagram"))
    }),
    path("unix-send-pair", "sends from an end of a pair", "socketpair(2)", |shot| {
        let (end, _other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        send(end, &shot.tree("datagram"))
    }),
    path("unix-hand-over", "hands a descriptor to another session", "unix(7) SCM_RIGHTS", |shot| {
        let socket = make(AddressFamily::UNIX, SocketType::STREAM, None)?;
        let folder = path_handle(&shot.tree(""))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(fd_path(&folder).join("stream"))?)?;
        hand_over(&socket)
    }),
    scoped("abstract-connect", "connects to an abstract socket", |shot| {
        abstract_connect(shot, "stream", SocketType::STREAM)
    }),
    scoped("abstract-packets", "connects to an abstract packet socket", |shot| {
        abstract_connect(shot, "packets", SocketType::SEQPACKET)
    }),
    scoped("abstract-send", "sends to an abstract socket", |shot| {
        let socket = make(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let to = abstract_name(shot, "datagram")?;
        Ok(rustix::net::sendto(&socket, b"x", SendFlags::DONTWAIT, &to).map(drop)?)
    }),
    scoped("abstract-send-pair", "sends from an end of a pair", |shot| {
        let (end, _other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let to = abstract_name(shot, "datagram")?;
        Ok(rustix::net::sendto(&end, b"x", SendFlags::DONTWAIT, &to).map(drop)?)
    }),
    scoped("abstract-hand-over", "hands a descriptor over an abstract socket", |shot| {
        let socket = make(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::net::connect(&socket, &abstract_name(shot, "stream")?)?;
        hand_over(&socket)
    }),
    // ---- Lists
    socket("list-tcp", "reads everybody's TCP sockets", "proc_pid_net(5)", |_| {
        read("/proc/self/net/tcp")
    })
    .leaks_always(),
    socket("list-udp", "reads everybody's UDP sockets", "proc_pid_net(5)", |_| {
        read("/proc/self/net/udp")
    })
    .leaks_always(),
    socket(
        "list-unix",
        "reads everybody's unix sockets, with their paths",
        "proc_pid_net(5)",
        |_| read("/proc/self/net/unix"),
    )
    .leaks_always(),
];

/// TCP's `MSG_FASTOPEN` (tcp(7)): data in the SYN, by a call that is not connect(2).
const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn make(
    family: AddressFamily,
    kind: SocketType,
    protocol: Option<Protocol>,
) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?)
}

fn tcp(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?)
}

fn protocol(kind: SocketType, number: u32) -> io::Result<()> {
    make(AddressFamily::INET, kind, RawProtocol::new(number).map(Protocol::from_raw)).map(drop)
}

fn family(number: u16, kind: SocketType) -> io::Result<()> {
    make(AddressFamily::from_raw(number), kind, None).map(drop)
}

fn netlink(number: u32) -> io::Result<()> {
    let protocol = RawProtocol::new(number).map(Protocol::from_raw);
    make(AddressFamily::NETLINK, SocketType::RAW, protocol).map(drop)
}

/// An address holds 107 bytes: a longer path is named through its folder.
fn connect(kind: SocketType, path: &Path) -> io::Result<()> {
    let socket = make(AddressFamily::UNIX, kind, None)?;
    let folder = path_handle(path.parent().unwrap_or(path))?;
    let path = fd_path(&folder).join(path.file_name().unwrap_or_default());
    Ok(rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?)
}

fn send(socket: OwnedFd, path: &Path) -> io::Result<()> {
    let folder = path_handle(path.parent().unwrap_or(path))?;
    let path = fd_path(&folder).join(path.file_name().unwrap_or_default());
    Ok(rustix::net::sendto(&socket, b"x", SendFlags::DONTWAIT, &SocketAddrUnix::new(path)?)
        .map(drop)?)
}

fn abstract_name(shot: &Shot<'_>, kind: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("{}-{kind}", shot.decoys.name).as_bytes())?)
}

fn abstract_connect(shot: &Shot<'_>, name: &str, kind: SocketType) -> io::Result<()> {
    let socket = make(AddressFamily::UNIX, kind, None)?;
    Ok(rustix::net::connect(&socket, &abstract_name(shot, name)?)?)
}

fn hand_over(socket: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsFd as _;
    let mine = std::fs::File::open("/dev/null")?;
    let descriptors = [mine.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    Ok(rustix::net::sendmsg(socket, &[io::IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL)
        .map(drop)?)
}
