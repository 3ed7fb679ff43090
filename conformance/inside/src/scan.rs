//! Looks for another session's file by name and by content, wherever this session can write.

use std::collections::HashSet;
use std::fs::{self, DirEntry, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::attempt::{Report, SUCCEEDED};

/// Files are read up to this length: a sentinel stands at its file's beginning.
const CONTENT: u64 = 64 * 1024;

/// File systems that hold no files of anybody.
const PSEUDO: &[&str] = &[
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devpts",
    "mqueue",
    "securityfs",
    "debugfs",
    "tracefs",
    "pstore",
    "bpf",
    "configfs",
    "fusectl",
    "hugetlbfs",
    "efivarfs",
    "autofs",
    "binfmt_misc",
];

/// A scan that takes longer says so instead of hanging the session.
const LIMIT: Duration = Duration::from_secs(240);

/// What is looked for.
#[derive(Debug, Clone, Copy)]
struct Wanted<'a> {
    name: &'a str,
    content: &'a str,
    /// In seconds of the epoch. Only what changed since then is read: what was there before the victim is not its, and
    /// on a machine that was set up a moment ago that is a whole system.
    since: i64,
    end: Instant,
}

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    files: u64,
    read: u64,
    refused: u64,
    by_name: Option<PathBuf>,
    by_content: Option<PathBuf>,
    devices: HashSet<(u64, u64)>,
    out_of_time: bool,
}

/// One line a mount, then what was found over all of them.
pub(crate) fn scan(name: &str, content: &str, since: i64, report: &mut Report<'_>) {
    let mounts = match fs::read_to_string("/proc/self/mountinfo") {
        Ok(text) => writable(&text),
        Err(error) => {
            report.result("read", "/proc/self/mountinfo", Err::<(), _>(error));
            return;
        }
    };
    let mut seen = Seen::default();
    let wanted = Wanted { name, content, since, end: Instant::now() + LIMIT };
    // A folder that cannot be listed may still have ones below it that can, by name.
    let known = known();
    for start in mounts.iter().chain(&known) {
        walk(start, wanted, &mut seen);
    }
    let detail = format!(
        "{} writable mounts, {} entries, {} files read, {} folders or files refused",
        mounts.len(),
        seen.files,
        seen.read,
        seen.refused
    );
    for (attack, found) in [("scan by name", &seen.by_name), ("scan by content", &seen.by_content)]
    {
        let target = "every writable mount";
        match found {
            Some(path) => report.say(attack, target, SUCCEEDED, &path.display().to_string()),
            None if seen.out_of_time => report.say(attack, target, "out of time", &detail),
            None => report.say(attack, target, "nothing found", &detail),
        }
    }
}

/// Folders that everybody knows, those that this session was told of, and all above these.
fn known() -> Vec<PathBuf> {
    let usual =
        ["/home", "/root", "/tmp", "/var", "/srv", "/run", "/mnt", "/opt", "/dev/shm", "/work"];
    let told = ["HOME", "TMPDIR", "PWD", "CASEMATE_SKILLS"];
    let told = told.iter().filter_map(std::env::var_os).map(PathBuf::from);
    let told: Vec<PathBuf> = told.chain(std::env::current_dir()).collect();
    let above = told.iter().flat_map(|path| path.ancestors()).map(Path::to_path_buf);
    usual.iter().map(PathBuf::from).chain(above).collect()
}

/// Mount points of real file systems that are mounted read-write, by proc_pid_mountinfo(5).
fn writable(mountinfo: &str) -> Vec<PathBuf> {
    let mut points = Vec::new();
    for line in mountinfo.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
        let fields: Vec<&str> = mount.split(' ').collect();
        let kind = filesystem.split(' ').next().unwrap_or_default();
        let (Some(point), Some(options)) = (fields.get(4), fields.get(5)) else { continue };
        if options.split(',').any(|option| option == "rw") && !PSEUDO.contains(&kind) {
            points.push(PathBuf::from(unescape(point)));
        }
    }
    points
}

/// Octal escapes of space, tab, newline and backslash.
fn unescape(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(point.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

/// Depth first without recursion, on one device, each folder once over all mounts.
fn walk(root: &Path, wanted: Wanted<'_>, seen: &mut Seen) {
    let Ok(device) = fs::symlink_metadata(root).map(|metadata| metadata.dev()) else {
        seen.refused += 1;
        return;
    };
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        if Instant::now() > wanted.end {
            seen.out_of_time = true;
            return;
        }
        let Ok(metadata) = fs::symlink_metadata(&folder) else { continue };
        if metadata.dev() != device || !seen.devices.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        let Ok(entries) = fs::read_dir(&folder) else {
            seen.refused += 1;
            continue;
        };
        for entry in entries.flatten() {
            seen.files += 1;
            if entry.file_name().to_string_lossy().contains(wanted.name) {
                seen.by_name.get_or_insert_with(|| entry.path());
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && changed(&entry, wanted.since) => {
                    match holds(&entry.path(), wanted.content) {
                        Ok(true) => {
                            seen.read += 1;
                            seen.by_content.get_or_insert_with(|| entry.path());
                        }
                        Ok(false) => seen.read += 1,
                        Err(_) => seen.refused += 1,
                    }
                }
                _ => {}
            }
        }
    }
}

/// By the change time, which nobody can set back.
fn changed(entry: &DirEntry, since: i64) -> bool {
    entry.metadata().map_or(true, |metadata| metadata.ctime() >= since)
}

fn holds(path: &Path, content: &str) -> io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(path)?.take(CONTENT).read_to_end(&mut bytes)?;
    Ok(bytes.windows(content.len()).any(|window| window == content.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_is_found_by_name_and_by_content() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("deep/xx-needle"), "something").unwrap();
        fs::write(folder.path().join("deep/other"), "0123 treasure 4567").unwrap();
        let mut seen = Seen::default();
        let end = Instant::now() + LIMIT;
        let since = fs::metadata(folder.path()).unwrap().ctime();
        let wanted = Wanted { name: "needle", content: "treasure", since, end };
        walk(folder.path(), wanted, &mut seen);
        assert_eq!(seen.by_name, Some(folder.path().join("deep/xx-needle")));
        assert_eq!(seen.by_content, Some(folder.path().join("deep/other")));
        assert!(!seen.out_of_time);
        // What was there before is not read, whatever it holds; names are looked at all the same.
        let mut seen = Seen::default();
        walk(folder.path(), Wanted { since: since + 3600, ..wanted }, &mut seen);
        assert!(seen.by_name.is_some() && seen.read == 0, "{seen:?}");
    }

    #[test]
    fn only_real_file_systems_that_are_mounted_read_write_count() {
        let text = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw\n\
23 22 0:5 / /proc rw - proc proc rw\n\
24 22 8:2 / /skills ro,nosuid - ext4 /dev/sda rw\n\
25 22 0:9 / /with\\040space rw master:3 - tmpfs tmpfs rw\n";
        assert_eq!(writable(text), [PathBuf::from("/"), PathBuf::from("/with space")]);
    }
}
