//! Steps 2 to 6: sentinels in worktree and HOME, a ref that exists only here, and everything that the other session
//! can do about them.

use std::path::{Path, PathBuf};

use casemate_inside::{Attempt, SUCCEEDED};
use sha2::{Digest as _, Sha256};

use super::{Side, World, attempt};
use crate::demo::host::{Host, HostError, quote};
use crate::demo::judge::Wall;

/// What one session has to lose.
#[derive(Debug, Clone)]
pub(crate) struct Sentinels {
    /// Part of each file's name.
    name: String,
    /// Part of each file's content.
    content: String,
    /// The files as this machine names them.
    files: Vec<(&'static str, PathBuf)>,
    /// Their hashes as the agent's own shell computes them.
    hashes: String,
    /// The ref's commit.
    commit: String,
}

/// Both sessions': A's, B's.
pub(super) type Both = [Sentinels; 2];

/// Steps 2 and 3 for both sessions, and the proof that the search finds what is there.
pub(super) async fn plant(world: &mut World<'_>) -> Result<Both, HostError> {
    let World { a, b, lines, .. } = world;
    lines.step("2, 3  sentinels in worktree and HOME, a ref that exists nowhere else");
    let mut both = Vec::new();
    for side in [a, b] {
        let sentinels = plant_in(side).await?;
        let name = side.facts.name;
        lines.same(
            name,
            "write and hash",
            "its own sentinels",
            &sentinels.expected(),
            &sentinels.hashes,
        );
        let found = sentinels.scan(&mut side.host).await?;
        lines.attempts(name, "its own sentinels", Wall::Open, &found);
        both.push(sentinels);
    }
    let [a, b] = both.try_into().expect("two sides were planted");
    Ok([a, b])
}

async fn plant_in(side: &mut Side) -> Result<Sentinels, HostError> {
    // Random, and never whole in a command line: the agent keeps what it was told, and that is not what is looked for.
    let unique = casemate_protocol::ids::BootId::random();
    let unique = &unique.as_str()[2..];
    let name = format!("sentinel-{}", &unique[..13]);
    let content = format!("treasure {}", &unique[13..]);
    let write = format!(
        "printf '%s %s\\n' treasure {rest} > {name}; cp {name} \"$HOME/{name}\"; \
         git checkout -q -b only-here && git add {name} && \
         git -c user.name=demo -c user.email=demo@localhost commit -q -m {name} && git checkout -q -",
        rest = &unique[13..]
    );
    side.host.output(&write).await?;
    // The branch took the file with it: an uncommitted one is to be lost.
    side.host.output(&format!("cp \"$HOME/{name}\" {name}")).await?;
    let commit = side.host.output("git rev-parse only-here").await?;
    let hashes = hashes(side, &name).await?;
    let (work, home) = (&side.facts.work, &side.facts.home);
    Ok(Sentinels {
        files: vec![
            ("sentinel in the worktree", work.join(&name)),
            ("sentinel in HOME", home.join(&name)),
            ("its own ref", work.join(".git/refs/heads/only-here")),
        ],
        name,
        content,
        hashes,
        commit,
    })
}

async fn hashes(side: &mut Side, name: &str) -> Result<String, HostError> {
    side.host.output(&format!("cat {name} \"$HOME/{name}\" | sha256sum | cut -c1-64")).await
}

// === impl Sentinels ===

impl Sentinels {
    async fn scan(&self, host: &mut Host) -> Result<Vec<Attempt>, HostError> {
        host.scan(&self.name, &self.content).await
    }

    /// What both files together must hash to.
    fn expected(&self) -> String {
        let digest = Sha256::digest(format!("{0}\n{0}\n", self.content));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Steps 4 to 6: the attacker on the victim's sentinels and ref.
pub(super) async fn attack(
    world: &mut World<'_>,
    both: &Both,
    reversed: bool,
) -> Result<(), HostError> {
    let sentinels = &both[usize::from(reversed)];
    let (attacker, victim, lines) = world.sides(reversed);
    let (from, owner) = (attacker.facts.name, victim.facts.name);
    lines.step(match reversed {
        false => {
            "4, 5  B looks for A's files, reads, overwrites, deletes them; finds and moves A's ref"
        }
        true => "6  reversed: A on B's files and ref",
    });
    let found = sentinels.scan(&mut attacker.host).await?;
    lines.attempts(from, &format!("{owner}'s sentinels"), Wall::Search, &found);
    for (what, path) in &sentinels.files {
        let tried = attacker.host.inside(&["files", text(path)]).await?;
        lines.attempts(from, &format!("{owner}: {what}"), Wall::File, &tried);
    }
    let work = quote(&victim.facts.work);
    for (attack, command) in [
        ("find its ref", format!("git -C {work} rev-parse --verify only-here")),
        ("move its ref", format!("git -C {work} update-ref refs/heads/only-here HEAD~1")),
        ("delete its ref", format!("git -C {work} branch -D only-here")),
        ("fetch its ref", format!("git fetch {work} only-here")),
        ("look for its commit here", format!("git cat-file -p {}", sentinels.commit)),
        ("borrow its objects", borrow(&victim.facts.work, &sentinels.commit)),
    ] {
        let shell = attacker.host.sh(&command).await?;
        lines.attempt(
            from,
            &format!("{owner}'s repository"),
            Wall::Command,
            &attempt(attack, &shell),
        );
    }
    Ok(())
}

/// Alternates are how git itself reads another repository's objects.
fn borrow(work: &Path, commit: &str) -> String {
    let objects = quote(&work.join(".git/objects"));
    format!("GIT_ALTERNATE_OBJECT_DIRECTORIES={objects} git cat-file -p {commit}")
}

/// Step 5's end: the victims look again.
pub(super) async fn unchanged(world: &mut World<'_>, both: &Both) -> Result<(), HostError> {
    let World { a, b, lines, .. } = world;
    lines.step("5, 6  afterwards, from inside");
    for (side, sentinels) in [a, b].into_iter().zip(both) {
        let name = side.facts.name;
        let now = hashes(side, &sentinels.name).await?;
        lines.same(name, "hash again", "its own sentinels", &sentinels.hashes, &now);
        let commit = side.host.output("git rev-parse only-here").await?;
        lines.same(name, "read again", "its own ref", &sentinels.commit, &commit);
        let planted = side.host.sh("ls -A . .git/refs/heads \"$HOME\" | grep from-outside").await?;
        let answer = if planted.ended == "exit 0" { SUCCEEDED } else { "nothing" };
        lines.same(name, "look for what was planted", "its own folders", "nothing", answer);
    }
    Ok(())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
