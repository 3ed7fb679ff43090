//! Each layer, with and without it, and what a policy does not grant although it names it.

use std::fs;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;

use crate::site::{PROGRAM, Site, said};

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

/// Two lists of which each says what the other does not would be somebody's guess.
#[test]
fn some_layers_are_named_or_the_others_are_and_never_both() {
    let site = Site::new();
    let (code, _, err) =
        site.run(&["--layers", "landlock,seccomp", "--without", "seccomp"], &["true"]);
    assert_eq!(code, 64, "{err}");
    assert!(
        err.contains("--layers")
            && err.contains("cannot be used with")
            && err.contains("--without"),
        "{err}"
    );
}

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

/// Core dumps are off in many shells: the hard limit has to be there for the test to mean something.
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
