//! Cgroup v2: may this process make a group below its own (cgroups(7), delegation)?

use std::fs;
use std::path::{Path, PathBuf};

use super::trial::Outcome;

/// Makes a group and removes it again.
pub(super) fn delegation() -> Outcome {
    let read = |path| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let mount = mount_point(&read("/proc/self/mountinfo")?).ok_or("no cgroup v2 is mounted")?;
    let groups = read("/proc/self/cgroup")?;
    let own = own_group(&groups).ok_or("this process is in no cgroup v2 group")?;
    let directory = mount.join(own.trim_start_matches('/'));
    let new = directory.join(format!("casemate-check-{}", std::process::id()));
    fs::create_dir(&new)
        .map_err(|error| format!("no group below {}: {error}", directory.display()))?;
    let controllers = fs::read_to_string(new.join("cgroup.controllers")).unwrap_or_default();
    fs::remove_dir(&new).map_err(|error| format!("{} stays behind: {error}", new.display()))?;
    match controllers.trim() {
        "" => Err(format!(
            "groups can be made below {}, but no controller is delegated",
            directory.display()
        )),
        names => Ok(format!("controllers {names}")),
    }
}

/// Where cgroup2 is mounted, by the text of /proc/self/mountinfo (proc_pid_mountinfo(5)).
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo
        .lines()
        .find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            (after.split(' ').next()? == "cgroup2")
                .then(|| before.split(' ').nth(4).map(Path::new))?
        })
        .map(Path::to_owned)
}

/// The v2 group, by the text of /proc/self/cgroup.
fn own_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_v2_group_is_found_among_v1_ones() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      38 31 0:35 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mounts).unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mount_point("1 2 0:1 / / rw - ext4 /dev/sda rw\n"), None);
        assert_eq!(own_group("8:pids:/x\n0::/user.slice/a\n"), Some("/user.slice/a"));
        assert_eq!(own_group("8:pids:/x\n"), None);
    }
}
