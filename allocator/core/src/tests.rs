//! Random histories against the invariants of the crate documentation.
