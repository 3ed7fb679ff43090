//! Resource limits, as this process may set them in a child (setrlimit(2)).

use std::io;

use casemate_protocol::policy::{Policy, Resource};
use nix::sys::resource::{Resource as Kernel, getrlimit};

use super::WallError;

/// A resource limit to set in the child, already clamped to what this process may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    /// `RLIMIT_*`.
    pub resource: libc::__rlimit_resource_t,
    /// The soft limit; `RLIM_INFINITY`: none.
    pub soft: u64,
    /// The hard limit; `RLIM_INFINITY`: none.
    pub hard: u64,
}

/// The limits, and a line for each that had to be lowered: only a privileged process may raise its hard limit.
pub(super) fn fit(policy: &Policy) -> Result<(Vec<Rlimit>, Vec<String>), WallError> {
    let mut limits = Vec::with_capacity(policy.rlimits.len());
    let mut notes = Vec::new();
    for rule in &policy.rlimits {
        let (kernel, name) = kernel(rule.resource);
        let (_, own) = getrlimit(kernel)
            .map_err(|e| WallError::Rlimit { resource: name, source: io::Error::from(e) })?;
        let wanted = rule.hard.unwrap_or(libc::RLIM_INFINITY);
        let hard = wanted.min(own);
        if hard < wanted {
            notes.push(format!("rlimit {name}: hard limit {hard}, as this process has no more"));
        }
        let soft = rule.soft.unwrap_or(libc::RLIM_INFINITY).min(hard);
        limits.push(Rlimit { resource: kernel as libc::__rlimit_resource_t, soft, hard });
    }
    Ok((limits, notes))
}

/// Adds a limit, or lowers the one that is there.
pub(super) fn lower(limits: &mut Vec<Rlimit>, resource: libc::__rlimit_resource_t, to: u64) {
    match limits.iter_mut().find(|limit| limit.resource == resource) {
        Some(limit) => (limit.soft, limit.hard) = (limit.soft.min(to), limit.hard.min(to)),
        None => limits.push(Rlimit { resource, soft: to, hard: to }),
    }
}

fn kernel(resource: Resource) -> (Kernel, &'static str) {
    match resource {
        Resource::As => (Kernel::RLIMIT_AS, "as"),
        Resource::Core => (Kernel::RLIMIT_CORE, "core"),
        Resource::Cpu => (Kernel::RLIMIT_CPU, "cpu"),
        Resource::Data => (Kernel::RLIMIT_DATA, "data"),
        Resource::Fsize => (Kernel::RLIMIT_FSIZE, "fsize"),
        Resource::Memlock => (Kernel::RLIMIT_MEMLOCK, "memlock"),
        Resource::Nofile => (Kernel::RLIMIT_NOFILE, "nofile"),
        Resource::Nproc => (Kernel::RLIMIT_NPROC, "nproc"),
        Resource::Stack => (Kernel::RLIMIT_STACK, "stack"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_added_or_lowered_and_never_raised() {
        let resource = libc::RLIMIT_NPROC;
        let mut limits = Vec::new();
        lower(&mut limits, resource, 100);
        assert_eq!(limits, [Rlimit { resource, soft: 100, hard: 100 }]);
        limits[0].soft = 50;
        lower(&mut limits, resource, 70);
        assert_eq!(limits, [Rlimit { resource, soft: 50, hard: 70 }]);
        lower(&mut limits, resource, 200);
        assert_eq!(limits, [Rlimit { resource, soft: 50, hard: 70 }]);
    }
}
