//! casemate's own homes on this machine: keys, tokens, profiles, policies, sessions. No command gets anything of one, by whatever
//! option or rule it is named.

use std::fs;
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;
use casemate_protocol::home;
use casemate_sandbox::{WallError, shows_nothing_of};

use super::Refused;

/// Those of whoever calls and of the user that the command becomes, by the environment and by passwd(5), which need not agree. The one that
/// `CASEMATE_HOME` names counts before it is made as well; a usual place does not, or nobody could have a home of his as the command's.
pub(super) fn homes(user: u32) -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name);
    let passwd = fs::read("/etc/passwd").unwrap_or_default();
    let passwd = String::from_utf8_lossy(&passwd);
    let own = nix::unistd::geteuid().as_raw();
    let of_users = [own, user].into_iter().filter_map(|uid| home::of_user(&passwd, uid));
    let usual = of_users.map(|home| home.join(home::BELOW_HOME));
    let is_told = variable("CASEMATE_HOME").is_some_and(|told| !told.is_empty());
    let mut homes: Vec<PathBuf> = home::named(&variable)
        .chain(usual)
        .enumerate()
        .filter(|(index, path)| (*index == 0 && is_told) || fs::metadata(path).is_ok())
        .filter_map(|(_, path)| std::path::absolute(path).ok())
        .collect();
    homes.sort_unstable();
    homes.dedup();
    homes
}

/// Refuses an option that names one, lies in one or holds one; links, bind mounts and what is mounted below considered. What cannot be
/// looked at here is refused when the wall is built.
pub(super) fn refuse<'a>(
    options: impl Iterator<Item = (&'a str, &'a Path)>,
    homes: &[PathBuf],
) -> Result<(), Refused> {
    for (option, path) in options {
        if let Err(WallError::Never { never, .. }) = shows_nothing_of(path, homes) {
            return Err(Refused {
                code: exit::DATA,
                message: format!(
                    "{option} {}: it is, holds or lies in {}, casemate's own home, whose keys, tokens, profiles and sessions are no \
                     command's: name a directory of the command's own with {option}",
                    path.display(),
                    never.display()
                ),
            });
        }
    }
    Ok(())
}

/// Leaves out what the user that this process has become cannot get to, since its files are another's: the file system keeps it.
/// That no rule grants it was seen before.
pub(super) fn reachable(homes: &mut Vec<PathBuf>) {
    homes.retain(|home| {
        !fs::metadata(home).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    });
}
