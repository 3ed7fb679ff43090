//! The two programs of the probe, behind the wall: the attackers' and the other session's process.

use std::io::{self, Write as _};
use std::time::Duration;

use casemate_inside::catalogue::{self, Decoys, Target};
use casemate_protocol::codes::exit;

/// Longer than any probe: the decoy is killed with its session long before.
const DECOY_LIVES: Duration = Duration::from_secs(300);

/// An attack that takes longer proves nothing; the worker's start does not wait for it.
const HANG: Duration = Duration::from_secs(5);

/// Which attacks an attacker tries: there are two at once, and what git and its shells do is half of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Those on git.
    Git,
    /// All others.
    Rest,
}

// === impl Part ===

impl Part {
    /// As on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Rest => "rest",
        }
    }
}

/// Tries its part on the decoys that stdin names, as JSON; prints the answers as JSON.
#[must_use]
pub fn attack(part: Part) -> u8 {
    let Ok(decoys) = serde_json::from_reader::<_, Decoys>(io::stdin().lock()) else {
        return exit::USAGE;
    };
    let answers = catalogue::run(&decoys, HANG, |attack| {
        (attack.target == Target::Git) == (part == Part::Git)
    });
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
