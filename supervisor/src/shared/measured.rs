//! What was measured of walls, for the sessions to come that get one of the same making.
//!
//! Two sessions' walls are of the same making where all that a wall is built from is the same but for the places that each
//! session has of its own. Owned by the worker of many; it keeps a bounded number, the latest.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;

use casemate_protocol::matrix::Matrix;
use casemate_protocol::worker::WorkerConfig;

/// How many walls are remembered: profiles that one user has at once.
const MOST: usize = 32;

/// All that a wall is built from, without the session's own places. UDP is the policy's alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Making {
    policy: String,
    programs: BTreeSet<PathBuf>,
    skills: Option<PathBuf>,
    connect: BTreeSet<u16>,
}

/// Matrices by making.
#[derive(Debug, Default)]
pub struct Measured(VecDeque<(Making, Matrix)>);

// === impl Making ===

impl Making {
    /// Of this session's wall; `policy`: its policy's revision.
    #[must_use]
    pub fn of(policy: &str, config: &WorkerConfig) -> Self {
        Self {
            policy: policy.to_owned(),
            programs: config.programs.iter().cloned().collect(),
            skills: config.skills.clone(),
            connect: config.connect.iter().copied().collect(),
        }
    }
}

// === impl Measured ===

impl Measured {
    /// What was measured of a wall of this making.
    #[must_use]
    pub fn get(&self, making: &Making) -> Option<Matrix> {
        self.0.iter().find(|(known, _)| known == making).map(|(_, matrix)| matrix.clone())
    }

    /// Remembers it, and forgets the oldest where there are too many.
    pub fn insert(&mut self, making: Making, matrix: Matrix) {
        self.0.retain(|(known, _)| *known != making);
        self.0.push_back((making, matrix));
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use casemate_protocol::tier::Tier;

    use super::*;

    fn making(policy: &str) -> Making {
        Making {
            policy: policy.to_owned(),
            programs: BTreeSet::from(["/opt/agent".into()]),
            skills: None,
            connect: BTreeSet::new(),
        }
    }

    #[test]
    fn whatever_a_wall_is_built_from_makes_another_one() {
        let mut measured = Measured::default();
        let matrix = Matrix { tier: Tier::Domain, took_ms: 1, rows: Vec::new() };
        measured.insert(making("a"), matrix.clone());
        assert_eq!(measured.get(&making("a")), Some(matrix));
        assert_eq!(measured.get(&making("b")), None);
        let mut other = [making("a"), making("a"), making("a")];
        other[0].programs.insert("/var/log".into());
        other[1].skills = Some("/opt/skills".into());
        other[2].connect.insert(5432);
        for other in &other {
            assert_eq!(measured.get(other), None, "{other:?}");
        }
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let mut measured = Measured::default();
        for number in 0..2 * MOST {
            let matrix = Matrix { tier: Tier::Domain, took_ms: 1, rows: Vec::new() };
            measured.insert(making(&number.to_string()), matrix);
        }
        assert_eq!(measured.0.len(), MOST);
        assert_eq!(measured.get(&making("0")), None);
    }
}
