//! How a test says that it could not run here.
//!
//! libtest has no word for it, so the test passes and prints one line on stdout; `conformance/run` counts the lines,
//! takes them off the passed ones, and decides whether this machine had to have what was missing.

/// Prints the agreed line. The caller returns right after.
pub fn skip(missing: &str) {
    println!("SKIP: {missing}");
}
