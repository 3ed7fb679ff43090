//! What a demo may leave behind: nothing. Processes of its workers, mounts and files below its directory.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// A process that cannot be mistaken for a later one of the same number: the number and its start (proc_pid_stat(5)).
type Process = (i32, u64);

/// All descendants of these processes, and they themselves.
pub(crate) fn family(roots: &[i32]) -> HashSet<Process> {
    let mut all: Vec<(i32, i32, u64)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).ok();
        all.extend(stat.as_deref().and_then(parse));
    }
    let mut known: HashSet<i32> = roots.iter().copied().collect();
    loop {
        let before = known.len();
        known.extend(
            all.iter().filter(|one| known.contains(&one.1)).map(|one| one.0).collect::<Vec<_>>(),
        );
        if known.len() == before {
            break;
        }
    }
    all.iter().filter(|one| known.contains(&one.0)).map(|one| (one.0, one.2)).collect()
}

/// Number, parent, start; `None` for a zombie: it has ended.
fn parse(stat: &str) -> Option<(i32, i32, u64)> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    // The name is in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    Some((pid, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// Words for whatever is still there; `nothing` where nothing is.
pub(crate) fn look(processes: &HashSet<Process>, base: &Path) -> String {
    let living = family(&processes.iter().map(|process| process.0).collect::<Vec<_>>());
    let living: Vec<i32> = living.intersection(processes).map(|process| process.0).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let name = base.display().to_string();
    let mounts = mounts.lines().filter(|line| line.contains(&name)).count();
    let mut found = Vec::new();
    if !living.is_empty() {
        found.push(format!("processes {living:?}"));
    }
    if mounts > 0 {
        found.push(format!("{mounts} mounts"));
    }
    if base.exists() {
        found.push(format!("files below {name}"));
    }
    if found.is_empty() { "nothing".to_owned() } else { found.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_and_a_directory_are_found_and_then_are_not() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let processes: HashSet<_> =
            family(&[own]).into_iter().filter(|process| process.0 == pid).collect();
        assert_eq!(processes.len(), 1);
        let base = folder.path().to_owned();
        let found = look(&processes, &base);
        assert!(found.contains("processes") && found.contains("files"), "{found}");
        child.kill().unwrap();
        child.wait().unwrap();
        drop(folder);
        assert_eq!(look(&processes, &base), "nothing");
    }
}
