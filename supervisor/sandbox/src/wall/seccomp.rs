//! System call rules as one BPF program (seccomp(2)).
//!
//! A program is checked, translated and tried against every call number by the kernel each time that an agent is
//! started, and runs before each call, so it is kept short: one program, in which a call's number is found by halving
//! and leads to its verdict. seccompiler, which compiles the tests of arguments, would make a program for each errno
//! and look for the number from front to back.
//!
//! This file decides what the verdicts are; [`super::program`] lays them out.

use std::collections::BTreeMap;

use casemate_protocol::policy::{Comparison, Condition, Errno, Policy, SocketCall};
use casemate_protocol::tier::Tier;
use seccompiler::TargetArch;

use super::program::{self, Action, Clause, Verdict};
use super::syscalls::{self, Found};
use super::{Program, WallError, sockets};
use crate::listener::tries;

/// Alternatives of one rule; a program holds 4096 instructions.
const MAX_ALTERNATIVES: usize = 512;

/// What becomes of the calls that rules name, by number.
pub(crate) type Verdicts = BTreeMap<u32, Verdict>;

/// The programs in the order in which they are to be installed, and what they were made of.
pub(super) fn compile(
    policy: &Policy,
    tier: Tier,
    abi: u32,
) -> Result<(Vec<Program>, Verdicts), WallError> {
    let verdicts = verdicts(policy, tier, abi)?;
    Ok((vec![program::lay_out(own_architecture()?, &verdicts)?], verdicts))
}

/// Calls whose refusal is the program's own all the same: connect(2) and bind(2), which are let through when they are asked about, and
/// what a wall's thread does between putting the program on and handing its listener over, when nobody is there to answer.
const UNTOLD: [&str; 14] = [
    "bind",
    "brk",
    "close",
    "connect",
    "exit",
    "futex",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "rt_sigreturn",
    "sendmsg",
    "write",
];

/// These verdicts, but where they refuse the kernel asks first. ENOSYS stays as it is: it sends a library to another call, and nothing
/// fails by it. With the program, what is asked about and has to be refused.
pub(crate) fn telling(verdicts: &Verdicts) -> Result<(Program, Verdicts), WallError> {
    let untold: Vec<u32> = UNTOLD.into_iter().filter_map(number).collect();
    let asks = |action: Action| match action {
        Action::Errno(errno) if errno != Errno::Enosys => Action::Notify,
        other => other,
    };
    let mut all = verdicts.clone();
    let mut refused = Verdicts::new();
    for (number, verdict) in &mut all {
        if untold.contains(number) {
            continue;
        }
        let before = verdict.clone();
        verdict.otherwise = asks(verdict.otherwise);
        for clause in &mut verdict.clauses {
            clause.action = asks(clause.action);
        }
        if *verdict != before {
            refused.insert(*number, before);
        }
    }
    for number in ["connect", "bind"].into_iter().filter_map(number) {
        let verdict = all.entry(number).or_insert_with(Verdict::allow);
        if verdict.otherwise == Action::Allow {
            verdict.otherwise = Action::Notify;
        }
    }
    Ok((program::lay_out(own_architecture()?, &all)?, refused))
}

/// Stay refused while learning: their libraries fall back, and what is done by io_uring could not be noted.
const KEPT: [&str; 4] = ["clone3", "io_uring_enter", "io_uring_register", "io_uring_setup"];

/// A program that refuses next to nothing: the kernel asks about what these verdicts refuse, and about every path, connection and
/// socket. With the program, what would be refused.
pub(crate) fn learning(verdicts: &Verdicts) -> Result<(Program, Verdicts), WallError> {
    let untold: Vec<u32> = UNTOLD.into_iter().chain(KEPT).filter_map(number).collect();
    let mut all = verdicts.clone();
    let mut refused = Verdicts::new();
    for (number, verdict) in all.iter_mut().filter(|(number, _)| !untold.contains(number)) {
        refused.insert(*number, verdict.clone());
        let actions = verdict.clauses.iter_mut().map(|clause| &mut clause.action);
        for action in actions.chain([&mut verdict.otherwise]) {
            if matches!(action, Action::Errno(_)) {
                *action = Action::Notify;
            }
        }
    }
    for number in tries::CALLS.into_iter().filter_map(number) {
        let verdict = all.entry(number).or_insert_with(Verdict::allow);
        let actions = verdict.clauses.iter_mut().map(|clause| &mut clause.action);
        for action in actions.chain([&mut verdict.otherwise]) {
            if *action == Action::Allow {
                *action = Action::Notify;
            }
        }
    }
    Ok((program::lay_out(own_architecture()?, &all)?, refused))
}

fn number(name: &str) -> Option<u32> {
    match syscalls::find(name) {
        Some(Found::Number(number)) => Some(number),
        _ => None,
    }
}

/// A program that has the kernel ask about these calls and lets all others pass; beside a program that refuses one of them
/// the refusal holds (seccomp(2): the action that comes first in its list).
pub(crate) fn notifying(names: &[&str]) -> Result<Program, WallError> {
    let numbers = names.iter().filter_map(|name| number(name));
    let verdicts = numbers.map(|number| (number, Verdict::always(Action::Notify)));
    program::lay_out(own_architecture()?, &verdicts.collect())
}

/// The architecture that programs are made for: the one that this is.
pub(crate) fn own_architecture() -> Result<TargetArch, WallError> {
    let architecture = std::env::consts::ARCH;
    TargetArch::try_from(architecture).map_err(|_| WallError::Architecture(architecture))
}

/// Whether the system call rules can be compiled for this machine: every name exists and the program fits. Needs
/// nothing of the kernel.
///
/// # Errors
/// [`WallError::UnknownSyscall`], [`WallError::TooManyAlternatives`], [`WallError::FilterTooLong`] and the like.
pub fn check_calls(policy: &Policy) -> Result<(), WallError> {
    // The strongest: there the most socket rules apply.
    compile(policy, Tier::Pod, u32::MAX).map(drop)
}

fn verdicts(policy: &Policy, tier: Tier, abi: u32) -> Result<Verdicts, WallError> {
    let mut verdicts = Verdicts::new();
    for call in SocketCall::ALL {
        if let Some(Found::Number(number)) = syscalls::find(call.name()) {
            let allowed = policy.sockets.allowing(call, tier, abi);
            verdicts.insert(number, sockets::verdict(allowed, policy.sockets.errno));
        }
    }
    for rule in &policy.syscalls {
        let alternatives = alternatives(&rule.when)
            .ok_or(WallError::TooManyAlternatives { line: rule.line, limit: MAX_ALTERNATIVES })?;
        for name in &rule.names {
            match syscalls::find(name) {
                Some(Found::Number(number)) => {
                    let verdict = verdicts.entry(number).or_insert_with(Verdict::allow);
                    refuse(verdict, &alternatives, rule.errno);
                }
                Some(Found::Elsewhere) => {}
                None => {
                    return Err(WallError::UnknownSyscall { name: name.clone(), line: rule.line });
                }
            }
        }
    }
    Ok(verdicts)
}

/// The first rule that matches decides; behind one without conditions none is reached.
fn refuse(verdict: &mut Verdict, alternatives: &[Vec<Condition>], errno: Errno) {
    if verdict.otherwise != Action::Allow {
        return;
    }
    for all in alternatives {
        if all.is_empty() {
            verdict.otherwise = Action::Errno(errno);
        } else {
            verdict.clauses.push(Clause { all: all.clone(), action: Action::Errno(errno) });
        }
    }
}

/// `any-bits` of several bits is an alternative for each: seccompiler only knows equality under a mask.
fn alternatives(when: &[Condition]) -> Option<Vec<Vec<Condition>>> {
    let mut all: Vec<Vec<Condition>> = vec![Vec::new()];
    for condition in when {
        let choices: Vec<Condition> = match condition.comparison {
            Comparison::AnyBits(bits) => (0..64)
                .map(|shift| 1_u64 << shift)
                .filter(|bit| bits & bit != 0)
                .map(|bit| Condition {
                    comparison: Comparison::MaskedEqual { mask: bit, value: bit },
                    ..*condition
                })
                .collect(),
            _ => vec![*condition],
        };
        if all.len().checked_mul(choices.len())? > MAX_ALTERNATIVES {
            return None;
        }
        all = all
            .iter()
            .flat_map(|so_far| {
                choices.iter().map(move |choice| so_far.iter().copied().chain([*choice]).collect())
            })
            .collect();
    }
    Some(all)
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;
