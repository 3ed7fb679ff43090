//! Where a path really is: the file system and the path within it, whatever is mounted where (proc_pid_mountinfo(5)).
//!
//! Two names of one directory (a link, a bind mount) have the same [`Location`], and a directory lies below another
//! exactly if its location does. Pure: the table and the mount id of a path are read by the caller.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// A path within a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    /// `major:minor`.
    pub(super) device: Vec<u8>,
    /// From the file system's own root.
    pub(super) path: PathBuf,
}

// === impl Location ===

impl Location {
    /// One of the two contains the other, or both are the same.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.lies_in(other) || other.lies_in(self)
    }

    /// It is the other, or is below it.
    pub(super) fn lies_in(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    id: u64,
    point: PathBuf,
    root: Location,
    /// Nobody writes through it.
    is_read_only: bool,
    is_memory: bool,
}

/// A mount of a file system in memory that nobody writes to through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Volume<'a> {
    /// Where it is to be seen.
    pub(super) point: &'a Path,
    /// What of the file system is.
    pub(super) root: &'a Location,
}

// === impl Volume ===

impl Volume<'_> {
    /// It is, or lies in, a directory of the file system's root whose name begins with two dots.
    pub(super) fn is_below_two_dots(&self) -> bool {
        let first = self.root.path.components().find_map(|part| match part {
            Component::Normal(name) => Some(name.as_bytes()),
            _ => None,
        });
        first.is_some_and(|name| name.starts_with(b".."))
    }
}

/// The mounts that this process sees.
#[derive(Debug, Clone)]
pub(super) struct Mounts(Vec<Mount>);

// === impl Mounts ===

impl Mounts {
    /// Reads the text of `/proc/self/mountinfo`; lines that do not parse are left out.
    pub(super) fn parse(mountinfo: &[u8]) -> Self {
        Self(mountinfo.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
    }

    /// The location of a path without links, on the mount `id`.
    pub(super) fn location(&self, id: u64, real: &Path) -> Option<Location> {
        let mount = self.0.iter().find(|mount| mount.id == id)?;
        let below = real.strip_prefix(&mount.point).ok()?;
        Some(Location { device: mount.root.device.clone(), path: mount.root.path.join(below) })
    }

    /// What is mounted below a directory: the mount points and what is to be seen there.
    pub(super) fn below(&self, directory: &Path) -> impl Iterator<Item = (&Path, &Location)> {
        self.0
            .iter()
            .filter(move |mount| mount.point.starts_with(directory) && mount.point != directory)
            .map(|mount| (mount.point.as_path(), &mount.root))
    }

    /// Of those [below](Self::below) a directory, what is written to by way of it.
    pub(super) fn written_below(&self, directory: &Path) -> impl Iterator<Item = &Location> {
        let below = move |mount: &&Mount| {
            mount.point.starts_with(directory) && mount.point != directory && !mount.is_read_only
        };
        self.0.iter().filter(below).map(|mount| &mount.root)
    }

    /// Those of a tmpfs or ramfs that are read-only by themselves.
    pub(super) fn in_memory_and_read_only(&self) -> impl Iterator<Item = Volume<'_>> {
        self.0
            .iter()
            .filter(|mount| mount.is_read_only && mount.is_memory)
            .map(|mount| Volume { point: &mount.point, root: &mount.root })
    }
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let _parent = fields.next()?;
        let device = fields.next()?.to_vec();
        let path = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        let is_read_only = fields.next()?.split(|byte| *byte == b',').any(|one| one == b"ro");
        // Optional fields end with a dash.
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        let is_memory = matches!(kind, b"tmpfs" | b"ramfs");
        Some(Self { id, point, root: Location { device, path }, is_read_only, is_memory })
    }
}

/// Blank, tab, newline and backslash are written as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let octal =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The `mnt_id` of `/proc/self/fdinfo/N`.
pub(super) fn mount_id(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Whether a link in `/proc/self/fd` names something that has been deleted or is out of reach.
pub(super) fn is_reachable(real: &Path) -> bool {
    let name = real.as_os_str().as_bytes();
    name.starts_with(b"/") && !name.ends_with(b" (deleted)")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
20 1 253:0 / / rw,relatime - ext4 /dev/vda rw
30 20 0:22 / /proc rw - proc proc rw
40 20 253:0 /srv/slots /mnt/s\\040x rw shared:1 - ext4 /dev/vda rw
50 20 253:0 /srv/slots/a/state /skills/deep rw - ext4 /dev/vda rw
not a mount
";

    fn at(id: u64, path: &str) -> Location {
        Mounts::parse(TABLE).location(id, Path::new(path)).unwrap()
    }

    #[test]
    fn a_bind_mount_is_where_its_source_is() {
        assert_eq!(at(40, "/mnt/s x/a"), at(20, "/srv/slots/a"));
        assert!(at(40, "/mnt/s x").overlaps(&at(20, "/srv/slots/a/state")));
        assert!(at(50, "/skills/deep/x").overlaps(&at(20, "/srv")));
        assert!(!at(40, "/mnt/s x/b").overlaps(&at(20, "/srv/slots/a/state")));
        assert!(!at(20, "/srv/slots").overlaps(&at(20, "/srv/slots-2")));
    }

    #[test]
    fn the_same_path_on_another_device_is_elsewhere() {
        assert!(!at(30, "/proc").overlaps(&at(20, "/")));
    }

    #[test]
    fn mounts_below_a_directory_are_found() {
        let mounts = Mounts::parse(TABLE);
        let below: Vec<_> = mounts.below(Path::new("/skills")).map(|(point, _)| point).collect();
        assert_eq!(below, [Path::new("/skills/deep")]);
        assert_eq!(mounts.below(Path::new("/skills/deep")).count(), 0);
        assert_eq!(mounts.written_below(Path::new("/skills")).count(), 1);
        let read_only =
            String::from_utf8_lossy(TABLE).replace("/skills/deep rw", "/skills/deep ro");
        let mounts = Mounts::parse(read_only.as_bytes());
        assert_eq!(mounts.written_below(Path::new("/skills")).count(), 0);
    }

    /// As kubelets' lines are: a Secret whole, a file of one, a ConfigMap, a directory of a Pod's in memory.
    #[test]
    fn volumes_of_secrets_are_told_from_others() {
        const POD: &[u8] = b"\
60 20 0:50 / /run/secrets/kubernetes.io/serviceaccount ro,relatime - tmpfs tmpfs rw,size=65536k,inode64
61 20 0:51 /..2026_02_01_15_04_05.123456789/key /etc/app/key ro,relatime master:3 - tmpfs tmpfs rw,noswap
62 20 253:0 /var/lib/kubelet/pods/u/volumes/kubernetes.io~configmap/c /etc/app/conf ro - ext4 /dev/vda rw
63 20 0:52 / /cache rw,relatime - tmpfs tmpfs rw
";
        let mounts = Mounts::parse(POD);
        let found: Vec<_> = mounts
            .in_memory_and_read_only()
            .map(|volume| (volume.point.to_str().unwrap(), volume.is_below_two_dots()))
            .collect();
        let token = ("/run/secrets/kubernetes.io/serviceaccount", false);
        assert_eq!(found, [token, ("/etc/app/key", true)]);
    }

    #[test]
    fn escapes_are_three_octal_digits() {
        assert_eq!(unescape(b"a\\134\\011b\\0"), PathBuf::from("a\\\tb\\0"));
    }

    #[test]
    fn the_mount_id_is_read_from_fdinfo() {
        assert_eq!(mount_id("pos:\t0\nflags:\t012000000\nmnt_id:\t29\nino:\t2\n"), Some(29));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }
}
