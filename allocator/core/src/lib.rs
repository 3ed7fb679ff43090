//! Pure decisions of the allocator. No IO, no clock, no randomness: what was observed comes in, what is to be done
//! comes out, and each change of a [`record::Record`] is one function here that a driver makes durable *before* it
//! acts.
//!
//! The driver's part of the bargain: one change at a time for the whole book (a serialised transaction), and the phases
//! [`Phase::Starting`] and [`Phase::Stopping`] are the lock of a session: whoever moved a record there owns its worker
//! until it moves it on; everybody else waits and asks again.
//!
//! Invariants, checked on random histories with crashes between any two steps (`tests.rs`):
//!
//! 1. At most one live worker a session.
//! 2. A session's generation never falls, and each worker has one of its own.
//! 3. A key has at most one session that has not ended; the session after an ended one is a new incarnation, and an
//!    incarnation's number is never given twice.
//! 4. The same request id with the same body names the same session with the same `created`; with another body it is a
//!    conflict, and so is a session that has ended since: a retry never opens an incarnation.
//! 5. Resume never makes a session.
//! 6. Nothing is deleted that holds unpushed work, or of which that is not known, unless somebody said `discard`. A
//!    session whose worker never served holds no work.
//! 7. Two slots never share a seat (user id, preferred ports) while either holds storage. Sessions share a slot only where a driver
//!    gives them one user's.
//!
//! [`Phase::Starting`]: casemate_protocol::api::Phase::Starting
//! [`Phase::Stopping`]: casemate_protocol::api::Phase::Stopping

pub mod allocate;
pub mod capacity;
pub mod end;
pub mod ends;
pub mod hold;
pub mod record;
pub mod recover;
pub mod retention;
pub mod seat;
pub mod slot;
pub mod standing;
pub mod tick;

#[cfg(test)]
mod tests;
