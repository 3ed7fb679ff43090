//! The scripted agent, built beside this crate's tests so that they have an agent to run.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(casemate_scripted_agent::run())
}
