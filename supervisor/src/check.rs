//! `casemate-supervisor check`: what this machine's kernel offers, as JSON on stdout.

use std::io::{self, Write as _};

use casemate_protocol::codes::exit;

/// Tries each mechanism and prints a [`casemate_protocol::kernel::KernelReport`] on one line. The exit code says
/// whether a worker can be had here at all: 0, or [`exit::KERNEL`] where not even tier `domain` is. To be called
/// before any thread is started.
#[must_use]
pub fn run() -> u8 {
    let report = casemate_sandbox::kernel::report();
    let printed = serde_json::to_string(&report)
        .map_err(io::Error::from)
        .and_then(|line| writeln!(io::stdout().lock(), "{line}"));
    match printed {
        Ok(()) if report.tier.is_some() => exit::OK,
        Ok(()) => exit::KERNEL,
        Err(error) => {
            eprintln!("casemate-supervisor: cannot print the report: {error}");
            exit::SOFTWARE
        }
    }
}
