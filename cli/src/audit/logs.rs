//! Which logs there are, where they lie, and what is known of their ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use casemate_audit::Found;
use casemate_protocol::audit::{Head, Line, Report};
use casemate_protocol::codes::exit;
use casemate_protocol::ids::SessionId;
use serde_json::Value;

use crate::failure::Failure;
use crate::place::Place;

/// The allocator's log, by name.
const ALLOCATOR: &str = "allocator";

/// A log.
#[derive(Debug)]
pub(super) struct Logged {
    /// What it is called: a session, `allocator` or a path.
    pub(super) name: String,
    found: Found,
    /// The heads that are known of it.
    anchors: Vec<Head>,
}

// === impl Logged ===

impl Logged {
    /// One log.
    pub(super) fn named(name: &str, place: &Place) -> Result<Self, Failure> {
        if name == ALLOCATOR {
            return Self::allocator(place);
        }
        let Ok(session) = name.parse::<SessionId>() else {
            let path = Path::new(name);
            let found = if path.is_dir() { Found::in_directory(path) } else { Found::file(path) };
            let found = found.map_err(|error| unreadable(name, &error))?;
            return Ok(Self { name: name.to_owned(), found, anchors: Vec::new() });
        };
        let anchors = anchors(place, &session)?;
        match directory(place, &session) {
            Some(directory) => {
                let found = Found::in_directory(&directory);
                let found = found.map_err(|error| unreadable(name, &error))?;
                Ok(Self { name: name.to_owned(), found, anchors })
            }
            None if anchors.is_empty() => Err(Failure::new(
                exit::NO_INPUT,
                format!("no audit log of {session} in {}", place.home().display()),
            )),
            // What the allocator saw once is not there at all: the end is cut off before the first line.
            None => Ok(Self { name: name.to_owned(), found: Found::nothing(), anchors }),
        }
    }

    fn allocator(place: &Place) -> Result<Self, Failure> {
        let found =
            Found::in_directory(place.home()).map_err(|error| unreadable(ALLOCATOR, &error))?;
        let path = place.home().join("audit.head");
        let head = match fs::read_to_string(&path) {
            Ok(text) => Some(text.trim_end().parse().map_err(|error| {
                Failure::because(exit::DATA, format!("{}", path.display()), &error)
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable("audit.head", &error)),
        };
        if found.is_empty() && head.is_none() {
            let home = place.home().display();
            return Err(Failure::new(exit::NO_INPUT, format!("no audit log in {home}")));
        }
        Ok(Self { name: ALLOCATOR.to_owned(), found, anchors: head.into_iter().collect() })
    }

    /// The allocator's log and those of all sessions, also of deleted ones.
    pub(super) fn all(place: &Place) -> Result<Vec<Self>, Failure> {
        let mut all = vec![Self::allocator(place)?];
        for session in sessions(place) {
            all.push(Self::named(session.as_str(), place)?);
        }
        Ok(all)
    }

    /// Checks it against itself, what is known of its end, and further heads.
    pub(super) fn verify(self, heads: &[Head]) -> Result<Report, Failure> {
        let Self { name, found, mut anchors } = self;
        anchors.extend(heads);
        casemate_audit::verify(found, anchors).map_err(|error| unreadable(&name, &error))
    }

    /// All its lines.
    pub(super) fn lines(self) -> Result<Vec<Vec<u8>>, Failure> {
        casemate_audit::lines(self.found).map_err(|error| unreadable(&self.name, &error))
    }
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::because(exit::NO_INPUT, format!("the audit log {name} cannot be read"), error)
}

/// Where a session's log is: in its slot, or set aside when that was deleted.
fn directory(place: &Place, session: &SessionId) -> Option<PathBuf> {
    let kept = place.home().join("audit").join(session.as_str());
    let slots = fs::read_dir(place.home().join("slots")).into_iter().flatten().flatten();
    let slot = slots
        .map(|slot| slot.path())
        .find(|slot| slot.join("sessions").join(session.as_str()).symlink_metadata().is_ok());
    let in_slot = slot.map(|slot| slot.join("state"));
    in_slot
        .into_iter()
        .chain([kept])
        .find(|directory| directory.join(casemate_audit::FILE).exists())
}

fn sessions(place: &Place) -> Vec<SessionId> {
    let names = |directory: PathBuf| {
        fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect::<Vec<SessionId>>()
    };
    let slots = fs::read_dir(place.home().join("slots")).into_iter().flatten().flatten();
    let mut all: Vec<SessionId> =
        slots.flat_map(|slot| names(slot.path().join("sessions"))).collect();
    all.extend(names(place.home().join("audit")));
    all.sort();
    all.dedup();
    all.retain(|session| directory(place, session).is_some());
    all
}

/// The heads of a session's log that the allocator wrote down.
fn anchors(place: &Place, session: &SessionId) -> Result<Vec<Head>, Failure> {
    let found = match Found::in_directory(place.home()) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(ALLOCATOR, &error)),
    };
    let lines = casemate_audit::lines(found).map_err(|error| unreadable(ALLOCATOR, &error))?;
    Ok(lines.iter().filter_map(|line| anchor(line, session)).collect())
}

fn anchor(line: &[u8], session: &SessionId) -> Option<Head> {
    Line::read(line)?;
    let mut value: Value = serde_json::from_slice(line).ok()?;
    let is_its = value["metadata"]["event_code"] == "log.anchored"
        && value["entity"]["uid"] == session.as_str();
    is_its.then(|| serde_json::from_value(value["unmapped"]["anchor"].take()).ok())?
}
