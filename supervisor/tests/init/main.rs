//! `casemate-supervisor exec` as a program: as PID 1, below another init, as root on behalf of a user and as a user.
#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

#[path = "../pod/mod.rs"]
mod pod;
mod secrets;

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_casemate-supervisor");
const LONG: Duration = Duration::from_secs(30);

/// A place to work, to live and to scratch, and something beside them.
struct Site(TempDir);

impl Site {
    fn new() -> Self {
        let root = TempDir::with_prefix("casemate-init-").unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["work", "home", "scratch"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        fs::write(root.path().join("secret"), "sentinel").unwrap();
        let site = Self(root);
        if geteuid().is_root() {
            let done = Command::new("chown").args(["-R", "1000:1000"]).arg(site.path("")).status();
            assert!(done.unwrap().success());
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What the options about places are; as root the command becomes user 1000.
    fn options(&self) -> Vec<String> {
        let mut all: Vec<String> = ["work", "home", "scratch"]
            .iter()
            .flat_map(|name| [format!("--{name}"), self.path(name).display().to_string()])
            .collect();
        if geteuid().is_root() {
            all.extend(["--user", "1000"].map(str::to_owned));
        }
        all
    }

    fn command(&self, before: &[&str], options: &[&str], words: &[&str]) -> Command {
        let all: Vec<&str> = before.iter().copied().chain([PROGRAM, "exec"]).collect();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).args(self.options()).args(options).arg("--").args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, options: &[&str], words: &[&str]) -> (i32, String, String) {
        said(self.command(&[], options, words).output().unwrap())
    }

    fn sh(&self, options: &[&str], script: &str) -> (i32, String, String) {
        self.run(options, &["sh", "-c", script])
    }
}

fn said(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn wait(child: &mut Child) -> i32 {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap();
        }
        if started.elapsed() > LONG {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

fn until(out: &mut impl Read, words: &str) -> String {
    let mut said = String::new();
    let mut lines = BufReader::new(out).lines();
    while !said.contains(words) {
        said += &lines.next().expect("it goes on").unwrap();
    }
    said
}

#[test]
fn the_code_is_the_commands_and_its_streams_are_its_own() {
    let site = Site::new();
    let (code, out, err) = site.sh(&[], "echo out; echo err >&2; id -u; pwd; exit 3");
    let uid = if geteuid().is_root() { 1000 } else { geteuid().as_raw() };
    assert_eq!((code, out), (3, format!("out\n{uid}\n{}\n", site.path("work").display())));
    let mut lines = err.lines();
    let first = lines.next().unwrap();
    assert!(
        first.contains("policy developer")
            && first.ends_with("landlock, scope, seccomp, environment, rlimits, bounds"),
        "{err}"
    );
    assert_eq!(lines.collect::<Vec<_>>(), ["err"]);
    assert_eq!(site.sh(&[], "kill -9 $$").0, 137);
    assert_eq!(site.run(&[], &["no-such-program"]).0, 127);
    assert_eq!(site.run(&[], &["/etc/passwd"]).0, 126);
    let mut child = site.command(&[], &[], &["cat"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(said(child.wait_with_output().unwrap()).1, "through");
}

#[test]
fn what_cannot_be_held_is_refused_with_its_code() {
    let site = Site::new();
    let file = site.path("wrong.toml");
    fs::write(&file, "version = 1\nname = \"x\"\nnonsense = 1\n").unwrap();
    let wrong = file.display().to_string();
    let inside = site.path("work/report").display().to_string();
    for (options, code, words) in [
        (&["--policy", "strict"][..], 78, "--tier pod"),
        (&["--policy", "/no/such/file"], 66, "/no/such/file"),
        (&["--policy", &wrong], 65, "line"),
        (&["--work", "/"], 64, "not /"),
        (&["--home", "/no/such/place"], 64, "--home"),
        (&["--layers", "bounds"], 64, "keep the layer scope"),
        (&["--env", "NO_SUCH_VARIABLE_HERE"], 64, "NO_SUCH_VARIABLE_HERE"),
        (&["--report", "/proc/nothing"], 73, "--report"),
        (&["--report", &inside], 64, "outside"),
    ] {
        let mut command = Command::new(PROGRAM);
        // The later of two options counts for none: clap refuses it. So the places are given by hand.
        let places: Vec<String> = site
            .options()
            .chunks(2)
            .filter(|pair| !options.contains(&pair[0].as_str()))
            .flatten()
            .cloned()
            .collect();
        command.arg("exec").args(places).args(options).args(["--", "touch", "made"]);
        let (got, _, err) = said(command.output().unwrap());
        assert!(got == code && err.contains(words), "{options:?}: {got} {err}");
    }
    assert!(!site.path("work/made").exists());
    if geteuid().is_root() {
        let mut command = Command::new(PROGRAM);
        command.arg("exec").args(&site.options()[..6]).args(["--", "true"]);
        let (code, _, err) = said(command.output().unwrap());
        assert!(code == 64 && err.contains("--user"), "{code} {err}");
    }
}

/// Each layer is seen to fail without itself: the attack succeeds, and the missing layer is named.
#[test]
fn each_layer_holds_what_it_holds_and_without_it_the_attack_succeeds() {
    let site = Site::new();
    let secret = site.path("secret").display().to_string();
    let read = format!("cat {secret}");
    // A victim of the same user beside the session, in this process's own group.
    let victim = || {
        let mut command = Command::new("sleep");
        command.arg("600");
        if geteuid().is_root() {
            command = Command::new("setpriv");
            command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "sleep", "600"]);
        }
        command.spawn().unwrap()
    };
    for (layer, attack) in [
        ("landlock", read.as_str()),
        // TIOCSTI-like refusals need a terminal; a socket that no policy allows does not.
        ("seccomp", "perl -MSocket -e 'socket(my $s, AF_INET, SOCK_DGRAM, 0) or exit 1'"),
        ("environment", "test \"$CASEMATE_TEST_SECRET\" = handed"),
        ("rlimits", "test $(ulimit -c) != 0"),
    ] {
        let mut with = site.command(&[], &[], &["sh", "-c", attack]);
        with.env("CASEMATE_TEST_SECRET", "handed");
        let (code, _, err) = said(unlimited(&mut with).output().unwrap());
        assert_ne!(code, 0, "{layer}: {err}");
        assert!(!err.contains("WEAKER THAN THE POLICY"), "{err}");
        let mut without = site.command(&[], &["--without", layer], &["sh", "-c", attack]);
        without.env("CASEMATE_TEST_SECRET", "handed");
        let (code, _, err) = said(unlimited(&mut without).output().unwrap());
        assert_eq!(code, 0, "{layer}: {err}");
        assert!(err.contains(&format!("WEAKER THAN THE POLICY: without {layer}")), "{err}");
    }
    let mut held = victim();
    let attack = format!("kill -9 {}", held.id());
    assert_ne!(site.sh(&[], &attack).0, 0);
    assert!(held.try_wait().unwrap().is_none());
    assert_eq!(site.sh(&["--without", "scope"], &attack).0, 0);
    held.wait().unwrap();
    // The refusals are those of the layers, not of something else.
    let (_, out, _) =
        site.sh(&[], &format!("perl -e 'open(F, \"<\", \"{secret}\") or print $!+0'"));
    assert_eq!(out, "13");
}

/// Core dumps are off in many shells: the hard limit has to be there for the test to mean something.
#[test]
fn without_the_walls_files_still_move_and_variables_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let site = Site::new();
    let script = "mkdir a b && : > a/x && ln a/x b/y && printenv ODD";
    let options = ["--without", "landlock", "--without", "environment"];
    let mut command = site.command(&[], &options, &["sh", "-c", script]);
    command.env("ODD", OsStr::from_bytes(b"\xff")).current_dir(site.path("work"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"\xff\n");
}

/// A policy as a person has accepted it, with a file of the session's in it; then the session turns that to a secret of its user's.
#[test]
fn what_a_session_has_turned_to_a_secret_is_not_granted_to_the_next() {
    let site = Site::new();
    let (policy, learned) = (site.path("policy.toml"), site.path("home/tool/settings"));
    let developer = casemate_protocol::policy::DEVELOPER;
    // Of a path by itself, and of one below a placeholder.
    for path in [learned.display().to_string(), "{home}/tool/settings".to_owned()] {
        let rule =
            format!("[[path]]\npath = \"{path}\"\naccess = [\"read\"]\nreason = \"learned\"\n");
        fs::write(&policy, format!("{developer}\n{rule}")).unwrap();
        let policy = ["--policy", policy.to_str().unwrap()];
        let secret = site.path("secret").display().to_string();
        let (code, _, err) =
            site.sh(&policy, "mkdir -p ~/tool; rm -f ~/tool/settings; echo mine > ~/tool/settings");
        assert_eq!(code, 0, "{err}");
        let turn = format!("cat ~/tool/settings; cat {secret}; ln -sf {secret} ~/tool/settings");
        let (code, out, err) = site.sh(&policy, &turn);
        assert_eq!((code, out.as_str()), (0, "mine\n"), "{err}");
        let (code, out, err) = site.sh(&policy, &format!("cat {secret}"));
        assert_eq!((code, out.as_str()), (65, ""), "{err}");
        let told = err.contains("remove the link") && err.contains("home/tool/settings");
        assert!(told, "{err}");
        fs::remove_file(&learned).unwrap();
    }
    // The same by what the command line names: the worktree within the home.
    let within = |script: &str| {
        let mut options = site.options();
        options[1] = site.path("home/project").display().to_string();
        let mut command = Command::new(PROGRAM);
        command.arg("exec").args(options).args(["--", "sh", "-c", script]);
        said(command.stdin(Stdio::null()).output().unwrap())
    };
    assert_eq!(site.sh(&[], "mkdir ~/project").0, 0);
    assert_eq!(within("true").0, 0);
    let outside = site.path("");
    let turn = format!("rmdir ~/project && ln -s {} ~/project", outside.display());
    assert_eq!(site.sh(&[], &turn).0, 0);
    let (code, out, err) = within("cat secret");
    assert_eq!((code, out.as_str()), (64, ""), "{err}");
    assert!(err.contains("name the path that it leads to"), "{err}");
}

fn unlimited(command: &mut Command) -> Command {
    let mut outer = Command::new("sh");
    outer.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh"]).arg(command.get_program());
    outer.args(command.get_args());
    for (name, value) in command.get_envs() {
        outer.env(name, value.unwrap());
    }
    outer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    outer
}

#[test]
fn the_report_says_what_holds() {
    let site = Site::new();
    let file = site.path("report").display().to_string();
    let options = ["--report", &file, "--layers", "landlock,seccomp", "--tier", "pod"];
    assert_eq!(site.run(&options, &["true"]).0, 0);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["layers"], serde_json::json!(["landlock", "seccomp"]));
    assert_eq!(report["without"], serde_json::json!(["scope", "environment", "rlimits", "bounds"]));
    assert_eq!((&report["policy"], &report["tier"]), (&"developer".into(), &"pod".into()));
    assert!(report["enforcement"].to_string().contains("landlock abi"), "{report}");
    // Each layer that stands has its lines, whichever others do not.
    for (options, there, missing) in [
        (
            ["--without", "landlock"],
            &["kinds of sockets, ", "unix sockets", "no landlock:"][..],
            "landlock abi",
        ),
        (["--without", "scope"], &["kinds of sockets, ", "landlock abi", "egress"], "bounds "),
        (["--without", "seccomp"], &["landlock abi", "no seccomp:", "bounds "], "egress"),
    ] {
        let (code, _, words) = site.sh(&[&["--report", &file][..], &options].concat(), "true");
        assert_eq!(code, 0, "{words}");
        let report: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let said = report["enforcement"].to_string();
        assert!(there.iter().all(|words| said.contains(words)), "{options:?}: {said}");
        assert!(!said.contains(missing), "{options:?}: {said}");
    }
    let (_, out, _) = site.sh(&["--report", "/dev/fd/1"], "true");
    assert!(out.contains("\"revision\""), "{out}");
}

/// The built-in policy with this bound instead of its own.
fn bounded(site: &Site, from: &str, to: &str) -> String {
    let text = include_str!("../../../policies/developer.toml");
    assert!(text.contains(from));
    let file = site.path("bounded.toml");
    fs::write(&file, text.replace(from, to)).unwrap();
    file.display().to_string()
}

/// Doubles until it is stopped.
const BOMB: &str =
    "i=0; while [ $i -lt 80 ]; do sleep 1000 & i=$((i+1)); done; f() { f | f & }; f; wait";

#[test]
fn a_fork_bomb_is_ended_with_76_and_its_cause_and_nothing_of_it_is_left() {
    let site = Site::new();
    let policy = bounded(&site, "processes = 2048", "processes = 120");
    let (code, _, err) = site.sh(&["--policy", &policy], BOMB);
    let cause = "ran more than 120 processes and threads, which its policy's [bounds] allow";
    assert!(code == 76 && err.contains(cause), "{code} {err}");
    // It runs in its own directory, and whoever is there is its own.
    let work = site.path("work");
    let left = fs::read_dir("/proc").unwrap().flatten();
    let left =
        left.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|at| at == work));
    assert_eq!(left.count(), 0);
}

/// More than is allowed, and no more than a machine bears: without the layer it lives, and that is said.
#[test]
fn without_bounds_more_processes_run_than_the_policy_allows_and_that_is_said() {
    let site = Site::new();
    let policy = bounded(&site, "processes = 2048", "processes = 40");
    let script =
        "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; sleep 3; echo survived";
    let (code, out, err) = site.sh(&["--policy", &policy], script);
    assert!(code == 76 && !out.contains("survived"), "{code} {err}");
    for (without, said) in [("bounds", "without bounds"), ("scope", "without scope, bounds")] {
        let (code, out, err) = site.sh(&["--policy", &policy, "--without", without], script);
        assert!(code == 0 && out.contains("survived"), "{code} {err}");
        assert!(err.contains(&format!("WEAKER THAN THE POLICY: {said}\n")), "{err}");
    }
}

#[test]
fn what_fills_the_disk_is_ended_with_76_and_its_cause() {
    let site = Site::new();
    let policy = bounded(&site, "disk = \"64GiB\"", "disk = \"8MiB\"");
    let file = site.path("report").display().to_string();
    let script = "sleep 1.5; head -c 20000000 /dev/urandom > big; sleep 60";
    let (code, _, err) = site.sh(&["--policy", &policy, "--report", &file], script);
    assert!(code == 76 && err.contains("on disk of the 8MiB"), "{code} {err}");
    let report = fs::read_to_string(file).unwrap();
    assert!(report.contains("disk 8MiB, files 4000000; processes held by count"), "{report}");
}

#[test]
fn term_is_passed_on_then_the_grace_then_nothing_is_left() {
    for without in [&[][..], &["--without", "scope"]] {
        let site = Site::new();
        let loops = "echo on; while :; do sleep 0.05; done";
        let with = |script: &str| {
            let options = [&["--grace", "1"][..], without].concat();
            site.command(&[], &options, &["sh", "-c", script]).spawn().unwrap()
        };
        let mut obeys = with(&format!("trap 'exit 5' TERM; {loops}"));
        until(obeys.stdout.as_mut().unwrap(), "on");
        signal(&obeys, Signal::SIGTERM);
        assert_eq!(wait(&mut obeys), 5);
        let mut stubborn = with(&format!(
            "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > daemon; sleep 600' & {loops}"
        ));
        until(stubborn.stdout.as_mut().unwrap(), "on");
        let daemon = eventually(|| {
            fs::read_to_string(site.path("work/daemon")).ok().filter(|text| text.ends_with('\n'))
        });
        signal(&stubborn, Signal::SIGTERM);
        assert_eq!(wait(&mut stubborn), 137);
        // Gone, not a moment later: this process's end says that nothing is left.
        assert!(!Path::new(&format!("/proc/{}", daemon.trim())).exists());
        let mut hears = with(&format!("trap 'exit 6' USR1; trap '' INT; {loops}"));
        until(hears.stdout.as_mut().unwrap(), "on");
        signal(&hears, Signal::SIGINT);
        signal(&hears, Signal::SIGUSR1);
        assert_eq!(wait(&mut hears), 6);
    }
}

fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < LONG, "never");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `unshare` makes it PID 1 of a namespace with a proc of its own.
fn as_pid_1() -> Option<Vec<&'static str>> {
    let mut words = vec!["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    if !geteuid().is_root() {
        words.extend(["--user", "--map-current-user"]);
    }
    let works = Command::new(words[0]).args(&words[1..]).arg("true").status();
    if works.is_ok_and(|status| status.success()) {
        return Some(words);
    }
    println!("SKIP: unshare(1) makes no pid namespace here");
    None
}

#[test]
fn as_pid_1_it_reaps_every_orphan_and_ends_with_the_commands_code() {
    let Some(before) = as_pid_1() else { return };
    for without in [&[][..], &["--without", "scope"]] {
        let site = Site::new();
        let script = "for n in 1 2 3 4 5 6 7 8 9 10; do (setsid sh -c 'sleep 0.05' &) ; done; sleep 0.6; \
                      cat /proc/1/comm; grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l; \
                      setsid sleep 600 & exit 9";
        let mut command = site.command(&before, without, &["sh", "-c", script]);
        let (code, out, err) = said(command.output().unwrap());
        assert_eq!((code, out.as_str()), (9, "casemate-superv\n0\n"), "{err}");
        let mut term = site.command(
            &before,
            &[],
            &[
                "sh",
                "-c",
                "trap 'exit 4' TERM; echo on; kill -TERM 1; while :; do sleep 0.05; done",
            ],
        );
        term.args(["x"]);
        // From inside it is out of reach: the scope refuses it.
        let mut child = term.spawn().unwrap();
        until(child.stdout.as_mut().unwrap(), "on");
        let inner = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        kill(Pid::from_raw(inner.trim().parse().unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(wait(&mut child), 4);
    }
}

#[test]
fn a_server_on_an_allowed_port_is_reached_from_outside_and_another_port_is_refused() {
    let site = Site::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!(
        "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => {free}, Listen => 1, ReuseAddr => 1) \
         or do {{ print $!+0, \"\\n\"; exit 1 }}; $| = 1; print \"on\\n\"; my $c = $s->accept; print $c \"served\";"
    );
    let port = free.to_string();
    let mut child =
        site.command(&[], &["--ports", &port], &["perl", "-e", &server]).spawn().unwrap();
    until(child.stdout.as_mut().unwrap(), "on");
    let mut answer = String::new();
    TcpStream::connect(("127.0.0.1", free)).unwrap().read_to_string(&mut answer).unwrap();
    assert_eq!((answer.as_str(), wait(&mut child)), ("served", 0));
    let (code, out, _) = site.run(&[], &["perl", "-e", &server]);
    assert_eq!((code, out.as_str()), (1, "13\n"));
}

/// A container's PID 1 leads the session of its terminal; the command gets it whole.
#[test]
fn a_terminal_that_is_its_own_becomes_the_commands() {
    let site = Site::new();
    let ends = nix::pty::openpty(None, None).unwrap();
    let script = "tty; test $(ps -o tpgid= -p $$) = $$ && echo mine; echo ready; while :; do sleep 0.1; done";
    let mut command = site.command(&["setsid", "--ctty", "--wait"], &[], &["sh", "-c", script]);
    let end = || Stdio::from(ends.slave.try_clone().unwrap());
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    let mut master = fs::File::from(ends.master);
    let said = until(&mut master, "ready");
    assert!(said.contains("/dev/pts/") && said.contains("mine"), "{said}");
    master.write_all(b"\x03").unwrap();
    assert_eq!(wait(&mut child), 130);
}

/// An image that was not built for it has neither its libraries nor a shell. The static file is made as docs/exec.md says.
#[test]
fn the_installed_file_runs_in_an_image_that_has_nothing_else() {
    let Some(program) = std::env::var_os("CASEMATE_STATIC_SUPERVISOR").map(PathBuf::from) else {
        println!("SKIP: CASEMATE_STATIC_SUPERVISOR names no static file; see docs/exec.md");
        return;
    };
    if !geteuid().is_root() {
        println!("SKIP: chroot(1) needs root");
        return;
    }
    let image = TempDir::with_prefix("casemate-image-").unwrap();
    fs::set_permissions(image.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["casemate-bin", "data", "tmp", "proc", "dev", "usr", "secret"] {
        fs::create_dir(image.path().join(name)).unwrap();
    }
    let bin = image.path().join("casemate-bin");
    assert!(Command::new(&program).arg("install").arg(&bin).status().unwrap().success());
    for name in ["null", "urandom"] {
        let device = image.path().join("dev").join(name);
        fs::write(&device, "").unwrap();
    }
    // The image's one program: it needs nothing either.
    fs::copy(&program, image.path().join("usr/app")).unwrap();
    fs::write(image.path().join("secret/key"), "sentinel").unwrap();
    // As a container's: a mount of its own.
    let root = image.path().display();
    let script = format!(
        "mount --bind {root} {root} && mount -t proc proc {root}/proc && for d in null urandom; do mount --bind /dev/$d {root}/dev/$d; done && \
         exec chroot {root} /casemate-bin/casemate-supervisor exec --user 1000 --work /data --home /data --scratch /tmp -- /usr/app check"
    );
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount", "--kill-child", "sh", "-c", &script])
        .output()
        .unwrap();
    let (code, out, err) = said(output);
    assert!(err.contains("policy developer") && out.contains("\"checks\""), "{code} {out} {err}");
}
