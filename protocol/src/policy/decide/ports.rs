//! Ports: the socket has to be made, connect(2) or bind(2) called, and the port named.

use serde::Serialize;

use super::{Cited, Decision, Outcome, Setting, calls};
use crate::policy::{Errno, Policy, Port, SocketCall, SocketFamily, SocketType};

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// connect(2).
    Connect,
    /// bind(2).
    Bind,
}

/// Which protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Stream sockets.
    Tcp,
    /// Datagram sockets; sendto(2) to an address counts as connect(2).
    Udp,
}

/// Landlock's ABI from which UDP ports are restricted (landlock(7)).
const UDP_ABI: u32 = 10;

// === impl Transport ===

impl Transport {
    /// Type and IPPROTO_* (netinet/in.h), and the name of the table.
    fn words(self) -> (SocketType, u64, &'static str) {
        match self {
            Self::Tcp => (SocketType::Stream, 6, "tcp"),
            Self::Udp => (SocketType::Dgram, 17, "udp"),
        }
    }
}

/// Whether a socket of a family may connect to, or be bound to, a port. Addresses are not distinguished; see [`super::host`].
#[must_use]
pub fn port(
    policy: &Policy,
    setting: &Setting,
    transport: Transport,
    way: Way,
    family: SocketFamily,
    port: u16,
) -> Decision {
    let (kind, protocol, table) = transport.words();
    let [default, named] = [0, protocol].map(|protocol| {
        let wanted = [Some(family.number().into()), Some(kind.number().into()), Some(protocol)];
        calls::socket(policy, setting, SocketCall::Socket, wanted)
    });
    if default.outcome != Outcome::Allowed && named.outcome != Outcome::Allowed {
        return default.note(format!("no {table} socket of family {family} can be made"));
    }
    let name = match way {
        Way::Connect => "connect",
        Way::Bind => "bind",
    };
    let call = calls::syscall(policy, setting, name, &[]);
    if call.outcome == Outcome::Refused {
        return call;
    }
    if transport == Transport::Udp && setting.landlock_abi < UDP_ABI {
        let made = if default.outcome == Outcome::Allowed { default } else { named };
        return Decision::allowed(made.rule).note(format!(
            "Landlock restricts UDP from ABI {UDP_ABI} on; below, every address and port is open to a socket that can be made"
        ));
    }
    let rules = match transport {
        Transport::Tcp => &policy.tcp,
        Transport::Udp => &policy.udp,
    };
    let mut open: Option<(Port, Cited)> = None;
    for rule in rules {
        let ports = match way {
            Way::Connect => &rule.connect,
            Way::Bind => &rule.bind,
        };
        for named in ports {
            let cited = Cited::new(rule.line, format!("[[{table}]] {name} {named}"), &rule.reason);
            let known = match named {
                Port::Number(number) => Some(*number == port),
                Port::Own => setting.ports.map(|range| range.iter().any(|own| own == port)),
                Port::Connect => setting.connect.as_ref().map(|ports| ports.contains(&port)),
            };
            match known {
                Some(true) => return Decision::allowed(Some(cited)).note("whatever the address"),
                Some(false) => {}
                // 0 is never handed out.
                None if port != 0 && open.is_none() => open = Some((*named, cited)),
                None => {}
            }
        }
    }
    match open {
        None => Decision::refused(None, Errno::Eacces)
            .note(format!("no [[{table}]] rule names the port")),
        Some((named, cited)) => {
            let note = format!("allowed where {named} holds {port}, and refused otherwise");
            let refused = Decision::refused(Some(cited), Errno::Eacces);
            Decision { outcome: Outcome::Depends, ..refused }.note(note)
        }
    }
}

/// [`port`] of TCP.
#[must_use]
pub fn tcp(
    policy: &Policy,
    setting: &Setting,
    way: Way,
    family: SocketFamily,
    port: u16,
) -> Decision {
    self::port(policy, setting, Transport::Tcp, way, family, port)
}
