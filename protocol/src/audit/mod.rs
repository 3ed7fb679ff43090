//! The audit log: security-relevant events, one JSON object a line, each line naming the one before it by its hash.
//!
//! Pure: an [`Event`] becomes a line ([`Line`]), lines become a verdict ([`Verifier`]). Files are the `casemate-audit`
//! crate's. What always holds: a line is a whole OCSF event (schema 1.5.0, <https://schema.ocsf.io/1.5.0>) and carries no
//! secret: no token, no value of a variable, no prompt, no argument of a command.
//!
//! A chain by itself shows a change, a hole and a wrong order. That its end was cut off, or that all of it was written
//! anew, shows only against a [`Head`] that was kept somewhere else.

mod event;
mod kinds;
mod limit;
mod line;
mod verify;

pub use event::{Class, Event, Severity, Source};
pub use limit::Limiter;
pub use line::{Hash, Head, InvalidHead, Line};
pub use verify::{Fault, Report, Verifier};

#[cfg(test)]
mod tests;
