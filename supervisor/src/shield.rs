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
    all_closed(answers, walled)?;
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

/// As [`judge`], in a Pod: nothing of what would be outside of it is there.
///
/// # Errors
/// As there.
pub fn judge_in_pod(
    answers: &[ProbeAnswer],
    walled: &[impl AsRef<Path>],
    elsewhere: &[impl AsRef<Path>],
) -> Result<Tier, StartError> {
    all_closed(answers, walled)?;
    for path in elsewhere.iter().map(AsRef::as_ref) {
        let errno = answer_of(answers, path)?.read_errno;
        if errno != Errno::ENOENT as i32 {
            return Err(StartError::Tier {
                wanted: Tier::Pod,
                message: format!(
                    "{} is in the Pod ({}): mount nothing of the node and no service account's token",
                    path.display(),
                    if errno == 0 {
                        "it opened".to_owned()
                    } else {
                        Errno::from_raw(errno).to_string()
                    }
                ),
            });
        }
    }
    Ok(Tier::Pod)
}

fn all_closed(answers: &[ProbeAnswer], walled: &[impl AsRef<Path>]) -> Result<(), StartError> {
    walled.iter().try_for_each(|path| closed(answer_of(answers, path.as_ref())?))
}

fn answer_of<'a>(answers: &'a [ProbeAnswer], path: &Path) -> Result<&'a ProbeAnswer, StartError> {
    answers
        .iter()
        .find(|answer| answer.path == path)
        .ok_or_else(|| StartError::Shield { message: format!("{} was not probed", path.display()) })
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
    fn a_pod_is_one_where_nothing_of_the_node_exists() {
        let state = || answer("/state", Errno::EACCES, Errno::EISDIR);
        let judged = |read: Errno| {
            let answers = [state(), answer("/node", read, read)];
            judge_in_pod(&answers, &["/state"], &["/node"])
        };
        assert_eq!(judged(Errno::ENOENT), Ok(Tier::Pod));
        // Closed is not gone.
        for there in [Errno::EACCES, Errno::EPERM, Errno::from_raw(0)] {
            assert!(matches!(judged(there), Err(StartError::Tier { .. })), "{there}");
        }
        let open = [answer("/state", Errno::from_raw(0), Errno::EACCES)];
        let refused = judge_in_pod(&open, &["/state"], &[] as &[&str]);
        assert!(matches!(refused, Err(StartError::Shield { .. })), "{refused:?}");
        let untried = judge_in_pod(&[state()], &["/state"], &["/node"]);
        assert!(matches!(untried, Err(StartError::Shield { .. })), "{untried:?}");
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
