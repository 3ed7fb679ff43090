//! The scripted agent as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(casemate_scripted_agent::run())
}
