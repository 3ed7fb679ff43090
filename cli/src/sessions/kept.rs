//! The work of a session that has ended and whose storage is kept: nobody wakes it any more, and its worktree is still the agent's.
//!
//! git is run over it by `casemate-supervisor exec`, behind the walls of `strict` (no network, nothing written is run), as the user that
//! the trees belong to: what the agent planted in its configuration meets them.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use casemate_protocol::api::SessionView;
use casemate_protocol::codes::exit;
use casemate_protocol::policy::STRICT;
use serde::Deserialize;

use crate::failure::Failure;
use crate::place::Place;
use crate::run::patch::Patch;
use crate::{printable, supervisor};

/// As a worker makes a patch: against the commit that the session began with, by an index of its own, in the formats that the agent's
/// configuration cannot change. Repositories inside of the worktree are left out.
const SCRIPT: &str = r#"
export GIT_INDEX_FILE="$TMPDIR/casemate-index-$$" GIT_OPTIONAL_LOCKS=0
trap 'rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"' EXIT
git read-tree "$1" && git add --all -- . && git diff --cached --binary --full-index --no-renames --no-color --no-ext-diff \
  --no-textconv --ignore-submodules=all --src-prefix=a/ --dst-prefix=b/ "$1" --
"#;

/// What the supervisor wrote down when it had made the clone (`state/provisioned.json`).
#[derive(Deserialize)]
struct Provisioned {
    base: Option<String>,
}

/// The patch, where the view says that the work is kept.
pub(super) fn patch(view: &SessionView, trees: &Path, place: &Place) -> Result<Patch, Failure> {
    let failed = |error: &std::io::Error| {
        Failure::because(exit::NO_INPUT, format!("the kept work in {}", trees.display()), error)
    };
    let base = base(view, place)?;
    let owner = trees.join("work").symlink_metadata().map_err(|error| failed(&error))?.uid();
    let mut command = Command::new(supervisor::program()?);
    command.args(["exec", "--policy", "/dev/stdin"]);
    for part in ["work", "home", "scratch"] {
        command.arg(format!("--{part}")).arg(trees.join(part));
    }
    if nix::unistd::geteuid().is_root() {
        command.args(["--user", &owner.to_string()]);
    }
    command.args(["--", "sh", "-c", SCRIPT, "sh", &base]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    // It is short enough for the pipe; a supervisor that is gone says why by its exit code.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(policy().as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let last = printable::line(words.lines().last().unwrap_or("it said nothing"));
        let text = format!("no patch of the kept work in {}: {last}", trees.display());
        return Err(Failure::new(exit::FAILED, text));
    }
    Ok(Patch::from_bytes(output.stdout))
}

fn base(view: &SessionView, place: &Place) -> Result<String, Failure> {
    let state = place.home().join("slots").join(view.slot.as_str()).join("state");
    // Where sessions share a slot each has a directory of its own.
    let files = [state.join(view.id.as_str()), state].map(|own| own.join("provisioned.json"));
    let found = files.iter().find_map(|file| std::fs::read(file).ok());
    let found = found.and_then(|bytes| serde_json::from_slice::<Provisioned>(&bytes).ok());
    let base = found.and_then(|found| found.base);
    // It becomes an argument of git's.
    let base = base.filter(|base| base.bytes().all(|byte| byte.is_ascii_hexdigit()));
    base.ok_or_else(|| {
        let text = format!("{}: there is no commit that its work could be compared with", view.id);
        Failure::new(exit::FAILED, text)
    })
}

/// `strict` asks for a namespace because of other sessions. Here is one, and in tier `domain` no rule of it is wider.
fn policy() -> String {
    STRICT.replacen("\ntier = \"namespace\"", "\ntier = \"domain\"", 1)
}

#[cfg(test)]
mod tests {
    use casemate_protocol::policy::{Policy, Port};
    use casemate_protocol::tier::Tier;

    use super::*;

    #[test]
    fn the_policy_is_strict_in_a_tier_that_every_machine_has() {
        let policy = Policy::parse(&policy()).unwrap();
        assert_eq!((policy.name.as_str(), policy.tier), ("strict", Tier::Domain));
        let numbered = |port: &Port| matches!(port, Port::Number(_));
        assert!(!policy.tcp.iter().flat_map(|rule| &rule.connect).any(numbered));
    }
}
