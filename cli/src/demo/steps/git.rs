//! Planted git configuration: what the agent writes into its worktree's `.git` runs whenever somebody runs git there,
//! and the supervisor does when it looks for unpushed work.

use std::fs;

use casemate_protocol::api::End;
use casemate_protocol::end::EndReason;

use super::World;
use crate::client::Client;
use crate::demo::host::HostError;

/// Each of them is a way to have a program run by `git status`, `git add`, `git stash` or a ref update.
const TRAPS: &[&str] = &["fsmonitor", "filter", "hook"];

pub(super) async fn planted(world: World<'_>, client: &Client) -> Result<(), HostError> {
    let World { mut a, b, lines, house } = world;
    lines.step("A plants fsmonitor, filter and hooks; its supervisor looks at the worktree");
    let name = a.facts.name;
    let outside = house.outside();
    for trap in TRAPS {
        let script = format!(
            "#!/bin/sh\\n\
             (: > {target}) 2>> \"$HOME/ran-{trap}\" && echo escaped >> \"$HOME/ran-{trap}\"\\n\
             echo ran as $(id -u) >> \"$HOME/ran-{trap}\"\\n\
             {rest}\\n",
            target = outside.join(format!("touched-{trap}")).display(),
            rest = if *trap == "filter" { "cat" } else { "exit 0" },
        );
        let quoted = script.replace('\'', "'\\''");
        a.host
            .output(&format!(
                "printf '{quoted}' > \"$HOME/{trap}.sh\" && chmod +x \"$HOME/{trap}.sh\""
            ))
            .await?;
    }
    a.host
        .output(
            "git config core.fsmonitor \"$HOME/fsmonitor.sh\" && \
             git config filter.trap.clean \"$HOME/filter.sh\" && \
             echo '* filter=trap' > .gitattributes && \
             mkdir -p \"$HOME/hooks\" && git config core.hooksPath \"$HOME/hooks\" && \
             for hook in post-index-change reference-transaction pre-auto-gc post-checkout pre-commit; do \
             cp \"$HOME/hook.sh\" \"$HOME/hooks/$hook\"; done; \
             echo changed >> README.md",
        )
        .await?;
    // The traps work: the agent's own git falls into them.
    a.host
        .output("git status >/dev/null 2>&1; git add README.md; git stash list >/dev/null; true")
        .await?;
    for trap in TRAPS {
        let ran = a.host.sh(&format!("grep -q 'ran as' \"$HOME/ran-{trap}\"")).await?;
        let ran = if ran.ended == "exit 0" { "ran" } else { "did not run" };
        lines.same(name, "run its own git", &format!("planted {trap}"), "ran", ran);
    }
    a.host.output("rm -f \"$HOME\"/ran-*; echo changed again >> README.md; touch greet.sh").await?;
    let home = a.facts.home.clone();
    let session = a.facts.session.clone();
    a.host.hang_up().await;

    // As when it had been idle for long: quiesced, looked at, stopped.
    let end = End::by(EndReason::Idle);
    let stopped =
        client.stop(&session, &end).await.map_err(|error| HostError::Call(name, error))?;
    let looked = stopped.last_end.and_then(|end| end.evidence);
    // Without evidence nobody looked, and nothing was proven.
    let dirty = match &looked {
        Some(evidence) if evidence.dirty > 0 => "sees uncommitted work",
        Some(_) => "sees a clean worktree",
        None => "could not look",
    };
    lines.same(
        "supervisor",
        "stop, and look first",
        "A's worktree",
        "sees uncommitted work",
        dirty,
    );
    for trap in TRAPS {
        let escaped = outside.join(format!("touched-{trap}"));
        let record = fs::read_to_string(home.join(format!("ran-{trap}"))).unwrap_or_default();
        let answer = if escaped.exists() || record.lines().any(|line| line == "escaped") {
            "escaped"
        } else {
            "nothing outside"
        };
        let tried = if record.is_empty() { "not run" } else { "run in the session's domain" };
        lines.same("supervisor", tried, &format!("planted {trap}"), "nothing outside", answer);
    }
    b.host.hang_up().await;
    Ok(())
}
