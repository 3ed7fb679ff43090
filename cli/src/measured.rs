//! Has the supervisor try every attack in a session of its own: the matrix of `casemate doctor`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use casemate_protocol::codes::exit;
use casemate_protocol::matrix::Matrix;
use casemate_protocol::tier::Tier;
use tokio::process::Command;

use crate::failure::Failure;
use crate::throw_away::ThrowAway;

/// Some hundred times what it takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Measures; nothing is left behind.
///
/// # Errors
/// [`Failure`] where it could not be tried, which says nothing of the walls.
pub(crate) async fn matrix(supervisor: &Path, tier: Tier) -> Result<Matrix, Failure> {
    // Not below /tmp: inside a session that is the session's own.
    let parent = Path::new("/var/tmp");
    let place = ThrowAway::make(parent, "casemate-doctor-").map_err(|error| {
        Failure::because(exit::CANNOT_CREATE, "no place to try the walls in: /var/tmp", &error)
    })?;
    let run = Command::new(supervisor)
        .args(["probe", "machine", &tier.to_string()])
        .arg(place.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let failed = |error| Failure::because(exit::UNAVAILABLE, "cannot try the walls", &error);
    let output = tokio::time::timeout(LIMIT, run)
        .await
        .map_err(|_| Failure::new(exit::UNAVAILABLE, "the walls could not be tried in time"))?
        .map_err(failed)?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no words");
        Failure::new(exit::UNAVAILABLE, format!("the walls could not be tried: {last}"))
    })
}
