//! System call rules as BPF programs (seccomp(2)).
//!
//! seccompiler has one action a filter, so there is one program for each errno, and before them a guard written here:
//! seccompiler checks the architecture but not the x32 bit, by which the same calls have other numbers. Every program
//! runs for every call and the strictest answer wins, so their order does not matter to the result; where two rules
//! of different errnos match one call, which errno the caller sees is not defined.

use std::collections::BTreeMap;

use casemate_protocol::policy::{Comparison, Condition, Errno, Policy, Width};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::syscalls::{self, Found};
use super::{Program, WallError, sockets};

/// Alternatives of one rule; a filter holds 4096 instructions.
const MAX_ALTERNATIVES: usize = 512;

/// All conditions have to hold.
pub(super) type All = Vec<Condition>;

/// One of the alternatives has to hold; `None`: refused whatever the arguments are.
type Refusals = BTreeMap<i64, Option<Vec<All>>>;

/// The programs in the order in which they are to be installed.
pub(super) fn compile(policy: &Policy) -> Result<Vec<Program>, WallError> {
    let architecture = std::env::consts::ARCH;
    let target =
        TargetArch::try_from(architecture).map_err(|_| WallError::Architecture(architecture))?;
    let mut filters = Vec::new();
    for (errno, refusals) in refusals(policy)? {
        // Installing the next program is a call to these.
        let restricts_seccomp =
            [libc::SYS_seccomp, libc::SYS_prctl].iter().any(|n| refusals.contains_key(n));
        filters.push((restricts_seccomp, program(refusals, errno, target)?));
    }
    filters.sort_by_key(|(last, program)| (*last, program.instructions.len()));
    Ok(guard(target).into_iter().chain(filters.into_iter().map(|(_, program)| program)).collect())
}

fn refusals(policy: &Policy) -> Result<BTreeMap<Errno, Refusals>, WallError> {
    let mut by_errno: BTreeMap<Errno, Refusals> = BTreeMap::new();
    for rule in &policy.syscalls {
        let alternatives = alternatives(&rule.when)
            .ok_or(WallError::TooManyAlternatives { line: rule.line, limit: MAX_ALTERNATIVES })?;
        for name in &rule.names {
            match syscalls::find(name) {
                Some(Found::Number(number)) => {
                    let refusals = by_errno.entry(rule.errno).or_default();
                    refuse(refusals, number, (!rule.when.is_empty()).then(|| alternatives.clone()));
                }
                Some(Found::Elsewhere) => {}
                None => {
                    return Err(WallError::UnknownSyscall { name: name.clone(), line: rule.line });
                }
            }
        }
    }
    for number in [libc::SYS_socket, libc::SYS_socketpair] {
        let refusals = by_errno.entry(policy.sockets.errno).or_default();
        refuse(refusals, number, sockets::refused(&policy.sockets.allow));
    }
    Ok(by_errno)
}

fn refuse(refusals: &mut Refusals, number: i64, alternatives: Option<Vec<All>>) {
    let known = refusals.entry(number).or_insert_with(|| Some(Vec::new()));
    match (known.as_mut(), alternatives) {
        (Some(known), Some(more)) => known.extend(more),
        // A rule without conditions covers every other rule.
        _ => *known = None,
    }
}

/// `any-bits` of several bits is an alternative for each: seccompiler only knows equality under a mask.
fn alternatives(when: &[Condition]) -> Option<Vec<All>> {
    let mut all: Vec<All> = vec![Vec::new()];
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

fn program(refusals: Refusals, errno: Errno, target: TargetArch) -> Result<Program, WallError> {
    let rules = refusals
        .into_iter()
        .map(|(number, alternatives)| {
            let rules: Result<Vec<_>, BackendError> =
                alternatives.unwrap_or_default().iter().map(|all| seccomp_rule(all)).collect();
            Ok((number, rules?))
        })
        .collect::<Result<BTreeMap<_, _>, BackendError>>()?;
    let action = SeccompAction::Errno(u32::from(errno.number()));
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, target)?;
    Ok(Program::from(BpfProgram::try_from(filter)?))
}

fn seccomp_rule(all: &[Condition]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(all.iter().map(seccomp_condition).collect::<Result<_, _>>()?)
}

fn seccomp_condition(condition: &Condition) -> Result<SeccompCondition, BackendError> {
    let width = match condition.width {
        Width::Bits32 => SeccompCmpArgLen::Dword,
        Width::Bits64 => SeccompCmpArgLen::Qword,
    };
    let (operator, value) = match condition.comparison {
        Comparison::Equal(value) => (SeccompCmpOp::Eq, value),
        Comparison::NotEqual(value) => (SeccompCmpOp::Ne, value),
        Comparison::Less(value) => (SeccompCmpOp::Lt, value),
        Comparison::Greater(value) => (SeccompCmpOp::Gt, value),
        Comparison::MaskedEqual { mask, value } => (SeccompCmpOp::MaskedEq(mask), value),
        // `alternatives` leaves single bits only.
        Comparison::AnyBits(bits) => (SeccompCmpOp::MaskedEq(bits), bits),
    };
    SeccompCondition::new(condition.argument, width, operator, value)
}

/// Kills a process that calls by another architecture's table (`int 0x80`) or, on x86-64, by x32 numbers: neither is
/// made by a compiler's default, and both would be calls that no rule here means. -1 is not x32: a tracer or a probe
/// for seccomp uses it, and the kernel answers ENOSYS.
fn guard(target: TargetArch) -> Option<Program> {
    const X32_BIT: u32 = 0x4000_0000;
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    let load = |offset| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let jump =
        |test, value, yes, no| instruction(libc::BPF_JMP | test | libc::BPF_K, yes, no, value);
    let leave = |action| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    (target == TargetArch::x86_64).then(|| Program {
        instructions: vec![
            load(4),
            jump(libc::BPF_JEQ, AUDIT_ARCH_X86_64, 0, 4),
            load(0),
            jump(libc::BPF_JEQ, u32::MAX, 1, 0),
            jump(libc::BPF_JSET, X32_BIT, 1, 0),
            leave(libc::SECCOMP_RET_ALLOW),
            leave(libc::SECCOMP_RET_KILL_PROCESS),
        ],
    })
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    // The constants of libc are wider than the field.
    let code = u16::try_from(code).expect("BPF codes have 16 bits");
    libc::sock_filter { code, jt, jf, k }
}

// === impl Program ===

impl From<BpfProgram> for Program {
    fn from(program: BpfProgram) -> Self {
        let same = |i: seccompiler::sock_filter| libc::sock_filter {
            code: i.code,
            jt: i.jt,
            jf: i.jf,
            k: i.k,
        };
        Self { instructions: program.into_iter().map(same).collect() }
    }
}
