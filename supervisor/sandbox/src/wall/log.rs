//! What the kernel is told about its log: flags of landlock_restrict_self(2) and seccomp(2).
//!
//! Left alone, Landlock logs what a process is refused between the wall and its program, and what domains that an agent
//! makes itself refuse: the first is the start's own probe, the second lets an agent write to the machine's log. So a
//! policy without `[log]` turns both off, and nothing is logged.

use casemate_protocol::policy::{LogSource, Policy};

/// `LANDLOCK_RESTRICT_SELF_LOG_*` of linux/landlock.h, from ABI 7 on.
const SAME_EXEC_OFF: u32 = 1 << 0;
const NEW_EXEC_ON: u32 = 1 << 1;
const SUBDOMAINS_OFF: u32 = 1 << 2;
const LANDLOCK_ABI: u32 = 7;
/// `SECCOMP_FILTER_FLAG_LOG` of linux/seccomp.h, as wide as seccomp(2) takes it.
const FILTER_LOG: u32 = 1 << 1;

/// The flags of a wall.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Logging {
    /// For landlock_restrict_self(2).
    pub restrict_self: u32,
    /// For seccomp(2), `SECCOMP_FILTER_FLAG_LOG` or 0.
    pub filter: u32,
}

pub(super) fn flags(policy: &Policy, abi: u32) -> Logging {
    let restrict_self = match (abi >= LANDLOCK_ABI, policy.logs(LogSource::Landlock)) {
        (false, _) => 0,
        (true, true) => NEW_EXEC_ON,
        (true, false) => SAME_EXEC_OFF | SUBDOMAINS_OFF,
    };
    let filter = if policy.logs(LogSource::Seccomp) { FILTER_LOG } else { 0 };
    Logging { restrict_self, filter }
}

/// What becomes of the policy's wish. Whether the machine keeps the records is its administrator's to see.
pub(super) fn note(policy: &Policy, abi: u32) -> Option<String> {
    let log = policy.log.as_ref()?;
    let (asked, cannot): (Vec<LogSource>, Vec<LogSource>) =
        log.what.iter().partition(|source| **source == LogSource::Seccomp || abi >= LANDLOCK_ABI);
    let words = |list: &[LogSource]| {
        list.iter().map(LogSource::to_string).collect::<Vec<_>>().join(" and ")
    };
    let mut note = "log: ".to_owned();
    if !asked.is_empty() {
        note += &format!(
            "the kernel is asked to write what {} refuses to its audit log",
            words(&asked)
        );
    }
    if !cannot.is_empty() {
        let before = if asked.is_empty() { "" } else { "; " };
        note += &format!(
            "{before}what landlock refuses is not logged: abi {abi} cannot (abi {LANDLOCK_ABI} can)"
        );
    }
    Some(note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::policy::{AUDIT, DEVELOPER};

    #[test]
    fn nothing_is_logged_unless_the_policy_asks() {
        let (audit, developer) = (Policy::parse(AUDIT).unwrap(), Policy::parse(DEVELOPER).unwrap());
        assert_eq!(flags(&audit, 7), Logging { restrict_self: 2, filter: 2 });
        assert_eq!(flags(&developer, 7), Logging { restrict_self: 5, filter: 0 });
        // Where the kernel knows none of the flags it would refuse them.
        assert_eq!(flags(&developer, 6), Logging::default());
        assert_eq!(flags(&audit, 6), Logging { restrict_self: 0, filter: 2 });
        assert_eq!(u64::from(flags(&audit, 7).filter), libc::SECCOMP_FILTER_FLAG_LOG);
    }

    #[test]
    fn a_kernel_that_cannot_is_named() {
        let mut policy = Policy::parse(AUDIT).unwrap();
        let whole = note(&policy, 7).unwrap();
        assert!(whole.contains("what landlock and seccomp refuses"), "{whole}");
        let part = note(&policy, 6).unwrap();
        assert!(part.contains("what seccomp refuses") && part.contains("abi 6 cannot"), "{part}");
        if let Some(log) = policy.log.as_mut() {
            log.what = vec![LogSource::Landlock];
        }
        assert!(note(&policy, 6).unwrap().starts_with("log: what landlock refuses is not logged"));
        assert_eq!(note(&Policy::parse(DEVELOPER).unwrap(), 7), None);
    }
}
