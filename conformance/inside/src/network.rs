//! Reaching listeners: TCP on loopback, abstract and pathname unix sockets.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, ipproto};

use crate::attempt::Report;

/// A loopback connection is made or refused at once; this is for a kernel that drops.
const PATIENCE: Duration = Duration::from_secs(3);

/// TCP's `MSG_FASTOPEN` (tcp(7)): data in the SYN, by a call that is not connect(2).
const MSG_FASTOPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);

pub(crate) fn connect(port: u16, report: &mut Report<'_>) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let target = address.to_string();
    report.result("connect", &target, tcp(address));
    report.result("connect by IPv6-mapped address", &target, mapped(port));
    report.result("send by fast open", &target, fast_open(address));
    report.result("connect by MPTCP", &target, other(SocketType::STREAM, ipproto::MPTCP, address));
}

/// Connects and reads what the listener says, so that a listener out of reach is told from one that is not there.
fn tcp(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read(&mut [0; 64]).map(drop)
}

fn mapped(port: u16) -> io::Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port));
    TcpStream::connect_timeout(&address, PATIENCE).map(drop)
}

fn fast_open(address: SocketAddr) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::sendto(&socket, b"fast", MSG_FASTOPEN, &address)?;
    Ok(())
}

fn other(kind: SocketType, protocol: rustix::net::Protocol, address: SocketAddr) -> io::Result<()> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, Some(protocol))?;
    Ok(rustix::net::connect(&socket, &address)?)
}

pub(crate) fn listen(port: u16, report: &mut Report<'_>) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    report.result("listen", &address.to_string(), TcpListener::bind(address));
}

pub(crate) fn abstract_socket(name: &str, report: &mut Report<'_>) {
    let connected = std::os::unix::net::SocketAddr::from_abstract_name(name)
        .and_then(|address| UnixStream::connect_addr(&address));
    report.result("connect", &format!("abstract socket {name}"), connected);
}

/// A stream, a datagram, and an end of a datagram pair, which can be sent to any address.
pub(crate) fn path_socket(path: &Path, report: &mut Report<'_>) {
    let target = format!("socket {}", path.display());
    report.result("connect", &target, stream(path));
    let single = unix(SocketType::DGRAM).and_then(|socket| send(&socket, path));
    report.result("send a datagram", &target, single);
    let pair =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let from_pair = pair.map_err(io::Error::from).and_then(|(end, _other)| send(&end, path));
    report.result("send from a datagram pair", &target, from_pair);
}

fn unix(kind: SocketType) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

fn stream(path: &Path) -> io::Result<()> {
    let socket = unix(SocketType::STREAM)?;
    let (_folder, address) = address(path)?;
    Ok(rustix::net::connect(&socket, &address)?)
}

fn send(socket: &OwnedFd, path: &Path) -> io::Result<()> {
    let (_folder, address) = address(path)?;
    rustix::net::sendto(socket, b"from outside", SendFlags::DONTWAIT, &address)?;
    Ok(())
}

/// An address holds 107 bytes (unix(7)); a longer path is named through its folder, for as long as that is held open.
fn address(path: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let (folder, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let through = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok((folder, SocketAddrUnix::new(through)?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::attempt::{Attempt, SUCCEEDED};

    #[test]
    fn an_open_listener_is_reached_in_each_way_that_this_kernel_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(b"hello");
            }
        });
        let mut out = Vec::new();
        connect(port, &mut Report::new(&mut out));
        let text = String::from_utf8(out).unwrap();
        let attempts: Vec<Attempt> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(attempts.len(), 4);
        for attempt in attempts {
            // MPTCP and fast open are options of the kernel.
            let option = attempt.attack.contains("MPTCP") || attempt.attack.contains("fast open");
            assert!(option || attempt.outcome == SUCCEEDED, "{attempt:?}");
        }
    }

    #[test]
    fn an_open_socket_is_reached_by_its_path() {
        use std::os::unix::net::{UnixDatagram, UnixListener};
        let folder = tempfile::tempdir().unwrap();
        // Longer than an address holds.
        let folder = folder.path().join("x".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let handle = std::fs::File::open(&folder).unwrap();
        let place = |name: &str| format!("/proc/self/fd/{}/{name}", handle.as_raw_fd());
        let _stream = UnixListener::bind(place("stream")).unwrap();
        let _datagrams = UnixDatagram::bind(place("datagrams")).unwrap();
        for (name, expected) in [
            ("stream", [SUCCEEDED, "EPROTOTYPE", "EPROTOTYPE"]),
            ("datagrams", ["EPROTOTYPE", SUCCEEDED, SUCCEEDED]),
        ] {
            let mut out = Vec::new();
            path_socket(&folder.join(name), &mut Report::new(&mut out));
            let text = String::from_utf8(out).unwrap();
            let outcomes: Vec<String> = text
                .lines()
                .map(|line| serde_json::from_str::<Attempt>(line).unwrap().outcome)
                .collect();
            assert_eq!(outcomes, expected, "{name}");
        }
    }
}
