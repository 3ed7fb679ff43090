//! `casemate-supervisor exec` as a program: as PID 1, below another init, as root on behalf of a user and as a user.
#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod bounds;
mod casemates;
mod ends;
mod layers;
mod learn;
#[path = "../pod/mod.rs"]
mod pod;
mod reach;
mod secrets;
mod site;
mod starts;
#[path = "../traced/mod.rs"]
mod traced;
