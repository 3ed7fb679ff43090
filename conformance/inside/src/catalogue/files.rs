//! On another session's files by their absolute path: contents, names, places.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::attack::{Attack, Defence::*, Run, Target};
use super::shot::{Shot, holds, untried};

/// Landlock's rules refuse it where the path exists; in a mount namespace it does not.
pub(super) const fn file(
    id: &'static str,
    does: &'static str,
    source: &'static str,
    run: Run,
) -> Attack {
    Attack::new(Target::Files, id, does, source, run)
        .by(&[FileRules])
        .domain(&["EACCES"])
        .namespace(&["ENOENT"])
}

pub(super) const ATTACKS: &[Attack] = &[
    // ---- Contents
    file("file-read", "opens a file for reading", "open(2)", |shot| read(&shot.secret())),
    file("file-write", "opens a file for writing", "open(2)", |shot| {
        write(&shot.victim(), OpenOptions::new().write(true))
    }),
    file("file-append", "appends to a file", "open(2) O_APPEND", |shot| {
        write(&shot.victim(), OpenOptions::new().append(true))
    }),
    file("file-open-truncate", "empties a file while opening it", "open(2) O_TRUNC", |shot| {
        OpenOptions::new().write(true).truncate(true).open(shot.victim()).map(drop)
    }),
    file("file-truncate", "empties a file by its path", "truncate(2)", |shot| {
        Ok(nix::unistd::truncate(&shot.victim(), 0)?)
    }),
    file("file-read-openat", "opens below a folder's O_PATH descriptor", "openat(2)", |shot| {
        let folder = path_handle(&shot.tree(""))?;
        read_fd(rustix::fs::openat(
            &folder,
            "secret",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }),
    file("file-read-openat2", "opens with resolve flags", "openat2(2)", |shot| {
        let folder = path_handle(&shot.tree(""))?;
        let resolve = ResolveFlags::BENEATH;
        read_fd(rustix::fs::openat2(&folder, "secret", OFlags::RDONLY, Mode::empty(), resolve)?)
    }),
    file("file-read-opath", "reopens an O_PATH descriptor for reading", "proc_pid_fd(5)", |shot| {
        let handle = path_handle(&shot.secret())?;
        read(&fd_path(&handle))
    }),
    file(
        "file-write-opath",
        "reopens an O_PATH descriptor for writing",
        "proc_pid_fd(5)",
        |shot| {
            let handle = path_handle(&shot.victim())?;
            write(&fd_path(&handle), OpenOptions::new().write(true))
        },
    ),
    file("file-read-symlink", "reads through a symlink of its own", "symlink(7)", |shot| {
        let link = shot.own("link");
        symlink(shot.secret(), &link)?;
        read(&link)
    }),
    file("file-write-symlink", "writes through a symlink of its own", "symlink(7)", |shot| {
        let link = shot.own("link");
        symlink(shot.victim(), &link)?;
        write(&link, OpenOptions::new().write(true))
    }),
    file(
        "file-read-symlinked-folder",
        "reads through a folder that is a symlink",
        "path_resolution(7)",
        |shot| {
            let link = shot.own("link");
            symlink(shot.tree(""), &link)?;
            read(&link.join("secret"))
        },
    ),
    file(
        "file-read-dotdot",
        "walks up from its own folder and down again",
        "path_resolution(7)",
        |shot| {
            let up: PathBuf = std::env::current_dir()?.components().skip(1).map(|_| "..").collect();
            read(&up.join(shot.secret().strip_prefix("/").unwrap_or(Path::new(""))))
        },
    ),
    file("file-read-proc-root", "goes through /proc/self/root", "proc_pid_root(5)", |shot| {
        read(&below("/proc/self/root", &shot.secret()))
    }),
    file(
        "file-read-proc-thread-root",
        "goes through its thread's root",
        "proc_pid_task(5)",
        |shot| read(&below("/proc/thread-self/root", &shot.secret())),
    ),
    file(
        "file-read-cwd",
        "changes into the folder and reads by a relative path",
        "chdir(2)",
        |shot| {
            std::env::set_current_dir(shot.tree(""))?;
            read(Path::new("secret"))
        },
    ),
    file(
        "file-read-fchdir",
        "changes into the folder by an O_PATH descriptor",
        "fchdir(2)",
        |shot| {
            let folder = path_handle(&shot.tree(""))?;
            rustix::process::fchdir(&folder)?;
            read(Path::new("secret"))
        },
    ),
    file("file-read-proc-cwd", "goes through /proc/self/cwd", "proc_pid_cwd(5)", |shot| {
        std::env::set_current_dir(shot.tree("folder"))?;
        read(Path::new("/proc/self/cwd/../secret"))
    }),
    file(
        "file-read-symlink-race",
        "swaps a folder for a symlink while it is opened",
        "CVE-2018-15664",
        symlink_race,
    ),
    file(
        "file-link-race",
        "has a hard link made through a folder that it swaps for a symlink meanwhile",
        "CVE-2018-15664, link(2)",
        |shot| {
            let taken = shot.own("taken");
            race(shot, &shot.tree(""), "secret", |path, _| {
                fs::hard_link(path, &taken)?;
                let got = same(&taken, &shot.secret());
                fs::remove_file(&taken)?;
                got
            })
        },
    )
    .domain(&["EXDEV"]),
    file(
        "file-link-race-follow",
        "has a hard link made of a name that is its own file or a symlink out by turns",
        "CVE-2018-6954, linkat(2) AT_SYMLINK_FOLLOW",
        |shot| {
            let (file, link) = (shot.own_file("file")?, shot.own("link"));
            symlink(shot.secret(), &link)?;
            let taken = shot.own("taken");
            swapped(&file, &link, |path| {
                let flags = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(CWD, path, CWD, &taken, flags)?;
                let got = same(&taken, &shot.secret());
                fs::remove_file(&taken)?;
                got
            })
        },
    )
    .domain(&["EXDEV"]),
    file(
        "file-rename-race",
        "moves a file out through a folder that it swaps for a symlink meanwhile",
        "CVE-2022-21658, rename(2)",
        |shot| {
            let (taken, name) = (shot.own("taken"), shot.id);
            race(shot, &shot.tree("victims"), name, |path, home| {
                fs::rename(path, &taken)?;
                // Its own, which is empty, goes back.
                let got = fs::metadata(&taken)?.len() > 0;
                if !got {
                    fs::rename(&taken, home)?;
                }
                Ok(got)
            })
        },
    ),
    file("file-read-fifo", "takes what another session writes to its fifo", "fifo(7)", |shot| {
        let open = OFlags::RDONLY | OFlags::NONBLOCK;
        Ok(rustix::fs::open(shot.tree("fifo"), open, Mode::empty()).map(drop)?)
    }),
    file("file-write-fifo", "feeds another session's fifo", "fifo(7)", |shot| {
        Ok(rustix::fs::open(shot.tree("fifo"), OFlags::RDWR, Mode::empty()).map(drop)?)
    }),
    file("file-hold-flock", "holds a lock that the other session waits for", "flock(2)", |shot| {
        let file = File::open(shot.secret())?;
        Ok(rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared)?)
    }),
    file("file-hold-posix-lock", "holds a record lock", "fcntl_locking(2)", |shot| {
        let file = OpenOptions::new().write(true).open(shot.victim())?;
        Ok(rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?)
    }),
    file(
        "folder-watch-dnotify",
        "watches a folder by a descriptor of it",
        "fcntl(2) F_NOTIFY",
        |shot| File::open(shot.tree("folder")).map(drop),
    ),
    // ---- Running
    file("file-run", "runs a program", "execve(2)", |shot| {
        status(&mut Command::new(shot.tree("program")))
    }),
    file("file-run-opath", "runs an O_PATH descriptor through proc", "execve(2)", |shot| {
        let handle = path_handle(&shot.tree("program"))?;
        // The shebang line's interpreter opens it again: it must outlive the exec.
        rustix::io::fcntl_setfd(&handle, rustix::io::FdFlags::empty())?;
        status(&mut Command::new(fd_path(&handle)))
    }),
    file("file-run-interpreter", "has a shell read a script", "sh(1)", |shot| {
        // Not by its name in the arguments, which every process of the machine may read.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", ". \"$SCRIPT\""]).env("SCRIPT", shot.tree("program"));
        let output = output(&mut shell)?;
        if output.status.success() { Ok(()) } else { Err(of_words(&output.stderr)) }
    }),
    file(
        "file-run-preload",
        "has the loader map a file into its own program",
        "ld.so(8) LD_PRELOAD",
        |shot| {
            let mut shell = Command::new("/bin/sh");
            let output = output(shell.args(["-c", ":"]).env("LD_PRELOAD", shot.secret()))?;
            // The loader reads it and finds that it is no library, or says that it cannot.
            match String::from_utf8_lossy(&output.stderr) {
                words if words.contains("cannot open shared object") => Err(of_loader(&words)),
                words if words.contains("file too short") || words.contains("invalid ELF") => {
                    Ok(())
                }
                _ => Err(untried("the loader says nothing")),
            }
        },
    ),
    // ---- Names
    file("folder-list", "lists a folder", "getdents(2)", |shot| {
        fs::read_dir(shot.tree("")).map(drop)
    }),
    file(
        "folder-list-opath",
        "lists a folder through an O_PATH descriptor",
        "proc_pid_fd(5)",
        |shot| {
            let handle = path_handle(&shot.tree(""))?;
            fs::read_dir(fd_path(&handle)).map(drop)
        },
    ),
    file("folder-list-proc-cwd", "changes into a folder and lists it", "proc_pid_cwd(5)", |shot| {
        std::env::set_current_dir(shot.tree(""))?;
        fs::read_dir("/proc/self/cwd/.").map(drop)
    }),
    file("file-create", "makes a file", "open(2) O_CREAT", |shot| {
        File::create_new(new(shot)).map(drop)
    }),
    file("file-create-tmpfile", "makes a file without a name", "open(2) O_TMPFILE", |shot| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        Ok(rustix::fs::open(shot.tree("victims"), flags, Mode::RUSR).map(drop)?)
    }),
    file("folder-create", "makes a folder", "mkdir(2)", |shot| fs::create_dir(new(shot))),
    file("fifo-create", "makes a fifo", "mkfifo(3)", |shot| node(&new(shot), FileType::Fifo)),
    file("node-create", "makes a regular file by mknod", "mknod(2)", |shot| {
        node(&new(shot), FileType::RegularFile)
    }),
    file("socket-create", "makes a socket's name by mknod", "mknod(2)", |shot| {
        node(&new(shot), FileType::Socket)
    }),
    file(
        "symlink-plant",
        "plants a symlink for the other session to follow",
        "symlink(2)",
        |shot| symlink("/etc/passwd", new(shot)),
    ),
    file("file-delete", "removes a file", "unlink(2)", |shot| fs::remove_file(shot.victim())),
    file("folder-delete", "removes a folder", "rmdir(2)", |shot| {
        fs::remove_dir(shot.tree("empty"))
    }),
    file("file-rename", "renames a file where it is", "rename(2)", |shot| {
        fs::rename(shot.victim(), new(shot))
    }),
    file("file-steal", "moves a file into its own folder", "rename(2)", |shot| {
        fs::rename(shot.victim(), shot.own("loot"))
    }),
    file(
        "folder-steal",
        "moves a folder into its own, and its rights with it",
        "landlock(7) REFER",
        |shot| {
            let folder = shot.tree("folder");
            let loot = shot.own("loot");
            fs::rename(&folder, &loot)?;
            fs::rename(loot, folder)
        },
    ),
    file("file-replace", "moves a file of its own over one", "rename(2)", |shot| {
        fs::rename(shot.own_file("bait")?, shot.victim())
    }),
    file("file-replace-symlink", "moves a symlink over a file", "CVE-2025-55130", |shot| {
        let link = shot.own("link");
        symlink("/dev/null", &link)?;
        fs::rename(link, shot.victim())
    }),
    file(
        "file-exchange",
        "swaps a file of its own for one",
        "renameat2(2) RENAME_EXCHANGE",
        |shot| {
            let bait = shot.own_file("bait")?;
            Ok(rustix::fs::renameat_with(CWD, bait, CWD, shot.victim(), RenameFlags::EXCHANGE)?)
        },
    ),
    file(
        "file-rename-whiteout",
        "leaves a whiteout behind",
        "renameat2(2) RENAME_WHITEOUT",
        |shot| {
            let flags = RenameFlags::WHITEOUT;
            Ok(rustix::fs::renameat_with(CWD, shot.victim(), CWD, new(shot), flags)?)
        },
    ),
    file("file-link-out", "links a file into its own folder", "link(2)", |shot| {
        fs::hard_link(shot.secret(), shot.own("link"))
    })
    .domain(&["EXDEV"]),
    file("file-link-in", "links a file of its own into the other's folder", "link(2)", |shot| {
        fs::hard_link(shot.own_file("bait")?, new(shot))
    }),
    file("file-link-beside", "gives a file a second name where it is", "link(2)", |shot| {
        fs::hard_link(shot.secret(), new(shot))
    }),
    file(
        "file-link-opath",
        "links an O_PATH descriptor's file",
        "linkat(2) AT_SYMLINK_FOLLOW",
        |shot| {
            let handle = path_handle(&shot.secret())?;
            let flags = AtFlags::SYMLINK_FOLLOW;
            Ok(rustix::fs::linkat(CWD, fd_path(&handle), CWD, shot.own("link"), flags)?)
        },
    )
    .domain(&["EXDEV"]),
    file("socket-bind", "listens in the other's folder", "unix(7)", |shot| {
        let folder = path_handle(&shot.tree("victims"))?;
        std::os::unix::net::UnixListener::bind(fd_path(&folder).join("socket-bind.d")).map(drop)
    })
    .by(&[FileRules, SocketList]),
];

/// What is to be made where it must not be.
fn new(shot: &Shot<'_>) -> PathBuf {
    shot.victim().with_extension("new")
}

pub(super) fn read(path: &Path) -> io::Result<()> {
    File::open(path)?.read(&mut [0]).map(drop)
}

pub(super) fn write(path: &Path, options: &OpenOptions) -> io::Result<()> {
    options.open(path)?.write_all(b"#")
}

fn read_fd(fd: OwnedFd) -> io::Result<()> {
    File::from(fd).read(&mut [0]).map(drop)
}

pub(super) fn path_handle(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

pub(super) fn fd_path(fd: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

fn node(path: &Path, kind: FileType) -> io::Result<()> {
    Ok(rustix::fs::mknodat(CWD, path, kind, Mode::RUSR, 0)?)
}

fn status(command: &mut Command) -> io::Result<()> {
    command.status().map(drop)
}

/// Runs a program of the machine's: one that is not there, or that the policy lets nobody run, proves nothing.
pub(super) fn output(command: &mut Command) -> io::Result<Output> {
    command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied => untried("there is no such program"),
        _ => error,
    })
}

fn symlink_race(shot: &Shot<'_>) -> io::Result<()> {
    // Its own is empty.
    race(shot, &shot.tree(""), "secret", |path, _| Ok(File::open(path)?.read(&mut [0])? > 0))
}

/// As [`swapped`], of a folder that has an empty file of this name and a symlink to `other`, on the file below. The attempt
/// is told as well where its own file is, whatever the name leads to by then.
fn race(
    shot: &Shot<'_>,
    other: &Path,
    name: &str,
    attempt: impl Fn(&Path, &Path) -> io::Result<bool>,
) -> io::Result<()> {
    let (folder, link) = (shot.own_folder()?, shot.own("link"));
    fs::write(folder.join(name), "")?;
    symlink(other, &link)?;
    let home = path_handle(&folder)?;
    swapped(&folder, &link, |path| attempt(&path.join(name), &fd_path(&home).join(name)))
}

/// How often a race's names are swapped where it is refused, and how often at most something is attempted meanwhile: where
/// nothing stops it, about each other attempt succeeds.
const SWAPS: u32 = 50;
const ATTEMPTS: u32 = 20_000;

/// While one thread swaps two names over and over, another attempts something by one of them: `Ok(true)` where it got hold
/// of what is not its own, which counts while the swaps go on. Where nothing was got, an attempt by each name once they have
/// ended tells how it is refused; that one of them leads out by then is no race, and its success says nothing.
fn swapped(one: &Path, two: &Path, attempt: impl Fn(&Path) -> io::Result<bool>) -> io::Result<()> {
    let (over, swaps) = (AtomicBool::new(false), AtomicU32::new(0));
    let won = std::thread::scope(|scope| {
        // Where its user may start no thread more there is an answer, not a panic.
        let swapper = std::thread::Builder::new().spawn_scoped(scope, || {
            let swap = || rustix::fs::renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE);
            while !over.load(Relaxed) && swap().is_ok() {
                swaps.fetch_add(1, Relaxed);
            }
        })?;
        let mut refused = false;
        let won = (0..ATTEMPTS)
            .take_while(|_| !swapper.is_finished())
            .map_while(|_| {
                let before = swaps.load(Relaxed);
                if refused && before >= SWAPS {
                    return None;
                }
                let got = attempt(one);
                refused |= got.is_err();
                // With one processor between them, both have to get on.
                if swaps.load(Relaxed) == before {
                    std::thread::yield_now();
                }
                Some(got.unwrap_or(false))
            })
            .any(|got| got);
        over.store(true, Relaxed);
        Ok::<_, io::Error>(won)
    })?;
    if won {
        return Ok(());
    }
    let mut told = Err(untried("nothing was refused, nor won"));
    for path in [one, two] {
        match attempt(path) {
            Ok(true) => return Err(untried("there was no race to win")),
            // Its own, by the name that does not lead out.
            Ok(false) => {}
            Err(error) => told = Err(error),
        }
    }
    told
}

/// Whether both are one file, by what anybody may look up.
fn same(one: &Path, two: &Path) -> io::Result<bool> {
    let (one, two) = (fs::metadata(one)?, fs::metadata(two)?);
    Ok((one.dev(), one.ino()) == (two.dev(), two.ino()))
}

/// The errno that a program's words tell.
pub(super) fn of_words(words: &[u8]) -> io::Error {
    let words = String::from_utf8_lossy(words);
    for (part, errno) in [
        ("ermission denied", Errno::ACCESS),
        ("peration not permitted", Errno::PERM),
        ("o such file", Errno::NOENT),
        ("onexistent", Errno::NOENT),
        ("an't open", Errno::NOENT),
        ("ead-only file system", Errno::ROFS),
    ] {
        if words.contains(part) {
            return errno.into();
        }
    }
    untried("it did not run")
}

fn of_loader(words: &str) -> io::Error {
    // It looks for the path and, where that is refused, says so by its number only in a trace: ask the same way.
    let path = words.split('\'').nth(1).unwrap_or_default();
    match read(Path::new(path)) {
        Ok(()) => untried("the loader cannot open what can be opened"),
        Err(error) => error,
    }
}

/// For attacks whose proof is that something is there afterwards.
pub(super) fn came_to_be(path: &Path) -> io::Result<()> {
    holds(fs::symlink_metadata(path).is_ok(), Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name that leads out is there, and nobody swaps it: that it can be opened shows no race.
    #[test]
    fn a_symlink_that_leads_out_is_no_race() {
        let place = tempfile::tempdir().unwrap();
        let (own, out, gone) =
            (place.path().join("own"), place.path().join("out"), place.path().join("gone"));
        fs::write(&own, "").unwrap();
        fs::write(&out, "secret").unwrap();
        let opens = |path: &Path| Ok(File::open(path)?.read(&mut [0])? > 0);
        let told =
            swapped(&out, &gone, |path| if path == gone { opens(&out) } else { opens(&own) });
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Unsupported);
        // With the swaps it is one.
        swapped(&own, &out, opens).unwrap();
        // Refused by either name, it says how.
        let told = swapped(&own, &out, |_| Err(Errno::ACCESS.into()));
        assert_eq!(told.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
