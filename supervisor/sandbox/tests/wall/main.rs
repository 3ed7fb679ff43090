//! The default wall from the attacker's side: each test does the forbidden thing, first without the wall, where it has
//! to succeed, then behind it, where the kernel's answer is compared.
//!
//! Everything runs in this process: Landlock, seccomp and (by raw system call) the uid are a thread's own.

// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]
#![allow(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "attacks hand raw words to system calls, as an attacker's own code does"
)]

mod bad_input;
mod calls;
mod cell;
mod explained;
mod files;
mod idle;
mod leaks;
mod network;
#[path = "../support/places.rs"]
mod places;
mod processes;
mod tools;
mod unix;
