//! TCP: the socket has to be made, connect(2) or bind(2) called, and the port named.

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

/// Whether a TCP socket of a family may connect to, or be bound to, a port. Addresses are not distinguished.
#[must_use]
pub fn tcp(
    policy: &Policy,
    setting: &Setting,
    way: Way,
    family: SocketFamily,
    port: u16,
) -> Decision {
    let number = |number: u32| Some(u64::from(number));
    let [default, tcp] = [0, 6].map(|protocol| {
        let stream = SocketType::Stream.number();
        let wanted = [number(family.number()), number(stream), Some(protocol)];
        calls::socket(policy, setting, SocketCall::Socket, wanted)
    });
    if default.outcome != Outcome::Allowed && tcp.outcome != Outcome::Allowed {
        return default.note(format!("no TCP socket of family {family} can be made"));
    }
    let name = match way {
        Way::Connect => "connect",
        Way::Bind => "bind",
    };
    let call = calls::syscall(policy, setting, name, &[]);
    if call.outcome == Outcome::Refused {
        return call;
    }
    let mut open: Option<(Port, Cited)> = None;
    for rule in &policy.tcp {
        let ports = match way {
            Way::Connect => &rule.connect,
            Way::Bind => &rule.bind,
        };
        for named in ports {
            let cited = Cited::new(rule.line, format!("[[tcp]] {name} {named}"), &rule.reason);
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
        None => Decision::refused(None, Errno::Eacces).note("no [[tcp]] rule names the port"),
        Some((named, cited)) => {
            let note = format!("allowed where {named} holds {port}, and refused otherwise");
            let refused = Decision::refused(Some(cited), Errno::Eacces);
            Decision { outcome: Outcome::Depends, ..refused }.note(note)
        }
    }
}
