//! A wall, or why there is none, in the words of a start.

use casemate_protocol::policy::Policy;
use casemate_protocol::worker::StartError;
use casemate_sandbox::{Places, Wall, WallError};

use crate::words::chain;

/// Makes a policy concrete. `tasks` is how many processes and threads the kernel is to allow, where it counts them for this session
/// alone.
///
/// # Errors
/// [`StartError::Kernel`] where the kernel lacks what the policy requires, [`StartError::Policy`] where it would grant too much or
/// cannot be enforced as written.
pub fn build(policy: &Policy, places: &Places, tasks: Option<u32>) -> Result<Wall, StartError> {
    let wall = Wall::build(policy, places).map_err(|error| {
        let message = chain(&error);
        match error {
            WallError::NoLandlock { .. } | WallError::Kernel { .. } => {
                StartError::Kernel { message }
            }
            _ => StartError::Policy { message },
        }
    })?;
    Ok(match tasks {
        Some(tasks) => wall.limit_tasks(tasks),
        None => wall,
    })
}
