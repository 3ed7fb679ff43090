//! What the settings of a machine close to everybody who has no privilege there. An attack that fails for such a reason
//! proves nothing of a wall, nor against the catalogue.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::Attack;

/// A setting, how it is found closed, and what it closes.
struct Setting {
    name: &'static str,
    closed: fn() -> bool,
    attacks: fn(&str) -> bool,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "a hard limit of core files",
        closed: || getrlimit(Resource::Core).maximum.is_some_and(|most| most < 1 << 20),
        attacks: |id| id == "core-limit",
    },
    Setting {
        name: "a limit of locked memory",
        closed: || getrlimit(Resource::Memlock).current.is_some_and(|most| most < 64 << 10),
        attacks: |id| id == "ring-setup",
    },
    Setting {
        // What a queue of the kernel's default size takes of its user's share (mq_overview(7)).
        name: "a limit of message queues",
        closed: || limit("Max msgqueue size").is_some_and(|most| most < 164 << 10),
        attacks: |id| id.starts_with("queue-"),
    },
    Setting {
        name: "no_new_privs around everything",
        closed: || line("/proc/self/status", "NoNewPrivs:").is_some_and(|value| value == "1"),
        attacks: |id| id == "setuid-program",
    },
    Setting {
        name: "dev.tty.legacy_tiocsti = 0",
        closed: || number("/proc/sys/dev/tty/legacy_tiocsti") == Some(0),
        attacks: |id| id.starts_with("terminal-type"),
    },
    Setting {
        name: "kernel.yama.ptrace_scope",
        closed: || number("/proc/sys/kernel/yama/ptrace_scope").is_some_and(|scope| scope > 0),
        attacks: |id| {
            ["ptrace", "-memory", "-take-descriptor"].iter().any(|part| id.contains(part))
                && ["process-", "proc-", "supervisor-"].iter().any(|part| id.starts_with(part))
        },
    },
    Setting {
        name: "kernel.perf_event_paranoid > 2",
        closed: || number("/proc/sys/kernel/perf_event_paranoid").is_some_and(|level| level > 2),
        attacks: |id| ["event-open", "process-count-events"].contains(&id),
    },
    Setting {
        name: "kernel.io_uring_disabled",
        closed: || number("/proc/sys/kernel/io_uring_disabled").is_some_and(|level| level > 0),
        attacks: |id| id == "ring-setup",
    },
    Setting {
        name: "no user namespaces for ordinary users",
        closed: || {
            number("/proc/sys/user/max_user_namespaces") == Some(0)
                || number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0)
                || number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1)
        },
        attacks: |id| {
            ["unshare-", "clone-", "mount-"].iter().any(|part| id.starts_with(part))
                || ["enter-namespace", "hostname", "chroot"].contains(&id)
                || ["raw-send", "packet-send", "xdp-send"].contains(&id)
        },
    },
    Setting {
        name: "temporary files on an overlay",
        closed: || {
            const OVERLAY: i64 = 0x794c_7630;
            rustix::fs::statfs(std::env::temp_dir()).is_ok_and(|found| found.f_type == OVERLAY)
        },
        attacks: |id| ["mount-overlay", "file-rename-whiteout"].contains(&id),
    },
];

/// The setting of this machine that closes this attack to an ordinary user, wall or not; as far as is known.
#[must_use]
pub fn closed_here(attack: &Attack) -> Option<&'static str> {
    let mut settings = SETTINGS.iter().filter(|setting| (setting.attacks)(attack.id));
    settings.find(|setting| (setting.closed)()).map(|setting| setting.name)
}

fn number(path: &str) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The soft limit of this process by its name in proc_pid_limits(5); `None` for none.
fn limit(name: &str) -> Option<u64> {
    line("/proc/self/limits", name)?.split_whitespace().next()?.parse().ok()
}

fn line(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::attacks;
    use super::*;

    #[test]
    fn each_setting_closes_attacks_that_there_are_and_not_most_of_them() {
        for setting in SETTINGS {
            let closes = attacks().filter(|attack| (setting.attacks)(attack.id)).count();
            assert!((1..40).contains(&closes), "{}: {closes}", setting.name);
        }
    }
}
