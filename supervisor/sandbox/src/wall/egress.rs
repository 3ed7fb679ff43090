//! What of a policy's `[egress]` this build holds, and what its ports amount to.

use casemate_protocol::policy::Policy;
use casemate_protocol::policy::egress::Mode;

use super::ruleset::numbers;
use super::{Places, WallError};

/// Whether this build's walls hold the policy's `[egress]`. Needs nothing of the kernel.
///
/// # Errors
/// [`WallError::NotEnforced`] where it asks for more than the ports.
pub fn check_egress(policy: &Policy) -> Result<(), WallError> {
    let Some(egress) = &policy.egress else { return Ok(()) };
    match egress.unenforced() {
        None => Ok(()),
        Some(why) => Err(WallError::NotEnforced { mode: egress.mode, why, line: egress.line }),
    }
}

/// For `/v1/status`: what an agent can get at, in the end.
pub(super) fn note(policy: &Policy, places: &Places) -> String {
    if policy.egress.as_ref().is_some_and(|egress| egress.mode == Mode::None) {
        return "egress none: no tcp port is connected to, and no socket made that leaves the machine".to_owned();
    }
    let mut ports: Vec<u16> = policy
        .tcp
        .iter()
        .flat_map(|rule| &rule.connect)
        .flat_map(|port| numbers(*port, places))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        return "egress open, but no tcp port is connected to".to_owned();
    }
    format!("egress open: every address at tcp ports {}; hosts are not told apart", ranges(&ports))
}

/// Sorted numbers as `53, 80, 20000-20003`.
fn ranges(ports: &[u16]) -> String {
    let mut words: Vec<(u16, u16)> = Vec::new();
    for port in ports {
        match words.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*port) => *last = *port,
            _ => words.push((*port, *port)),
        }
    }
    let word = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    words.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_written_as_a_range() {
        assert_eq!(ranges(&[53, 80, 81, 82, 443, 65_535]), "53, 80-82, 443, 65535");
    }
}
