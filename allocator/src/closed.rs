//! What no policy may grant, whatever a worker finds: casemate's own home. Reads the links of one path, changes nothing.

use std::path::Path;

use casemate_protocol::policy::Policy;

/// Refuses a rule that would grant casemate's home, where the keys and every session lie. A worker of tier `domain`
/// knows its own slot alone, and in tier `namespace` such a rule would be silently empty.
///
/// # Errors
/// The rule's line, and what to write instead.
pub fn leaves_closed(policy: &Policy, casemate: &Path) -> Result<(), String> {
    for rule in policy.paths.iter().filter(|rule| rule.path.place.is_none()) {
        let named = Path::new(&rule.path.rest);
        // What does not exist yet is taken as it is written.
        let path = named.canonicalize().unwrap_or_else(|_| named.to_owned());
        if path.starts_with(casemate) || casemate.starts_with(&path) {
            return Err(format!(
                "line {}: path {} would grant the keys and sessions in {}; name a narrower path or move casemate's home",
                rule.line,
                named.display(),
                casemate.display()
            ));
        }
    }
    Ok(())
}
