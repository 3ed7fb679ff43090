//! Whether a session is taken in. Pure but for resolving the paths that it names.

use std::io;
use std::path::Path;

use casemate_protocol::sharing::{Refusal, SessionConfig, SharedWorkerConfig};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{Repository, StartError, WorkerConfig};

use super::floor::{self, Floor};

/// More sessions than a person has; each costs the supervisor some thirty descriptors and the spawner three threads.
pub const MOST: u32 = 64;

/// What the worker knows when it is asked.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// What was asked for when the session was taken in, where it is hosted.
    pub hosted: Option<&'a SessionConfig>,
    /// The newest generation of the session that was ever hosted here.
    pub newest: Option<Floor>,
    /// How many sessions are hosted.
    pub count: usize,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Take it in.
    Begin,
    /// It was asked for before, in the same words.
    Same,
}

/// Decides.
///
/// # Errors
/// [`Refusal`].
pub fn decide(
    worker: &SharedWorkerConfig,
    asked: &SessionConfig,
    known: Known<'_>,
) -> Result<Decision, Refusal> {
    if asked.user != worker.user {
        return Err(Refusal::OtherUser);
    }
    if asked.tier != Tier::Domain {
        return Err(Refusal::Tier { wanted: asked.tier });
    }
    let session = asked.session.clone();
    if let Some(hosted) = known.hosted {
        return if hosted == asked {
            Ok(Decision::Same)
        } else {
            Err(Refusal::OtherIntent { session })
        };
    }
    if let Some((incarnation, generation)) =
        floor::above(known.newest, (asked.incarnation, asked.generation))
    {
        return Err(Refusal::Stale { session, incarnation, generation });
    }
    if known.count >= MOST as usize {
        return Err(Refusal::Full { most: MOST });
    }
    Ok(Decision::Begin)
}

/// The source and the HOME template are read or copied for the session: neither may be another session's, or what is
/// closed to every agent. (What a policy or `programs` would grant is looked at where the wall is built.)
///
/// # Errors
/// [`StartError::Policy`] naming the field.
pub fn apart(config: &WorkerConfig) -> Result<(), StartError> {
    let source = match &config.repository {
        Some(Repository::Local(path)) => Some(path),
        _ => None,
    };
    let named = [
        ("repository", source),
        ("home_template", config.home_template.as_ref()),
        ("skills", config.skills.as_ref()),
    ];
    for (field, path) in named {
        let Some(path) = path else { continue };
        for private in &config.private {
            if meets(path, private).unwrap_or(true) {
                return Err(StartError::Policy {
                    message: format!(
                        "{field} {} meets {}, of which no session gets more than its own places: name another",
                        path.display(),
                        private.display()
                    ),
                });
            }
        }
    }
    Ok(())
}

/// One is the other, or in it.
fn meets(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (one.canonicalize()?, other.canonicalize()?);
    Ok(one.starts_with(&other) || other.starts_with(&one))
}

#[cfg(test)]
mod tests {
    use casemate_protocol::ids::{Generation, Incarnation};

    use super::*;
    use crate::testing::{hosted, shared};

    const NOTHING: Known<'static> = Known { hosted: None, newest: None, count: 0 };

    #[test]
    fn another_user_or_tier_is_refused_whatever_else_is_asked() {
        let worker = shared(Path::new("/v"));
        let asked = hosted(&worker);
        assert_eq!(decide(&worker, &asked, NOTHING), Ok(Decision::Begin));
        let other = SessionConfig { user: "eve".parse().unwrap(), ..asked.clone() };
        assert_eq!(decide(&worker, &other, NOTHING), Err(Refusal::OtherUser));
        // Not even where that very request is hosted, which cannot be.
        let known = Known { hosted: Some(&other), ..NOTHING };
        assert_eq!(decide(&worker, &other, known), Err(Refusal::OtherUser));
        let tier = SessionConfig { tier: Tier::Namespace, ..asked };
        let refused = Err(Refusal::Tier { wanted: Tier::Namespace });
        assert_eq!(decide(&worker, &tier, NOTHING), refused);
    }

    #[test]
    fn the_same_request_is_the_same_session_and_another_is_a_conflict() {
        let worker = shared(Path::new("/v"));
        let asked = hosted(&worker);
        let known = Known { hosted: Some(&asked), count: MOST as usize, ..NOTHING };
        assert_eq!(decide(&worker, &asked, known), Ok(Decision::Same));
        let other = SessionConfig { grace: asked.grace + 1, ..asked.clone() };
        let refused = Err(Refusal::OtherIntent { session: asked.session.clone() });
        assert_eq!(decide(&worker, &other, known), refused);
    }

    #[test]
    fn generations_never_fall_and_there_is_a_most() {
        let worker = shared(Path::new("/v"));
        let asked = hosted(&worker);
        let at = |incarnation, generation| {
            let newest = Some((Incarnation(incarnation), Generation(generation)));
            decide(&worker, &asked, Known { newest, ..NOTHING })
        };
        assert_eq!((asked.incarnation.0, asked.generation.0), (1, 1));
        assert!(matches!(at(1, 1), Err(Refusal::Stale { .. })));
        assert!(matches!(at(2, 0), Err(Refusal::Stale { .. })));
        assert_eq!(at(1, 0), Ok(Decision::Begin));
        let full = Known { count: MOST as usize, ..NOTHING };
        assert_eq!(decide(&worker, &asked, full), Err(Refusal::Full { most: MOST }));
    }

    #[test]
    fn nothing_of_another_session_is_copied_or_cloned() {
        let dir = tempfile::tempdir().unwrap();
        let worker = shared(dir.path());
        let other = dir.path().join("sessions/p/home");
        std::fs::create_dir_all(&other).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let mut config = worker.host(hosted(&worker));
        assert_eq!(apart(&config), Ok(()));
        for path in [&other, &link, &dir.path().parent().unwrap().to_owned()] {
            config.home_template = Some(path.clone());
            assert!(matches!(apart(&config), Err(StartError::Policy { .. })), "{path:?}");
            config.home_template = None;
            config.repository = Some(Repository::Local(path.clone()));
            assert!(matches!(apart(&config), Err(StartError::Policy { .. })), "{path:?}");
            config.repository = None;
        }
        config.home_template = Some(elsewhere.path().to_owned());
        assert_eq!(apart(&config), Ok(()));
    }
}
