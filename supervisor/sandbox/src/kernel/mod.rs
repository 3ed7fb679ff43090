//! What this machine's kernel offers: tried in child processes, not guessed from a version.
//!
//! A mechanism may be compiled in and still not to be had (a boot parameter, a container's filter, a sysctl), so every
//! line of the report comes from doing the thing. The trials run in forked children: what they take on (domains,
//! filters, namespaces) never reaches the caller.

mod cgroup;
mod landlock;
mod seccomp;
mod trial;

use casemate_protocol::kernel::{Check, KernelReport};
use casemate_protocol::tier::Tier;

use crate::Exit;
use crate::namespaces::{self, Access, Bind, Entered, Plan};
use trial::{Outcome, attempt};

/// Names of the checks that a tier needs.
mod name {
    pub(super) const LANDLOCK: &str = "landlock";
    pub(super) const SIGNAL_SCOPE: &str = "landlock signal scope";
    pub(super) const ABSTRACT_SCOPE: &str = "landlock abstract socket scope";
    pub(super) const SECCOMP: &str = "seccomp filter";
    pub(super) const NOTIFY: &str = "seccomp user notification";
    pub(super) const NO_NEW_PRIVS: &str = "no new privileges";
    pub(super) const MDWE: &str = "memory-deny-write-execute";
    pub(super) const NAMESPACES: &str = "user, mount and pid namespaces";
    pub(super) const COUNTED: &str = "a user id of a session's own";
    pub(super) const CGROUP: &str = "cgroup v2 delegation";
}

const DOMAIN: [&str; 5] =
    [name::LANDLOCK, name::SIGNAL_SCOPE, name::ABSTRACT_SCOPE, name::SECCOMP, name::NO_NEW_PRIVS];

/// Tries everything. Takes some 20 ms. Call it before any thread exists: where there are threads, nothing is forked and
/// every check says so.
#[must_use]
pub fn report() -> KernelReport {
    let checks = vec![
        landlock_check(),
        check(
            name::SIGNAL_SCOPE,
            attempt(landlock::signal_scope),
            "Linux 6.12 or later: without it an agent can signal the supervisor",
        ),
        check(
            name::ABSTRACT_SCOPE,
            attempt(landlock::abstract_scope),
            "Linux 6.12 or later: without it sessions can reach each other's abstract sockets",
        ),
        check(
            name::SECCOMP,
            attempt(seccomp::filter),
            "a kernel with CONFIG_SECCOMP_FILTER, and a container runtime that lets seccomp(2) through",
        ),
        check(
            name::NOTIFY,
            attempt(seccomp::notification),
            "Linux 6.6 or later, and no other seccomp listener around this process; without it egress needs a proxy",
        ),
        check(name::NO_NEW_PRIVS, attempt(trial::no_new_privs), "Linux 3.5 or later"),
        check(
            name::MDWE,
            attempt(trial::deny_write_execute),
            "Linux 6.6 or later; a hardening of the supervisor alone, no tier needs it",
        ),
        check(
            name::NAMESPACES,
            attempt(namespace_worker),
            "user namespaces for this user; until then sessions are in tier domain, where metadata of known paths leaks",
        ),
        check(
            name::COUNTED,
            attempt(own_user),
            "user namespaces for this user, an allocator that root runs, or hostUsers: false in a Pod",
        ),
        check(
            name::CGROUP,
            attempt(cgroup::delegation),
            "start it by `systemd-run --user --scope -p Delegate=yes`; not needed yet: casemate bounds processes, disk and files of a session without it, and memory and processors of none",
        ),
    ];
    let release = nix::sys::utsname::uname()
        .map(|names| names.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let tier = tier_of(&checks);
    KernelReport { release, landlock_abi: landlock::abi(), checks, tier }
}

/// Becomes another user, or whoever it is in a user namespace of its own.
fn own_user() -> Outcome {
    let first = !crate::users::in_own_namespace();
    let nobody = nix::unistd::Uid::from_raw(65_534);
    let root =
        nix::unistd::geteuid().is_root() && nix::unistd::setresuid(nobody, nobody, nobody).is_ok();
    let namespaces = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).is_ok();
    counted(root, namespaces, !first)
}

/// Pure: whom the kernel counts a session's processes with, and what else it counts by user (getrlimit(2)). Root
/// gives each slot a user, tier `namespace` each worker a user namespace, `hostUsers: false` a Pod one.
fn counted(root: bool, namespaces: bool, own_namespace: bool) -> Outcome {
    let words = match (root, namespaces, own_namespace) {
        (true, ..) => {
            "each slot has a user of its own, so the kernel itself holds a session to its number of processes"
        }
        (_, true, _) => {
            "each worker has a user namespace of its own in tier namespace, so the kernel itself holds a session to its \
             number of processes there"
        }
        (.., true) => {
            "this container has a user namespace of its own (hostUsers: false): its sessions count together, and with \
             nobody else"
        }
        _ => {
            return Err(
                "all sessions of this user count together, here and in every container with the same user id: until its \
                 number of processes is noticed, one can use up processes, and always inotify watches and pending \
                 signals, of the others"
                    .to_owned(),
            );
        }
    };
    Ok(words.to_owned())
}

/// Pure: what the checks amount to. Tier `pod` is the cluster's to give, no kernel's.
fn tier_of(checks: &[Check]) -> Option<Tier> {
    let holds = |name| checks.iter().any(|check| check.name == name && check.ok);
    if !DOMAIN.into_iter().all(holds) {
        return None;
    }
    Some(if holds(name::NAMESPACES) { Tier::Namespace } else { Tier::Domain })
}

fn landlock_check() -> Check {
    let fix = match landlock::abi() {
        0 => "boot with landlock in the `lsm=` list (CONFIG_LSM), on Linux 6.12 or later",
        _ => "a container runtime that lets the landlock system calls through",
    };
    let mut check = check(name::LANDLOCK, attempt(landlock::refusal), fix);
    check.found = format!("{}; {}", landlock::version(), check.found);
    check
}

fn check(name: &str, outcome: Outcome, fix: &str) -> Check {
    let (ok, found) = match outcome {
        Ok(found) => (true, found),
        Err(found) => (false, found),
    };
    Check { name: name.to_owned(), ok, found, fix: (!ok).then(|| fix.to_owned()) }
}

/// A whole worker's namespaces: id maps, a tmpfs root, a bind, a new proc and devices, privileges shed.
fn namespace_worker() -> Outcome {
    let usr = Bind {
        source: "/usr".into(),
        target: "/usr".into(),
        access: Access::ReadOnly,
        required: true,
    };
    // `nobody` of the host: the trial touches no file, and root needs to name somebody.
    let plan = Plan {
        host_uid: Some(65_534),
        inside_uid: 1000,
        binds: vec![usr],
        hostname: None,
        withdrawn: None,
    };
    match namespaces::enter(&plan) {
        Ok(Entered::Inside(_)) => {
            let alone = std::process::id() == 1 && !std::path::Path::new("/etc").exists();
            trial::leave(if alone { 0 } else { 1 })
        }
        Ok(Entered::Launcher(launcher)) => {
            match launcher.wait_forwarding_signals().map(Exit::code) {
                Ok(0) => {
                    Ok("a worker as pid 1 over a root of its own, with tmpfs, proc and devices"
                        .to_owned())
                }
                Ok(code) => Err(format!("the worker in them ended with {code}")),
                Err(error) => Err(error.to_string()),
            }
        }
        Err(error) => Err(format!("{error}: {}", error.source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(missing: &[&str]) -> Vec<Check> {
        DOMAIN
            .into_iter()
            .chain([name::NAMESPACES, name::CGROUP])
            .map(|name| Check {
                name: name.to_owned(),
                ok: !missing.contains(&name),
                found: String::new(),
                fix: None,
            })
            .collect()
    }

    #[test]
    fn the_tier_follows_from_what_holds() {
        assert_eq!(tier_of(&checks(&[])), Some(Tier::Namespace));
        assert_eq!(tier_of(&checks(&[name::CGROUP])), Some(Tier::Namespace));
        assert_eq!(tier_of(&checks(&[name::NAMESPACES])), Some(Tier::Domain));
        for needed in DOMAIN {
            assert_eq!(tier_of(&checks(&[needed])), None, "{needed}");
        }
        assert_eq!(tier_of(&[]), None);
    }

    #[test]
    fn whom_a_session_is_counted_with_is_told_and_no_tier_needs_it() {
        for (root, namespaces, own, words) in [
            (true, true, false, "each slot has a user"),
            (true, false, true, "each slot has a user"),
            (false, true, true, "each worker has a user namespace"),
            (false, false, true, "hostUsers: false"),
        ] {
            let said = counted(root, namespaces, own).unwrap();
            assert!(said.contains(words), "{said}");
        }
        assert!(counted(false, false, false).unwrap_err().contains("count together"));
        assert!(tier_of(&checks(&[name::COUNTED])).is_some());
    }

    #[test]
    fn beside_threads_nothing_is_forked_and_nothing_is_claimed() {
        // libtest runs this in a thread.
        let report = report();
        assert_eq!(report.tier, None);
        assert!(report.checks.iter().all(|check| !check.ok && check.found.contains("threads")));
    }
}
