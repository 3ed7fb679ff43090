//! The attacks, built beside this crate's tests so that an agent under test can try them.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(casemate_inside::run(&args, &mut std::io::stdout().lock()))
}
