//! What a command could not do: one sentence that says what to do next, and the process's exit code.

use std::error::Error;
use std::fmt;

use casemate_protocol::api::{ApiError, ErrorKind};
use casemate_protocol::codes::exit;
use casemate_protocol::words::because;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

// === impl Failure ===

impl Failure {
    /// With an exit code of [`exit`].
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// With the causes of an error behind the sentence.
    pub(crate) fn because(code: u8, message: impl fmt::Display, error: &dyn Error) -> Self {
        let message = because(&message.to_string(), error);
        Self { code, message }
    }

    /// The process's exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let code = match (&error.start, error.kind) {
            (Some(start), _) => start.exit_code(),
            (None, ErrorKind::Invalid) => exit::USAGE,
            (None, ErrorKind::Unauthorized) => exit::DENIED,
            (None, ErrorKind::NotFound) => exit::NO_INPUT,
            (None, ErrorKind::Conflict | ErrorKind::Busy) => exit::BUSY,
            (None, ErrorKind::WorkerFailed | ErrorKind::Unavailable) => exit::UNAVAILABLE,
            (None, ErrorKind::Internal) => exit::SOFTWARE,
        };
        Self { code, message: error.message }
    }
}
