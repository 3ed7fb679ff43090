//! The clone: private, complete, on its own branch, and made and inspected where the agent is, not where we are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

use casemate_protocol::ids::Generation;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{Evidence, Quiesce, Repository, StartEvent};

use crate::client::Client;
use crate::harness::{ALL, LONG, Slot, Who, call};

fn git(directory: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(["-c", "safe.directory=*", "-c", "user.name=t", "-c", "user.email=t@t"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with one commit on `main`, a hook, and an object that nothing reaches; readable by everybody.
fn source(slot: &Slot) -> PathBuf {
    let path = slot.root.path().join("source");
    fs::create_dir(&path).unwrap();
    git(&path, &["init", "-q", "-b", "main"]);
    fs::write(path.join("README"), "hello\n").unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "one"]);
    fs::write(path.join("secret"), "unreachable\n").unwrap();
    git(&path, &["hash-object", "-w", "secret"]);
    fs::remove_file(path.join("secret")).unwrap();
    let hook = path.join(".git/hooks/post-checkout");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\ntouch hooked\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    path.join(".git")
}

#[test]
fn a_local_clone_is_private_and_brings_nothing_along() {
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        let source = source(&slot);
        git(&source, &["remote", "add", "origin", "https://token@example.org/r.git"]);
        git(&source, &["config", "core.fsmonitor", "touch /tmp/never"]);
        slot.config.repository = Some(Repository::Local(source.clone()));
        let (worker, address) = slot.serve();
        let work = slot.session().join("work");
        assert_eq!(fs::read_to_string(work.join("README")).unwrap(), "hello\n");
        assert_eq!(
            git(&work, &["branch", "--show-current"]),
            format!("casemate/{}", slot.config.session)
        );
        assert_eq!(git(&work, &["remote"]), "", "an origin with a credential is left out");
        let config = fs::read_to_string(work.join(".git/config")).unwrap();
        assert!(!config.contains("fsmonitor") && !config.contains("token"), "{config}");
        assert!(!work.join("hooked").exists() && !work.join(".git/hooks").exists());
        assert!(!work.join(".git/objects/info/alternates").exists());
        let objects = git(&work, &["cat-file", "--batch-all-objects", "--batch-check"]);
        assert_eq!(
            objects.lines().count(),
            3,
            "commit, tree, blob and nothing unreachable: {objects}"
        );

        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        let outside =
            client.shell(&session, &format!("cat {}/HEAD; ls /casemate/source", source.display()));
        assert!(!outside.contains("refs/heads/main"), "{outside}");
        let committed = client.shell(
            &session,
            "echo x > x && git add x && git commit -qm two && git log --oneline | wc -l",
        );
        assert!(committed.trim().starts_with('2'), "{tier} {who:?}: {committed}");
        worker.stop();
    }
}

#[test]
fn an_origin_without_a_secret_is_kept() {
    let mut slot = Slot::new(Tier::Namespace, Who::User);
    let source = source(&slot);
    git(&source, &["remote", "add", "origin", "https://example.org/r.git"]);
    slot.config.repository = Some(Repository::Local(source));
    let (worker, _) = slot.serve();
    let work = slot.session().join("work");
    assert_eq!(git(&work, &["remote", "get-url", "origin"]), "https://example.org/r.git");
    worker.stop();
}

#[test]
fn an_empty_source_gives_an_empty_start() {
    let mut slot = Slot::new(Tier::Namespace, Who::User);
    let path = slot.root.path().join("empty");
    fs::create_dir(&path).unwrap();
    git(&path, &["init", "-q"]);
    slot.config.repository = Some(Repository::Local(path.join(".git")));
    let (worker, _) = slot.serve();
    assert_eq!(git(&slot.session().join("work"), &["rev-list", "--count", "HEAD"]), "1");
    worker.stop();
}

#[test]
fn a_half_made_clone_is_redone_and_a_whole_one_is_kept() {
    let mut slot = Slot::new(Tier::Namespace, Who::User);
    let source = source(&slot);
    slot.config.repository = Some(Repository::Local(source.clone()));
    let half = slot.session();
    fs::create_dir_all(half.join("work/.git/objects")).unwrap();
    fs::create_dir_all(half.join("home")).unwrap();
    fs::write(half.join("work/.git/HEAD"), "garbage").unwrap();
    fs::write(half.join("home/half"), "made").unwrap();
    let (worker, _) = slot.serve();
    assert!(half.join("work/README").exists() && !half.join("home/half").exists());
    fs::write(half.join("work/README"), "changed").unwrap();
    worker.stop();
    // The source may be gone by then: what is whole needs it no more.
    slot.config.generation = slot.config.generation.next();
    let (worker, _) = slot.serve();
    assert_eq!(fs::read_to_string(half.join("work/README")).unwrap(), "changed");
    worker.stop();
}

pub(crate) fn quiesce(slot: &Slot, address: std::net::SocketAddr) -> Option<Evidence> {
    let control = slot.token(Audience::Control);
    let answer = call(address, "POST", "/v1/quiesce", Some(&control), "").1;
    match serde_json::from_str(&answer).unwrap() {
        Quiesce::Quiesced { evidence } => evidence,
        Quiesce::Busy => panic!("busy"),
    }
}

#[test]
fn evidence_counts_what_would_be_lost() {
    let mut slot = Slot::new(Tier::Namespace, Who::User);
    slot.config.repository = Some(Repository::Local(source(&slot)));
    let (worker, address) = slot.serve();
    assert_eq!(quiesce(&slot, address), Some(Evidence::default()));
    let control = slot.token(Audience::Control);
    call(address, "POST", "/v1/reopen", Some(&control), "");
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    client.shell(&session, "echo 1 >> README; git stash -q; git checkout -qb other; echo 2 > two; git add two; git commit -qm two; echo 3 > three; echo 4 > four");
    let evidence = quiesce(&slot, address);
    assert_eq!(evidence, Some(Evidence { dirty: 2, unpushed: 1, stashes: 1 }));
    let refused = client.prompt(&session, "one more");
    assert!(client.answer(refused).0.get("error").is_some());
    worker.stop();
}

/// What an agent plants for the next git that comes along: it runs behind the wall, where it may do nothing more than
/// the agent itself. The mark outside stands for everything outside.
#[test]
fn a_planted_fsmonitor_filter_or_hook_never_runs_outside_of_the_domain() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        let outside = slot.config.volume.join("state");
        let inside = "/casemate/state";
        let script = format!(
            "#!/bin/sh\nid -u >> \"$HOME/ran-$(basename \"$0\")\"\ntouch {outside}/escaped {inside}/escaped\nls {outside} {inside} >> \"$HOME/listing\" 2>/dev/null\ncat\n",
            outside = outside.display(),
        );
        let plant = format!(
            "mkdir -p $HOME/bin && cat > $HOME/bin/evil <<'END'\n{script}END\nchmod +x $HOME/bin/evil; \
             for n in monitor filter hook; do cp $HOME/bin/evil $HOME/bin/$n; done; \
             git config core.fsmonitor $HOME/bin/monitor; git config filter.x.clean $HOME/bin/filter; \
             echo '* filter=x' > .gitattributes; git add .gitattributes; touch -d '1 hour ago' .gitattributes; \
             mkdir -p .git/hooks; cp $HOME/bin/hook .git/hooks/post-index-change; echo a > a"
        );
        client.shell(&session, &plant);
        let home = slot.session().join("home");
        for name in ["monitor", "filter", "hook"] {
            let _ = fs::remove_file(home.join(format!("ran-{name}")));
        }
        let _ = fs::remove_file(home.join("listing"));
        quiesce(&slot, address);
        // It did run, so the test proves something; and it could neither write nor list there.
        assert!(home.join("ran-monitor").exists(), "{tier} {who:?}: the plant never ran");
        assert!(!outside.join("escaped").exists(), "{tier} {who:?}");
        let listing = fs::read_to_string(home.join("listing")).unwrap_or_default();
        assert!(!listing.contains("provisioned.json"), "{tier} {who:?}: {listing}");
        worker.stop();
    }
}

#[test]
fn programs_and_variables_that_an_agent_plants_are_not_what_our_git_runs_with() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        // Under every name that a git of ours might start, at every place that an agent may write; and what shells and
        // git read at their start. The monitor runs by git's own rules, inside: it tells what it was started with.
        client.shell(
            &session,
            "for place in . $HOME/bin $HOME/.local/bin $TMPDIR; do mkdir -p $place; \
             for name in git sh less pager ssh env; do \
             printf '#!/bin/sh\\n: > %s/planted-ran\\n' $HOME > $place/$name; chmod +x $place/$name; \
             done; done; \
             echo 'export LD_PRELOAD=/work/evil.so PATH=.:$HOME/bin:$PATH' | tee .profile $HOME/.profile $HOME/.bashrc; \
             printf '#!/bin/sh\\nenv > %s/seen\\nexit 1\\n' $HOME > $HOME/monitor; chmod +x $HOME/monitor; \
             git config core.fsmonitor $HOME/monitor; git config core.pager pager; git config diff.external sh",
        );
        drop(client);
        let (status, _) =
            call(address, "GET", "/v1/patch", Some(&slot.token(Audience::Control)), "");
        assert_eq!(status, 200, "{tier} {who:?}");
        assert!(quiesce(&slot, address).is_some(), "{tier} {who:?}: git status gave its answer");
        let home = slot.session().join("home");
        assert!(!home.join("planted-ran").exists(), "{tier} {who:?}");
        let seen =
            fs::read_to_string(home.join("seen")).expect("the monitor ran, as the test needs");
        let value = |name: &str| {
            seen.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .map(str::to_owned)
        };
        assert_eq!(value("LD_PRELOAD"), None, "{seen}");
        let path = value("PATH").expect("git has a PATH");
        // Git puts its own directory first; nothing there is the agent's to write.
        let writable: Vec<PathBuf> = match tier {
            Tier::Domain => vec![slot.session()],
            _ => ["/work", "/home/agent", "/tmp"].map(PathBuf::from).into(),
        };
        for part in path.split(':').map(Path::new) {
            assert!(part.is_absolute(), "{path}");
            assert!(!writable.iter().any(|place| part.starts_with(place)), "{path}");
        }
        worker.stop();
    }
}

/// What command line tools keep in a HOME, planted by an agent: nothing of ours reads any of it but the git that runs behind the wall.
/// Whoever opens a fifo waits for ever.
#[test]
fn nothing_of_ours_reads_what_tools_keep_in_a_home_but_git_behind_the_wall() {
    const KEPT: [&str; 16] = [
        ".netrc",
        ".npmrc",
        ".curlrc",
        ".wgetrc",
        ".ssh/config",
        ".ssh/known_hosts",
        ".git-credentials",
        ".gnupg/gpg.conf",
        ".claude.json",
        ".claude/settings.json",
        ".claude/.credentials.json",
        ".codex/config.toml",
        ".codex/auth.json",
        ".gemini/settings.json",
        ".config/opencode/opencode.json",
        ".config/casemate/config.toml",
    ];
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        let outside = slot.config.volume.join("state");
        let settings = "[core]\n fsmonitor = $HOME/monitor\n sshCommand = $HOME/monitor\n pager = $HOME/monitor\n\
                        [credential]\n helper = !$HOME/monitor\n[alias]\n status = !$HOME/monitor\n";
        client.shell(
            &session,
            &format!(
                "cd; printf '#!/bin/sh\necho ran >> %s/ran\ntouch {0}/escaped\nls {0} >> %s/listing 2>&1\nexit 1\n' $HOME $HOME > monitor; \
                 chmod +x monitor; cat > .gitconfig <<END\n{settings}END\n\
                 for file in {1}; do mkdir -p $(dirname $file); mkfifo $file; done",
                outside.display(),
                KEPT.join(" ")
            ),
        );
        drop(client);
        let home = slot.session().join("home");
        for kept in KEPT {
            assert!(home.join(kept).exists(), "{tier} {who:?} {kept}");
        }
        let control = slot.token(Audience::Control);
        assert_eq!(call(address, "GET", "/v1/patch", Some(&control), "").0, 200);
        assert!(quiesce(&slot, address).is_some(), "{tier} {who:?}: git status gave its answer");
        worker.stop();
        assert!(home.join("ran").exists(), "{tier} {who:?}: git did not read its own");
        assert!(!outside.join("escaped").exists(), "{tier} {who:?}");
        let listing = fs::read_to_string(home.join("listing")).unwrap();
        assert!(!listing.contains("provisioned.json"), "{tier} {who:?}: {listing}");
        // The next start makes anew what is half made and looks at the clone: by no settings of the agent's.
        let _ = fs::remove_file(home.join(".gitconfig"));
        nix::unistd::mkfifo(&home.join(".gitconfig"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        slot.hand_over(&home);
        slot.config.generation = Generation(2);
        let mut worker = slot.start();
        // One that waits for ever is ended, which is no start.
        let (pid, (starts, started)) = (worker.pid(), mpsc::channel::<()>());
        let watch = std::thread::spawn(move || {
            if started.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            }
        });
        let event = worker.outcome();
        assert!(matches!(event, StartEvent::Ready { .. }), "{tier} {who:?}: {event:?}");
        drop(starts);
        watch.join().unwrap();
        worker.stop();
    }
}
