//! An ACP agent on stdio that needs no model: the prompt says what it does.
//!
//! The first text block of a prompt that begins with `!` is a [`verb::Verb`]; a prompt without one is echoed. One
//! thread reads stdin and answers at once whatever is not a prompt; each turn has a thread of its own, so a cancel,
//! a load or an answer of the client gets through while a turn runs.
//!
//! State: [`wire::Wire`] owns stdout and the requests in flight to the client; [`agent::Agent`] owns the sessions;
//! [`history::History`] owns the files below `HOME`, from which `session/load` replays.

mod agent;
mod history;
mod shell;
mod turn;
mod verb;
mod wire;

pub use verb::USAGE;

/// Serves ACP on stdin and stdout until stdin ends or a prompt says `!exit`; returns the exit code.
#[must_use]
pub fn run() -> u8 {
    let wire = wire::Wire::new(std::io::stdout());
    agent::Agent::new(wire).serve(std::io::stdin().lock())
}
