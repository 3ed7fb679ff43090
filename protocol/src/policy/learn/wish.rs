//! A refusal that a rule is to allow, and whether a policy does.

use std::collections::BTreeSet;
use std::fmt;

use super::{Learned, Rule};
use crate::policy::decide::{self, Outcome, Paths, Setting, Transport, Way, port};
use crate::policy::told::Kind;
use crate::policy::{Access, PathTemplate, Policy, SocketCall, SocketFamily};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    /// Of a path, by its absolute name.
    Path(String, Access),
    /// Of a TCP port; whether to connect to.
    Port(bool, u16),
    /// Of a call, with those arguments that rules look at.
    Call(String, [u64; 6]),
}

// === impl Wish ===

impl Wish {
    /// Of a call. What no rule tests is left out: two calls that differ in it alone are one wish.
    pub(super) fn call(policy: &Policy, name: &str, arguments: &[u64; 6]) -> Self {
        let mut looked_at = [0; 6];
        if socket_call(name).is_some() {
            let kind = Kind::of(arguments);
            looked_at[..3].copy_from_slice(&[kind.family, kind.kind, kind.protocol]);
        }
        let tests = policy
            .syscalls
            .iter()
            .filter(|rule| rule.names.iter().any(|own| own == name))
            .flat_map(|rule| &rule.when);
        for index in tests.map(|test| usize::from(test.argument)) {
            looked_at[index] = arguments[index];
        }
        Self::Call(name.to_owned(), looked_at)
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path, access) => write!(f, "{access} {path}"),
            Self::Port(true, port) => write!(f, "connect {port}"),
            Self::Port(false, port) => write!(f, "bind {port}"),
            Self::Call(name, arguments) if socket_call(name).is_some() => {
                write!(f, "{name} {}", Kind::of(arguments))
            }
            Self::Call(name, _) => write!(f, "syscall {name}"),
        }
    }
}

pub(super) fn socket_call(name: &str) -> Option<SocketCall> {
    SocketCall::ALL.into_iter().find(|call| call.name() == name)
}

/// Those of the wishes that the policy grants with these rules.
pub(super) fn allowed<'a>(
    policy: &Policy,
    rules: &[Learned],
    setting: &Setting,
    real: &dyn Fn(&str) -> String,
    wishes: impl Iterator<Item = &'a Wish>,
) -> BTreeSet<Wish> {
    let mut policy = policy.clone();
    for learned in rules {
        match &learned.rule {
            Rule::Path(rule) => policy.paths.push(rule.clone()),
            Rule::Tcp(rule) => policy.tcp.push(rule.clone()),
            Rule::Socket(rule) => policy.sockets.allow.push(rule.clone()),
            Rule::Wider { line, access } => {
                for rule in policy.paths.iter_mut().filter(|rule| rule.line == *line) {
                    rule.access.extend(access);
                }
            }
            Rule::Without { line, name } => {
                for rule in policy.syscalls.iter_mut().filter(|rule| rule.line == *line) {
                    rule.names.retain(|own| own != name);
                }
            }
        }
    }
    let paths = Paths::new(&policy, setting, real);
    let is_allowed = |wish: &&Wish| match wish {
        Wish::Path(path, access) => {
            let asked = PathTemplate { place: None, rest: path.clone() };
            let answer = paths.ask(setting, &asked, real);
            answer
                .access
                .iter()
                .any(|one| one.access == *access && one.decision.outcome == Outcome::Allowed)
        }
        Wish::Port(connects, number) => {
            let way = if *connects { Way::Connect } else { Way::Bind };
            [SocketFamily::Inet, SocketFamily::Inet6].into_iter().any(|family| {
                let decision = port(&policy, setting, Transport::Tcp, way, family, *number);
                decision.outcome == Outcome::Allowed
            })
        }
        Wish::Call(name, arguments) => {
            let known = arguments.map(Some);
            decide::syscall(&policy, setting, name, &known).outcome == Outcome::Allowed
        }
    };
    wishes.filter(is_allowed).cloned().collect()
}
