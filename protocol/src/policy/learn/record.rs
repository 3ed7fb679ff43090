//! The kernel's records of what a wall refused (`[log]`), read line by line: `LANDLOCK_ACCESS` (1423) and `SECCOMP` (1326),
//! as auditd, ausearch(8), dmesg(1) and journalctl(1) show them (Documentation/admin-guide/LSM/landlock.rst).

use std::collections::BTreeMap;

use crate::policy::Access;

/// What was refused, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denials {
    /// Of paths, by right.
    pub paths: BTreeMap<(String, Access), u64>,
    /// Of TCP ports, to connect to.
    pub connect: BTreeMap<u16, u64>,
    /// Of TCP ports, to be bound to.
    pub bind: BTreeMap<u16, u64>,
    /// System calls, by number; the kernel's records have no arguments.
    pub calls: BTreeMap<i64, u64>,
    /// System calls and sockets by name, with their arguments.
    pub asked: BTreeMap<(String, [u64; 6]), u64>,
    /// What no rule of a policy can grant, in the kernel's word.
    pub other: BTreeMap<String, u64>,
}

// === impl Denials ===

impl Denials {
    /// Takes a line of a log; what is no such record is passed over.
    pub fn take(&mut self, line: &str) {
        if is_landlock(line)
            && let Some(blockers) = field(line, "blockers")
        {
            blockers.split(',').for_each(|blocker| self.landlock(blocker, line));
        } else if is_seccomp(line)
            && let Some(number) = field(line, "syscall").and_then(|number| number.parse().ok())
        {
            *self.calls.entry(number).or_default() += 1;
        }
    }

    fn landlock(&mut self, blocker: &str, line: &str) {
        let port = |name| field(line, name).and_then(|port| port.parse().ok());
        let counted = match (blocker, right(blocker)) {
            ("net.connect_tcp", _) => port("dest").map(|port| self.connect.entry(port)),
            ("net.bind_tcp", _) => port("src").map(|port| self.bind.entry(port)),
            (_, Some(access)) => {
                if let Some(path) = path(line) {
                    *self.paths.entry((path, access)).or_default() += 1;
                    return;
                }
                None
            }
            _ => None,
        };
        match counted {
            Some(entry) => *entry.or_default() += 1,
            None => *self.other.entry(blocker.to_owned()).or_default() += 1,
        }
    }

    /// Nothing was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The right of a policy that contains one of Landlock's. Making, removing and renaming is recorded of the directory.
fn right(blocker: &str) -> Option<Access> {
    Some(match blocker.strip_prefix("fs.")? {
        "read_file" | "read_dir" => Access::Read,
        "execute" => Access::Execute,
        "ioctl_dev" => Access::Device,
        "write_file" | "truncate" | "refer" | "remove_dir" | "remove_file" | "make_dir"
        | "make_reg" | "make_sym" | "make_sock" | "make_fifo" => Access::Write,
        _ => return None,
    })
}

/// Other lines of a log may hold a session's own words.
fn is_landlock(line: &str) -> bool {
    ["type=LANDLOCK_ACCESS ", "type=1423 ", "UNKNOWN[1423] "]
        .iter()
        .filter_map(|word| line.split_once(word))
        .any(|(before, _)| !before.contains("blockers="))
}

fn is_seccomp(line: &str) -> bool {
    ["type=SECCOMP ", "type=1326 ", "UNKNOWN[1326] "].iter().any(|word| line.contains(word))
}

/// The value of a field that is no string.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// A path stands in quotes, or in hex where it holds what would break a line. In quotes there are none.
fn path(line: &str) -> Option<String> {
    let value = line.split_once(" path=")?.1;
    if let Some(quoted) = value.strip_prefix('"') {
        return Some(quoted.split_once('"')?.0.to_owned());
    }
    let digits = value.split_ascii_whitespace().next()?;
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_however_they_are_shown() {
        let mut denials = Denials::default();
        for line in [
            r#"type=LANDLOCK_ACCESS msg=audit(1729738800.268:30): domain=195ba459b blockers=fs.read_file path="/etc/my file" dev="vda2" ino=351"#,
            r#"audit: type=1423 audit(1.2:3): domain=a blockers=fs.make_reg,fs.refer path="/srv/x" dev="v" ino=1"#,
            "type=UNKNOWN[1423] msg=audit(1.2:3): domain=a blockers=net.connect_tcp daddr=192.0.2.1 dest=8080",
            "type=LANDLOCK_ACCESS msg=audit(1.2:3): domain=a blockers=net.bind_tcp src=7000",
            "type=LANDLOCK_ACCESS msg=audit(1.2:3): domain=a blockers=fs.execute path=2F610A62 dev=\"v\" ino=1",
            "type=LANDLOCK_ACCESS msg=audit(1.2:3): domain=a blockers=scope.signal opid=1 ocomm=\"systemd\"",
            "audit: type=1326 audit(1.2:3): auid=0 uid=0 pid=9 comm=\"x\" sig=0 arch=c000003e syscall=425 compat=0",
            "type=SYSCALL msg=audit(1.2:3): arch=c000003e syscall=59 success=no exit=-13",
            "nothing at all",
            "type=1423 blockers=",
            "type=1423 blockers=fs.read_file path=",
            "type=1423 blockers=fs.read_file path=\"/open",
            "type=1423 blockers=fs.read_file path=zz",
            "agent[7]: blockers=fs.write_file path=\"/home/me/.bashrc\"",
            "agent[7]: blockers=fs.write_file path=\"/home/me/.bashrc\" type=1423 ",
        ] {
            denials.take(line);
        }
        let of = |path: &str, access| denials.paths.get(&(path.to_owned(), access)).copied();
        assert_eq!(of("/etc/my file", Access::Read), Some(1));
        assert_eq!(of("/srv/x", Access::Write), Some(2));
        assert_eq!(of("/a\nb", Access::Execute), Some(1));
        assert_eq!(denials.paths.len(), 3, "{:?}", denials.paths);
        assert_eq!(denials.connect, [(8080, 1)].into());
        assert_eq!(denials.bind, [(7000, 1)].into());
        assert_eq!(denials.calls, [(425, 1)].into());
        assert_eq!(denials.other.get("scope.signal"), Some(&1));
    }
}
