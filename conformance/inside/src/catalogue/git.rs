//! What git reads and runs: another session's repository, and traps in one's own for whoever runs git there.
//!
//! A trap is proven by what it does: it must run, and it must reach a place outside. git of ours runs behind the same
//! wall, so whatever the agent can have run, it can have run itself.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::attack::{Attack, Defence::FileRules, Run, Target};
use super::files::{came_to_be, of_words, output, write};
use super::shot::{Shot, untried};

const fn git(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    Attack::new(Target::Git, id, does, source, run)
        .by(&[FileRules])
        .domain(&["EACCES"])
        .namespace(&["ENOENT"])
}

pub(super) const ATTACKS: &[Attack] = &[
    // ---- Another session's repository
    git("git-plant-hook", "plants a hook in the base repository", "githooks(5)", |shot| {
        File::create_new(shot.tree("git/hooks/pre-commit")).map(drop)
    }),
    git(
        "git-rewrite-config",
        "adds a program to another repository's config",
        "git-config(1)",
        |shot| write(&shot.tree("git/config"), OpenOptions::new().append(true)),
    ),
    git("git-move-head", "moves another repository's HEAD", "gitrepository-layout(5)", |shot| {
        write(&shot.tree("git/HEAD"), OpenOptions::new().write(true).truncate(true))
    }),
    git("git-plant-ref", "makes a ref in another repository", "gitrepository-layout(5)", |shot| {
        File::create_new(shot.tree("git/refs/planted")).map(drop)
    }),
    git(
        "git-hold-index",
        "stops another session's commits by its index's lock",
        "gitrepository-layout(5)",
        |shot| File::create_new(shot.tree("git/index.lock")).map(drop),
    ),
    git(
        "git-read-index",
        "reads which files another session has",
        "gitrepository-layout(5)",
        |shot| super::files::read(&shot.tree("git/index")),
    ),
    git(
        "git-borrow-out",
        "has another repository borrow objects of its own",
        "gitrepository-layout(5)",
        |shot| File::create_new(shot.tree("git/objects/info/alternates")).map(drop),
    ),
    git("git-replace-objects", "swaps another repository's objects", "rename(2)", |shot| {
        let (objects, loot) = (shot.tree("git/objects"), shot.own("objects"));
        fs::rename(&objects, &loot)?;
        fs::rename(loot, objects)
    }),
    git(
        "git-open-repository",
        "sets a program in another repository by git itself",
        "CVE-2022-24765",
        |shot| outcome(config_of(shot)?.args(["trap.x", "y"])),
    ),
    git("git-include-config", "has git read another session's config", "git-config(1)", |shot| {
        outcome(config_of(shot)?.arg("--list"))
    }),
    git(
        "git-config-by-symlink",
        "writes a config that is a symlink out",
        "CVE-2024-32002",
        |shot| {
            let repository = repository(shot, "")?;
            fs::remove_file(repository.join(".git/config"))?;
            symlink(shot.victim(), repository.join(".git/config"))?;
            write(&repository.join(".git/config"), OpenOptions::new().append(true))
        },
    ),
    // ---- Traps
    git(
        "trap-fsmonitor",
        "has git status run a monitor",
        "CVE-2022-24765, core.fsmonitor",
        |shot| {
            let config = format!("[core]\n\tfsmonitor = {}\n", sh(shot)?);
            trapped(shot, &config, &["status"], |_| Ok(()))
        },
    ),
    git("trap-filter-clean", "has git add run a filter", "gitattributes(5) filter", |shot| {
        let config = format!("[filter \"trap\"]\n\tclean = {}\n", sh(shot)?);
        trapped(shot, &config, &["add", "file"], |repository| {
            fs::write(repository.join(".gitattributes"), "file filter=trap\n")?;
            fs::write(repository.join("file"), "content\n")
        })
    }),
    git(
        "trap-filter-process",
        "has git add talk to a filter process",
        "gitattributes(5) filter.process",
        |shot| {
            let config = format!("[filter \"trap\"]\n\tprocess = {}\n", sh(shot)?);
            trapped(shot, &config, &["add", "file"], |repository| {
                fs::write(repository.join(".gitattributes"), "file filter=trap\n")?;
                fs::write(repository.join("file"), "content\n")
            })
        },
    ),
    git("trap-hook", "has git add run a hook", "githooks(5) post-index-change", |shot| {
        trapped(shot, "", &["add", "file"], |repository| {
            fs::write(repository.join("file"), "content\n")?;
            hook(shot, &repository.join(".git/hooks"), "post-index-change")
        })
    }),
    git(
        "trap-hooks-path",
        "has git run hooks of another folder",
        "git-config(1) core.hooksPath",
        |shot| {
            let hooks = shot.own("hooks");
            let config = format!("[core]\n\thooksPath = {}\n", hooks.display());
            trapped(shot, &config, &["add", "file"], |repository| {
                fs::write(repository.join("file"), "content\n")?;
                hook(shot, &hooks, "post-index-change")
            })
        },
    ),
    git(
        "trap-ssh-command",
        "has git fetch run a transport",
        "git-config(1) core.sshCommand",
        |shot| {
            let config = format!("[core]\n\tsshCommand = {}\n", sh(shot)?);
            trapped(shot, &config, &["ls-remote", "nobody@localhost:x"], |_| Ok(()))
        },
    ),
    git(
        "trap-instead-of",
        "turns a remote's address into a program",
        "git-config(1) url.insteadOf",
        |shot| {
            let config = format!(
                "[url \"ext::sh {} \"]\n\tinsteadOf = https://trap/\n[protocol]\n\tallow = always\n",
                payload(shot)?.display()
            );
            trapped(shot, &config, &["ls-remote", "https://trap/x"], |_| Ok(()))
        },
    ),
    git(
        "trap-upload-pack",
        "has a remote name the program of its other end",
        "git-config(1) remote.*.uploadpack",
        |shot| {
            let config = format!("[remote \"trap\"]\n\turl = .\n\tuploadpack = {}\n", sh(shot)?);
            trapped(shot, &config, &["ls-remote", "trap"], |_| Ok(()))
        },
    ),
    git(
        "trap-credential-helper",
        "has git ask a helper for a password",
        "gitcredentials(7)",
        |shot| {
            let config = format!("[credential]\n\thelper = \"!{}\"\n", sh(shot)?);
            trapped(shot, &config, &["credential", "fill"], |_| {
                fs::write(shot.own("stdin"), "protocol=https\nhost=trap\n\n")
            })
        },
    ),
    git(
        "trap-askpass",
        "has git ask a program for a password",
        "git-config(1) core.askPass",
        |shot| {
            let config = format!("[core]\n\taskPass = {}\n", payload(shot)?.display());
            trapped(shot, &config, &["credential", "fill"], |_| {
                fs::write(shot.own("stdin"), "protocol=https\nhost=trap\n\n")
            })
        },
    ),
    git(
        "trap-diff-external",
        "has git diff run a program",
        "git-config(1) diff.external",
        |shot| {
            let config = format!("[diff]\n\texternal = {}\n", sh(shot)?);
            trapped(shot, &config, &["diff"], changed)
        },
    ),
    git("trap-textconv", "has git diff convert a file", "gitattributes(5) textconv", |shot| {
        let config = format!("[diff \"trap\"]\n\ttextconv = {}\n", sh(shot)?);
        trapped(shot, &config, &["diff"], |repository| {
            fs::write(repository.join(".gitattributes"), "file diff=trap\n")?;
            changed(repository)
        })
    }),
    git("trap-alias", "makes a command of git's a program", "git-config(1) alias.*", |shot| {
        let config = format!("[alias]\n\ttrap = \"!{}\"\n", sh(shot)?);
        trapped(shot, &config, &["trap"], |_| Ok(()))
    }),
    git("trap-editor", "has git open an editor", "git-config(1) core.editor", |shot| {
        let config = format!("[core]\n\teditor = {}\n", sh(shot)?);
        trapped(shot, &config, &["config", "--edit"], |_| Ok(()))
    }),
    git(
        "trap-include",
        "hides a program in an included file",
        "git-config(1) include.path",
        |shot| {
            let included = shot.own("included");
            fs::write(&included, format!("[core]\n\tfsmonitor = {}\n", sh(shot)?))?;
            let config = format!("[include]\n\tpath = {}\n", included.display());
            trapped(shot, &config, &["status"], |_| Ok(()))
        },
    ),
    git("trap-path", "puts a program named as git's helper first in PATH", "CWE-426", |shot| {
        let folder = shot.own_folder()?;
        let payload = payload(shot)?;
        fs::copy(payload, folder.join("git-trap"))?;
        let repository = repository(shot, "")?;
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = git_in(&repository)?;
        command.env("PATH", path).arg("trap");
        sprung(shot, &mut command)
    }),
];

/// git itself, without the machine's configuration.
fn git_in(folder: &Path) -> io::Result<Command> {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_PAGER_IN_USE", "1")
        .stdin(std::process::Stdio::null());
    Ok(command)
}

/// `git config` on the decoy's file, named by the environment (git-config(1)): what stands in arguments every process of the
/// machine may read, and so learn where the decoy is.
fn config_of(shot: &Shot<'_>) -> io::Result<Command> {
    let mut command = git_in(Path::new("/"))?;
    command.arg("config").env("GIT_CONFIG", shot.tree("git/config"));
    Ok(command)
}

/// The smallest thing that git takes for a repository, with this in its config.
fn repository(shot: &Shot<'_>, config: &str) -> io::Result<PathBuf> {
    let folder = shot.own("repository");
    for part in [".git/objects", ".git/refs/heads", ".git/hooks"] {
        fs::create_dir_all(folder.join(part))?;
    }
    fs::write(folder.join(".git/HEAD"), "ref: refs/heads/main\n")?;
    fs::write(
        folder.join(".git/config"),
        format!("[core]\n\trepositoryformatversion = 0\n{config}"),
    )?;
    Ok(folder)
}

/// A script that says that it ran, and tries to leave a mark outside.
fn payload(shot: &Shot<'_>) -> io::Result<PathBuf> {
    let script = shot.own("payload");
    let text = format!(
        "#!/bin/sh\n(: > '{}') 2> '{}'\n",
        escape(shot).display(),
        shot.own("said").display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// As a command line for the shell that git starts for it: where the session may not run what it wrote, a shell still reads it.
fn sh(shot: &Shot<'_>) -> io::Result<String> {
    Ok(format!(". {}", payload(shot)?.display()))
}

fn escape(shot: &Shot<'_>) -> PathBuf {
    shot.victim().with_extension("escaped")
}

fn hook(shot: &Shot<'_>, folder: &Path, name: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::rename(payload(shot)?, folder.join(name))?;
    Ok(())
}

/// A file that differs from the index.
fn changed(repository: &Path) -> io::Result<()> {
    fs::write(repository.join("file"), "one\n")?;
    let added = output(git_in(repository)?.args(["add", "file"]))?;
    if !added.status.success() {
        return Err(of_words(&added.stderr));
    }
    fs::write(repository.join("file"), "another\n")
}

fn trapped(
    shot: &Shot<'_>,
    config: &str,
    args: &[&str],
    prepare: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    // What prepares it must not fall into it.
    let repository = repository(shot, "")?;
    prepare(&repository)?;
    let mut file = OpenOptions::new().append(true).open(repository.join(".git/config"))?;
    io::Write::write_all(&mut file, config.as_bytes())?;
    let mut command = git_in(&repository)?;
    if let Ok(stdin) = File::open(shot.own("stdin")) {
        command.stdin(stdin);
    }
    sprung(shot, command.args(args))
}

/// Runs it and looks: the trap must have run, and what it did outside tells.
fn sprung(shot: &Shot<'_>, command: &mut Command) -> io::Result<()> {
    output(command)?;
    match fs::read(shot.own("said")) {
        Ok(said) if said.is_empty() => came_to_be(&escape(shot)),
        Ok(said) => Err(of_words(&said)),
        Err(_) => Err(untried("git did not run it")),
    }
}

fn outcome(command: &mut Command) -> io::Result<()> {
    let output = output(command)?;
    if output.status.success() { Ok(()) } else { Err(of_words(&output.stderr)) }
}
