//! The supervisor binary.
fn main() {}
