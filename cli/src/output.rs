//! The result of a command, on stdout.

use std::io::{ErrorKind, Write as _};

use casemate_protocol::codes::exit;

use crate::failure::Failure;

/// Writes it. A reader that has seen enough (`casemate sessions | head`) is no failure; a full disk is.
pub(crate) fn write(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::because(exit::CANNOT_CREATE, "cannot write to stdout", &error))
        }
        _ => Ok(()),
    }
}
