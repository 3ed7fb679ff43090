//! Signals, orphans, the grace, and that nothing is left.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::site::{Site, eventually, said, signal, until, wait};

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
