//! A wall, or why there is none, in the words of a start.

use std::sync::Arc;

use casemate_protocol::policy::Policy;
use casemate_protocol::worker::StartError;
use casemate_sandbox::{Places, Recorder, Wall, WallError};

use crate::learning::Learner;
use crate::words::chain;

/// Makes a policy concrete. `tasks` is how many processes and threads the kernel is to allow the user: the session's bound where it
/// counts them for this session alone, else a limit well above all that the user has ([`crate::bounds::backstop`]).
///
/// # Errors
/// [`StartError::Kernel`] where the kernel lacks what the policy requires, [`StartError::Policy`] where it would grant too much or
/// cannot be enforced as written.
pub fn build(policy: &Policy, places: &Places, tasks: Option<u32>) -> Result<Wall, StartError> {
    Ok(limited(Wall::build(policy, places).map_err(refused)?, tasks))
}

/// **No wall**: what the policy would refuse is noted and let through ([`Wall::learning`]).
///
/// # Errors
/// As [`build`]; [`StartError::Policy`] where there may be no such thing.
pub fn learning(
    policy: &Policy,
    places: &Places,
    tasks: Option<u32>,
    learner: &Arc<Learner>,
) -> Result<Wall, StartError> {
    let recorder = Arc::clone(learner) as Arc<dyn Recorder>;
    Ok(limited(Wall::learning(policy, places, recorder).map_err(refused)?, tasks))
}

fn refused(error: WallError) -> StartError {
    let message = chain(&error);
    match error {
        WallError::NoLandlock { .. } | WallError::Kernel { .. } => StartError::Kernel { message },
        _ => StartError::Policy { message },
    }
}

fn limited(wall: Wall, tasks: Option<u32>) -> Wall {
    match tasks {
        Some(tasks) => wall.limit_tasks(tasks),
        None => wall,
    }
}
