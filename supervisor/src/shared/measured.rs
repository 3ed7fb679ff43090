//! What was measured of walls, for the sessions to come that get one of the same making.
//!
//! Two sessions' walls are of the same making where all that a wall is built from is the same but for the places that each
//! session has of its own. Owned by the worker of many; it keeps a bounded number, the latest.
//!
//! One measures at a time, and whoever needs what is being measured waits for that, and for nothing else of that session: its clone may take
//! as long as a server likes.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;

use casemate_protocol::matrix::Matrix;
use casemate_protocol::worker::WorkerConfig;
use tokio::sync::{Mutex, MutexGuard};

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
struct Known(VecDeque<(Making, Matrix)>);

/// What is known, and whose turn it is to find more.
#[derive(Debug, Default)]
pub struct Measured {
    known: RefCell<Known>,
    measuring: Mutex<()>,
}

/// What there is of a wall.
#[derive(Debug)]
pub enum Looked<'a> {
    /// It was measured.
    Known(Matrix),
    /// It is to be.
    Turn(Turn<'a>),
}

/// Nobody else measures while this is there.
#[derive(Debug)]
pub struct Turn<'a> {
    measured: &'a Measured,
    making: Making,
    _one: MutexGuard<'a, ()>,
}

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
    /// What was measured of a wall of this making, at once; or the turn to do it, once the measuring that is under way is over, unless it
    /// was of such a wall.
    pub async fn look(&self, making: Making) -> Looked<'_> {
        if let Some(matrix) = self.known.borrow().get(&making) {
            return Looked::Known(matrix);
        }
        let one = self.measuring.lock().await;
        let found = self.known.borrow().get(&making);
        found
            .map_or_else(|| Looked::Turn(Turn { measured: self, making, _one: one }), Looked::Known)
    }
}

// === impl Turn ===

impl Turn<'_> {
    /// Remembers what was measured, and lets the next one measure.
    pub fn found(self, matrix: Matrix) {
        self.measured.known.borrow_mut().insert(self.making, matrix);
    }
}

// === impl Known ===

impl Known {
    /// What was measured of a wall of this making.
    fn get(&self, making: &Making) -> Option<Matrix> {
        self.0.iter().find(|(known, _)| known == making).map(|(_, matrix)| matrix.clone())
    }

    /// Remembers it, and forgets the oldest where there are too many.
    fn insert(&mut self, making: Making, matrix: Matrix) {
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
        let mut measured = Known::default();
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
        let mut measured = Known::default();
        for number in 0..2 * MOST {
            let matrix = Matrix { tier: Tier::Domain, took_ms: 1, rows: Vec::new() };
            measured.insert(making(&number.to_string()), matrix);
        }
        assert_eq!(measured.0.len(), MOST);
        assert_eq!(measured.get(&making("0")), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_known_waits_for_no_measuring_and_what_is_not_for_that_alone() {
        let measured = Measured::default();
        let matrix = Matrix { tier: Tier::Domain, took_ms: 1, rows: Vec::new() };
        let Looked::Turn(first) = measured.look(making("a")).await else { panic!("known") };
        first.found(matrix.clone());
        let Looked::Turn(second) = measured.look(making("b")).await else { panic!("known") };
        // While the second measures: the first is known, and so will the second be to who asks for it now.
        let Looked::Known(_) = measured.look(making("a")).await else { panic!("not known") };
        let (same, ()) = tokio::join!(measured.look(making("b")), async {
            tokio::task::yield_now().await;
            second.found(matrix);
        });
        assert!(matches!(same, Looked::Known(_)));
        drop(same);
        // Whoever fails gives the turn up.
        let Looked::Turn(failed) = measured.look(making("c")).await else { panic!("known") };
        drop(failed);
        assert!(matches!(measured.look(making("c")).await, Looked::Turn(_)));
    }
}
