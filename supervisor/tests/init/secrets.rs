//! Rules that would grant a mounted secret, by whatever name, tried from behind them.

use std::fs;

use casemate_protocol::policy::decide::{self, AccessDecision, Outcome, Setting};
use casemate_protocol::policy::{DEVELOPER, PathTemplate, Policy};

use crate::pod;
use crate::site::{Site, said};

/// A policy with one rule more than the default one.
fn with(site: &Site, path: &str) -> String {
    let file = site.path("granting.toml").display().to_string();
    let rule = format!("[[path]]\npath = \"{path}\"\naccess = [\"read\"]\nreason = \"r\"\n");
    fs::write(&file, format!("{}\n{rule}", casemate_protocol::policy::DEVELOPER)).unwrap();
    file
}

/// Prints what of the secret's names can be read, and the errno of what cannot.
const TRY: &str = r#"
for name in /run/secrets/kubernetes.io/serviceaccount/value $S/token/value $S/key $S/bound/plain; do
    perl -e 'if (open F, "<", $ARGV[0]) { print <F> } else { print $!+0, "\n" }' $name
done"#;

fn attack(site: &Site, before: &[String], options: &[&str]) -> (i32, String, String) {
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let script = format!("S={}\n{TRY}", site.path("mounts").display());
    said(site.command(&before, options, &["sh", "-c", &script]).output().unwrap())
}

fn site() -> Option<(Site, Vec<String>)> {
    let site = Site::new();
    fs::create_dir(site.path("mounts")).unwrap();
    let before = pod::before(&site.path("mounts"))?;
    Some((site, before))
}

#[test]
fn in_a_pod_the_default_policy_starts_and_every_secret_is_closed() {
    let Some((site, before)) = site() else { return };
    let (code, out, err) = attack(&site, &before, &[]);
    assert_eq!((code, out.as_str()), (0, "13\n13\n13\n13\n"), "{err}");
    // And so it is explained.
    let policy = Policy::parse(DEVELOPER).unwrap();
    for path in ["/run/secrets", "/run/secrets/kubernetes.io/serviceaccount/value"] {
        let asked = PathTemplate::parse(path).unwrap();
        let answer = decide::path(&policy, &Setting::symbolic(&policy), &asked, &str::to_owned);
        let refused = |one: &AccessDecision| one.decision.outcome == Outcome::Refused;
        assert!(answer.access.iter().all(refused), "{answer:?}");
    }
    // Without the wall each is read: they are there.
    let (code, out, err) = attack(&site, &before, &["--without", "landlock"]);
    assert_eq!((code, out), (0, "sentinel\n".repeat(4)), "{err}");
}

#[test]
fn no_rule_grants_a_mounted_secret_by_whatever_name() {
    let Some((site, before)) = site() else { return };
    let below = |name: &str| site.path("mounts").join(name).display().to_string();
    let cases = [
        // A directory above, and the usual place by its other name and by its own.
        ("/run".to_owned(), "path /run would grant /run/secrets with it"),
        ("/".to_owned(), "path / would grant /run/secrets with it"),
        ("/var/run/secrets/kubernetes.io".to_owned(), "which lie in /var/run/secrets"),
        ("/run/secrets".to_owned(), "which lie in /run/secrets"),
        (below("link"), "(it is /run/secrets), and with it /run/secrets"),
        (below("bound"), "and with it /run/secrets"),
        (below("bound/kubernetes.io"), "and with it /run/secrets"),
        (below("token"), "mounts/token, where secrets are mounted"),
        (below("token/value"), "mounts/token, where secrets are mounted"),
        (below("key"), "where secrets are mounted"),
        // Who owns the directory could open it again.
        (below("hidden"), "hidden/secret, where secrets are mounted"),
        (below(""), "where secrets are mounted"),
    ];
    for (path, words) in cases {
        let policy = with(&site, path.trim_end_matches('/').max("/"));
        let (code, out, err) = attack(&site, &before, &["--policy", &policy]);
        assert_eq!((code, out.as_str()), (65, ""), "{path}: {err}");
        assert!(err.contains(words), "{path}: {err}");
    }
    // What is mounted beside them is no secret; nor what a session has made to look like one.
    for name in ["config", "cache"] {
        let policy = with(&site, &below(name));
        let (code, out, err) = attack(&site, &before, &["--policy", &policy]);
        assert_eq!((code, out.as_str()), (0, "13\n13\n13\n13\n"), "{name}: {err}");
    }
}

/// Not by a rule, but by what the command line names.
#[test]
fn no_option_grants_a_mounted_secret() {
    let Some((site, before)) = site() else { return };
    let below = |name: &str| site.path("mounts").join(name).display().to_string();
    for (option, path) in [
        ("--program", "/run/secrets".to_owned()),
        ("--skills", below("token")),
        ("--program", below("key")),
        ("--skills", below("")),
    ] {
        let (code, out, err) = attack(&site, &before, &[option, &path]);
        assert_eq!((code, out.as_str()), (65, ""), "{option} {path}: {err}");
        assert!(err.contains("where secrets are mounted"), "{option} {path}: {err}");
    }
    // Its own places: the site's have to go, or there would be two.
    for option in ["--work", "--home", "--scratch"] {
        for path in ["/run/secrets".to_owned(), "/run".to_owned(), below("token"), below("bound")] {
            let words = ["sh", "-c", TRY];
            let mut command =
                site.command(&before.iter().map(String::as_str).collect::<Vec<_>>(), &[], &words);
            command.env("S", site.path("mounts"));
            let mut all: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            let at = all.iter().position(|word| *word == option).unwrap();
            all[at + 1] = path.clone().into();
            let mut other = std::process::Command::new(command.get_program());
            let (code, out, err) = said(other.args(all).output().unwrap());
            assert_eq!((code, out.as_str()), (65, ""), "{option} {path}: {err}");
            assert!(err.contains("where secrets are mounted"), "{option} {path}: {err}");
        }
    }
}
