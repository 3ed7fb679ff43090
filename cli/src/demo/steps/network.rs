//! On listeners: the other session's, and those of the machine.

use std::fs::{File, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;

use casemate_inside::Attempt;
use casemate_protocol::tier::Tier;

use super::World;
use crate::demo::host::{Host, HostError};
use crate::demo::judge::Wall;

/// The victim listens on its own port and reaches it; the attacker does neither.
pub(super) async fn attack(world: &mut World<'_>, reversed: bool) -> Result<(), HostError> {
    let (attacker, victim, lines) = world.sides(reversed);
    let (from, owner) = (attacker.facts.name, victim.facts.name);
    lines.step(match reversed {
        false => "B on A's loopback listeners",
        true => "A on B's loopback listeners",
    });
    // Another casemate on this machine may have one of them in use.
    let mut answer = String::new();
    let mut taken = *victim.facts.ports.start();
    for port in victim.facts.ports.clone() {
        taken = port;
        answer = victim.host.prompt(&format!("!listen {port}")).await?;
        if !answer.contains("in use") {
            break;
        }
    }
    let expected = format!("listening on 127.0.0.1:{taken}");
    lines.same(owner, "listen", "its own port", &expected, &answer);
    let port = taken.to_string();
    let own = victim.host.inside(&["connect", &port]).await?;
    // The other ways past a port rule are refused to the owner as well.
    let own: Vec<_> = own.into_iter().filter(|attempt| attempt.attack == "connect").collect();
    lines.attempts(owner, "its own listener", Wall::Open, &own);
    let tried = attacker.host.inside(&["connect", &port]).await?;
    lines.attempts(from, &format!("{owner}'s listener"), Wall::Port, &tried);
    let next = victim.facts.ports.end().to_string();
    let tried = attacker.host.inside(&["listen", &next]).await?;
    lines.attempts(from, &format!("a port of {owner}'s"), Wall::Port, &tried);
    Ok(())
}

/// The machine's own listeners: the allocator, the other worker, unix sockets.
pub(super) async fn outside(world: &mut World<'_>) -> Result<(), HostError> {
    let World { b, lines, house, .. } = world;
    let from = b.facts.name;
    let io = |error| HostError::Io(from, error);
    lines.step("B on the machine's listeners");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(io)?;
    let port = listener.local_addr().map_err(io)?.port().to_string();
    let tried = b.host.inside(&["connect", &port]).await?;
    lines.attempts(from, "a listener of the machine's", Wall::Port, &tried);

    let name = format!("casemate-demo-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).map_err(io)?;
    let _abstract = UnixListener::bind_addr(&address).map_err(io)?;
    let tried = b.host.inside(&["abstract", &name]).await?;
    lines.attempts(from, "an abstract socket", Wall::AbstractSocket, &tried);

    let (stream, datagrams) = (house.outside().join("socket"), house.outside().join("datagrams"));
    let _stream = UnixListener::bind(&stream).map_err(io)?;
    let _datagrams = UnixDatagram::bind(&datagrams).map_err(io)?;
    for path in [stream, datagrams] {
        let tried = reach(&mut b.host, &path).await?;
        lines.attempts(from, "a unix socket of the machine's", Wall::PathSocket, &tried);
    }
    Ok(())
}

/// Sockets in A's HOME, by their paths. They are made here, since in tier `domain` A makes none; a socket belongs to
/// whoever may write to it.
pub(super) async fn by_path(world: &mut World<'_>) -> Result<(), HostError> {
    let World { a, b, lines, .. } = world;
    lines.step("B on A's unix sockets");
    let io = |error| HostError::Io(a.facts.name, error);
    // The path may be longer than an address holds.
    let folder = File::open(&a.facts.home).map_err(io)?;
    let folder = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    let (stream, datagrams) = ("demo-socket", "demo-datagrams");
    let _stream = UnixListener::bind(folder.join(stream)).map_err(io)?;
    let _datagrams = UnixDatagram::bind(folder.join(datagrams)).map_err(io)?;
    for name in [stream, datagrams] {
        let everybody = Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.join(name), everybody).map_err(io)?;
    }
    if lines.tier() != Tier::Domain {
        // Without a namespace not even A could, below Landlock's ABI 9.
        for (name, reaching) in [(stream, "connect"), (datagrams, "send a datagram")] {
            let home = a.host.output("echo $HOME").await?;
            let tried = reach(&mut a.host, &Path::new(&home).join(name)).await?;
            let tried: Vec<_> =
                tried.into_iter().filter(|attempt| attempt.attack == reaching).collect();
            lines.attempts(a.facts.name, "its own unix socket", Wall::Open, &tried);
        }
    }
    for name in [stream, datagrams] {
        let tried = reach(&mut b.host, &a.facts.home.join(name)).await?;
        lines.attempts(b.facts.name, "A's unix socket", Wall::PathSocket, &tried);
    }
    Ok(())
}

async fn reach(host: &mut Host, path: &Path) -> Result<Vec<Attempt>, HostError> {
    host.inside(&["socket", path.to_str().unwrap_or_default()]).await
}
