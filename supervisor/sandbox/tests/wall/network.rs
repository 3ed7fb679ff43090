//! Sockets: ports that are not named, ways past the port rules, families that nobody asked for.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::Duration;

use casemate_protocol::policy::Policy;
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Wall, WallError};

use super::cell::{Site, call, confined, errno, free};

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn socket(family: i32, kind: i32, protocol: i32) -> Result<i64, i32> {
    let fd = call(libc::SYS_socket, [family as u64, kind as u64, protocol as u64, 0, 0, 0])?;
    call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])?;
    Ok(fd)
}

#[test]
fn only_named_ports_are_reached() {
    let (_other, forbidden) = listener();
    let (_own, named) = listener();
    let mut site = Site::new();
    site.places.connect = vec![named.port()];
    free(|| TcpStream::connect(forbidden)).unwrap();
    site.confined(|| {
        TcpStream::connect(named).unwrap();
        assert_eq!(errno(&TcpStream::connect(forbidden).unwrap_err()), libc::EACCES);
    });
}

#[test]
fn only_ones_own_ports_are_bound() {
    let mut site = Site::new();
    // A port that was free a moment ago; the next one is another session's.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    site.places.ports = PortRange { first: port, count: 1 };
    let bind = |port: u16| TcpListener::bind(("127.0.0.1", port)).map(drop);
    free(|| bind(0)).unwrap();
    site.confined(|| {
        let server = TcpListener::bind(("127.0.0.1", port)).unwrap();
        TcpStream::connect(server.local_addr().unwrap()).unwrap();
        for other in [0, port - 1, 80] {
            assert_eq!(errno(&bind(other).unwrap_err()), libc::EACCES, "{other}");
        }
    });
}

/// Landlock alone lets this through: data and connection arrive although connect(2) is refused.
#[test]
fn fast_open_does_not_pass_the_port_rules() {
    let site = Site::new();
    let attack = |address: SocketAddr| {
        let fast_open = |number: i64| {
            let stream = socket_fd();
            let name = sockaddr(address);
            let data = *b"stolen";
            let mut vector =
                libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
            let length = size_of::<libc::sockaddr_in>();
            // SAFETY: an all-zero msghdr is a valid one: null pointers with zero lengths.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_name = (&raw const name).cast_mut().cast();
            message.msg_hdr.msg_namelen = u32::try_from(length).unwrap();
            message.msg_hdr.msg_iov = &raw mut vector;
            message.msg_hdr.msg_iovlen = 1;
            let (fd, flags) = (stream.as_raw_fd() as u64, libc::MSG_FASTOPEN as u64);
            let message = &raw mut message as u64;
            let arguments = match number {
                libc::SYS_sendto => [
                    fd,
                    data.as_ptr() as u64,
                    data.len() as u64,
                    flags,
                    &raw const name as u64,
                    length as u64,
                ],
                libc::SYS_sendmsg => [fd, message, flags, 0, 0, 0],
                _ => [fd, message, 1, flags, 0, 0],
            };
            call(number, arguments)
        };
        [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg].map(fast_open)
    };
    let (open, address) = listener();
    free(|| attack(address)).iter().for_each(|sent| assert!(sent.is_ok(), "{sent:?}"));
    open.accept().expect("fast open does not work without a wall");
    let (closed, address) = listener();
    assert_eq!(site.confined(|| attack(address)), [Err(libc::EPERM); 3]);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(closed.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

fn socket_fd() -> std::os::fd::OwnedFd {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap()
}

fn sockaddr(address: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(address) = address else { panic!("not IPv4") };
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

#[test]
fn every_other_kind_of_socket_is_refused() {
    let (other, stream) =
        (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
    let refused = [
        ("udp", libc::AF_INET, other, 0),
        ("udp6", libc::AF_INET6, other, libc::IPPROTO_UDP),
        ("udp-lite", libc::AF_INET, other, libc::IPPROTO_UDPLITE),
        ("ping", libc::AF_INET, other, libc::IPPROTO_ICMP),
        ("mptcp", libc::AF_INET, stream, libc::IPPROTO_MPTCP),
        ("mptcp6", libc::AF_INET6, stream, libc::IPPROTO_MPTCP),
        ("sctp", libc::AF_INET, stream, libc::IPPROTO_SCTP),
        ("smc", libc::AF_INET, stream, 256),
        ("raw", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP),
        ("old packet", libc::AF_INET, 10, 0),
        ("packet", libc::AF_PACKET, libc::SOCK_RAW, 0),
        ("vsock", libc::AF_VSOCK, stream, 0),
        ("alg", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        ("xdp", 44, libc::SOCK_RAW, 0),
        ("bluetooth", 31, libc::SOCK_RAW, 0),
        ("netlink audit", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
        ("netlink diag", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG),
    ];
    let allowed = [
        ("tcp", libc::AF_INET, stream, libc::IPPROTO_TCP),
        ("tcp default", libc::AF_INET, stream, 0),
        (
            "netlink route",
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        ),
    ];
    Site::new().confined(|| {
        for (name, family, kind, protocol) in refused {
            assert_eq!(socket(family, kind, protocol), Err(libc::EACCES), "{name}");
        }
        for (name, family, kind, protocol) in allowed {
            assert!(socket(family, kind, protocol).is_ok(), "{name}");
        }
        let mut pair = [0_i32; 2];
        let arguments = [libc::AF_INET as u64, stream as u64, 0, &raw mut pair as u64, 0, 0];
        assert_eq!(
            call(libc::SYS_socketpair, arguments),
            Err(libc::EOPNOTSUPP),
            "as without a wall"
        );
        let arguments = [libc::AF_VSOCK as u64, stream as u64, 0, &raw mut pair as u64, 0, 0];
        assert_eq!(call(libc::SYS_socketpair, arguments), Err(libc::EACCES));
    });
    free(|| UdpSocket::bind("127.0.0.1:0").map(drop)).unwrap();
}

#[test]
fn abstract_sockets_outside_are_out_of_reach() {
    let name = UnixAddress::from_abstract_name(format!("casemate-{}", std::process::id())).unwrap();
    let _listener = UnixListener::bind_addr(&name).unwrap();
    free(|| UnixStream::connect_addr(&name).map(drop)).unwrap();
    // Where unix sockets can be made, or the refusal would be of the socket and not of the name.
    let answer =
        Site::in_tier(Tier::Namespace).confined(|| UnixStream::connect_addr(&name).map(drop));
    assert_eq!(errno(&answer.unwrap_err()), libc::EPERM);
}

/// Egress `none` is held by what such a policy does not contain; hosts by nothing yet, so they make no wall.
#[test]
fn egress_none_leaves_no_way_out_and_hosts_make_no_wall() {
    let (open, address) = listener();
    let site = Site::new();
    let frame = "version = 1\nname = \"t\"\n[landlock]\nabi = 6\nreason = \"r\"\n\
                 [sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n";
    let egress = |mode: &str| format!("{frame}[egress]\nmode = \"{mode}\"\nreason = \"r\"\n");
    let none = Wall::build(&Policy::parse(&egress("none")).unwrap(), &site.places).unwrap();
    assert!(none.summary().iter().any(|line| line.starts_with("egress none:")));
    free(|| TcpStream::connect(address).map(drop)).unwrap();
    open.accept().unwrap();
    // A socket that was made before the wall connects nowhere either.
    let early = socket_fd();
    confined(&none, || {
        let families = [libc::AF_INET, libc::AF_INET6, libc::AF_VSOCK, libc::AF_PACKET];
        for (family, kind) in families.iter().flat_map(|f| (1..=5).map(move |kind| (*f, kind))) {
            assert_eq!(socket(family, kind, 0), Err(libc::EACCES), "{family} {kind}");
        }
        let name = sockaddr(address);
        let length = size_of::<libc::sockaddr_in>() as u64;
        let arguments = [early.as_raw_fd() as u64, &raw const name as u64, length, 0, 0, 0];
        assert_eq!(call(libc::SYS_connect, arguments), Err(libc::EACCES));
    });
    assert_eq!(open.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let hosts = Policy::parse(&egress("allow-list")).unwrap();
    let built = Wall::build(&hosts, &site.places);
    let Err(error @ WallError::NotEnforced { line: 9, .. }) = built else { panic!("{built:?}") };
    assert!(error.to_string().contains("not enforced by this build"), "{error}");
    assert!(!error.is_kernel());
}

/// Where the kernel restricts UDP, ports are open as named; on an older one no datagram socket is made for them.
#[test]
fn udp_ports_are_named_or_closed_or_there_is_no_socket() {
    let text = "version = 1\nname = \"t\"\n[landlock]\nabi = 6\nreason = \"r\"\n\
                [sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n\
                [[socket]]\nfamily = \"inet\"\ntypes = [\"dgram\"]\nprotocols = [0]\nabi = 10\nreason = \"r\"\n\
                [[udp]]\nconnect = [\"{connect}\"]\nbind = [0]\nreason = \"r\"\n";
    let receivers = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let [named, other] = [0, 1].map(|at: usize| receivers[at].local_addr().unwrap());
    let mut site = Site::new();
    site.places.connect = vec![named.port()];
    let wall = Wall::build(&Policy::parse(text).unwrap(), &site.places).unwrap();
    free(|| UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", other)).unwrap();
    confined(&wall, || {
        let socket = UdpSocket::bind("127.0.0.1:0");
        if casemate_sandbox::landlock_abi().unwrap() < 10 {
            assert_eq!(errno(&socket.unwrap_err()), libc::EACCES);
            return;
        }
        let socket = socket.unwrap();
        socket.send_to(b"x", named).unwrap();
        assert_eq!(errno(&socket.send_to(b"x", other).unwrap_err()), libc::EACCES);
        let bound = UdpSocket::bind(("127.0.0.1", named.port().wrapping_add(1)));
        assert_eq!(errno(&bound.unwrap_err()), libc::EACCES);
    });
    // Without a Landlock that restricts it, a policy that insists makes no wall.
    let insisting = text.replacen("abi = 6", "abi = 10", 1);
    let built = Wall::build(&Policy::parse(&insisting).unwrap(), &site.places);
    let is_there = casemate_sandbox::landlock_abi().unwrap() >= 10;
    assert_eq!(built.is_ok(), is_there, "{built:?}");
    assert!(is_there || built.unwrap_err().is_kernel());
}
