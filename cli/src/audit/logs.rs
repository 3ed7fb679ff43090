//! Which logs there are, where they lie, and what is known of their ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use casemate_audit::Found;
use casemate_protocol::audit::{Head, Line, Report};
use casemate_protocol::codes::exit;
use casemate_protocol::ids::{SessionId, SlotId};
use serde_json::Value;

use crate::failure::Failure;
use crate::place::Place;

/// The allocator's log, by name.
const ALLOCATOR: &str = "allocator";

/// A log.
#[derive(Debug)]
pub(super) struct Logged {
    /// What it is called: a session, a slot that sessions share, `allocator` or a path.
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
        let log = if name.parse::<SlotId>().is_ok() {
            name.to_owned()
        } else if let Ok(session) = name.parse::<SessionId>() {
            // One that shares its worker is told of in the log that all of them share.
            shared_by(place, &session).unwrap_or(session.to_string())
        } else {
            let path = Path::new(name);
            let found = if path.is_dir() { Found::in_directory(path) } else { Found::file(path) };
            let found = found.map_err(|error| unreadable(name, &error))?;
            return Ok(Self { name: name.to_owned(), found, anchors: Vec::new() });
        };
        let anchors = anchors(place, &log)?;
        match directory(place, &log) {
            Some(directory) => {
                let found = Found::in_directory(&directory);
                let found = found.map_err(|error| unreadable(name, &error))?;
                Ok(Self { name: name.to_owned(), found, anchors })
            }
            None if anchors.is_empty() => Err(Failure::new(
                exit::NO_INPUT,
                format!("no audit log of {name} in {}", place.home().display()),
            )),
            // What the allocator saw once is not there at all: the end is cut off before the first line.
            None => Ok(Self { name: name.to_owned(), found: Found::nothing(), anchors }),
        }
    }

    fn allocator(place: &Place) -> Result<Self, Failure> {
        let home = place.home().display();
        let none = || {
            let text = format!(
                "there is no audit log in {home} yet: the first command that starts the allocator, such as `casemate up`, begins one"
            );
            Failure::new(exit::NO_INPUT, text)
        };
        let found = match Found::in_directory(place.home()) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
            Err(error) => return Err(unreadable(ALLOCATOR, &error)),
        };
        let path = place.home().join("audit.head");
        let head = match fs::read_to_string(&path) {
            Ok(text) => Some(text.trim_end().parse().map_err(|error| {
                Failure::because(exit::DATA, format!("{}", path.display()), &error)
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable("audit.head", &error)),
        };
        if found.is_empty() && head.is_none() {
            return Err(none());
        }
        Ok(Self { name: ALLOCATOR.to_owned(), found, anchors: head.into_iter().collect() })
    }

    /// The allocator's log and those of all workers, also of deleted ones.
    pub(super) fn all(place: &Place) -> Result<Vec<Self>, Failure> {
        let mut all = vec![Self::allocator(place)?];
        for log in workers(place) {
            all.push(Self::named(&log, place)?);
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
    let mut text = format!("the audit log {name} cannot be read");
    if error.kind() == io::ErrorKind::NotFound {
        text += " (name a session as `casemate sessions` shows it, a slot, `allocator` or a path)";
    }
    Failure::because(exit::NO_INPUT, text, error)
}

fn slots(place: &Place) -> Vec<PathBuf> {
    let slots = fs::read_dir(place.home().join("slots")).into_iter().flatten().flatten();
    slots.map(|slot| slot.path()).collect()
}

/// What a worker keeps of each session for its slot's life.
const FLOORS: &str = "state/floors";

/// The slot that a session shares with others.
fn shared_by(place: &Place, session: &SessionId) -> Option<String> {
    let mut slots = slots(place).into_iter();
    // One that has a slot of its own is named there; one that shares it lies at a place that its id does not tell.
    let shares = |slot: &PathBuf| {
        slot.join(FLOORS).join(session.as_str()).exists()
            && slot.join("sessions").join(session.as_str()).symlink_metadata().is_err()
    };
    let slot = slots.find(shares)?;
    Some(slot.file_name()?.to_str()?.to_owned())
}

/// Where the log of a session, or of a slot that sessions share, is: in the slot, or set aside when that was deleted.
fn directory(place: &Place, log: &str) -> Option<PathBuf> {
    let kept = place.home().join("audit").join(log);
    let is_its = |slot: &PathBuf| {
        slot.file_name().is_some_and(|name| name == log)
            || slot.join("sessions").join(log).symlink_metadata().is_ok()
    };
    let in_slot = slots(place).into_iter().find(is_its).map(|slot| slot.join("state"));
    in_slot
        .into_iter()
        .chain([kept])
        .find(|directory| directory.join(casemate_audit::FILE).exists())
}

/// By session, or by slot where sessions share one.
fn workers(place: &Place) -> Vec<String> {
    let names = |directory: PathBuf| {
        fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.parse::<SessionId>().is_ok() || name.parse::<SlotId>().is_ok())
            .collect::<Vec<_>>()
    };
    let mut all = names(place.home().join("audit"));
    for slot in slots(place) {
        let own = names(slot.join("sessions"));
        if own.is_empty() && slot.join(FLOORS).exists() {
            all.extend(slot.file_name().and_then(|name| name.to_str()).map(str::to_owned));
        } else {
            all.extend(own);
        }
    }
    all.sort();
    all.dedup();
    all.retain(|log| directory(place, log).is_some());
    all
}

/// The heads of a worker's log that the allocator wrote down.
fn anchors(place: &Place, log: &str) -> Result<Vec<Head>, Failure> {
    let found = match Found::in_directory(place.home()) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(ALLOCATOR, &error)),
    };
    let lines = casemate_audit::lines(found).map_err(|error| unreadable(ALLOCATOR, &error))?;
    Ok(lines.iter().filter_map(|line| anchor(line, log)).collect())
}

fn anchor(line: &[u8], log: &str) -> Option<Head> {
    Line::read(line)?;
    let mut value: Value = serde_json::from_slice(line).ok()?;
    let is_its = value["metadata"]["event_code"] == "log.anchored" && value["entity"]["uid"] == log;
    is_its.then(|| serde_json::from_value(value["unmapped"]["anchor"].take()).ok())?
}
