//! What a call is about: the address in its process's memory, the protocol of its socket.
//!
//! Both are read from `/proc/PID`, which takes the right to trace the process (ptrace(2), PTRACE_MODE_*): the same user, one
//! that is dumpable, and no Landlock domain around this process that is not around that one too.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileExt as _;

use casemate_protocol::policy::decide::{Transport, Way};

use super::Attempt;
use super::notify::Notification;

/// Length of a `struct sockaddr_in6` (ipv6(7)).
const LONGEST: usize = 28;
/// Of a `struct sockaddr_in` without its padding, and of a `struct sockaddr_in6` without its scope: what the kernel asks
/// for at least (net/ipv6/af_inet6.c).
const SHORTEST: [usize; 2] = [8, 24];

/// `None`: neither IPv4 nor IPv6, or neither TCP nor UDP.
pub(super) fn at(asked: &Notification) -> io::Result<Option<Attempt>> {
    let way = match i64::from(asked.number) {
        libc::SYS_connect => Way::Connect,
        libc::SYS_bind => Way::Bind,
        _ => return Ok(None),
    };
    let [descriptor, pointer, length, ..] = asked.arguments;
    let mut bytes = [0; LONGEST];
    // `int`, whatever the upper half of the register holds.
    let length = usize::try_from(length & 0xffff_ffff).unwrap_or(LONGEST).min(LONGEST);
    let memory = File::open(format!("/proc/{}/mem", asked.pid))?;
    let read = memory.read_at(&mut bytes[..length], pointer)?;
    let Some(address) = address(&bytes[..read]) else { return Ok(None) };
    let Some(transport) = transport(asked.pid, descriptor & 0xffff_ffff)? else { return Ok(None) };
    let pid = asked.pid.cast_signed();
    Ok(Some(Attempt { pid, way, transport, address }))
}

/// An IPv4 or IPv6 address with its port, as connect(2) takes it.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET if bytes.len() >= SHORTEST[0] => {
            let address = rest.first_chunk::<4>()?;
            Some((Ipv4Addr::from(*address), port).into())
        }
        libc::AF_INET6 if bytes.len() >= SHORTEST[1] => {
            let address = rest.get(4..)?.first_chunk::<16>()?;
            Some((Ipv6Addr::from(*address), port).into())
        }
        _ => None,
    }
}

/// The protocol of a socket, by its attribute `system.sockprotoname` (net/socket.c).
fn transport(pid: u32, descriptor: u64) -> io::Result<Option<Transport>> {
    let mut name = [0; 32];
    let path = format!("/proc/{pid}/fd/{descriptor}");
    let length = rustix::fs::getxattr(path, c"system.sockprotoname", &mut name)?;
    let name = name[..length].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(match name {
        b"TCP" | b"TCPv6" => Some(Transport::Tcp),
        b"UDP" | b"UDPv6" => Some(Transport::Udp),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn an_address_is_read_as_the_kernel_reads_it() {
        let v4 = [2, 0, 0x1f, 0x90, 203, 0, 113, 5, 9, 9, 9, 9, 9, 9, 9, 9];
        assert_eq!(address(&v4), Some("203.0.113.5:8080".parse().unwrap()));
        assert_eq!(address(&v4[..8]), address(&v4));
        let mut v6 = vec![10, 0, 0x1f, 0x90, 0, 0, 0, 0];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        assert_eq!(address(&v6), Some("[::1]:8080".parse().unwrap()));
        for short in [&v4[..7], &v6[..23], &[2][..], &[], &[1, 0, b'/', b'a', 0, 0, 0, 0]] {
            assert_eq!(address(short), None, "{short:?}");
        }
    }

    #[test]
    fn a_socket_is_told_from_another_by_its_protocol() {
        let pid = std::process::id();
        let of = |fd: i32| transport(pid, u64::try_from(fd).unwrap());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (pair, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(of(tcp.as_raw_fd()).unwrap(), Some(Transport::Tcp));
        assert_eq!(of(udp.as_raw_fd()).unwrap(), Some(Transport::Udp));
        assert_eq!(of(pair.as_raw_fd()).unwrap(), None);
        assert!(of(9999).is_err());
    }
}
