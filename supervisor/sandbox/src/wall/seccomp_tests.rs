//! What `casemate policy explain` says about a call, against what the compiled program answers.

use casemate_protocol::policy::decide::{self, Outcome, Setting};
use casemate_protocol::policy::{
    BUILT_IN, SocketCall, SocketFamily, SocketRule, SocketType, SyscallRule,
};
use proptest::prelude::*;

use super::super::program::tests::{X86_64, a_condition, answers, data, run, value};
use super::*;

const X32: u32 = 0x4000_0001;
const TIERS: [Tier; 3] = [Tier::Domain, Tier::Namespace, Tier::Pod];
const NAMES: [&str; 4] = ["read", "clone", "ioctl", "socketpair"];

fn program(policy: &Policy, setting: &Setting) -> Program {
    program::lay_out(
        TargetArch::x86_64,
        &verdicts(policy, setting.tier, setting.landlock_abi).unwrap(),
    )
    .unwrap()
}

/// What the program does, in the words of an explanation.
fn answer(program: &Program, name: &str, arguments: [u64; 6]) -> Option<u16> {
    let Some(Found::Number(number)) = syscalls::find(name) else { panic!("{name} has no number") };
    let code = run(program, &data(number, X86_64, arguments));
    if code == libc::SECCOMP_RET_ALLOW {
        return None;
    }
    assert_eq!(code & 0xffff_0000, libc::SECCOMP_RET_ERRNO);
    u16::try_from(code & 0xffff).ok()
}

fn explained(policy: &Policy, setting: &Setting, name: &str, arguments: [u64; 6]) -> Option<u16> {
    let decision = decide::syscall(policy, setting, name, &arguments.map(Some));
    match decision.outcome {
        Outcome::Allowed => None,
        Outcome::Refused => decision.errno.map(Errno::number),
        Outcome::Depends => panic!("{name}: every argument was given"),
    }
}

fn an_errno() -> impl Strategy<Value = Errno> {
    prop_oneof![Just(Errno::Eperm), Just(Errno::Enosys), Just(Errno::Eacces)]
}

fn a_call_rule() -> impl Strategy<Value = SyscallRule> {
    let names = proptest::sample::subsequence(&NAMES[..3], 1..=3);
    let when = proptest::collection::vec(a_condition(), 0..3);
    (names, an_errno(), when).prop_map(|(names, errno, when)| SyscallRule {
        names: names.into_iter().map(str::to_owned).collect(),
        errno,
        when,
        reason: "r".to_owned(),
        line: 1,
    })
}

fn a_socket_rule() -> impl Strategy<Value = SocketRule> {
    let types = proptest::sample::subsequence(&SocketType::ALL[..], 1..=4);
    let protocols = proptest::collection::vec(0..8_u32, 1..3);
    let calls = proptest::sample::subsequence(&SocketCall::ALL[..], 1..=2);
    let applies = (proptest::sample::select(&TIERS[..]), 5..8_u32);
    (proptest::sample::select(&SocketFamily::ALL[..]), types, protocols, calls, applies).prop_map(
        |(family, types, protocols, calls, (tier, landlock_abi))| SocketRule {
            family,
            types,
            protocols,
            calls,
            tier,
            landlock_abi,
            reason: "r".to_owned(),
            line: 1,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_policys_calls_are_explained_as_they_are_compiled(
        syscalls in proptest::collection::vec(a_call_rule(), 0..6),
        allow in proptest::collection::vec(a_socket_rule(), 0..4),
        errno in an_errno(),
        (tier, landlock_abi) in (proptest::sample::select(&TIERS[..]), 5..8_u32),
        calls in proptest::collection::vec((0..4_usize, proptest::array::uniform6(value())), 40),
        sockets in proptest::collection::vec((0..48_u64, 0..16_u64, 0..8_u64, any::<bool>()), 40),
    ) {
        let mut policy = Policy::parse(BUILT_IN[0].1).unwrap();
        policy.syscalls = syscalls;
        policy.sockets.allow = allow;
        policy.sockets.errno = errno;
        let setting = Setting { tier, landlock_abi, ..Setting::symbolic(&policy) };
        let program = program(&policy, &setting);
        let calls = calls.into_iter().map(|(name, arguments)| (NAMES[name], arguments));
        let sockets = sockets.into_iter().map(|(family, kind, protocol, flags)| {
            // What the kernel does not look at must not change the answer.
            let noise = if flags { 0xdead_0000_0000 | 0o2_004_000 } else { 0 };
            (if protocol % 2 == 0 { "socket" } else { "socketpair" }, [family, kind | noise, protocol, 0, 0, 0])
        });
        for (name, arguments) in calls.chain(sockets) {
            let (explained, answer) =
                (explained(&policy, &setting, name, arguments), answer(&program, name, arguments));
            prop_assert_eq!(explained, answer, "{}{:x?}", name, arguments);
        }
    }
}

/// Every call that a built-in policy names, with the numbers that its tests are about and their neighbours.
#[test]
fn the_built_in_policies_are_explained_as_they_are_compiled() {
    let mut refused = 0;
    for ((name, text), tier) in BUILT_IN.into_iter().flat_map(|one| TIERS.map(|tier| (one, tier))) {
        let policy = Policy::parse(text).unwrap();
        let setting = Setting { tier, ..Setting::symbolic(&policy) };
        let program = program(&policy, &setting);
        let mut values: Vec<u64> = (0..64).map(|shift| 1 << shift).chain([0, u64::MAX]).collect();
        for condition in policy.syscalls.iter().flat_map(|rule| &rule.when) {
            let (Comparison::Equal(value)
            | Comparison::NotEqual(value)
            | Comparison::Less(value)
            | Comparison::Greater(value)
            | Comparison::MaskedEqual { value, .. }
            | Comparison::AnyBits(value)) = condition.comparison;
            let near = [value, value.wrapping_add(1), value.wrapping_sub(1), value | 1 << 40];
            values.extend(near);
        }
        let calls = policy.syscalls.iter().flat_map(|rule| &rule.names).map(String::as_str);
        for call in calls.chain(["socket", "socketpair", "read", "openat"]) {
            for value in &values {
                for argument in 0..6 {
                    let mut arguments = [0; 6];
                    arguments[argument] = *value;
                    let explained = explained(&policy, &setting, call, arguments);
                    assert_eq!(
                        explained,
                        answer(&program, call, arguments),
                        "{name} {call}{arguments:x?}"
                    );
                    refused += usize::from(explained.is_some());
                }
            }
        }
    }
    assert!(refused > 10_000, "{refused}");
}

/// A rule's types and protocols, each by itself: a socket of it, and the rule without it.
fn words(rule: &SocketRule) -> Vec<([u64; 6], SocketRule)> {
    let socket = |kind: SocketType, protocol: u32| {
        [rule.family.number().into(), kind.number().into(), protocol.into(), 0, 0, 0]
    };
    let types = rule.types.iter().map(|kind| {
        let mut less = rule.clone();
        less.types.retain(|other| other != kind);
        (socket(*kind, rule.protocols[0]), less)
    });
    let protocols = rule.protocols.iter().map(|protocol| {
        let mut less = rule.clone();
        less.protocols.retain(|other| other != protocol);
        (socket(rule.types[0], *protocol), less)
    });
    types.chain(protocols).collect()
}

/// Each type and each protocol of each socket rule of a built-in policy decides something in some tier on some kernel that the policy takes.
#[test]
fn no_type_or_protocol_of_a_built_in_policys_socket_rules_is_idle() {
    let mut tried = 0;
    for (name, text) in BUILT_IN {
        let whole = Policy::parse(text).unwrap();
        for (index, rule) in whole.sockets.allow.iter().enumerate() {
            for (arguments, rest) in words(rule) {
                let mut less = whole.clone();
                less.sockets.allow[index] = rest;
                let decides = TIERS.into_iter().filter(|tier| *tier >= whole.tier).any(|tier| {
                    (whole.landlock_abi..=10).any(|landlock_abi| {
                        let setting = Setting { tier, landlock_abi, ..Setting::symbolic(&whole) };
                        let (with, without) = (program(&whole, &setting), program(&less, &setting));
                        rule.calls.iter().any(|call| {
                            answer(&with, call.name(), arguments).is_none()
                                && answer(&without, call.name(), arguments).is_some()
                        })
                    })
                });
                assert!(decides, "{name}, line {}: {arguments:?} is idle", rule.line);
                tried += 1;
            }
        }
    }
    assert!(tried > 30, "{tried}");
}

/// Numbers for which a condition holds: for bits, each by itself.
fn held(condition: &Condition) -> Vec<u64> {
    match condition.comparison {
        Comparison::Equal(value) | Comparison::MaskedEqual { value, .. } => vec![value],
        Comparison::NotEqual(value) | Comparison::Greater(value) => vec![value.wrapping_add(1)],
        Comparison::Less(value) => vec![value.wrapping_sub(1)],
        Comparison::AnyBits(bits) => {
            (0..64).map(|bit| 1 << bit).filter(|bit| bits & bit != 0).collect()
        }
    }
}

/// Arguments for which all of a rule's conditions hold: of the alternatives of each condition every one comes once.
fn witnesses(rule: &SyscallRule) -> Vec<[u64; 6]> {
    let alternatives: Vec<Vec<u64>> = rule.when.iter().map(held).collect();
    let most = alternatives.iter().map(Vec::len).max().unwrap_or(1);
    let witness = |turn: usize| {
        let mut arguments = [0; 6];
        for (condition, values) in rule.when.iter().zip(&alternatives) {
            arguments[usize::from(condition.argument)] = values[turn % values.len()];
        }
        arguments
    };
    (0..most).map(witness).collect()
}

/// Each name of each rule on system calls, and each bit that it tests, decides something within the whole of its policy: with the name out, or the
/// bit, a call goes through that was refused.
#[test]
fn no_system_call_of_a_built_in_policy_is_idle() {
    let mut tried = 0;
    for (name, text) in BUILT_IN {
        let whole = Policy::parse(text).unwrap();
        let setting = Setting { tier: whole.tier, ..Setting::symbolic(&whole) };
        let with = program(&whole, &setting);
        for (index, rule) in whole.syscalls.iter().enumerate() {
            for call in &rule.names {
                let mut less = whole.clone();
                less.syscalls[index].names.retain(|other| other != call);
                let without = program(&less, &setting);
                for arguments in witnesses(rule) {
                    let (refused, passes) =
                        (answer(&with, call, arguments), answer(&without, call, arguments));
                    let said = format!("{name}, line {}: {call}{arguments:x?}", rule.line);
                    assert_eq!(refused, Some(rule.errno.number()), "{said} is another rule's");
                    assert_eq!(passes, None, "{said} is idle");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 250, "{tried}");
}

/// What is told is refused by the same rules with the same errno, and what is let through is let through: but connect(2) and bind(2),
/// nothing that the policy allows is asked about.
#[test]
fn a_program_that_tells_differs_in_who_answers_alone() {
    let named = |name| number(name).unwrap();
    for ((name, text), tier) in BUILT_IN.into_iter().flat_map(|one| TIERS.map(|tier| (one, tier))) {
        let policy = Policy::parse(text).unwrap();
        let (programs, verdicts) = compile(&policy, tier, 7).unwrap();
        let (telling, refused) = telling(&verdicts).unwrap();
        let mut asked = 0;
        for call in (0..480).chain([X32, u32::MAX]) {
            for value in [0, 1, 2, 10, 0x8, 0x5412, 0x2000_0000, 0x1000_0000, u64::MAX] {
                for argument in 0..4 {
                    let mut arguments = [0; 6];
                    arguments[argument] = value;
                    let data = data(call, X86_64, arguments);
                    let (alone, told) = (run(&programs[0], &data), run(&telling, &data));
                    if told != libc::SECCOMP_RET_USER_NOTIF {
                        let silent = call == named("sendmsg")
                            || alone == libc::SECCOMP_RET_ERRNO | u32::from(Errno::Enosys.number());
                        let errno = alone & 0xffff_0000 == libc::SECCOMP_RET_ERRNO;
                        assert_eq!((alone, errno && !silent), (told, false), "{name} {call}");
                        continue;
                    }
                    asked += 1;
                    if call == named("connect") || call == named("bind") {
                        assert_eq!(alone, libc::SECCOMP_RET_ALLOW);
                        assert!(!refused.contains_key(&call));
                        continue;
                    }
                    let Action::Errno(errno) = refused[&call].of(&arguments) else {
                        panic!("{name} {call} {arguments:x?} would be answered by nobody")
                    };
                    assert_eq!(alone, libc::SECCOMP_RET_ERRNO | u32::from(errno.number()));
                }
            }
        }
        assert!(asked > 500, "{name}: {asked}");
    }
}

/// A notification costs each path call 3 times as much: a wall answers by itself, in the kernel.
#[test]
fn no_built_in_policy_asks_a_process_about_a_call() {
    for ((name, text), tier) in BUILT_IN.into_iter().flat_map(|one| TIERS.map(|tier| (one, tier))) {
        let policy = Policy::parse(text).unwrap();
        for abi in 6..12 {
            for program in compile(&policy, tier, abi).unwrap().0 {
                let answers = answers(&program);
                assert!(answers.contains(&libc::SECCOMP_RET_ALLOW), "{name} {tier} {abi}");
                assert!(!answers.contains(&libc::SECCOMP_RET_USER_NOTIF), "{name} {tier} {abi}");
                assert!(!answers.contains(&libc::SECCOMP_RET_TRACE), "{name} {tier} {abi}");
            }
        }
    }
}
