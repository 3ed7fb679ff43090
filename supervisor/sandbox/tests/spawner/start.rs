//! How a command starts: its state, its terminal, its arguments; which failures are told, and that no end is lost.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use casemate_sandbox::{Exit, Spawner, Step, reap};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Session, command, eventually, run, temp_dir, wait_for, wall, wall_over};

pub(crate) fn exit_codes() {
    let s = Session::new();
    let wall = wall(&[]);
    assert_eq!(run(&s.session, &wall, "exit", &["7"]).0, Exit::Code(7));
    let (exit, said) = run(&s.session, &wall, "parent", &[]);
    assert_eq!((exit, said.trim()), (Exit::Code(0), std::process::id().to_string().as_str()));
    let killed = run(&s.session, &wall, "abort", &[]).0;
    assert_eq!((killed, killed.code()), (Exit::Signal(6), 134));
    assert_eq!(killed.to_string(), "signal 6 (SIGABRT)");
}

pub(crate) fn clean_state() {
    let s = Session::new();
    let (exit, said) = run(&s.session, &wall(&[]), "state", &[]);
    assert!(exit.is_success());
    for line in [
        "SigBlk:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "leader: true",
    ] {
        assert!(said.lines().any(|have| have == line), "no `{line}` in:\n{said}");
    }
    // The agent here is a Rust program, whose runtime ignores SIGPIPE (13) by itself. A shell does not.
    let (command, mut reader) = command(Path::new("/bin/cat"), &["cat", "/proc/self/status"], &[]);
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(wait_for(pid).is_success());
    for line in
        ["SigIgn:\t0000000000000000", "SigCgt:\t0000000000000000", "SigPnd:\t0000000000000000"]
    {
        assert!(said.lines().any(|have| have == line), "no `{line}` in:\n{said}");
    }
}

pub(crate) fn terminal() {
    let s = Session::new();
    let ends = nix::pty::openpty(None, None).unwrap();
    let on_terminal = |script: &str| {
        let (mut command, reader) = command(Path::new("/bin/sh"), &["sh", "-c", script], &[]);
        command.stdin = ends.slave.try_clone().unwrap();
        command.terminal = true;
        (command, reader)
    };
    let (command, mut reader) =
        on_terminal("exec 3</dev/tty && tty; ps -o tpgid= -p $$ | tr -d ' '; echo $$");
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(wait_for(pid).is_success(), "{said}");
    let name = nix::unistd::ttyname(&ends.slave).unwrap();
    assert_eq!(said, format!("{}\n{pid}\n{pid}\n", name.display()));
    // Without: no controlling terminal, whatever descriptor 0 is.
    let (mut command, mut reader) = on_terminal("exec 3</dev/tty && echo opened");
    command.terminal = false;
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    said.clear();
    reader.read_to_string(&mut said).unwrap();
    assert!(!wait_for(pid).is_success() && !said.contains("opened"), "{said}");
    // One that a living session has is not taken from it, and what is none is none.
    let (command, _held) = on_terminal("sleep 300");
    let holder = s.session.spawn(command, &wall(&[])).unwrap();
    let refused = s.session.spawn(on_terminal("true").0, &wall(&[])).unwrap_err();
    assert_eq!((refused.step, refused.errno()), (Step::Terminal, libc::EPERM));
    kill(Pid::from_raw(holder), Signal::SIGKILL).unwrap();
    wait_for(holder);
    let (mut command, _reader) = on_terminal("true");
    command.stdin = fs::File::open("/dev/null").unwrap().into();
    let refused = s.session.spawn(command, &wall(&[])).unwrap_err();
    assert_eq!((refused.step, refused.errno()), (Step::Terminal, libc::ENOTTY));
}

pub(crate) fn failures() {
    let s = Session::new();
    let dir = temp_dir();
    let wall = wall(&[]);
    let start = |program: &Path, cwd: &Path, wall| {
        let (mut command, _reader) = command(program, &["x"], &[]);
        command.cwd = cwd.to_owned();
        let error = s.session.spawn(command, wall).unwrap_err();
        (error.step, Errno::from_raw(error.errno()))
    };
    let root = Path::new("/");
    assert_eq!(start(Path::new("/no/such/program"), root, &wall), (Step::Exec, Errno::ENOENT));
    assert_eq!(start(Path::new("/etc/passwd"), root, &wall), (Step::Exec, Errno::EACCES));
    assert_eq!(
        start(Path::new("/bin/true"), Path::new("/no/such"), &wall),
        (Step::Chdir, Errno::ENOENT)
    );
    // There, executable, and not granted.
    let walled = dir.path().join("true");
    fs::copy("/bin/true", &walled).unwrap();
    fs::set_permissions(&walled, fs::Permissions::from_mode(0o755)).unwrap();
    let narrow = wall_over(&[Path::new("/usr"), Path::new("/lib"), Path::new("/lib64")], &[]);
    assert_eq!(start(&walled, root, &narrow), (Step::Exec, Errno::EACCES));
    let (mut bad, _reader) = command(&walled, &["x"], &[]);
    bad.program = PathBuf::from("/bin/\0true");
    assert_eq!(s.session.spawn(bad, &wall).unwrap_err().step, Step::Request);
}

pub(crate) fn no_lost_exit() {
    let s = Session::new();
    let wall = wall(&[]);
    let mut expected = Vec::new();
    let mut ended = Vec::new();
    let mut failed = 0;
    for round in 0..300 {
        let code = (round % 100).to_string();
        let (mut command, _reader) =
            command(Path::new("/bin/sh"), &["sh", "-c", &format!("exit {code}")], &[]);
        if round % 3 == 0 {
            command.program = PathBuf::from("/no/such/program");
        }
        match s.session.spawn(command, &wall) {
            Ok(pid) => expected.push((pid, Exit::Code(round % 100))),
            Err(error) => {
                assert_eq!((error.step, error.errno()), (Step::Exec, libc::ENOENT));
                failed += 1;
            }
        }
        ended.extend(reap());
    }
    eventually("everything has been reaped", || {
        ended.extend(reap());
        ended.len() >= 300
    });
    assert_eq!((failed, expected.len(), ended.len()), (100, 200, 300));
    for end in &expected {
        assert!(ended.contains(end), "{end:?} was lost");
    }
    assert_eq!(ended.iter().filter(|(_, exit)| *exit == Exit::Code(127)).count(), 100);
}

pub(crate) fn large_arguments() {
    let s = Session::new();
    let long = "x".repeat(120_000);
    let (command_, mut reader) = command(
        Path::new("/bin/sh"),
        &["sh", "-c", "echo $#", "zero", &long, &long, &long, &long, &long],
        &[&format!("LONG={long}")],
    );
    let pid = s.session.spawn(command_, &wall(&[])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!((wait_for(pid), said.trim()), (Exit::Code(0), "5"));
    let many = vec![long.as_str(); 60];
    let (too_long, _reader) = command(Path::new("/bin/sh"), &many, &[]);
    let error = s.session.spawn(too_long, &wall(&[])).unwrap_err();
    assert_eq!((error.step, error.errno()), (Step::Exec, libc::E2BIG));
    let many = vec![long.as_str(); 80];
    let (far_too_long, _reader) = command(Path::new("/bin/sh"), &many, &[]);
    let error = s.session.spawn(far_too_long, &wall(&[])).unwrap_err();
    assert_eq!((error.step, error.errno()), (Step::Request, libc::E2BIG));
    assert_eq!(run(&s.session, &wall(&[]), "exit", &["4"]).0, Exit::Code(4));
}

pub(crate) fn threads_refused() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    assert_eq!(Spawner::start(&[]).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    drop(stop);
    thread.join().unwrap().unwrap_err();
    eventually("the thread is gone", || Spawner::start(&[]).is_ok());
}
