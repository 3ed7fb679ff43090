//! What a policy answers, and the rule that says so: for a path, a port, a host, a system call, a socket, a scope, a limit,
//! a bound, a variable.
//!
//! Pure: a policy and a [`Setting`] in, a [`Decision`] out; the sandbox's tests hold it against what the kernel does.
//! It answers for one policy alone. What no policy can grant (keys, other sessions) is refused when a wall is built,
//! and the file system's own permissions come on top.

mod calls;
mod hosts;
mod paths;
mod ports;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde::Serialize;

use super::{Bound, Errno, Place, Policy, Resource, Scope};
use crate::ports::PortRange;
use crate::tier::Tier;

pub use calls::{socket, syscall};
pub use hosts::host;
pub(super) use paths::Paths;
pub use paths::{AccessDecision, PathDecision, path};
pub use ports::{Transport, Way, port, tcp};

/// What the placeholders stand for, as far as it is known.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The worker's tier: rules that need a stronger one are left out.
    pub tier: Tier,
    /// The kernel's Landlock ABI: socket rules that need a later one are left out.
    pub landlock_abi: u32,
    /// The paths of a placeholder; one that is missing here stays as it is.
    pub places: HashMap<Place, Vec<String>>,
    /// `{ports}`, if known.
    pub ports: Option<PortRange>,
    /// `{connect}`, if known.
    pub connect: Option<Vec<u16>>,
}

// === impl Setting ===

impl Setting {
    /// Nothing is known but tier and Landlock ABI: the weakest that the policy takes.
    #[must_use]
    pub fn symbolic(policy: &Policy) -> Self {
        Self {
            tier: policy.tier,
            landlock_abi: policy.landlock_abi,
            places: HashMap::new(),
            ports: None,
            connect: None,
        }
    }
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is let through.
    Allowed,
    /// It is refused.
    Refused,
    /// On what was not told: an argument, a placeholder. The notes say on what.
    Depends,
}

/// A rule of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cited {
    /// Where it begins, from 1.
    pub line: usize,
    /// The table and what it names: `[[path]] {home}`.
    pub what: String,
    /// Its reason.
    pub reason: String,
}

impl Cited {
    fn new(line: usize, what: impl Into<String>, reason: &str) -> Self {
        Self { line, what: what.into(), reason: reason.to_owned() }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// What becomes of it.
    pub outcome: Outcome,
    /// The rule that decides; `None`: no rule names it, and the format's default holds.
    pub rule: Option<Cited>,
    /// What a refused caller sees; `None` where nothing is called (variables) or nothing refused.
    pub errno: Option<Errno>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

impl Decision {
    fn allowed(rule: Option<Cited>) -> Self {
        Self { outcome: Outcome::Allowed, rule, errno: None, notes: Vec::new() }
    }

    fn refused(rule: Option<Cited>, errno: Errno) -> Self {
        Self { outcome: Outcome::Refused, rule, errno: Some(errno), notes: Vec::new() }
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

/// Whether the policy gives the agent a variable.
#[must_use]
pub fn variable(policy: &Policy, name: &str) -> Decision {
    for rule in &policy.environment {
        let cited = |how: &str| {
            Some(Cited::new(rule.line, format!("[[environment]] {how} {name}"), &rule.reason))
        };
        if rule.pass.iter().any(|passed| passed == name) {
            return Decision::allowed(cited("pass"))
                .note("taken from the supervisor's environment, where it is set there");
        }
        if let Some((_, value)) = rule.set.iter().find(|(set, _)| set == name) {
            return Decision::allowed(cited("set")).note(format!("set to {value}"));
        }
    }
    Decision { outcome: Outcome::Refused, rule: None, errno: None, notes: Vec::new() }.note(
        "no rule names it, so it is left out; what a caller hands to the agent on purpose comes on top",
    )
}

/// Whether something of the session reaches out of it: a signal to a process outside, a connection to an abstract socket
/// that was made outside.
#[must_use]
pub fn scope(policy: &Policy, kind: Scope) -> Decision {
    let inside = match kind {
        Scope::Signal => "signals within the session pass",
        Scope::AbstractUnixSocket => "abstract sockets made within the session are reached",
    };
    match policy.scopes.iter().find(|rule| rule.kind == kind) {
        Some(rule) => {
            let cited = Cited::new(rule.line, format!("[[scope]] {kind}"), &rule.reason);
            Decision::refused(Some(cited), Errno::Eperm).note(inside)
        }
        None if kind == Scope::Signal => Decision::refused(None, Errno::Eperm)
            .note(
                "no rule names it; the session's own scope, which no policy takes away, refuses it",
            )
            .note(inside),
        None => Decision::allowed(None).note("no rule names it"),
    }
}

/// Which limit the policy sets: allowed up to what the notes say.
#[must_use]
pub fn limit(policy: &Policy, resource: Resource) -> Decision {
    let word = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let decision = match policy.rlimits.iter().find(|rule| rule.resource == resource) {
        None => Decision::allowed(None).note("no rule names it: the supervisor's own limit holds"),
        Some(rule) => {
            let cited = Cited::new(rule.line, format!("[[rlimit]] {resource}"), &rule.reason);
            Decision::allowed(Some(cited))
                .note(format!("soft limit {}, hard limit {}", word(rule.soft), word(rule.hard)))
                .note("a hard limit above the supervisor's own is lowered to it")
        }
    };
    if resource == Resource::Nproc {
        return decision.note("it counts every process of the uid: it does not bound one session");
    }
    decision
}

/// How much of the machine a whole session may take: allowed up to what the notes say.
#[must_use]
pub fn bound(policy: &Policy, asked: Bound) -> Decision {
    let bounds = &policy.bounds;
    let name = asked.to_string();
    let cited =
        bounds.line.map(|line| Cited::new(line, format!("[bounds] {name}"), &policy.bounds_reason));
    let named = bounds.named().into_iter().find(|(known, ..)| *known == name);
    let (_, most, words) = named.unwrap_or(("", u64::MAX, "unlimited".to_owned()));
    let decision = match cited {
        None => Decision::allowed(None).note("the policy has no [bounds]: the defaults hold"),
        cited => Decision::allowed(cited),
    };
    let decision = decision.note(format!("up to {words}, by all that a session runs together"));
    if most == u64::MAX {
        return decision;
    }
    decision.note(match asked {
        Bound::Processes => {
            "above: fork(2) fails where the kernel counts the worker by itself, else the session is ended"
        }
        Bound::Disk | Bound::Files => {
            "above: the chat is told; an eighth above, beyond what was there at the start, the session is ended"
        }
    })
}
