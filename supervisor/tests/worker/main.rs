//! The worker as a program: started, spoken with, stopped and killed, in both tiers and for whoever may start one.
#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod audit;
mod bad_input;
mod bounds;
mod client;
mod closes;
mod continuity;
mod door;
mod ends;
mod exec;
mod exec_client;
mod exec_shared;
mod floors;
mod full;
mod git;
mod gone;
mod harness;
mod hogs;
mod keys;
mod learn;
mod many;
mod matrix;
mod origins;
#[path = "../pod/mod.rs"]
mod pod;
mod pod_network;
mod pod_slot;
mod porter;
mod ports;
mod resumable;
mod seams;
mod separate;
mod sharing;
mod siblings;
mod slot;
mod slow;
mod stops;
#[cfg(target_arch = "x86_64")]
mod taken_over;
mod tls;
mod told;
#[path = "../traced/mod.rs"]
mod traced;
mod turns;
mod view;
mod walls;
mod written;
