//! Which session a caller gets: the answer to allocate and to resume.

use casemate_protocol::api::Phase;
use casemate_protocol::ids::{Incarnation, SessionId};
use serde::{Deserialize, Serialize};

use crate::record::Storage;
use crate::standing::Standing;

/// An allocate that was answered, or is being answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Digest of the whole body.
    pub digest: String,
    /// The session that it named.
    pub session: SessionId,
    /// Whether it made that session.
    pub created: bool,
}

/// What the book says about an allocate call.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The same request id, if it was used before, and the session that it named, if that is still on record.
    pub request: Option<(&'a Request, Option<Standing<'a>>)>,
    /// The key's newest session.
    pub newest: Option<Standing<'a>>,
    /// The key's newest incarnation, kept for ever.
    pub incarnation: Incarnation,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allocation {
    /// Make a session of this incarnation and start its worker.
    Create(Incarnation),
    /// Wake this sleeping one.
    Resume(SessionId),
    /// Its worker serves: hand it out (after a look whether it does).
    Attach(SessionId),
    /// Somebody is starting or stopping it: wait for the change, then ask again.
    Wait(SessionId),
    /// No.
    Refuse(Refusal),
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request id was used with another body.
    #[error("this request id was used with another body; use a new request id for a new intent")]
    RequestReused,
    /// The session of a repeated request, or of a resume, has ended.
    #[error("session {0} has ended; allocate its key with a new request id to open the next one")]
    Ended(SessionId),
    /// No such session.
    #[error("no such session; `casemate sessions` lists those that exist")]
    Unknown,
}

/// Decides an allocate with body digest `digest`.
#[must_use]
pub fn allocate(seen: Seen<'_>, digest: &str) -> Allocation {
    if let Some((request, session)) = seen.request {
        if request.digest != digest {
            return Allocation::Refuse(Refusal::RequestReused);
        }
        return match session {
            // Its start failed and it is being removed, this request with it: then the call is a new one.
            Some(session) if session.half_made() && session.storage == Storage::Deleting => {
                Allocation::Wait(session.id.clone())
            }
            other => match resume(other) {
                Allocation::Refuse(Refusal::Unknown) => {
                    Allocation::Refuse(Refusal::Ended(request.session.clone()))
                }
                answer => answer,
            },
        };
    }
    match seen.newest {
        Some(session) if session.phase != Phase::Ended => resume(Some(session)),
        _ => Allocation::Create(seen.incarnation.next()),
    }
}

/// Decides a resume. Never [`Allocation::Create`].
#[must_use]
pub fn resume(session: Option<Standing<'_>>) -> Allocation {
    let Some(session) = session else { return Allocation::Refuse(Refusal::Unknown) };
    let id = session.id.clone();
    match session.phase {
        Phase::Starting | Phase::Stopping => Allocation::Wait(id),
        Phase::Active => Allocation::Attach(id),
        Phase::Asleep => Allocation::Resume(id),
        Phase::Ended => Allocation::Refuse(Refusal::Ended(id)),
    }
}
