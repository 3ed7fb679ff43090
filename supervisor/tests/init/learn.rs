//! `casemate-supervisor exec --learn`: refused, learned, accepted, and then let through by these rules and no fewer.

use std::fs;
use std::net::TcpListener;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use casemate_protocol::policy::{Diff, Policy, built_in};
use nix::unistd::geteuid;

use crate::site::{PROGRAM, Site, said};

/// A site with a user's home, which has a key, and a place for what is learned.
struct Learning(Site);

impl Learning {
    fn new() -> Self {
        let files = ["outside/secret", "user/.ssh/key", "user/notes"];
        Self(Site::with(&["outside/made", "user/.ssh", "learned"], &files))
    }

    fn learned(&self) -> String {
        fs::read_to_string(self.path("learned/policy.toml")).unwrap()
    }

    fn exec(&self, options: &[&str], script: &str) -> (i32, String, String) {
        let mut command = self.command(&[], options, &["bash", "-c", script]);
        said(command.env("HOME", self.path("user")).output().unwrap())
    }

    /// Under a policy's text.
    fn under(&self, policy: &str, script: &str) -> String {
        let file = self.path("policy.toml");
        fs::write(&file, policy).unwrap();
        let made = self.path("outside/made/file");
        if made.exists() {
            fs::remove_file(made).unwrap();
        }
        let (code, said, errors) = self.exec(&["--policy", &file.display().to_string()], script);
        assert_eq!(code, 0, "{errors}");
        said
    }

    fn learn(&self, policy: &str, script: &str) -> (i32, String, String) {
        let file = self.text("learned/policy.toml");
        self.exec(&["--policy", policy, "--learn", &file], script)
    }
}

impl Deref for Learning {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.0
    }
}

/// Five things that are refused in five ways; `casemate run --learn` is tried with the same.
fn script(outside: &Path, port: u16) -> String {
    format!("set -- {} {port}\n{}", outside.display(), include_str!("tries.sh"))
}

fn those(said: &str, how: &str) -> Vec<String> {
    said.lines().filter_map(|line| Some(line.strip_suffix(how)?.trim().to_owned())).collect()
}

#[test]
fn what_was_learned_lets_the_run_pass_and_with_a_line_less_it_does_not() {
    let site = Learning::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = script(&site.path("outside"), listener.local_addr().unwrap().port());
    let all = ["write", "read", "connect", "syscall", "socket"];
    let base = built_in("developer").unwrap();
    assert_eq!(those(&site.under(base, &script), "fails"), all);

    let (code, said, words) = site.learn("developer", &script);
    assert_eq!((code, those(&said, "passes")), (0, all.map(str::to_owned).to_vec()), "{words}");
    assert!(words.contains("LEARNING, NO WALL") && words.contains("5 rules learned"), "{words}");
    let learned = site.learned();
    assert_eq!(those(&site.under(&learned, &script), "passes"), all, "{learned}");

    // Nothing more than these, and each by itself.
    let diff = Diff::between(&Policy::parse(base).unwrap(), &Policy::parse(&learned).unwrap());
    let more: Vec<&str> = diff.only_b.iter().map(|one| one.text.as_str()).collect();
    assert_eq!((diff.only_a.len(), more.len()), (0, 5), "{more:#?}");
    let is_added = |block: &&str| block.contains("learned: refused") && block.contains("[[");
    let tables: Vec<&str> = learned
        .split("\n\n")
        .filter(is_added)
        .filter(|block| !block.contains("taken out"))
        .collect();
    assert_eq!(tables.len(), 4, "{learned}");
    let mut less: Vec<String> = tables.iter().map(|table| learned.replacen(table, "", 1)).collect();
    let named = "names = [\"ptrace\", ";
    less.push(learned.replacen(named, &format!("{named}\"process_vm_readv\", "), 1));
    let mut failed: Vec<String> = Vec::new();
    for policy in less {
        assert_ne!(policy, learned);
        let fails = those(&site.under(&policy, &script), "fails");
        assert_eq!(fails.len(), 1, "{fails:?} in {policy}");
        failed.extend(fails);
    }
    failed.sort_unstable();
    let mut every = all.map(str::to_owned);
    every.sort_unstable();
    assert_eq!(failed, every);
}

#[test]
fn the_report_says_which_layers_stand_meanwhile() {
    let site = Learning::new();
    let (file, report) = (site.text("learned/policy.toml"), site.text("learned/report"));
    let (code, _, words) = site.exec(&["--learn", &file, "--report", &report], "true");
    assert_eq!(code, 0, "{words}");
    let said: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!(said["layers"], serde_json::json!(["scope", "environment", "rlimits"]), "{said}");
    assert_eq!(said["without"], serde_json::json!(["landlock", "seccomp", "bounds"]), "{said}");
    assert_eq!(said["learning"], true);
    let enforcement = said["enforcement"].to_string();
    assert!(
        enforcement.contains("LEARNING: no wall") && !enforcement.contains("bounds "),
        "{said}"
    );
}

#[test]
fn credentials_stay_closed_and_no_rule_opens_them() {
    let site = Learning::new();
    let user = site.text("user");
    let script = format!(
        "cat {user}/notes && echo notes pass; cat {user}/.ssh/key && echo keys pass; ls {user} >/dev/null && echo list passes; \
         cat {} && echo own passes; true",
        site.text("learned/policy.toml")
    );
    let (code, said, words) = site.learn("developer", &script);
    assert_eq!(code, 0, "{words}");
    // The home itself cannot be opened around its keys, nor the file that is being learned to.
    assert_eq!(those(&said, "pass"), ["sentinelnotes"], "{said} {words}");
    assert!(!said.contains("list passes") && !said.contains("own passes"), "{said}");
    let learned = site.learned();
    let (rules, kept) = learned.split_once("# Refused as well, and not proposed:").unwrap();
    assert!(rules.contains(&format!("path = \"{user}/notes\"")), "{rules}");
    assert!(!rules.contains(".ssh") && !rules.contains(&format!("path = \"{user}\"")), "{rules}");
    assert!(kept.contains(".ssh/key: it would open"), "{kept}");
    assert!(kept.contains(&format!("read {user}: it would open")), "{kept}");
    assert!(!site.under(&learned, &script).contains("keys pass"));
}

#[test]
fn what_fails_by_itself_or_has_another_way_is_not_learned() {
    let site = Learning::new();
    let closed = site.path("outside/closed");
    fs::write(&closed, "").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    // No such file; a mode that refuses; a look for the name service; threads, by clone3.
    let script = format!(
        "cat {0}/missing {0}/closed {0}/made/../closed; id >/dev/null; perl -e 'fork; wait'; cat work-is-here; true",
        site.text("outside")
    );
    let (code, _, words) = site.learn("developer", &script);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("0 rules learned"), "{words} {}", site.learned());
    let diff = Diff::between(
        &Policy::parse(built_in("developer").unwrap()).unwrap(),
        &Policy::parse(&site.learned()).unwrap(),
    );
    assert!(diff.is_empty(), "{diff:?}");
}

/// That a socket is made is no news; that it reaches somebody is.
#[test]
fn a_unix_socket_is_learned_where_somebody_listens() {
    let site = Learning::new();
    let path = site.path("outside/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "perl -MIO::Socket::UNIX -e 'exit(IO::Socket::UNIX->new(Peer => \"{}\") ? 0 : 1)' && echo connect passes",
        path.display()
    );
    let (code, said, words) = site.learn("developer", &script);
    assert_eq!((code, said.as_str()), (0, "connect passes\n"), "{words}");
    assert!(!words.contains("own filter"), "{words}");
    assert!(words.contains("1 rule learned"), "{words} {}", site.learned());
    assert_eq!(site.under(&site.learned(), &script), "connect passes\n");
    assert_eq!(site.under(built_in("developer").unwrap(), &format!("{script}; true")), "");
}

#[test]
fn it_is_refused_where_it_may_not_be() {
    let site = Learning::new();
    let file = site.text("learned/policy.toml");
    let refused = |options: &[&str], code: i32, word: &str| {
        let (found, said, words) = site.exec(options, "echo ran");
        assert_eq!((found, said.as_str()), (code, ""), "{words}");
        assert!(words.contains(word), "{words}");
    };
    refused(&["--policy", "strict", "--tier", "pod", "--learn", &file], 77, "forbids to learn");
    refused(&["--without", "rlimits", "--learn", &file], 64, "all layers");
    refused(&["--learn", &site.text("work/policy.toml")], 64, "the command may write");
    // Beside the places: they would be closed with it.
    refused(&["--learn", &site.text("policy.toml")], 64, "directory of its own");
    refused(&["--learn", "/nowhere/policy.toml"], 73, "--learn");
    // A kubelet sets these in every container (Kubernetes, pkg/kubelet/kubelet_pods.go).
    let mut command = site.command(&[], &["--learn", &file], &["echo", "ran"]);
    command.env("KUBERNETES_SERVICE_HOST", "10.96.0.1").env("KUBERNETES_SERVICE_PORT", "443");
    let (found, said, words) = crate::site::said(command.output().unwrap());
    assert_eq!((found, said.as_str()), (77, ""), "{words}");
    assert!(words.contains("not in a Pod"), "{words}");
    // What was refused leaves nothing.
    assert!(!site.path("policy.toml").exists() && !site.path("learned/policy.toml").exists());
    // Nor does a command that is not there.
    let output = site.command(&[], &["--learn", &file], &["no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(!site.path("learned/policy.toml").exists());
    // Whatever has the name stays, a link to nowhere included.
    let (mine, link) = (site.text("learned/mine"), site.text("learned/link"));
    fs::write(&mine, "precious").unwrap();
    std::os::unix::fs::symlink(site.path("learned/target"), &link).unwrap();
    for taken in [&mine, &link] {
        refused(&["--learn", taken], 73, "remove it, or name another");
    }
    assert_eq!(fs::read_to_string(&mine).unwrap(), "precious");
    assert!(!site.path("learned/target").exists());
    if geteuid().is_root() {
        let mut command = Command::new(PROGRAM);
        command.arg("exec").args(["--user", "0", "--learn", &file]);
        for place in ["work", "home", "scratch"] {
            command.arg(format!("--{place}")).arg(site.path(place));
        }
        let output = command.args(["--", "echo", "ran"]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(77), &b""[..]));
    }
}
