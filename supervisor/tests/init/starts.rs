//! What is started, where and with what, and what is refused.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::site::{PROGRAM, Site, said, until, wait};

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
    let (kept, link) = (site.path("kept"), site.path("link").display().to_string());
    fs::write(&kept, "as it was").unwrap();
    symlink(&kept, &link).unwrap();
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
        (&["--report", &link], 64, "it is a link"),
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
    assert_eq!(fs::read_to_string(kept).unwrap(), "as it was");
    if geteuid().is_root() {
        let mut command = Command::new(PROGRAM);
        command.arg("exec").args(&site.options()[..6]).args(["--", "true"]);
        let (code, _, err) = said(command.output().unwrap());
        assert!(code == 64 && err.contains("--user"), "{code} {err}");
    }
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
