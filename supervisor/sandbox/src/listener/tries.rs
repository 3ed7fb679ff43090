//! Which paths a call is about and what it takes to do it there, as Landlock would have it (landlock(7)).
//!
//! Only for learning: what is read here may change before the kernel reads it, and nothing is decided by it. What Landlock does not
//! restrict (stat, chdir, chmod, attributes) is not looked at, nor ioctl(2) on devices.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use casemate_protocol::policy::Access;

use super::notify::Notification;

/// Every call that is looked at.
pub(crate) const CALLS: [&str; 25] = [
    "open",
    "openat",
    "openat2",
    "creat",
    "execve",
    "execveat",
    "truncate",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "symlink",
    "symlinkat",
    "link",
    "linkat",
    "rename",
    "renameat",
    "renameat2",
    "bind",
    "connect",
    "socket",
    "socketpair",
];

/// `PATH_MAX` (linux/limits.h).
const LONGEST: usize = 4096;
const PAGE: usize = 4096;
/// Interpreters of interpreters that the kernel follows (fs/exec.c).
const INTERPRETERS: usize = 4;

type Tries = Vec<(PathBuf, Access)>;

/// The thread that asks, and its memory.
pub(super) struct Asker {
    pid: u32,
    memory: File,
}

/// How a call names a file.
#[derive(Clone, Copy)]
struct Named {
    /// `None`: relative to where the process is.
    directory: Option<u64>,
    pointer: u64,
}

// === impl Asker ===

impl Asker {
    pub(super) fn of(asked: &Notification) -> io::Result<Self> {
        let memory = File::open(format!("/proc/{}/mem", asked.pid))?;
        Ok(Self { pid: asked.pid, memory })
    }

    /// What a call of this name tries.
    pub(super) fn tries(&self, name: &str, arguments: &[u64; 6]) -> io::Result<Tries> {
        let [a, b, c, d, e, _] = *arguments;
        let here = |pointer| Named { directory: None, pointer };
        let at = |directory, pointer| Named { directory: Some(directory), pointer };
        match name {
            "open" => self.open(here(a), b),
            "creat" => self.open(here(a), flags(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC)),
            "openat" => self.open(at(a, b), c),
            "openat2" => self.open(at(a, b), self.number(c)?),
            "execve" => self.execute(here(a)),
            "execveat" if e & flags(libc::AT_EMPTY_PATH) == 0 => self.execute(at(a, b)),
            "truncate" => self.existing(here(a), Access::Write),
            "unlink" | "rmdir" => self.parents(&[here(a)]),
            "mkdir" | "mknod" => self.parents(&[here(a)]),
            "unlinkat" | "mkdirat" | "mknodat" => self.parents(&[at(a, b)]),
            "symlink" => self.parents(&[here(b)]),
            "symlinkat" => self.parents(&[at(b, c)]),
            "link" => self.linked(here(a), here(b)),
            "linkat" => self.linked(at(a, b), at(c, d)),
            "rename" => self.parents(&[here(a), here(b)]),
            "renameat" | "renameat2" => self.parents(&[at(a, b), at(c, d)]),
            _ => Ok(Vec::new()),
        }
    }

    fn open(&self, named: Named, how: u64) -> io::Result<Tries> {
        let has = |flag: libc::c_int| how & flags(flag) == flags(flag);
        if has(libc::O_PATH) {
            return Ok(Vec::new());
        }
        let mut wanted = match how & flags(libc::O_ACCMODE) {
            mode if mode == flags(libc::O_WRONLY) => vec![Access::Write],
            mode if mode == flags(libc::O_RDWR) => vec![Access::Read, Access::Write],
            _ => vec![Access::Read],
        };
        if has(libc::O_TRUNC) && !wanted.contains(&Access::Write) {
            wanted.push(Access::Write);
        }
        let path = self.path(named)?;
        let found = match has(libc::O_NOFOLLOW) {
            true => within(&path)
                .filter(|real| fs::symlink_metadata(real).is_ok_and(|found| !found.is_symlink())),
            false => path.canonicalize().ok(),
        };
        if let Some(real) = found {
            return Ok(wanted.into_iter().map(|access| (real.clone(), access)).collect());
        }
        // What is not there is refused to nobody, unless it is to be made: in its directory, and then opened there.
        let Some(parent) = within(&path).and_then(|real| real.parent().map(Path::to_owned)) else {
            return Ok(Vec::new());
        };
        if !has(libc::O_CREAT) {
            return Ok(Vec::new());
        }
        if !wanted.contains(&Access::Write) {
            wanted.push(Access::Write);
        }
        Ok(wanted.into_iter().map(|access| (parent.clone(), access)).collect())
    }

    fn existing(&self, named: Named, access: Access) -> io::Result<Tries> {
        let real = self.path(named)?.canonicalize();
        Ok(real.into_iter().map(|real| (real, access)).collect())
    }

    fn execute(&self, named: Named) -> io::Result<Tries> {
        Ok(programs(&self.path(named)?))
    }

    fn linked(&self, old: Named, new: Named) -> io::Result<Tries> {
        let mut tries = self.parents(&[new])?;
        // Within a directory, nothing is moved out of it.
        let from = self.parents(&[old])?;
        if from != tries {
            tries.extend(from);
        }
        Ok(tries)
    }

    fn parents(&self, named: &[Named]) -> io::Result<Tries> {
        let mut tries = Tries::new();
        for one in named {
            let parent = within(&self.path(*one)?).and_then(|real| Some(real.parent()?.to_owned()));
            tries.extend(parent.map(|parent| (parent, Access::Write)));
        }
        tries.dedup();
        Ok(tries)
    }

    /// The path in absolute terms, its own links not followed.
    fn path(&self, named: Named) -> io::Result<PathBuf> {
        let path = self.text(named.pointer)?;
        if path.is_absolute() {
            let own = ["/proc/self", "/proc/thread-self"];
            let own = own.into_iter().find_map(|prefix| path.strip_prefix(prefix).ok());
            return Ok(match own {
                Some(rest) => Path::new("/proc").join(self.pid.to_string()).join(rest),
                None => path,
            });
        }
        let below = match named.directory.map(|directory| directory & 0xffff_ffff) {
            Some(directory) if directory != u64::from(libc::AT_FDCWD.cast_unsigned()) => {
                format!("/proc/{}/fd/{directory}", self.pid)
            }
            _ => format!("/proc/{}/cwd", self.pid),
        };
        Ok(fs::read_link(below)?.join(path))
    }

    fn text(&self, mut pointer: u64) -> io::Result<PathBuf> {
        let mut text = Vec::new();
        while text.len() < LONGEST {
            // Up to the page's end: the next one may not be there.
            let here = usize::try_from(pointer).map_err(|_| io::ErrorKind::InvalidInput)? % PAGE;
            let mut page = [0; PAGE];
            let read = self.memory.read_at(&mut page[..PAGE - here], pointer)?;
            match page[..read].iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend(&page[..end]);
                    return Ok(PathBuf::from(OsString::from_vec(text)));
                }
                None if read == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                None => text.extend(&page[..read]),
            }
            pointer += u64::try_from(read).unwrap_or_default();
        }
        Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
    }

    /// The first field of a `struct open_how`.
    fn number(&self, pointer: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, pointer)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The directory in which a unix socket of that address would be made; `None`: another family, or no path.
    pub(super) fn socket(&self, pointer: u64, length: u64) -> io::Result<Option<PathBuf>> {
        let Some(path) = self.unix(pointer, length)? else { return Ok(None) };
        Ok(within(&path).and_then(|real| real.parent().map(Path::to_owned)))
    }

    /// The path of a unix socket's address.
    pub(super) fn unix(&self, pointer: u64, length: u64) -> io::Result<Option<PathBuf>> {
        // A `struct sockaddr_un` (unix(7)).
        let mut bytes = [0; 110];
        let length = usize::try_from(length & 0xffff_ffff).unwrap_or(bytes.len()).min(bytes.len());
        let read = self.memory.read_at(&mut bytes[..length], pointer)?;
        let Some((family, path)) = bytes[..read].split_first_chunk::<2>() else { return Ok(None) };
        if i32::from(u16::from_ne_bytes(*family)) != libc::AF_UNIX {
            return Ok(None);
        }
        let path: Vec<u8> = path.iter().copied().take_while(|byte| *byte != 0).collect();
        let path = PathBuf::from(OsString::from_vec(path));
        let here = fs::read_link(format!("/proc/{}/cwd", self.pid))?;
        Ok(Some(here.join(path)))
    }
}

/// What the kernel opens to run a program: it and its interpreters, links followed.
#[must_use]
pub fn programs(program: &Path) -> Vec<(PathBuf, Access)> {
    let mut tries = Tries::new();
    let mut next = program.canonicalize().ok();
    while let Some(program) = next.filter(|_| tries.len() <= INTERPRETERS) {
        next = interpreter(&program).and_then(|named| named.canonicalize().ok());
        tries.push((program, Access::Execute));
    }
    tries
}

/// With its directory's links followed, and its own name as it is.
fn within(path: &Path) -> Option<PathBuf> {
    match path.file_name() {
        Some(name) => Some(path.parent()?.canonicalize().ok()?.join(name)),
        // It ends in `..`.
        None => path.canonicalize().ok(),
    }
}

/// Whom the kernel would open to run a file: by its `#!` line (execve(2)), or as its dynamic loader (elf(5)).
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    // A device or a pipe is no program, and would not come to an end.
    if !fs::metadata(program).ok()?.is_file() {
        return None;
    }
    File::open(program).ok()?.take(LONGEST as u64).read_to_end(&mut head).ok()?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?;
        let name = line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
        return Some(PathBuf::from(OsString::from_vec(name.to_vec())));
    }
    loader(&head)
}

/// Of a 64-bit ELF file in this machine's order, whose program headers and loader's name lie in its first page.
fn loader(head: &[u8]) -> Option<PathBuf> {
    const PT_INTERP: u64 = 3;
    if !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let number = |at: usize, size: usize| {
        let bytes = head.get(at..at.checked_add(size)?)?;
        let mut whole = [0; 8];
        whole[..size].copy_from_slice(bytes);
        Some(u64::from_le_bytes(whole))
    };
    let place = |at: usize| usize::try_from(number(at, 8)?).ok();
    let (table, count) = (place(32)?, number(56, 2)?);
    for index in 0..usize::try_from(count).ok()? {
        let entry = table.checked_add(index.checked_mul(56)?)?;
        if number(entry, 4)? == PT_INTERP {
            let (start, length) = (place(entry.checked_add(8)?)?, place(entry.checked_add(32)?)?);
            let name = head.get(start..start.checked_add(length)?)?;
            let name = name.split(|byte| *byte == 0).next()?;
            return Some(PathBuf::from(OsString::from_vec(name.to_vec())));
        }
    }
    None
}

fn flags(flags: libc::c_int) -> u64 {
    u64::from(flags.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Asker {
        let memory = File::open("/proc/self/mem").unwrap();
        Asker { pid: std::process::id(), memory }
    }

    fn opened(path: &str, how: libc::c_int) -> Tries {
        let text = std::ffi::CString::new(path).unwrap();
        let arguments = [flags(libc::AT_FDCWD), text.as_ptr() as u64, flags(how), 0, 0, 0];
        own().tries("openat", &arguments).unwrap()
    }

    #[test]
    fn to_open_takes_rights_at_the_file_and_to_make_one_at_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(root.join("file"), root.join("link")).unwrap();
        let name = |name: &str| root.join(name).display().to_string();
        let file = |access| (root.join("file"), access);
        let above = |access| (root.clone(), access);
        for (path, how, expected) in [
            ("file", libc::O_RDONLY, vec![file(Access::Read)]),
            ("link", libc::O_RDONLY, vec![file(Access::Read)]),
            ("link", libc::O_RDONLY | libc::O_NOFOLLOW, vec![]),
            ("file", libc::O_RDWR | libc::O_CREAT, vec![file(Access::Read), file(Access::Write)]),
            ("file", libc::O_RDONLY | libc::O_TRUNC, vec![file(Access::Read), file(Access::Write)]),
            ("file", libc::O_PATH, vec![]),
            ("new", libc::O_RDONLY, vec![]),
            ("new", libc::O_WRONLY | libc::O_CREAT, vec![above(Access::Write)]),
            ("new", libc::O_RDWR | libc::O_CREAT, vec![above(Access::Read), above(Access::Write)]),
            ("none/new", libc::O_WRONLY | libc::O_CREAT, vec![]),
        ] {
            assert_eq!(opened(&name(path), how), expected, "{path} {how:o}");
        }
        let own = format!("/proc/{}", std::process::id());
        assert_eq!(opened("/proc/self/status", 0)[0].0, Path::new(&own).join("status"));
    }

    #[test]
    fn who_runs_a_file_runs_its_interpreters() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("script"), "#! /bin/sh -e\n").unwrap();
        let text = std::ffi::CString::new(root.join("script").display().to_string()).unwrap();
        let tries = own().tries("execve", &[text.as_ptr() as u64, 0, 0, 0, 0, 0]).unwrap();
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        assert_eq!(tries[0].0, root.join("script"));
        assert_eq!(tries[1].0, shell);
        let dynamic = fs::read(&shell).unwrap().windows(3).any(|bytes| bytes == b"ld-");
        assert_eq!(tries.len(), 2 + usize::from(dynamic), "{tries:?}");
        assert!(loader(b"\x7fELF\x02").is_none() && loader(&[0xff; 64]).is_none());
    }

    #[test]
    fn to_rename_takes_both_directories_and_to_unlink_takes_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        let text = |name: &str| std::ffi::CString::new(root.join(name).display().to_string());
        let (one, two) = (text("a").unwrap(), text("sub/b").unwrap());
        let (a, b) = (one.as_ptr() as u64, two.as_ptr() as u64);
        let tries = |name, arguments: [u64; 2]| {
            own().tries(name, &[arguments[0], arguments[1], 0, 0, 0, 0]).unwrap()
        };
        let [above, below] = [root.clone(), root.join("sub")].map(|path| (path, Access::Write));
        assert_eq!(tries("rename", [a, b]), [above.clone(), below.clone()]);
        assert_eq!(tries("link", [a, b]), [below.clone(), above.clone()]);
        assert_eq!(tries("link", [a, a]), std::slice::from_ref(&above));
        assert_eq!(tries("unlink", [b, 0]), [below]);
        assert_eq!(tries("symlink", [b, a]), [above]);
    }
}
