//! This process's own terminal while a command has one: every key goes there, so nothing is cooked here.
//!
//! Invariant: however this process leaves short of SIGKILL, the terminal is as it was. The guard puts it back; a panic,
//! which does not unwind in a release, does by a hook.

use std::io::stdin;
use std::sync::Mutex;

use casemate_protocol::exec::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// What to put back.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// While it lives, the terminal is raw.
#[derive(Debug)]
pub(super) struct Raw(());

// === impl Raw ===

impl Raw {
    /// `None` where stdin is no terminal: there is nothing to change.
    pub(super) fn enter() -> Option<Self> {
        let before = tcgetattr(stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            previous(panic);
        }));
        *BEFORE.lock().ok()? = Some(before);
        let guard = Self(());
        tcsetattr(stdin(), OptionalActions::Drain, &raw).ok()?;
        Some(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.lock().ok().and_then(|mut before| before.take());
    if let Some(before) = before {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &before);
    }
}

/// Of the first of the standard descriptors that is a terminal with a size; else what terminals had for long.
pub(super) fn size() -> TerminalSize {
    let found =
        [tcgetwinsize(std::io::stdout()), tcgetwinsize(stdin()), tcgetwinsize(std::io::stderr())];
    found.into_iter().flatten().find(|size| size.ws_row > 0 && size.ws_col > 0).map_or(
        TerminalSize { width: 80, height: 24 },
        |size| TerminalSize { width: size.ws_col, height: size.ws_row },
    )
}
