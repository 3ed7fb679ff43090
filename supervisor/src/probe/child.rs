//! The two programs of the probe, behind the wall: the attacker and the other session's process.

use std::io::{self, Write as _};
use std::time::Duration;

use casemate_inside::catalogue::{self, Decoys};
use casemate_protocol::codes::exit;

/// Longer than any probe: the decoy is killed with its session long before.
const DECOY_LIVES: Duration = Duration::from_secs(300);

/// Tries everything on the decoys that `described` names, as JSON; prints the answers as JSON.
#[must_use]
pub fn attack(described: &str) -> u8 {
    let Ok(decoys) = serde_json::from_str::<Decoys>(described) else { return exit::USAGE };
    let answers = catalogue::run(&decoys, |_| true);
    let printed = answers.map_err(io::Error::other).and_then(|answers| {
        let line = serde_json::to_string(&answers)?;
        writeln!(io::stdout().lock(), "{line}")
    });
    match printed {
        Ok(()) => exit::OK,
        Err(error) => {
            eprintln!("casemate-supervisor: {error}: {:?}", std::error::Error::source(&error));
            exit::SOFTWARE
        }
    }
}

/// Is there, and does nothing.
#[must_use]
pub fn decoy() -> u8 {
    std::thread::sleep(DECOY_LIVES);
    exit::OK
}
