//! The last look before the first agent: what must be closed is tried from inside a session's wall.
//!
//! Pure: answers in, a tier or a refusal out. The tier is what was measured on the directory of all slots, not what
//! was set up: where it does not exist the namespace holds (ENOENT), where it is refused Landlock does (EACCES).

use std::path::Path;

use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;
use casemate_sandbox::ProbeAnswer;
use nix::errno::Errno;

/// Judges the probe's answers.
///
/// # Errors
/// [`StartError::Shield`] for a path that opened or an answer that proves nothing, [`StartError::Tier`] where the
/// measured tier is below the wanted one.
pub fn judge(
    answers: &[ProbeAnswer],
    walled: &[impl AsRef<Path>],
    decoy: &Path,
    wanted: Tier,
) -> Result<Tier, StartError> {
    for path in walled {
        let path = path.as_ref();
        let answer = answers.iter().find(|answer| answer.path == path).ok_or_else(|| {
            StartError::Shield { message: format!("{} was not probed", path.display()) }
        })?;
        closed(answer)?;
    }
    let measured = answers
        .iter()
        .find(|answer| answer.path == decoy)
        .and_then(|answer| tier_of(answer.read_errno))
        .ok_or_else(|| StartError::Shield {
            message: format!("{}: the answer tells no tier", decoy.display()),
        })?;
    if measured < wanted {
        return Err(StartError::Tier {
            wanted,
            message: format!(
                "measured {measured}: {} exists inside; keep slots out of /usr, /etc, /opt and of programs' directories",
                decoy.display()
            ),
        });
    }
    Ok(measured.min(wanted))
}

fn tier_of(errno: i32) -> Option<Tier> {
    match Errno::from_raw(errno) {
        Errno::ENOENT => Some(Tier::Namespace),
        Errno::EACCES | Errno::EPERM => Some(Tier::Domain),
        _ => None,
    }
}

/// Closed means refused or absent, to reading and to writing. A directory cannot be opened for writing whoever asks
/// (EISDIR), so there the reading decides; any other errno (EMFILE, ...) proves nothing.
fn closed(answer: &ProbeAnswer) -> Result<(), StartError> {
    let refused =
        |errno| matches!(Errno::from_raw(errno), Errno::ENOENT | Errno::EACCES | Errno::EPERM);
    let read = refused(answer.read_errno);
    let write = refused(answer.write_errno) || (answer.write_errno == Errno::EISDIR as i32 && read);
    if read && write {
        return Ok(());
    }
    let (way, errno) =
        if read { ("writing", answer.write_errno) } else { ("reading", answer.read_errno) };
    let got =
        if errno == 0 { "opened".to_owned() } else { format!("gave {}", Errno::from_raw(errno)) };
    Err(StartError::Shield {
        message: format!(
            "{} {got} for {way} behind the agent's wall: take it out of what the policy grants",
            answer.path.display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(path: &str, read: Errno, write: Errno) -> ProbeAnswer {
        ProbeAnswer { path: path.into(), read_errno: read as i32, write_errno: write as i32 }
    }

    fn judged(state: ProbeAnswer, decoy: Errno, wanted: Tier) -> Result<Tier, StartError> {
        let answers = [state, answer("/slots", decoy, decoy)];
        judge(&answers, &["/state", "/slots"], Path::new("/slots"), wanted)
    }

    #[test]
    fn the_tier_is_what_the_decoy_says() {
        let state = || answer("/state", Errno::EACCES, Errno::EISDIR);
        assert_eq!(judged(state(), Errno::ENOENT, Tier::Namespace), Ok(Tier::Namespace));
        assert_eq!(judged(state(), Errno::EACCES, Tier::Domain), Ok(Tier::Domain));
        assert!(matches!(
            judged(state(), Errno::EACCES, Tier::Namespace),
            Err(StartError::Tier { wanted: Tier::Namespace, .. })
        ));
    }

    #[test]
    fn an_open_path_or_an_answer_that_proves_nothing_is_a_refusal() {
        let open = Errno::from_raw(0);
        for (read, write) in [
            (open, Errno::EACCES),
            (Errno::EACCES, open),
            (Errno::EMFILE, Errno::EMFILE),
            (open, Errno::EISDIR),
        ] {
            let judged = judged(answer("/state", read, write), Errno::EACCES, Tier::Domain);
            assert!(matches!(judged, Err(StartError::Shield { .. })), "{read} {write}");
        }
    }

    #[test]
    fn a_path_that_was_not_tried_is_a_refusal() {
        let judged = judge(
            &[answer("/slots", Errno::EACCES, Errno::EACCES)],
            &["/state"],
            Path::new("/slots"),
            Tier::Domain,
        );
        assert!(matches!(judged, Err(StartError::Shield { .. })));
    }
}
