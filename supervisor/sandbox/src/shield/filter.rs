//! A list of calls as a seccomp program that a process of ours puts on, for good (seccomp(2)).
//!
//! What no line allows is answered EPERM by way of SIGSYS ([`super::refused`] says it in the log); a number that this build
//! does not know is answered ENOSYS, on which a newer C library falls back. Filters are inherited, so the spawner is
//! started before: an agent wears its own wall's program and not this one.

use std::collections::BTreeMap;
use std::fmt;

use casemate_protocol::policy::Errno;
use seccompiler::TargetArch;

use super::calls::{Role, Rule, Verb};
use super::{ShieldError, refused};
use crate::single::require_single_thread;
use crate::wall::WallError;
use crate::wall::program::{self, Action, Clause, Verdict};
use crate::wall::syscalls::{self, Found};
use crate::wall::{Program, own_architecture};

/// A filter that was put on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    role: Role,
    allowed: usize,
    deadly: usize,
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, allowed, deadly } = self;
        write!(
            f,
            "{} filter: {allowed} calls, {deadly} others deadly, the rest refused",
            role.name()
        )
    }
}

/// Puts the role's filter on this process, for good and for all threads that it may come to have.
///
/// # Errors
/// [`ShieldError`]: there is no filter, and the process must not go on.
pub fn confine(role: Role) -> Result<Confined, ShieldError> {
    require_single_thread().map_err(ShieldError::Threads)?;
    let rules = role.rules()?;
    let program = compile(own_architecture()?, &rules)?;
    refused::answer()?;
    nix::sys::prctl::set_no_new_privs().map_err(ShieldError::NoNewPrivs)?;
    install(&program, role)?;
    Ok(Confined::by(role, &rules))
}

// === impl Confined ===

impl Confined {
    /// What a process that has put it on has.
    pub(crate) fn by(role: Role, rules: &[Rule]) -> Self {
        let count = |counted: fn(Verb) -> bool| {
            let mut names: Vec<&str> = rules
                .iter()
                .filter(|rule| counted(rule.verb))
                .filter(|rule| matches!(syscalls::find(&rule.name), Some(Found::Number(_))))
                .map(|rule| rule.name.as_str())
                .collect();
            names.sort_unstable();
            names.dedup();
            names.len()
        };
        Self { role, allowed: count(Verb::allows), deadly: count(|verb| verb == Verb::Kill) }
    }
}

/// For every thread, of which there is one. The refusals of those who deal with strangers go to the kernel's audit as well. By the
/// flags `conformance/supervisor-calls` tells a worker's roles from each other, and by TSYNC all from a wall.
fn install(program: &Program, role: Role) -> Result<(), ShieldError> {
    let flags = match role {
        Role::Supervisor | Role::Init => {
            libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_LOG
        }
        Role::Launcher => libc::SECCOMP_FILTER_FLAG_TSYNC,
        Role::Porter => {
            libc::SECCOMP_FILTER_FLAG_TSYNC
                | libc::SECCOMP_FILTER_FLAG_LOG
                | libc::SECCOMP_FILTER_FLAG_TSYNC_ESRCH
        }
    };
    let instructions = program.instructions();
    let failed = |errno| ShieldError::Filter { role: role.name(), source: errno };
    let len = u16::try_from(instructions.len()).map_err(|_| failed(nix::errno::Errno::E2BIG))?;
    let program = libc::sock_fprog { len, filter: instructions.as_ptr().cast_mut() };
    // SAFETY: `program` describes a live slice of `len` instructions; the kernel copies them.
    let installed = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    match nix::errno::Errno::result(installed) {
        Ok(0) => Ok(()),
        // The id of a thread that could not be made to wear it.
        Ok(_) => Err(failed(nix::errno::Errno::ESRCH)),
        Err(errno) => Err(failed(errno)),
    }
}

fn compile(target: TargetArch, rules: &[Rule]) -> Result<Program, WallError> {
    let mut verdicts: BTreeMap<u32, Verdict> = syscalls::all()
        .map(|(_, number)| (number, Verdict { clauses: Vec::new(), otherwise: Action::Trap }))
        .collect();
    for rule in rules {
        let Some(Found::Number(number)) = syscalls::find(&rule.name) else { continue };
        let Some(verdict) = verdicts.get_mut(&number) else { continue };
        let action = match rule.verb {
            Verb::Allow | Verb::Spare => Action::Allow,
            Verb::Quiet => Action::Errno(Errno::Eperm),
            Verb::Lacks => Action::Errno(Errno::Enosys),
            Verb::Kill => Action::KillProcess,
        };
        if rule.when.is_empty() {
            verdict.otherwise = action;
        } else {
            verdict.clauses.push(Clause { all: rule.when.clone(), action });
        }
    }
    program::lay_out_over(target, &verdicts, Action::Errno(Errno::Enosys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall::program::tests::{X86_64, answers, data, run};

    const NO_SUCH_CALL: u32 = 600;

    /// Each call of the table, by the list read plainly and by the program.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_program_does_what_the_list_says() {
        for role in Role::ALL {
            let rules = role.rules().unwrap();
            let program = compile(TargetArch::x86_64, &rules).unwrap();
            let mut values = vec![0, 1, 2, 4, 6, 7, 0xffff_ffff, u64::MAX, 1 << 40, 1 << 32 | 1];
            values.extend([3, 0x406, 0x5421, 0x5412, 0x802, 16]);
            assert!(!answers(&program).contains(&libc::SECCOMP_RET_USER_NOTIF));
            let (mut allowed, mut refused) = (0, 0);
            for (name, number) in syscalls::all() {
                for argument in 0..6 {
                    for (value, others) in
                        values.iter().flat_map(|value| [(*value, 0), (*value, 1)])
                    {
                        let mut arguments = [others; 6];
                        arguments[argument] = value;
                        let rule = rules.iter().find(|rule| rule.covers(name, &arguments));
                        let expected = match rule.map(|rule| rule.verb) {
                            Some(Verb::Allow | Verb::Spare) => libc::SECCOMP_RET_ALLOW,
                            Some(Verb::Quiet) => {
                                libc::SECCOMP_RET_ERRNO | u32::from(Errno::Eperm.number())
                            }
                            Some(Verb::Lacks) => {
                                libc::SECCOMP_RET_ERRNO | u32::from(Errno::Enosys.number())
                            }
                            Some(Verb::Kill) => libc::SECCOMP_RET_KILL_PROCESS,
                            None => libc::SECCOMP_RET_TRAP,
                        };
                        let answer = run(&program, &data(number, X86_64, arguments));
                        assert_eq!(answer, expected, "{name} {arguments:x?}");
                        allowed += usize::from(expected == libc::SECCOMP_RET_ALLOW);
                        refused += usize::from(expected == libc::SECCOMP_RET_TRAP);
                    }
                }
            }
            assert!(allowed > 1000 && refused > allowed, "{allowed} {refused}");
            let answer = |number| run(&program, &data(number, X86_64, [0; 6]));
            let unknown = libc::SECCOMP_RET_ERRNO | u32::from(Errno::Enosys.number());
            assert_eq!(answer(NO_SUCH_CALL), unknown);
            assert_eq!(answer(u32::MAX), unknown);
            // read(2) by its x32 number, and by another architecture's.
            assert_eq!(answer(0x4000_0000), libc::SECCOMP_RET_KILL_PROCESS);
            let other = run(&program, &data(0, 0x4000_0003, [0; 6]));
            assert_eq!(other, libc::SECCOMP_RET_KILL_PROCESS);
        }
    }
}
