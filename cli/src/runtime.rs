//! The one-threaded tokio runtime that each command runs in, and its log.

use casemate_protocol::codes::exit;
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::filter::LevelFilter;

use crate::failure::Failure;

/// A runtime with IO and time.
pub(crate) fn start() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::because(exit::SOFTWARE, "cannot start", &error))
}

/// Log lines to stderr: 0: errors, 1: what happens, 2 and more: everything. Never to stdout, which carries ACP.
pub(crate) fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        .init();
}
