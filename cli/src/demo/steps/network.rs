//! On listeners: the other session's, and those of the machine.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::World;
use crate::demo::host::HostError;
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

    let path = house.outside().join("socket");
    let _socket = UnixListener::bind(&path).map_err(io)?;
    let tried = b.host.inside(&["socket", path.to_str().unwrap_or_default()]).await?;
    lines.attempts(from, "a unix socket by path", Wall::PathSocket, &tried);
    Ok(())
}
