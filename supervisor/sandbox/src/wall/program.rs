//! Verdicts laid out as a BPF program.
//!
//! First the architecture, then the number by halving, then the verdict's own tests, compiled by seccompiler. The
//! whole range of numbers is divided into spans of one verdict each, so a number that nobody named has its answer (a wall's:
//! allowed) and, on x86-64, one with the x32 bit kills: by those numbers the same calls would be reached that the rules refuse.
//! Pure; no rule of a policy is known here.

use std::collections::BTreeMap;

use casemate_protocol::policy::{Comparison, Condition, Errno, Width};
use seccompiler::{
    BackendError, BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
    TargetArch,
};

use super::{Program, WallError};

/// `BPF_MAXINSNS` (linux/bpf_common.h).
const MAX_INSTRUCTIONS: usize = 4096;
/// Offsets in `struct seccomp_data` (linux/seccomp.h).
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
/// `__X32_SYSCALL_BIT` (asm/unistd.h).
const X32_BIT: u32 = 0x4000_0000;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Allow,
    Errno(Errno),
    /// SIGSYS in place of the call.
    Trap,
    /// Whoever has the program's listener is asked.
    Notify,
    KillProcess,
}

/// If all conditions hold, this action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clause {
    /// From 1 to 16 (a conditional jump spans them all); no [`Comparison::AnyBits`] of several bits.
    pub(crate) all: Vec<Condition>,
    pub(crate) action: Action,
}

/// The first clause that holds, otherwise the last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) clauses: Vec<Clause>,
    pub(crate) otherwise: Action,
}

/// A verdict from a number on, up to the next span.
#[derive(Debug, PartialEq, Eq)]
struct Span<'a> {
    first: u32,
    verdict: &'a Verdict,
}

/// An instruction, or a jump to a block that has no place yet.
enum Step {
    Instruction(libc::sock_filter),
    Block(usize),
}

// === impl Action ===

impl Action {
    fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno.number()),
            Self::Trap => libc::SECCOMP_RET_TRAP,
            Self::Notify => libc::SECCOMP_RET_USER_NOTIF,
            Self::KillProcess => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

// === impl Verdict ===

impl Verdict {
    pub(crate) fn allow() -> Self {
        Self::always(Action::Allow)
    }

    pub(crate) fn always(action: Action) -> Self {
        Self { clauses: Vec::new(), otherwise: action }
    }

    /// What the program does with a call of these arguments.
    pub(crate) fn of(&self, arguments: &[u64; 6]) -> Action {
        let known = arguments.map(Some);
        let holds = |one: &Condition| one.holds(&known) == Some(true);
        let clause = self.clauses.iter().find(|clause| clause.all.iter().all(holds));
        clause.map_or(self.otherwise, |clause| clause.action)
    }
}

/// Lays verdicts out; a number that is not among them is allowed.
pub(crate) fn lay_out(
    target: TargetArch,
    verdicts: &BTreeMap<u32, Verdict>,
) -> Result<Program, WallError> {
    lay_out_over(target, verdicts, Action::Allow)
}

/// Lays verdicts out; a number that is not among them gets the action.
pub(crate) fn lay_out_over(
    target: TargetArch,
    verdicts: &BTreeMap<u32, Verdict>,
    unnamed: Action,
) -> Result<Program, WallError> {
    let (unnamed, kill) = (Verdict::always(unnamed), Verdict::always(Action::KillProcess));
    let spans = spans(verdicts, &unnamed, (target == TargetArch::x86_64).then_some(&kill));
    let mut blocks: Vec<&Verdict> = Vec::new();
    let mut steps = Vec::new();
    search(&spans, &mut blocks, &mut steps);
    let mut instructions = vec![
        load(OFFSET_ARCHITECTURE),
        jump(libc::BPF_JEQ, audit_architecture(target), 1, 0),
        leave(Action::KillProcess),
        load(OFFSET_NUMBER),
    ];
    let mut starts = Vec::with_capacity(blocks.len());
    let mut bodies = Vec::new();
    let end_of_search = instructions.len() + steps.len();
    for verdict in blocks {
        starts.push(end_of_search + bodies.len());
        block(verdict, &mut bodies)?;
    }
    for step in steps {
        let here = instructions.len();
        instructions.push(match step {
            Step::Instruction(instruction) => instruction,
            Step::Block(index) => skip(starts[index] - here - 1),
        });
    }
    instructions.extend(bodies);
    if instructions.len() > MAX_INSTRUCTIONS {
        return Err(WallError::FilterTooLong {
            length: instructions.len(),
            limit: MAX_INSTRUCTIONS,
        });
    }
    Ok(Program { instructions })
}

/// Divides all numbers; neighbours with one verdict share a span. -1 is not x32: a tracer or a probe for seccomp uses
/// it, and the kernel answers ENOSYS.
fn spans<'a>(
    verdicts: &'a BTreeMap<u32, Verdict>,
    unnamed: &'a Verdict,
    x32: Option<&'a Verdict>,
) -> Vec<Span<'a>> {
    let mut spans: Vec<Span<'a>> = Vec::new();
    let mut add = |first, verdict| match spans.last_mut() {
        Some(last) if last.verdict == verdict => {}
        Some(last) if last.first == first => last.verdict = verdict,
        _ => spans.push(Span { first, verdict }),
    };
    add(0, unnamed);
    for (number, verdict) in verdicts {
        add(*number, verdict);
        if !verdicts.contains_key(&(number + 1)) {
            add(number + 1, unnamed);
        }
    }
    if let Some(kill) = x32 {
        add(X32_BIT, kill);
        add(u32::MAX, unnamed);
    }
    spans
}

/// Finds the span of the number in the accumulator; always ends in a return or a jump to a block.
fn search<'a>(spans: &[Span<'a>], blocks: &mut Vec<&'a Verdict>, steps: &mut Vec<Step>) {
    if let [span] = spans {
        steps.push(if span.verdict.clauses.is_empty() {
            Step::Instruction(leave(span.verdict.otherwise))
        } else {
            let known = blocks.iter().position(|block| *block == span.verdict);
            Step::Block(known.unwrap_or_else(|| {
                blocks.push(span.verdict);
                blocks.len() - 1
            }))
        });
        return;
    }
    let (lower, upper) = spans.split_at(spans.len() / 2);
    let mut below = Vec::new();
    search(lower, blocks, &mut below);
    // A conditional jump reaches 255 instructions.
    if let Ok(distance) = u8::try_from(below.len()) {
        steps.push(Step::Instruction(jump(libc::BPF_JGE, upper[0].first, distance, 0)));
    } else {
        steps.push(Step::Instruction(jump(libc::BPF_JGE, upper[0].first, 0, 1)));
        steps.push(Step::Instruction(skip(below.len())));
    }
    steps.append(&mut below);
    search(upper, blocks, steps);
}

fn block(verdict: &Verdict, instructions: &mut Vec<libc::sock_filter>) -> Result<(), BackendError> {
    for clause in &verdict.clauses {
        let conditions = clause.all.iter().map(condition).collect::<Result<_, _>>()?;
        // Falls through where all hold, and otherwise jumps over one more instruction: the return.
        let test = BpfProgram::from(SeccompRule::new(conditions)?);
        instructions.extend(without_entry(&test).iter().map(|i| libc::sock_filter {
            code: i.code,
            jt: i.jt,
            jf: i.jf,
            k: i.k,
        }));
        instructions.push(leave(clause.action));
    }
    instructions.push(leave(verdict.otherwise));
    Ok(())
}

/// seccompiler begins a rule with a jump over a jump to its next rule, which nothing here ever takes and which would
/// lead out of the program behind the last one.
fn without_entry(test: &[seccompiler::sock_filter]) -> &[seccompiler::sock_filter] {
    let is_jump = |i: &seccompiler::sock_filter| u32::from(i.code) == libc::BPF_JMP | libc::BPF_JA;
    match test {
        [over, next_rule, tests @ ..] if is_jump(over) && over.k == 1 && is_jump(next_rule) => {
            tests
        }
        tests => tests,
    }
}

fn condition(condition: &Condition) -> Result<SeccompCondition, BackendError> {
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
        // A single bit, by the invariant of `Clause`.
        Comparison::AnyBits(bits) => (SeccompCmpOp::MaskedEq(bits), bits),
    };
    SeccompCondition::new(condition.argument, width, operator, value)
}

/// `AUDIT_ARCH_*` (linux/audit.h).
fn audit_architecture(target: TargetArch) -> u32 {
    match target {
        TargetArch::x86_64 => 0xc000_003e,
        TargetArch::aarch64 => 0xc000_00b7,
        TargetArch::riscv64 => 0xc000_00f3,
    }
}

fn load(offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn jump(test: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | test | libc::BPF_K, yes, no, value)
}

fn skip(distance: usize) -> libc::sock_filter {
    // Beyond the limit of a program, which is checked, nothing is that far away.
    instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, u32::try_from(distance).unwrap_or(u32::MAX))
}

fn leave(action: Action) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action.code())
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    // The constants of libc are wider than the field.
    let code = u16::try_from(code).expect("BPF codes have 16 bits");
    libc::sock_filter { code, jt, jf, k }
}

#[cfg(test)]
#[path = "program_tests.rs"]
pub(crate) mod tests;
