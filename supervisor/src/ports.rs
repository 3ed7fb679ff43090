//! The worker's claim of a range of TCP ports: the kernel gives a range to one worker of the machine.
//!
//! The claim is a socket that listens on the range's first port, on 127.0.0.1. What listens refuses every other bind or
//! listen of its port, whatever options that one has. It has `SO_REUSEADDR`, so that connections that an earlier worker closed
//! (TIME_WAIT) stand in nobody's way; it is exclusive once listen(2) has succeeded (of two that bound, one does). Supervisor and
//! spawner hold it, and agents may not bind it. The worker's own door is this socket: no agent can get its port, neither by
//! bind(2) nor by listen(2) without it, which Landlock does not see and which takes a port of `ip_local_port_range`.
//!
//! Somebody who is no casemate may listen on another port of the range, on either loopback address, and the agent could
//! reach it. So each port is tried, with `SO_REUSEADDR`: what still refuses then listens, or may yet, while connections
//! that an earlier session's servers closed (TIME_WAIT) stand in nobody's way. Who begins to listen there later is not
//! noticed.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use casemate_protocol::ports::{PortPool, PortRange};
use casemate_protocol::worker::StartError;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrStorage, bind, getsockname,
    listen, setsockopt, socket, sockopt,
};

/// A claimed range; dropping it lets go of this process's share.
#[derive(Debug)]
pub struct Claim {
    socket: OwnedFd,
    own: PortRange,
}

/// Claims the first range of the pool that nobody has, from the preferred one on.
///
/// # Errors
/// [`StartError::Ports`] where all are taken, or the kernel refuses for another reason.
pub fn claim(pool: PortPool) -> Result<Claim, StartError> {
    for port in pool.claims() {
        let claimed = Claim::of(port).map_err(|errno| StartError::Ports {
            message: format!(
                "cannot claim port {port} on 127.0.0.1 ({errno}): set up the loopback interface, and keep \
                 net.ipv4.ip_unprivileged_port_start below {}",
                pool.first
            ),
        })?;
        if let Some(claim) = claimed {
            return Ok(claim);
        }
    }
    Err(StartError::Ports {
        message: format!(
            "all {} ranges from port {} on are taken on this machine: stop sessions that are not needed \
             (`ss -ltnp` shows who else listens there)",
            pool.ranges, pool.first
        ),
    })
}

// === impl Claim ===

impl Claim {
    /// The range of this claim; `None` where somebody is in it.
    fn of(port: u16) -> Result<Option<Self>, Errno> {
        let socket = stream(AddressFamily::Inet)?;
        let own = PortRange::behind(port);
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if !bound(&socket, address)? || !listening(&socket)? {
            return Ok(None);
        }
        for port in own.iter() {
            if !is_free(port)? {
                return Ok(None);
            }
        }
        Ok(Some(Self { socket, own }))
    }

    /// One that another process has made and handed over. Its address tells which it is.
    ///
    /// # Errors
    /// [`StartError::Ports`] where it is none of this pool.
    pub fn handed(socket: OwnedFd, pool: PortPool) -> Result<Self, StartError> {
        let address = getsockname::<SockaddrIn>(socket.as_raw_fd())
            .map(|address| SocketAddr::from((address.ip(), address.port())));
        let claim = pool
            .claims()
            .find(|port| address == Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))));
        let claim = claim.ok_or_else(|| StartError::Ports {
            message: "what was handed over is no claim: start the worker again".into(),
        })?;
        Ok(Self { socket, own: PortRange::behind(claim) })
    }

    /// The claim for another process.
    #[must_use]
    pub fn hand_over(self) -> OwnedFd {
        self.socket
    }

    /// The claim as a door, at its own address.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn listener(&self) -> io::Result<TcpListener> {
        self.socket.try_clone().map(TcpListener::from)
    }

    /// Where [`Claim::listener`] listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.own.first - 1))
    }

    /// The session's own ports.
    #[must_use]
    pub fn own(&self) -> PortRange {
        self.own
    }
}

impl AsFd for Claim {
    /// Whoever gets a copy holds the claim as well.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn stream(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
}

/// Binds; `false` where the address is taken.
fn bound(socket: &OwnedFd, address: SocketAddr) -> Result<bool, Errno> {
    match bind(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) => Ok(true),
        Err(Errno::EADDRINUSE) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Listens; `false` where somebody else does at that address.
fn listening(socket: &OwnedFd) -> Result<bool, Errno> {
    match listen(socket, Backlog::MAXCONN) {
        Ok(()) => Ok(true),
        Err(Errno::EADDRINUSE) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Whether nobody serves a port, at any address of this machine.
fn is_free(port: u16) -> Result<bool, Errno> {
    let four = stream(AddressFamily::Inet)?;
    setsockopt(&four, sockopt::ReuseAddr, &true)?;
    if !bound(&four, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))? {
        return Ok(false);
    }
    let six = match stream(AddressFamily::Inet6) {
        Ok(six) => six,
        // A kernel without IPv6: nobody else has it either.
        Err(Errno::EAFNOSUPPORT) => return Ok(true),
        Err(errno) => return Err(errno),
    };
    setsockopt(&six, sockopt::Ipv6V6Only, &true)?;
    setsockopt(&six, sockopt::ReuseAddr, &true)?;
    match bound(&six, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
        // Switched off.
        Err(Errno::EADDRNOTAVAIL) => Ok(true),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicU16, Ordering};

    /// A pool that no other test of this machine looks at, as far as the process id tells.
    fn pool(ranges: u16) -> PortPool {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let place = u16::try_from(std::process::id() % 40).unwrap() * 16
            + NEXT.fetch_add(2, Ordering::Relaxed);
        PortPool { first: 10_000 + place * 16, ranges, preferred: 0 }
    }

    #[test]
    fn two_claims_never_share_a_range_and_the_last_refusal_is_typed() {
        let pool = pool(2);
        let first = claim(pool).unwrap();
        let second = claim(pool).unwrap();
        assert_eq!(first.own(), PortRange { first: pool.first + 1, count: 15 });
        assert_eq!(second.own(), PortRange { first: pool.first + 17, count: 15 });
        let error = claim(pool).unwrap_err();
        assert!(matches!(error, StartError::Ports { .. }), "{error}");
        assert!(error.to_string().contains("all 2 ranges"), "{error}");
        drop(first);
        assert_eq!(claim(pool).unwrap().own().first, pool.first + 1);
    }

    /// TcpListener sets SO_REUSEADDR (std's documentation says so).
    #[test]
    fn no_option_of_another_gets_past_a_claim() {
        let pool = pool(1);
        let _claim = claim(pool).unwrap();
        for address in ["127.0.0.1", "0.0.0.0", "[::]"] {
            let error = TcpListener::bind(format!("{address}:{}", pool.first)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{address}");
        }
        let reusing = stream(AddressFamily::Inet).unwrap();
        setsockopt(&reusing, sockopt::ReuseAddr, &true).unwrap();
        setsockopt(&reusing, sockopt::ReusePort, &true).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, pool.first));
        assert_eq!(bound(&reusing, address), Ok(false));
    }

    #[test]
    fn the_claim_is_a_door_and_free_again_though_the_worker_closed_its_connections() {
        let pool = pool(1);
        let held = claim(pool).unwrap();
        assert_eq!(held.address().port(), pool.first);
        let listener = held.listener().unwrap();
        assert_eq!(listener.local_addr().unwrap(), held.address());
        let mut client = TcpStream::connect(held.address()).unwrap();
        drop(listener.accept().unwrap());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop((client, listener));
        assert!(claim(pool).is_err());
        drop(held);
        claim(pool).unwrap();
    }

    /// Both have SO_REUSEADDR, so both may bind; the kernel decides at listen(2).
    #[test]
    fn of_two_that_have_bound_one_listens() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, pool(1).first));
        let sockets = [0; 2].map(|_| stream(AddressFamily::Inet).unwrap());
        for socket in &sockets {
            setsockopt(socket, sockopt::ReuseAddr, &true).unwrap();
            assert_eq!(bound(socket, address), Ok(true));
        }
        assert_eq!(listening(&sockets[0]), Ok(true));
        assert_eq!(listening(&sockets[1]), Ok(false));
    }

    #[test]
    fn a_range_with_a_foreign_listener_is_left_alone() {
        for address in ["127.0.0.1", "[::1]", "0.0.0.0", "[::]"] {
            let pool = pool(2);
            let listener = TcpListener::bind(format!("{address}:{}", pool.first + 15)).unwrap();
            assert_eq!(claim(pool).unwrap().own().first, pool.first + 17, "{address}");
            drop(listener);
            assert_eq!(claim(pool).unwrap().own().first, pool.first + 1, "{address}");
        }
    }

    #[test]
    fn connections_that_a_server_has_closed_stand_in_nobodys_way() {
        let pool = pool(1);
        let listener = TcpListener::bind(("127.0.0.1", pool.first + 5)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Whoever closes first is left in TIME_WAIT.
        drop(listener.accept().unwrap());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop((client, listener));
        claim(pool).unwrap();
    }
}
