//! What is tried, step by step: first the seven of the acceptance test, then what else a hostile agent has.
//!
//! Each step adds lines and decides nothing: judging is [`super::judge`]'s.

mod catalogue;
mod files;
mod git;
mod host;
mod network;
mod process;
mod skills;
mod workers;

use casemate_inside::{Attempt, SUCCEEDED};

use super::facts::Facts;
use super::host::{Host, HostError, Shell};
use super::line::Lines;
use super::setup::House;
use crate::client::Client;

/// Both sessions and what is known of them.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) house: &'a House,
    pub(crate) lines: &'a mut Lines,
    pub(crate) a: Side,
    pub(crate) b: Side,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) host: Host,
    pub(crate) facts: Facts,
}

/// All steps, with a word of progress for each.
pub(crate) async fn all(
    mut world: World<'_>,
    client: &Client,
    mut progress: impl FnMut(&str),
) -> Result<(), HostError> {
    progress("workers and skills");
    workers::distinct(&mut world).await?;
    let sentinels = files::plant(&mut world).await?;
    for reversed in [false, true] {
        let (attacker, victim) = if reversed { ("A", "B") } else { ("B", "A") };
        progress(&format!("{attacker} on {victim}'s files"));
        files::attack(&mut world, &sentinels, reversed).await?;
        progress(&format!("{attacker} on {victim}'s processes and listeners"));
        process::attack(&mut world, reversed).await?;
        network::attack(&mut world, reversed).await?;
    }
    network::by_path(&mut world).await?;
    files::unchanged(&mut world, &sentinels).await?;
    skills::read_only(&mut world).await?;
    progress("the supervisor, the host, the kernel");
    process::supervisor(&mut world).await?;
    network::outside(&mut world).await?;
    host::asked(&mut world).await?;
    process::kernel(&mut world).await?;
    progress("every attack of the catalogue");
    catalogue::tried(&mut world).await?;
    progress("planted git configuration");
    git::planted(world, client).await
}

// === impl World ===

impl World<'_> {
    /// (attacker, victim): B and A, or reversed.
    pub(crate) fn sides(&mut self, reversed: bool) -> (&mut Side, &mut Side, &mut Lines) {
        if reversed {
            (&mut self.a, &mut self.b, self.lines)
        } else {
            (&mut self.b, &mut self.a, self.lines)
        }
    }
}

/// A shell command's answer as an attempt: an errno where its words name one, else `refused`.
pub(crate) fn attempt(attack: &str, shell: &Shell) -> Attempt {
    let outcome = if shell.ended == "exit 0" { SUCCEEDED } else { "refused" };
    Attempt {
        attack: attack.to_owned(),
        target: String::new(),
        outcome: outcome.to_owned(),
        detail: shell.output.lines().last().unwrap_or(&shell.ended).to_owned(),
    }
}
