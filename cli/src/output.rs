//! The result of a command, on stdout.

use std::io::{self, ErrorKind, Write as _};

use casemate_protocol::codes::exit;
use casemate_protocol::exec::channel::STDOUT;
use casemate_sandbox::standard;

use crate::failure::Failure;

/// Writes it. A reader that has seen enough (`casemate sessions | head`) is no failure; a full disk is.
pub(crate) fn write(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = is_open(STDOUT).and_then(|()| stdout.write_all(text.as_ref()));
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::because(exit::CANNOT_CREATE, "cannot write to stdout", &error))
        }
        _ => Ok(()),
    }
}

/// Whether this process was started with that output. Where it was not, what is written would be lost without a word.
///
/// # Errors
/// EBADF.
pub(crate) fn is_open(output: u8) -> io::Result<()> {
    match standard::was_closed(output) {
        true => Err(nix::errno::Errno::EBADF.into()),
        false => Ok(()),
    }
}
