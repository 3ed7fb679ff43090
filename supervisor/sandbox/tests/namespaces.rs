//! A worker in its namespaces: what is there, what is not, who it is, and whose death ends whom.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::{fs, io};

use casemate_sandbox::namespaces::{Access, Bind, Entered, NamespaceStep, Plan, Withdrawal, enter};
use casemate_sandbox::{Spawner, shield};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use support::{eventually, temp_dir, wall_over};

const TESTS: &[support::Test] = &[
    ("only_what_is_bound_exists", only_what_is_bound),
    ("the_worker_is_pid_1_without_any_privilege", no_privilege),
    ("devices_and_proc_are_the_workers_own", own_proc_and_devices),
    ("writes_reach_the_session_as_the_dedicated_user", writes),
    ("a_spawner_works_inside", spawner_inside),
    ("signals_and_exit_codes_pass_through_the_launcher", forwarding),
    ("a_killed_launcher_takes_everything_with_it", killed_launcher),
    ("what_is_withdrawn_is_gone_but_for_descriptors_of_before", withdrawn_is_gone),
    ("a_failed_start_names_the_step_and_leaves_nothing", failures),
    ("no_mount_is_left_on_the_host", no_mount_left),
];

/// What a root launcher runs its worker as.
const HOST_UID: u32 = 61_000;

/// Files of proc that tell of the host; no kernel has all of them.
const HIDDEN: [&str; 5] =
    ["/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/timer_list"];

fn main() {
    support::main(TESTS, role);
}

/// A slot with a session's directories, and a secret beside them.
struct Slot {
    dir: tempfile::TempDir,
}

impl Slot {
    fn new() -> Self {
        let dir = temp_dir();
        for name in ["work", "home", "scratch", "other"] {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            if nix::unistd::geteuid().is_root() {
                std::os::unix::fs::chown(&path, Some(HOST_UID), Some(HOST_UID)).unwrap();
            }
        }
        fs::write(dir.path().join("other/secret"), "another session's").unwrap();
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a launcher whose worker plays a role.
    fn start(&self, role: &str) -> Child {
        std::process::Command::new(support::this_program())
            .args(["inside", role, self.path().to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs it to its end: its exit code and the answers it printed.
    fn ask(&self, role: &str) -> (Option<i32>, BTreeMap<String, String>) {
        let output = self.start(role).wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let answers = text
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
            .collect();
        (output.status.code(), answers)
    }
}

fn plan(slot: &Path) -> Plan {
    let read = |path: &str| Bind {
        source: path.into(),
        target: path.into(),
        access: Access::ReadOnly,
        required: path == "/usr",
    };
    let own = |name: &str, target: &str| Bind {
        source: slot.join(name),
        target: target.into(),
        access: Access::ReadWrite,
        required: true,
    };
    let mut binds: Vec<Bind> =
        ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc"].map(read).into();
    binds.extend([own("work", "/work"), own("home", "/home/agent"), own("scratch", "/tmp")]);
    let root = nix::unistd::geteuid().is_root();
    Plan {
        host_uid: root.then_some(HOST_UID),
        inside_uid: 1000,
        binds,
        hostname: Some("casemate".to_owned()),
        withdrawn: None,
    }
}

fn only_what_is_bound() {
    let slot = Slot::new();
    let secret = slot.path().join("other/secret");
    assert!(secret.exists());
    let (code, said) = slot.ask("look");
    assert_eq!(code, Some(0));
    for path in [
        "slot",
        "secret",
        "/root",
        "/sys",
        "/mnt",
        "/var/log",
        "/run/lock",
        "/home/agent/../../mnt",
    ] {
        assert_eq!(said[path], "ENOENT", "{path}");
    }
    let root: Vec<&str> = said["/"].split_whitespace().collect();
    for name in &root {
        let known = [
            "bin", "sbin", "lib", "lib32", "lib64", "usr", "etc", "work", "home", "tmp", "proc",
            "dev", "run", "var",
        ];
        assert!(known.contains(name), "{name} in the root");
    }
    for place in ["/", "/usr", "/etc", "/dev", "/home", "/run", "/var", "/usr/bin"] {
        assert_eq!(said[&format!("write {place}")], "EROFS", "{place}");
    }
    assert_eq!(
        said["link /bin"],
        fs::read_link("/bin").map_or("no link".into(), |link| link.display().to_string())
    );
    assert_eq!(said["resolv.conf"], "read");
    assert_eq!(said["hostname"], "casemate");
}

fn withdrawn_is_gone() {
    let (code, said) = Slot::new().ask("withdrawn");
    assert_eq!(code, Some(0), "{said:?}");
    assert_eq!((said["before"].as_str(), said["mounted"].as_str()), ("read", "false"));
    assert_eq!((said["after"].as_str(), said["mount point"].as_str()), ("ENOENT", "ENOENT"));
    assert_eq!((said["held"].as_str(), said["above"].as_str()), ("read", "ENOENT"));
    assert_eq!((said["beside"].as_str(), said["keeper"].as_str()), ("EROFS", "ENOENT"));
    // CAP_SYS_ADMIN alone, under the worker's own id.
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(said[&format!("keeper {set}")], "0000000000200000", "{set}");
    }
    for set in ["CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(said[&format!("keeper {set}")], "0000000000000000", "{set}");
    }
    assert!(said["keeper Uid"].split_whitespace().all(|uid| uid == "1000"), "{said:?}");
    assert_eq!(said["keeper NoNewPrivs"], "1");
    assert_eq!(said["keeper's memory"], "EACCES");
}

fn no_privilege() {
    let (code, said) = Slot::new().ask("look");
    assert_eq!(code, Some(0));
    assert_eq!(
        (said["pid"].as_str(), said["uid"].as_str(), said["gid"].as_str()),
        ("1", "1000", "1000")
    );
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(said[set], "0000000000000000", "{set}");
    }
    assert_eq!(said["NoNewPrivs"], "1");
    for attempt in ["mount", "remount", "chroot", "sethostname", "setuid 0"] {
        assert!(
            ["EPERM", "EINVAL"].contains(&said[attempt].as_str()),
            "{attempt}: {}",
            said[attempt]
        );
    }
    let root = nix::unistd::geteuid().is_root();
    let uid_map = said["uid_map"].split_whitespace().collect::<Vec<_>>().join(" ");
    let uid = nix::unistd::geteuid();
    assert_eq!(
        uid_map,
        if root { format!("0 0 1 1000 {HOST_UID} 1") } else { format!("1000 {uid} 1") }
    );
}

fn own_proc_and_devices() {
    let (code, said) = Slot::new().ask("look");
    assert_eq!(code, Some(0));
    assert_eq!(said["processes"], "1");
    for device in
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx"]
    {
        assert_eq!(said[device], "opened", "{device}");
    }
    assert_eq!(said["/dev/shm/x"], "created");
    assert_eq!(said["/dev/kmsg"], "ENOENT");
    assert_eq!(said["/dev/vda"], "ENOENT");
    for path in ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern"] {
        assert!(
            ["EROFS", "EACCES", "ENOENT"].contains(&said[path].as_str()),
            "{path}: {}",
            said[path]
        );
    }
    // Read-only as mounts, not merely by mode: that is what stops root of the host's mapping.
    assert_eq!(said["read-only /proc/sys"], "true");
    assert!(HIDDEN.into_iter().any(|path| Path::new(path).is_file()), "there is something to hide");
    assert_eq!(said["hidden files shown"], "");
}

fn writes() {
    let slot = Slot::new();
    assert_eq!(slot.ask("write").0, Some(0));
    let file = fs::metadata(slot.path().join("work/made")).unwrap();
    let uid = nix::unistd::geteuid();
    assert_eq!(file.uid(), if uid.is_root() { HOST_UID } else { uid.as_raw() });
    // Setuid bits may be set and mean nothing: every mount is nosuid.
    assert_eq!(file.permissions().mode() & 0o4000, 0o4000);
    assert!(slot.path().join("scratch/made").exists() && slot.path().join("home/made").exists());
}

fn spawner_inside() {
    let (code, said) = Slot::new().ask("spawner");
    assert_eq!((code, said["agent"].as_str()), (Some(0), "exit code 5"));
    assert_eq!(said["kill"], "signal 9 (SIGKILL)");
}

fn forwarding() {
    let slot = Slot::new();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        let mut launcher = slot.start("signal");
        let mut said = BufReader::new(launcher.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        kill(pid_of(&launcher), signal).unwrap();
        let code = launcher.wait().unwrap().code();
        assert_eq!(code, Some(100 + signal as i32), "{signal}");
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// The worker of a launcher, by the host's pid.
fn worker_of(launcher: &Child) -> i32 {
    let pid = launcher.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap()
}

fn exists(pid: i32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap()
}

fn killed_launcher() {
    let slot = Slot::new();
    let mut launcher = slot.start("signal");
    let mut said = BufReader::new(launcher.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let worker = worker_of(&launcher);
    assert!(exists(worker));
    casemate_sandbox::reap::adopt_orphans().unwrap();
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    eventually("the worker is gone", || {
        let _ = casemate_sandbox::reap();
        !exists(worker)
    });
    // And its output has no writer left.
    assert_eq!(said.read_to_string(&mut line).unwrap(), 0);
}

fn failures() {
    let slot = Slot::new();
    for (role, step, errno) in [
        ("missing", NamespaceStep::Source, Errno::ENOENT),
        ("below", NamespaceStep::Target, Errno::EROFS),
        ("symlink", NamespaceStep::Target, Errno::ELOOP),
        ("no-host-uid", NamespaceStep::HostUid, Errno::EINVAL),
        ("no-userns", NamespaceStep::Unshare, Errno::ENOSPC),
    ] {
        if ["no-host-uid", "no-userns"].contains(&role) && !nix::unistd::geteuid().is_root() {
            continue;
        }
        let (code, said) = slot.ask(role);
        assert_eq!(code, Some(3), "{role}: {said:?}");
        assert_eq!(said["error"], format!("{step:?} {errno:?}"), "{role}");
        assert_eq!(said["children"], "0", "{role}");
        if role == "no-userns" {
            assert!(said["text"].contains("sysctl user.max_user_namespaces"), "{}", said["text"]);
        }
    }
}

fn no_mount_left() {
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(Slot::new().ask("write").0, Some(0));
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
}

// === the launcher and its worker ===

fn role(role: &str, arguments: &[String]) {
    let slot = PathBuf::from(&arguments[0]);
    let mut plan = plan(&slot);
    let bind = |target: &str| Bind {
        source: slot.join("other"),
        target: target.into(),
        access: Access::ReadOnly,
        required: true,
    };
    match role {
        "missing" => plan.binds.push(Bind { source: "/no/such".into(), ..bind("/x") }),
        "below" => plan.binds.push(bind("/work/not-there")),
        "symlink" => {
            // Planted by an agent: it must not bend the mount point out of the session.
            std::os::unix::fs::symlink("/usr", slot.join("work/link")).unwrap();
            plan.binds.push(bind("/work/link/bin"));
        }
        "withdrawn" => {
            plan.withdrawn = Some("/passing".into());
            plan.binds.push(Bind { access: Access::ReadWrite, ..bind("/passing/other") });
        }
        "no-host-uid" => plan.host_uid = None,
        "no-userns" => forbid_user_namespaces(),
        _ => {}
    }
    match enter(&plan) {
        Ok(Entered::Inside(withdrawal)) => {
            match (role, withdrawal) {
                ("withdrawn", Some(withdrawal)) => withdrawn(withdrawal),
                _ => worker(role, &slot),
            }
            std::process::exit(0);
        }
        Ok(Entered::Launcher(launcher)) => {
            std::process::exit(launcher.wait_forwarding_signals().unwrap().code().into())
        }
        Err(error) => {
            let errno = Errno::from_raw(error.source.raw_os_error().unwrap());
            println!("error = {:?} {errno:?}", error.step);
            println!("text = {error}");
            let me = std::process::id();
            let children = fs::read_to_string(format!("/proc/{me}/task/{me}/children")).unwrap();
            println!("children = {}", children.split_whitespace().count());
            std::process::exit(3);
        }
    }
}

/// In a user namespace of our own, whose limit is ours to set.
fn forbid_user_namespaces() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).unwrap();
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", "0 0 1").unwrap();
    fs::write("/proc/self/gid_map", "0 0 1").unwrap();
    fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
}

fn worker(role: &str, slot: &Path) {
    match role {
        "look" => look(slot),
        "write" => {
            for place in ["/work", "/home/agent", "/tmp"] {
                let file = Path::new(place).join("made");
                fs::write(&file, "x").unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
            }
        }
        "spawner" => spawner_role(),
        "signal" => {
            let all = SigSet::all();
            all.thread_block().unwrap();
            println!("ready");
            io::stdout().flush().unwrap();
            let signal = all.wait().unwrap();
            std::process::exit(100 + signal as i32);
        }
        other => panic!("no role {other}"),
    }
}

fn errno_of<T>(result: io::Result<T>, success: &str) -> String {
    match result {
        Ok(_) => success.to_owned(),
        Err(error) => format!("{:?}", Errno::from_raw(error.raw_os_error().unwrap_or(0))),
    }
}

fn nix_errno<T>(result: nix::Result<T>) -> String {
    errno_of(result.map_err(io::Error::from), "succeeded")
}

fn look(slot: &Path) {
    let say = |name: &str, answer: &str| println!("{name} = {answer}");
    say("slot", &errno_of(fs::metadata(slot), "there"));
    say("secret", &errno_of(fs::metadata(slot.join("other/secret")), "there"));
    for path in [
        "/root",
        "/sys",
        "/mnt",
        "/var/log",
        "/run/lock",
        "/home/agent/../../mnt",
        "/dev/kmsg",
        "/dev/vda",
    ] {
        say(path, &errno_of(fs::metadata(path), "there"));
    }
    let names: Vec<String> = fs::read_dir("/")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    say("/", &names.join(" "));
    for place in ["/", "/usr", "/etc", "/dev", "/home", "/run", "/var", "/usr/bin"] {
        // A directory that root of the host owns is refused by its mode first: ask the mount itself.
        let created = fs::File::create(Path::new(place).join("x"));
        let answer = errno_of(created, "created");
        let read_only = nix::sys::statvfs::statvfs(place)
            .unwrap()
            .flags()
            .contains(nix::sys::statvfs::FsFlags::ST_RDONLY);
        let refused = answer == "EACCES" && read_only;
        say(&format!("write {place}"), if refused { "EROFS" } else { &answer });
    }
    say(
        "link /bin",
        &fs::read_link("/bin").map_or("no link".into(), |link| link.display().to_string()),
    );
    say("resolv.conf", &errno_of(fs::read_to_string("/etc/resolv.conf"), "read"));
    say("hostname", nix::unistd::gethostname().unwrap().to_str().unwrap());
    say("pid", &std::process::id().to_string());
    say("uid", &nix::unistd::getuid().to_string());
    say("gid", &nix::unistd::getgid().to_string());
    say("uid_map", &fs::read_to_string("/proc/self/uid_map").unwrap().replace('\n', " "));
    for line in fs::read_to_string("/proc/self/status").unwrap().lines() {
        if let Some((name, value)) = line.split_once(":\t") {
            say(name, value);
        }
    }
    let none: Option<&str> = None;
    let flags = nix::mount::MsFlags::empty();
    say("mount", &nix_errno(nix::mount::mount(none, "/tmp", Some("tmpfs"), flags, none)));
    let remount = nix::mount::MsFlags::MS_REMOUNT | nix::mount::MsFlags::MS_BIND;
    say("remount", &nix_errno(nix::mount::mount(none, "/usr", none, remount, none)));
    say("chroot", &nix_errno(nix::unistd::chroot("/tmp")));
    say("sethostname", &nix_errno(nix::unistd::sethostname("x")));
    say("setuid 0", &nix_errno(nix::unistd::setuid(0.into())));
    let processes = fs::read_dir("/proc").unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_str().unwrap().parse::<i32>().is_ok()
    });
    say("processes", &processes.count().to_string());
    for device in
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx"]
    {
        say(device, &errno_of(fs::File::options().read(true).write(true).open(device), "opened"));
    }
    say("/dev/shm/x", &errno_of(fs::File::create("/dev/shm/x"), "created"));
    for path in ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern"] {
        say(path, &errno_of(fs::File::options().write(true).open(path), "opened"));
    }
    let proc_sys = nix::sys::statvfs::statvfs("/proc/sys").unwrap().flags();
    say(
        "read-only /proc/sys",
        &proc_sys.contains(nix::sys::statvfs::FsFlags::ST_RDONLY).to_string(),
    );
    // Root of the host could read them whatever their mode: what is looked at is whether they are still the kernel's.
    let shown =
        HIDDEN.into_iter().filter(|path| fs::metadata(path).is_ok_and(|found| found.is_file()));
    say("hidden files shown", &shown.collect::<Vec<_>>().join(" "));
}

/// Before and after: by path, by a descriptor of before, and in the list of mounts.
fn withdrawn(withdrawal: Withdrawal) {
    let say = |name: &str, answer: &str| println!("{name} = {answer}");
    let secret = Path::new("/passing/other/secret");
    say("before", &errno_of(fs::read_to_string(secret), "read"));
    let held = fs::File::open("/passing/other").unwrap();
    let status = fs::read_to_string("/proc/2/status").unwrap_or_default();
    for line in status.lines() {
        if let Some((name, value)) = line.split_once(":\t") {
            say(&format!("keeper {name}"), value);
        }
    }
    say("keeper's memory", &errno_of(fs::read_dir("/proc/2/fd"), "listed"));
    withdrawal.withdraw().unwrap();
    say("after", &errno_of(fs::metadata(secret), "there"));
    say("mount point", &errno_of(fs::metadata("/passing/other"), "there"));
    say("beside", &errno_of(fs::create_dir("/passing/other"), "made"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    say("mounted", &mounts.contains("/passing").to_string());
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    say("held", &errno_of(fs::read_to_string(by_descriptor.join("secret")), "read"));
    say("above", &errno_of(fs::metadata(by_descriptor.join("../work")), "there"));
    say("keeper", &errno_of(fs::metadata("/proc/2"), "there"));
}

/// PID 1 in earnest: shield, spawner, an agent that exits and one that is ended.
fn spawner_role() {
    shield::harden().unwrap();
    let spawner = Spawner::start(&[]).unwrap();
    let session = spawner.session().unwrap();
    // This program does not exist inside, so the shell plays the agent.
    let wall = wall_over(&[Path::new("/usr"), Path::new("/lib"), Path::new("/lib64")], &[]);
    let shell = |script: &str| {
        let (command, _reader) = support::command(Path::new("/bin/sh"), &["sh", "-c", script], &[]);
        session.spawn(command, &wall).unwrap()
    };
    println!("agent = {}", support::wait_for(shell("exit 5")));
    let sleeper = shell("sleep 300");
    session.kill_all().unwrap();
    println!("kill = {}", support::wait_for(sleeper));
}
