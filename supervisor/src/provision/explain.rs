//! From git's words to an error that names the fix.
//!
//! Pure. What git wrote may hold a URL with a credential, or anything a remote sent: redacted, shortened, one line.

use casemate_protocol::worker::StartError;
use casemate_sandbox::Exit;

use crate::redact;

/// How much of git's stderr is passed on, in characters.
const TAIL: usize = 600;

/// Why a git command of provisioning failed.
#[must_use]
pub(super) fn git_failed(what: &str, source: &str, exit: Exit, stderr: &str) -> StartError {
    let said = tail(stderr);
    let has = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
    if has(&["No space left on device", "Disk quota exceeded"]) {
        return StartError::Volume {
            message: format!("{source}: the volume is full: give it more space ({said})"),
        };
    }
    let fix = if has(&["not appear to be a git repository", "not a git repository", "not found"]) {
        "it is not a repository there: check the path or URL"
    } else if has(&[
        "Authentication failed",
        "could not read Username",
        "could not read Password",
        "403",
    ]) {
        "the remote refuses: put a valid credential into the URL"
    } else if has(&["unable to access", "Could not resolve", "Failed to connect", "timed out"]) {
        "the remote is not to be reached: check the URL and the network"
    } else if has(&["Permission denied"]) {
        "it may not be read: check its owner and mode"
    } else {
        "see what git said"
    };
    StartError::Repository {
        message: format!("{source}: git {what} ended with {exit}: {fix} ({said})"),
    }
}

fn tail(stderr: &str) -> String {
    let clean = redact::urls(stderr);
    let lines: Vec<&str> = clean.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join(" | ").replace(|c: char| c.is_control(), "?");
    let surplus = text.chars().count().saturating_sub(TAIL);
    text.chars().skip(surplus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(stderr: &str) -> String {
        git_failed("clone", "https://h/r", Exit::Code(128), stderr).to_string()
    }

    #[test]
    fn the_fix_follows_what_git_said() {
        let full = git_failed("clone", "s", Exit::Code(128), "error: No space left on device");
        assert!(matches!(full, StartError::Volume { .. }));
        assert!(
            message("fatal: repository 'https://h/r/' not found").contains("check the path or URL")
        );
        assert!(message("fatal: unable to access 'x': Failed to connect").contains("network"));
        assert!(message("fatal: Authentication failed for 'x'").contains("credential"));
    }

    #[test]
    fn no_credential_and_no_control_character_is_passed_on() {
        let said = message("\x1b[31mfatal: unable to access 'https://u:hunter2@h/r/'\nmore\n");
        assert!(
            !said.contains("hunter2") && !said.contains('\x1b') && !said.contains('\n'),
            "{said}"
        );
    }
}
