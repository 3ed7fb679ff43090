//! System calls: no rule is idle, and other tables of the same calls are shut.

use casemate_protocol::policy::{
    BUILT_IN, Comparison, Condition, DEVELOPER, Errno, Policy, SyscallRule, Width,
};
use casemate_sandbox::{Program, Wall};

use super::cell::{Site, call, confined, install};

/// An errno that no call in the policy returns by itself, so that only the rule can be its cause.
const MARK: Errno = Errno::Eprotonosupport;

/// Values that meet a condition.
fn meeting(condition: &Condition) -> Vec<u64> {
    let values: Vec<u64> = match condition.comparison {
        Comparison::Equal(value) => vec![value],
        Comparison::MaskedEqual { mask, value } => vec![value, value | !mask],
        Comparison::NotEqual(value) => vec![value + 1, value.wrapping_sub(1)],
        Comparison::Less(value) => vec![value - 1],
        Comparison::Greater(value) => vec![value + 1],
        Comparison::AnyBits(bits) => {
            (0..64).map(|shift| 1 << shift).filter(|bit| bits & bit != 0).collect()
        }
    };
    match condition.width {
        Width::Bits64 => values,
        // What the kernel does not look at must not hide the value from the rule.
        Width::Bits32 => values
            .iter()
            .flat_map(|value| [value & 0xffff_ffff, (value & 0xffff_ffff) | 0xdead_0000_0000])
            .collect(),
    }
}

/// A value that does not, and with which the call does no harm.
fn missing(name: &str, condition: &Condition) -> u64 {
    match condition.comparison {
        // Without SIGHAND this is EINVAL; 0 would fork this test.
        Comparison::AnyBits(_) if name == "clone" => libc::CLONE_THREAD as u64,
        Comparison::AnyBits(_) => 0,
        Comparison::Equal(value) => value + 64,
        Comparison::NotEqual(value) => value,
        // The lowest bit that counts is the other way round.
        Comparison::MaskedEqual { mask, value } => value ^ (mask & mask.wrapping_neg()),
        other => panic!("the policy has a comparison that this test does not know: {other:?}"),
    }
}

fn arguments_for(conditions: &[Condition], chosen: &[u64]) -> [u64; 6] {
    let mut arguments = [0; 6];
    for (condition, value) in conditions.iter().zip(chosen) {
        arguments[usize::from(condition.argument)] = *value;
    }
    arguments
}

/// A wall with one system call rule, which answers [`MARK`].
fn wall_of(site: &Site, rule: &SyscallRule) -> Wall {
    let mut policy = Policy::parse(DEVELOPER).unwrap();
    policy.syscalls = vec![SyscallRule { errno: MARK, ..rule.clone() }];
    Wall::build(&policy, &site.places).unwrap()
}

fn number(name: &str) -> i64 {
    casemate_sandbox::syscall_number(name).unwrap_or_else(|| panic!("{name} has no number"))
}

#[test]
fn no_rule_is_idle() {
    let site = Site::new();
    let mut observed = 0;
    let mut rules: Vec<SyscallRule> = Vec::new();
    for (_, text) in BUILT_IN {
        for rule in Policy::parse(text).unwrap().syscalls {
            // Most rules are in all of them.
            if !rules.iter().any(|seen| seen.names == rule.names && seen.when == rule.when) {
                rules.push(rule);
            }
        }
    }
    for rule in &rules {
        let wall = wall_of(&site, rule);
        for name in &rule.names {
            // One that only another architecture has.
            let Some(number) = casemate_sandbox::syscall_number(name) else { continue };
            let met: Vec<Vec<u64>> = rule.when.iter().map(meeting).collect();
            let first: Vec<u64> = met.iter().map(|values| values[0]).collect();
            // Each condition through all its values, the others at their first.
            let mut attempts = vec![first.clone()];
            for (index, values) in met.iter().enumerate() {
                attempts.extend(values.iter().map(|value| {
                    let mut chosen = first.clone();
                    chosen[index] = *value;
                    chosen
                }));
            }
            for chosen in attempts {
                let arguments = arguments_for(&rule.when, &chosen);
                let answer = confined(&wall, || call(number, arguments));
                assert_eq!(answer, Err(i32::from(MARK.number())), "{name}{arguments:x?}");
                observed += 1;
            }
            for (index, condition) in rule.when.iter().enumerate() {
                let mut chosen = first.clone();
                chosen[index] = missing(name, condition);
                let arguments = arguments_for(&rule.when, &chosen);
                let answer = confined(&wall, || call(number, arguments));
                assert_ne!(
                    answer,
                    Err(i32::from(MARK.number())),
                    "{name}{arguments:x?} is refused too"
                );
            }
        }
    }
    assert!(observed > 90, "{observed}");
}

/// What the callers see under the policy as it is: libraries depend on these.
#[test]
fn refusals_have_the_errno_that_callers_expect() {
    let expected = [
        ("io_uring_setup", [8, 0, 0], libc::ENOSYS),
        ("clone3", [0, 0, 0], libc::ENOSYS),
        ("shmget", [0, 4096, 0o1600], libc::ENOSYS),
        ("keyctl", [0, 0, 0], libc::EPERM),
        ("unshare", [0x1000_0000, 0, 0], libc::EPERM),
        ("userfaultfd", [0, 0, 0], libc::EPERM),
        ("open_by_handle_at", [0, 0, 0], libc::EPERM),
        // The kernel drops the upper half of a request.
        ("ioctl", [0, 0xffff_ffff_0000_5412, 0], libc::EPERM),
    ];
    Site::new().confined(|| {
        for (name, [a, b, c], errno) in expected {
            assert_eq!(call(number(name), [a, b, c, 0, 0, 0]), Err(errno), "{name}");
        }
    });
}

/// The one thing that a policy may leave to the agent or not: to put filters on itself, by either call that does (seccomp(2), prctl(2)).
#[test]
fn filters_of_the_agents_own_are_the_policys_to_forbid() {
    const OTHER: i32 = libc::EXDEV;
    let rule = |name: &str, mode: u32| {
        format!(
            "[[syscall]]\nnames = [\"{name}\"]\nerrno = \"EACCES\"\n\
             when = [{{ arg = 0, bits = 32, op = \"equal\", value = {mode} }}{}]\nreason = \"r\"\n",
            if name == "prctl" {
                ", { arg = 1, bits = 64, op = \"equal\", value = 2 }"
            } else {
                ""
            }
        )
    };
    let forbids = format!(
        "{DEVELOPER}\n{}{}",
        rule("seccomp", libc::SECCOMP_SET_MODE_FILTER),
        rule("prctl", libc::PR_SET_SECCOMP.cast_unsigned())
    );
    // Refuses getpriority(2) in words that nobody else uses.
    let number = u32::try_from(libc::SYS_getpriority).unwrap();
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let filter = [
        line(load, 0, 0, 0),
        line(equal, 0, 1, number),
        line(end, 0, 0, libc::SECCOMP_RET_ERRNO | OTHER as u32),
        line(end, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let at = (&raw const program).expose_provenance() as u64;
    let (by_seccomp, by_prctl) = (
        (libc::SYS_seccomp, [u64::from(libc::SECCOMP_SET_MODE_FILTER), 0, at, 0, 0, 0]),
        (libc::SYS_prctl, [libc::PR_SET_SECCOMP as u64, 2, at, 0, 0, 0]),
    );
    let site = Site::new();
    for (text, forbidden) in [(DEVELOPER, false), (forbids.as_str(), true)] {
        let wall = Wall::build(&Policy::parse(text).unwrap(), &site.places).unwrap();
        for (number, arguments) in [by_seccomp, by_prctl] {
            let (set, answer) = confined(&wall, || {
                assert!(call(libc::SYS_getpriority, [0; 6]).is_ok());
                let set = call(number, arguments);
                (set, call(libc::SYS_getpriority, [0; 6]))
            });
            if forbidden {
                assert_eq!(set, Err(libc::EACCES), "{number}");
                assert!(answer.is_ok(), "{number}");
            } else {
                assert_eq!((set, answer), (Ok(0), Err(OTHER)), "{number}");
            }
        }
    }
}

/// How a child ended that installed programs and then ran `attack`: its exit code, or the signal that killed it.
fn end_of_child(programs: &[Program], attack: fn() -> i32) -> Result<i32, i32> {
    use nix::sys::wait::{WaitStatus, waitpid};
    // SAFETY: the child only makes system calls on memory that was made before, and leaves by _exit.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let _ = call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0]);
            programs.iter().for_each(|program| install(program.instructions()));
            let code = attack();
            // SAFETY: ends this process without running the parent's destructors.
            unsafe { libc::_exit(code) }
        }
        nix::unistd::ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
            WaitStatus::Exited(_, code) => Ok(code),
            WaitStatus::Signaled(_, signal, _) => Err(signal as i32),
            other => panic!("{other:?}"),
        },
    }
}

#[cfg(target_arch = "x86_64")]
mod other_tables {
    use super::*;

    /// getpid by its x32 number: ENOSYS where the kernel has no x32.
    fn x32() -> i32 {
        let _ = call(0x4000_0000 | libc::SYS_getpid, [0; 6]);
        3
    }

    /// getpid by the i386 table.
    fn i386() -> i32 {
        // SAFETY: getpid has no arguments; the instruction changes rax and, on some processors, r8 to r11.
        unsafe {
            std::arch::asm!("int 0x80", inlateout("rax") 20_u64 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        3
    }

    fn minus_one() -> i32 {
        i32::from(call(-1, [0; 6]) == Err(libc::ENOSYS)) * 3
    }

    #[test]
    fn x32_numbers_kill() {
        let wall = Site::new().wall();
        assert_eq!(end_of_child(&[], x32), Ok(3));
        assert_eq!(end_of_child(wall.programs(), x32), Err(libc::SIGSYS));
        assert_eq!(end_of_child(wall.programs(), minus_one), Ok(3));
    }

    #[test]
    fn i386_calls_kill() {
        let wall = Site::new().wall();
        // SIGSEGV where the kernel has no i386 table.
        assert_ne!(end_of_child(&[], i386), Err(libc::SIGSYS));
        assert_eq!(end_of_child(wall.programs(), i386), Err(libc::SIGSYS));
    }
}
