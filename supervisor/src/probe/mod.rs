//! Tries every attack of the catalogue from inside a session, against a decoy of another one and the supervisor itself.
//!
//! What is measured is the wall that the agent will get, in the place where it will get it. The attacking program is this
//! very one, from a memory file that the spawner hands over, so that it needs no path inside and no right to run one.
//!
//! [`range`] makes the decoys while the machine's own view of paths is there, [`measure`] runs, [`judge`] decides. The
//! matrix goes to `/v1/status`; where the tier's promise is broken the worker does not start.

pub mod child;
pub mod judge;
pub mod measure;
pub mod range;
