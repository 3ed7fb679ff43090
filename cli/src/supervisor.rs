//! Where the supervisor's program is: beside this one.

use std::env;
use std::path::PathBuf;

use casemate_protocol::codes::exit;

use crate::failure::Failure;

const NAME: &str = "casemate-supervisor";

/// The program, as an absolute path.
///
/// # Errors
/// [`Failure`] where it is not beside `casemate`: another version from the search path would be a guess.
pub(crate) fn program() -> Result<PathBuf, Failure> {
    let own = env::current_exe()
        .map_err(|error| Failure::because(exit::SOFTWARE, "cannot find this program", &error))?;
    let program = own.with_file_name(NAME);
    if program.is_file() {
        Ok(program)
    } else {
        Err(Failure::new(
            exit::NO_INPUT,
            format!("{} is missing: build or install {NAME} beside casemate", program.display()),
        ))
    }
}
