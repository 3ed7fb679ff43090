//! The allocator binary.
fn main() {}
