//! Step 7: one set of skills for both, of the same version, for reading only.

use super::{World, attempt};
use crate::demo::host::HostError;
use crate::demo::judge::Wall;

pub(super) async fn read_only(world: &mut World<'_>) -> Result<(), HostError> {
    let World { a, b, lines, .. } = world;
    lines.step("7  shared skills: the same version in both, read-only");
    lines.same("", "compare", "reported skills revision", &a.facts.skills.1, &b.facts.skills.1);
    for side in [a, b] {
        let name = side.facts.name;
        let file = format!("{}/greeting/SKILL.md", side.facts.skills.0);
        let read = side.host.sh(&format!("grep -q 'Say hello' '{file}'")).await?;
        lines.attempt(name, "skills", Wall::Open, &attempt("read", &read));
        let tried = side.host.inside(&["files", &file]).await?;
        for attempt in &tried {
            // Reading is what they are for.
            let wall = match attempt.attack.as_str() {
                "stat"
                | "read"
                | "list its folder"
                | "read through O_PATH"
                | "read through a symlink"
                | "watch its folder" => Wall::Open,
                // Not executable: refused by its mode.
                _ => Wall::Skills,
            };
            lines.attempt(name, "skills", wall, attempt);
        }
        let read = side.host.sh(&format!("grep -q 'Say hello' '{file}'")).await?;
        lines.attempt(name, "skills", Wall::Open, &attempt("read afterwards", &read));
    }
    Ok(())
}
