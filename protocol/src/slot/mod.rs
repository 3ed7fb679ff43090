//! A worker that waits for its session: what its slot gives it at the start, the signed message that binds it, what it answers.
//!
//! A slot's Pod says nothing of a session. Its worker starts, makes everything ready that needs no session, and waits at its door for
//! one [`Bind`]. It takes one, once: a worker is bound for its life, and what it was bound to is kept on the volume, so that a later
//! start there takes a higher generation only.
//!
//! | call | token | answers |
//! |---|---|---|
//! | `GET /healthz` | none | 200 while the process serves |
//! | `GET /readyz` | none | 200 while it waits for a bind, or takes prompts; else 503 |
//! | `POST /v1/bind`, the body is a signed [`Bind`] | the body's own signature | JSON lines of [`BindEvent`], or a [`BindRefusal`] with its status |
//! | `GET /v1/status` | the slot's own ([`SlotClaims`]) | [`SlotStatus`] |
//! | `POST /v1/keys` | the slot's own | 204: binds and tokens must carry a signature of one of these keys as long as this process lives; 429 where they change too often |
//! | `POST /v1/stop` | the slot's own | 202; then the worker ends |
//! | all that a worker of one session has | that session's | from `ready` on, as [`crate::worker`] says |
//!
//! Which slot is meant is said by the *Pod's UID* ([`SlotId::of_uid`]), in binds and in tokens: a Pod of the same name that comes later is
//! another worker. The slot's *name* is what its certificate shows.

mod bind;
mod config;
pub mod paths;
mod status;
#[cfg(test)]
mod tests;

pub use bind::{Bind, BindEvent, BindRefusal, Bound, Terms};
pub use config::{Canary, CertificateFiles, Content, SlotConfig, SlotPolicy};
pub use status::{SlotClaims, SlotPhase, SlotStatus};

#[cfg(doc)]
use crate::ids::SlotId;

/// Binds a worker.
pub const BIND: &str = "/v1/bind";
