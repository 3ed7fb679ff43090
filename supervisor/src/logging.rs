//! Logs: JSON lines on stderr. stdout carries start events and nothing else.

use tracing_subscriber::filter::LevelFilter;

/// Starts logging at the level that `CASEMATE_LOG` names (`error`, `warn`, `info`, `debug`, `trace`; else `info`).
pub fn start() {
    let level = std::env::var("CASEMATE_LOG")
        .ok()
        .and_then(|level| level.parse::<LevelFilter>().ok())
        .unwrap_or(LevelFilter::INFO);
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .init();
}
