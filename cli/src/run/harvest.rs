//! What becomes of the work once a throw-away session is over, however it ended.
//!
//! The patch is the worker's to make. One that ended (its agent died, a signal reached it) is started again for it, without
//! an agent; one whose turn was cut short is stopped first, so that nobody writes while git reads.

use std::time::Duration;

use casemate_protocol::api::End;
use casemate_protocol::codes::exit;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SessionId;
use tokio::time::{Instant, sleep};

use crate::attach::{Allocator, AttachError};
use crate::client::Client;
use crate::failure::Failure;
use crate::run::patch::{Patch, Target};
use crate::run::screen::Screen;

/// How long an ending worker may stand in the way of the next one.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// How the agent's part ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It had its say.
    Whole,
    /// A signal, or an error.
    Cut,
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
        let end = End { force: true, ..End::by(EndReason::Shutdown) };
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
            screen.say(&format!("{} was not written", target.file().display()));
        }
        Some(target) => {
            target.save(&patch)?;
            let file = target.file().display();
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
