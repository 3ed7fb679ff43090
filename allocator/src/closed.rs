//! What no policy may grant, whatever a worker finds: casemate's own home. Reads the links of one path, changes nothing.

use std::path::Path;

use casemate_protocol::policy::{Policy, PolicyError};

/// Refuses a rule that would grant casemate's home, where the keys and every session lie. A worker of tier `domain`
/// knows its own slot alone, and in tier `namespace` such a rule would be silently empty.
///
/// # Errors
/// Where in the policy's `text`, and what to write instead.
pub fn leaves_closed(policy: &Policy, text: &str, casemate: &Path) -> Result<(), PolicyError> {
    let casemate = casemate.canonicalize().unwrap_or_else(|_| casemate.to_owned());
    for rule in policy.paths.iter().filter(|rule| rule.path.place.is_none()) {
        let named = Path::new(&rule.path.rest);
        // What does not exist yet is taken as it is written.
        let path = named.canonicalize().unwrap_or_else(|_| named.to_owned());
        if path.starts_with(&casemate) || casemate.starts_with(&path) {
            let message = format!(
                "path {} would grant the keys and sessions in {}; name a narrower path or move casemate's home",
                named.display(),
                casemate.display()
            );
            return Err(PolicyError::in_table(text, rule.line, &rule.path.rest, message));
        }
    }
    Ok(())
}
