//! Asks the supervisor what this kernel gives: `casemate-supervisor check` tries each mechanism and prints a
//! [`KernelReport`].

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use casemate_protocol::kernel::KernelReport;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(20);

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The program cannot be run.
    #[error(
        "cannot run {program}; build it (cargo build -p casemate-supervisor), or name it with --supervisor"
    )]
    Run {
        /// Which.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It did not answer.
    #[error("{program} check did not answer in {} s", LIMIT.as_secs())]
    TimedOut {
        /// Which.
        program: PathBuf,
    },
    /// It printed something else.
    #[error("{program} check printed no report ({status}): {words}")]
    NoReport {
        /// Which.
        program: PathBuf,
        /// How it ended.
        status: String,
        /// The end of its stderr.
        words: String,
    },
}

/// Measures this machine with `supervisor`.
///
/// # Errors
/// [`CheckError`].
pub async fn check(supervisor: &Path) -> Result<KernelReport, CheckError> {
    let program = supervisor.to_owned();
    let run = Command::new(supervisor)
        .arg("check")
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(LIMIT, run).await {
        Ok(Ok(output)) => output,
        Ok(Err(source)) => return Err(CheckError::Run { program, source }),
        Err(_) => return Err(CheckError::TimedOut { program }),
    };
    // The exit code may say "not good enough": the report counts, not the code.
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let text = String::from_utf8_lossy(&output.stderr);
        let words = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("");
        CheckError::NoReport { program, status: output.status.to_string(), words: words.to_owned() }
    })
}
