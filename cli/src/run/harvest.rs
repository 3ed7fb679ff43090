//! What becomes of the work once a throw-away session is over, however it ended.
//!
//! The patch is the worker's to make. One that ended (its agent died, a signal reached it) is started again for it, without
//! an agent; one whose turn was cut short is stopped first, so that nobody writes while git reads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use casemate_protocol::api::End;
use casemate_protocol::codes::exit;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SessionId;
use tokio::time::{Instant, sleep};

use crate::attach::{Allocator, AttachError};
use crate::client::Client;
use crate::failure::Failure;
use crate::run::patch::{self, Patch};
use crate::run::screen::Screen;

/// How long an ending worker may stand in the way of the next one.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// Where the work goes.
#[derive(Debug)]
pub(super) struct Target {
    file: PathBuf,
    /// A file of that name is replaced.
    replace: bool,
}

/// How the agent's part ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It had its say.
    Whole,
    /// A signal, or an error.
    Cut,
}

// === impl Target ===

impl Target {
    /// Before hours of work: is it free, and can it be written at all?
    pub(super) fn check(file: PathBuf, replace: bool) -> Result<Self, Failure> {
        // A signal, a `cd` of nobody's: the name means the same at the end as at the start.
        let file = std::path::absolute(&file).map_err(|error| {
            Failure::because(exit::USAGE, format!("--patch {}", file.display()), &error)
        })?;
        patch::check_target(&file)?;
        if !replace && file.symlink_metadata().is_ok() {
            return Err(taken(&file));
        }
        Ok(Self { file, replace })
    }

    fn save(&self, patch: &Patch) -> Result<(), Failure> {
        if !self.replace && self.file.symlink_metadata().is_ok() {
            return Err(taken(&self.file));
        }
        patch.save(&self.file)
    }
}

fn taken(file: &Path) -> Failure {
    let text = format!("--patch {}: exists; name another file or add --force", file.display());
    Failure::new(exit::CANNOT_CREATE, text)
}

/// Tells what changed and saves it where it is wanted. An error means that the work is nowhere but in the session.
pub(super) async fn harvest(
    allocator: &Allocator,
    session: &SessionId,
    target: Option<&Target>,
    ending: Ending,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if ending == Ending::Cut {
        let end = End { reason: EndReason::Shutdown, discard: false, force: true };
        // Where it sleeps already there is nothing to stop; where it cannot be stopped the patch is tried all the same.
        let _ = allocator.call(async |client: &Client| client.stop(session, &end).await).await;
    }
    let patch = made(allocator, session).await?;
    for left_out in patch.left_out() {
        screen.say(&format!("not in the patch: {left_out}"));
    }
    screen.say(&patch.summary());
    match target {
        Some(target) if patch.is_empty() => {
            screen.say(&format!("{} was not written", target.file.display()));
        }
        Some(target) => {
            target.save(&patch)?;
            let file = target.file.display();
            screen.say(&format!("saved as {file}; `git apply` takes it"));
        }
        None if patch.is_empty() => {}
        None => screen.say("this work is discarded now; next time `--patch FILE` keeps it"),
    }
    Ok(())
}

/// Asked again where the worker was on its way out.
async fn made(allocator: &Allocator, session: &SessionId) -> Result<Patch, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let outcome = match allocator.worker_of(session).await {
            Ok(worker) => Patch::of(&worker).await,
            Err(error) => Err(AttachError::into_failure(error)),
        };
        match outcome {
            Err(failure) if passes(&failure) && Instant::now() < until => sleep(POLL).await,
            outcome => return outcome,
        }
    }
}

/// Nobody there, or somebody who is busy with an end.
fn passes(failure: &Failure) -> bool {
    matches!(failure.code(), exit::UNAVAILABLE | exit::BUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_exists_is_not_replaced_unless_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.patch");
        let target = Target::check(file.clone(), false).unwrap();
        std::fs::write(&file, "precious").unwrap();
        // Not even where it came to be while the agent worked.
        assert_eq!(
            target.save(&Patch::from_bytes(b"new")).unwrap_err().code(),
            exit::CANNOT_CREATE
        );
        let refused = Target::check(file.clone(), false).unwrap_err();
        assert!(refused.to_string().contains("--force"), "{refused}");
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        Target::check(file.clone(), true).unwrap().save(&Patch::from_bytes(b"new")).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
    }
}
