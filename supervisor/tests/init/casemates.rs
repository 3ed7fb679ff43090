//! casemate's own home, tried from behind walls that its user's options or policy might have opened to it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use casemate_protocol::policy::DEVELOPER;

use crate::reach::mounting;
use crate::site::{PROGRAM, Site, said};

const USUAL: &str = "home/.local/state/casemate";

/// A user whose casemate has a home in the usual place, and one in another.
fn site() -> Site {
    let directories = [
        &format!("{USUAL}/keys"),
        &format!("{USUAL}/profiles"),
        "own/work",
        "kept/casemate/keys",
        "kept/casemate/profiles",
        "mounted",
    ];
    let directories = directories.map(|name| name as &str);
    let files = [&format!("{USUAL}/keys/signing.seed") as &str, "kept/casemate/keys/signing.seed"];
    let site = Site::with(&directories, &files);
    symlink(site.path("kept/casemate"), site.path("link")).unwrap();
    site
}

/// As [`Site::command`], with some of its options said otherwise and others left out.
fn with(site: &Site, before: &[&str], options: &[(&str, Option<&str>)], script: &str) -> Command {
    let mut all: Vec<OsString> = site.options().into_iter().map(Into::into).collect();
    for (option, value) in options {
        if let Some(at) = all.iter().position(|word| word == option) {
            all.drain(at..at + 2);
        }
        if let Some(value) = value {
            all.extend([option.into(), site.path(value).into()]);
        }
    }
    let mut words = before.iter().copied().chain([PROGRAM, "exec"]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(all).args(["--", "sh", "-c", script]);
    command.env("HOME", site.path("home")).env_remove("XDG_STATE_HOME").env_remove("CASEMATE_HOME");
    command.current_dir(site.path("work")).stdin(Stdio::null());
    command
}

/// Reads the seed and writes a profile, in both places, and says the errno of each.
fn attack(site: &Site) -> String {
    let tries = [USUAL, "kept/casemate"].map(|home| {
        let home = site.path(home).display().to_string();
        format!(
            "perl -e 'print open(F, \"<\", \"{home}/keys/signing.seed\") ? <F> : $!+0, \"\\n\"; \
             print open(F, \">\", \"{home}/profiles/p.toml\") ? \"made\" : $!+0, \"\\n\"'\n"
        )
    });
    tries.concat()
}

#[test]
fn a_command_gets_nothing_of_a_home_of_casemates() {
    let site = site();
    let script = attack(&site);
    // Its own home lies elsewhere.
    let own = [("--home", Some("own")), ("--work", Some("own/work"))];
    let mut held = with(&site, &[], &own, &script);
    let (code, out, err) =
        said(held.env("CASEMATE_HOME", site.path("kept/casemate")).output().unwrap());
    assert_eq!((code, out.as_str()), (0, "13\n13\n13\n13\n"), "{err}");
    // They are there, and it is the wall that keeps them.
    let (code, out, err) = site.sh(&["--without", "landlock"], &script);
    assert_eq!((code, out.as_str()), (0, "sentinel\nmade\nsentinel\nmade\n"), "{err}");
}

/// What somebody would write on the command line, or has without writing it.
#[test]
fn no_option_opens_a_home_of_casemates() {
    let site = site();
    let script = attack(&site);
    let own = ("--home", Some("own"));
    let refused = |before: &[&str], options: &[(&str, Option<&str>)], told: bool, option: &str| {
        let mut command = with(&site, before, options, &script);
        if told {
            command.env("CASEMATE_HOME", site.path("kept/casemate"));
        }
        let (code, out, err) = said(command.output().unwrap());
        assert_eq!((code, out.as_str()), (65, ""), "{options:?} {err}");
        let is_said = err.contains("casemate's own home")
            && err.contains("name a directory of the command's own");
        assert!(is_said && err.contains(&format!("{option} ")), "{options:?} {err}");
    };
    // The default home of the command is that of its user.
    refused(&[], &[("--home", None)], false, "--home");
    refused(&[], &[("--home", Some("home/.local"))], false, "--home");
    refused(&[], &[own, ("--work", Some(&format!("{USUAL}/profiles")))], false, "--work");
    for path in ["kept", "kept/casemate", "kept/casemate/keys", "link", "link/profiles"] {
        for option in ["--work", "--scratch", "--skills", "--program"] {
            refused(&[], &[own, (option, Some(path))], true, option);
        }
    }
    refused(&[], &[own, ("--program", Some("kept/casemate/keys/signing.seed"))], true, "--program");
    // By another mount of it, and where it is mounted below.
    for (source, point, path) in [
        ("kept", "mounted", "mounted"),
        ("kept/casemate", "mounted", "mounted/keys"),
        ("kept/casemate", "own/work", "own"),
    ] {
        let Some(before) = mounting(&site, source, point) else { return };
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        refused(
            &before,
            &[own, ("--skills", Some(path))],
            true,
            if path == "own" { "--home" } else { "--skills" },
        );
    }
    // One that is not made yet: only where it was named.
    fs::remove_dir_all(site.path("kept/casemate")).unwrap();
    refused(&[], &[own, ("--skills", Some("kept"))], true, "--skills");
    fs::remove_dir_all(site.path(USUAL)).unwrap();
    let (code, _, err) = said(with(&site, &[], &[("--home", None)], "true").output().unwrap());
    assert_eq!(code, 0, "{err}");
}

#[test]
fn no_rule_opens_a_home_of_casemates() {
    let site = site();
    let script = attack(&site);
    for path in ["kept", "kept/casemate/profiles", "link", USUAL] {
        let path = site.text(path);
        let rule = format!(
            "[[path]]\npath = \"{path}\"\naccess = [\"read\", \"write\"]\nreason = \"r\"\n"
        );
        fs::write(site.path("opening.toml"), format!("{DEVELOPER}\n{rule}")).unwrap();
        let options = [
            ("--home", Some("own")),
            ("--work", Some("own/work")),
            ("--policy", Some("opening.toml")),
        ];
        let mut command = with(&site, &[], &options, &script);
        command.env("CASEMATE_HOME", site.path("kept/casemate"));
        let (code, out, err) = said(command.output().unwrap());
        assert_eq!((code, out.as_str()), (65, ""), "{path}: {err}");
        let at =
            format!("policy line {} column 8: would grant {path}", DEVELOPER.lines().count() + 3);
        assert!(err.contains(&at) && err.contains("name a narrower path"), "{path}: {err}");
    }
}

/// Another session may listen there, or an allocator.
#[test]
fn no_command_is_handed_a_port_of_casemates() {
    let site = Site::new();
    for (option, ports) in [
        ("--ports", "20000"),
        ("--ports", "19990-20001"),
        ("--connect", "21008"),
        ("--connect", "31999"),
    ] {
        let (code, _, err) = site.run(&[option, ports], &["true"]);
        assert_eq!(code, 64, "{option} {ports}: {err}");
        assert!(err.contains("casemate gives out 20000 to 31999"), "{option} {ports}: {err}");
    }
    for way in ["connect", "bind"] {
        let policy = site.text("ports.toml");
        fs::write(
            &policy,
            format!("{DEVELOPER}\n[[tcp]]\n{way} = [8080, 20017]\nreason = \"r\"\n"),
        )
        .unwrap();
        let (code, _, err) = site.run(&["--policy", &policy], &["true"]);
        assert_eq!(code, 65, "{way}: {err}");
        assert!(err.contains("port 20017: casemate gives out") && err.contains("line"), "{err}");
    }
    let (code, _, err) = site.run(&["--ports", "19999", "--connect", "32000"], &["true"]);
    assert_eq!(code, 0, "{err}");
}
