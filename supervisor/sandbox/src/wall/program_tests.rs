//! The layout against a plain reading of the verdicts, by a small BPF machine.

use proptest::prelude::*;

use super::*;

pub(crate) const X86_64: u32 = 0xc000_003e;

/// `struct seccomp_data` as 32-bit words, little endian.
pub(crate) fn data(number: u32, architecture: u32, arguments: [u64; 6]) -> Vec<u32> {
    let halves = arguments.iter().flat_map(|a| [(*a & 0xffff_ffff) as u32, (*a >> 32) as u32]);
    [number, architecture, 0, 0].into_iter().chain(halves).collect()
}

/// Runs a program; only forward jumps exist, so it ends.
pub(crate) fn run(program: &Program, data: &[u32]) -> u32 {
    let (mut at, mut accumulator) = (0_usize, 0_u32);
    // As the kernel requires: every jump, taken or not, stays within (bpf_check_classic).
    for (at, i) in program.instructions().iter().enumerate() {
        let code = u32::from(i.code);
        let reach = match code & 7 {
            libc::BPF_JMP if code == libc::BPF_JMP | libc::BPF_JA => i.k as usize,
            libc::BPF_JMP => usize::from(i.jt.max(i.jf)),
            _ => 0,
        };
        let last = program.instructions().len() - 1;
        assert!(at + reach < last || code & 7 == libc::BPF_RET, "instruction {at} leads out");
    }
    loop {
        let i = &program.instructions()[at];
        let code = u32::from(i.code);
        at += 1;
        let branch = |holds: bool| usize::from(if holds { i.jt } else { i.jf });
        if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
            accumulator = data[i.k as usize / 4];
        } else if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K {
            accumulator &= i.k;
        } else if code == libc::BPF_JMP | libc::BPF_JA {
            at += i.k as usize;
        } else if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K {
            at += branch(accumulator == i.k);
        } else if code == libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K {
            at += branch(accumulator > i.k);
        } else if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K {
            at += branch(accumulator >= i.k);
        } else if code == libc::BPF_RET | libc::BPF_K {
            return i.k;
        } else {
            panic!("instruction {code:#x} is not known to this machine");
        }
    }
}

/// Every answer that a program may give, without its data.
pub(crate) fn answers(program: &Program) -> std::collections::BTreeSet<u32> {
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let returns = program.instructions().iter().filter(|i| u32::from(i.code) == RETURN);
    returns.map(|i| i.k & libc::SECCOMP_RET_ACTION_FULL).collect()
}

fn holds(condition: &Condition, arguments: &[u64; 6]) -> bool {
    let cut = |value: u64| match condition.width {
        Width::Bits32 => value & 0xffff_ffff,
        Width::Bits64 => value,
    };
    let value = cut(arguments[usize::from(condition.argument)]);
    match condition.comparison {
        Comparison::Equal(other) => value == cut(other),
        Comparison::NotEqual(other) => value != cut(other),
        Comparison::Less(other) => value < cut(other),
        Comparison::Greater(other) => value > cut(other),
        Comparison::MaskedEqual { mask, value: other } => value & cut(mask) == cut(other),
        Comparison::AnyBits(bits) => value & cut(bits) != 0,
    }
}

fn expected(verdicts: &BTreeMap<u32, Verdict>, number: u32, arguments: &[u64; 6]) -> u32 {
    if (X32_BIT..u32::MAX).contains(&number) {
        return Action::KillProcess.code();
    }
    let allow = Verdict::allow();
    let verdict = verdicts.get(&number).unwrap_or(&allow);
    let clause =
        verdict.clauses.iter().find(|clause| clause.all.iter().all(|c| holds(c, arguments)));
    clause.map_or(verdict.otherwise, |clause| clause.action).code()
}

/// Few values, so that they meet.
pub(crate) fn value() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, Just(1 << 32), Just((1 << 32) | 1), Just(u64::MAX), Just(0xffff_fffe)]
}

pub(crate) fn a_condition() -> impl Strategy<Value = Condition> {
    let width = prop_oneof![Just(Width::Bits32), Just(Width::Bits64)];
    (0..6_u8, width, value(), value(), 0..6, 0..64_u32).prop_map(
        |(argument, width, value, mask, kind, bit)| {
            // As the policy's reader leaves them: within the width.
            let cut = |value: u64| if width == Width::Bits32 { value & 0xffff_ffff } else { value };
            let comparison = match kind {
                0 => Comparison::Equal(cut(value)),
                1 => Comparison::NotEqual(cut(value)),
                2 => Comparison::Less(cut(value)),
                3 => Comparison::Greater(cut(value)),
                4 => Comparison::MaskedEqual { mask: cut(mask), value: cut(value & mask) },
                _ => Comparison::AnyBits(1 << if width == Width::Bits32 { bit % 32 } else { bit }),
            };
            Condition { argument, width, comparison }
        },
    )
}

fn an_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Allow),
        Just(Action::Errno(Errno::Eperm)),
        Just(Action::Errno(Errno::Enosys))
    ]
}

fn a_verdict() -> impl Strategy<Value = Verdict> {
    let clause = (proptest::collection::vec(a_condition(), 1..=16), an_action())
        .prop_map(|(all, action)| Clause { all, action });
    (proptest::collection::vec(clause, 0..3), an_action())
        .prop_map(|(clauses, otherwise)| Verdict { clauses, otherwise })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_call_gets_its_verdict(
        verdicts in proptest::collection::btree_map(0..120_u32, a_verdict(), 0..60),
        calls in proptest::collection::vec((0..125_u32, proptest::array::uniform6(value())), 60),
    ) {
        let Ok(program) = lay_out(TargetArch::x86_64, &verdicts) else {
            return Err(TestCaseError::reject("too long"));
        };
        let edges = [X32_BIT - 1, X32_BIT, X32_BIT | 1, X32_BIT | 59, u32::MAX - 1, u32::MAX];
        let calls = calls.into_iter().chain(edges.map(|number| (number, [0; 6])));
        for (number, arguments) in calls {
            let answer = run(&program, &data(number, X86_64, arguments));
            prop_assert_eq!(answer, expected(&verdicts, number, &arguments), "{} {:x?}", number, arguments);
        }
    }
}

#[test]
fn another_architecture_is_killed() {
    let verdicts = BTreeMap::from([(1, Verdict::allow())]);
    for (target, own) in [(TargetArch::x86_64, X86_64), (TargetArch::aarch64, 0xc000_00b7)] {
        let program = lay_out(target, &verdicts).unwrap();
        assert_eq!(run(&program, &data(1, own, [0; 6])), libc::SECCOMP_RET_ALLOW);
        for other in [0x4000_0003, 0x4000_0028, 0] {
            assert_eq!(run(&program, &data(1, other, [0; 6])), libc::SECCOMP_RET_KILL_PROCESS);
        }
    }
}

#[test]
fn neighbours_with_one_verdict_share_a_span() {
    let refused = Verdict::always(Action::Errno(Errno::Eperm));
    let verdicts: BTreeMap<_, _> = (10..20).map(|number| (number, refused.clone())).collect();
    let allow = Verdict::allow();
    let firsts: Vec<_> = spans(&verdicts, &allow, None).iter().map(|span| span.first).collect();
    assert_eq!(firsts, [0, 10, 20]);
}
