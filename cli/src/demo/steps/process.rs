//! On processes: another session's, its supervisor, the allocator; and on the kernel itself.

use casemate_inside::{Attempt, SUCCEEDED, backwards};

use super::World;
use crate::demo::facts::process_with;
use crate::demo::host::HostError;
use crate::demo::judge::Wall;

/// The attacker on a process of the victim's, which must live on.
pub(super) async fn attack(world: &mut World<'_>, reversed: bool) -> Result<(), HostError> {
    let (attacker, victim, lines) = world.sides(reversed);
    let (from, owner) = (attacker.facts.name, victim.facts.name);
    lines.step(match reversed {
        false => "B on A's processes",
        true => "A on B's processes",
    });
    // sleep(1) takes fractions: the argument is the mark.
    let unique = casemate_protocol::ids::BootId::random();
    let digits: String =
        unique.as_str()[2..].bytes().map(|byte| char::from(b'0' + byte % 10)).collect();
    let mark = format!("86400.{}", &digits[..12]);
    let inner = victim
        .host
        .output(&format!("setsid sleep {mark} </dev/null >/dev/null 2>&1 & echo $!"))
        .await?;
    let mut outer = None;
    for _ in 0..100 {
        outer = process_with(&mark);
        if outer.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let Some(outer) = outer else {
        return Err(HostError::Garbled(
            owner,
            "its process".into(),
            format!("{mark} is not there"),
        ));
    };
    let target = format!("{owner}'s process");
    let found = attacker.host.inside(&["find", &backwards(&mark)]).await?;
    lines.attempts(from, &target, Wall::Search, &found);
    // As this machine counts, and as the victim does: the same in tier domain.
    let mut numbers = vec![lines.seen(outer).to_string(), inner];
    numbers.dedup();
    for pid in numbers {
        for verb in ["process", "procfs"] {
            let tried = attacker.host.inside(&[verb, &pid, &backwards(&mark)]).await?;
            lines.attempts(from, &target, Wall::Process, &tried);
        }
    }
    let alive = if process_with(&mark) == Some(outer) { "alive" } else { "gone" };
    lines.same(owner, "look again", "its own process", "alive", alive);

    let supervisor = lines.seen(victim.facts.worker.0).to_string();
    for verb in ["process", "procfs"] {
        let tried =
            attacker.host.inside(&[verb, &supervisor, &backwards("casemate-supervisor")]).await?;
        lines.attempts(from, &format!("{owner}'s supervisor"), Wall::Process, &tried);
    }
    Ok(())
}

/// B on its own supervisor, which it can see, on the allocator, and on the files of both.
pub(super) async fn supervisor(world: &mut World<'_>) -> Result<(), HostError> {
    let World { b, lines, house, .. } = world;
    let from = b.facts.name;
    lines.step("B on its supervisor and on casemate's own files");
    let tried = b.host.inside(&["supervisor", &b.facts.worker.1.to_string()]).await?;
    lines.attempts(from, "its own supervisor", Wall::Supervisor, &tried);
    let allocator = lines.seen(std::process::id().cast_signed()).to_string();
    for verb in ["process", "procfs"] {
        let tried = b.host.inside(&[verb, &allocator, &backwards("casemate")]).await?;
        lines.attempts(from, "the allocator", Wall::Process, &tried);
    }
    let home = house.home();
    let state =
        a_file_of(&b.facts.slot.join("state")).map_err(|error| HostError::Io(from, error))?;
    for (what, path) in [
        ("signing key", home.join("keys/signing.seed")),
        ("allocator's token", home.join("run/allocator.json")),
        ("store", home.join("store.redb")),
        ("its worker's lock", b.facts.slot.join("run/lock")),
        ("its supervisor's state", b.facts.slot.join("state").join(&state)),
    ] {
        let tried = b.host.inside(&["files", path.to_str().unwrap_or_default()]).await?;
        lines.attempts(from, what, Wall::File, &tried);
    }
    let path = std::path::Path::new("/casemate/state").join(&state);
    let tried = b.host.inside(&["files", path.to_str().unwrap_or_default()]).await?;
    lines.attempts(from, "/casemate/state", Wall::Walled, &tried);

    // Wherever it can look, the allocator's token is not.
    let endpoint = std::fs::read_to_string(home.join("run/allocator.json"));
    let endpoint = endpoint.map_err(|error| HostError::Io(from, error))?;
    let endpoint: casemate_protocol::api::Endpoint = serde_json::from_str(&endpoint)
        .map_err(|error| HostError::Garbled(from, "allocator.json".into(), error.to_string()))?;
    // Half of it is looked for: the whole is not handed to a session, not even for this.
    let half = &endpoint.token[endpoint.token.len() / 2..];
    let found = b.host.scan("allocator.json", half).await?;
    lines.attempts(from, "the allocator's token", Wall::Search, &found);
    let environments =
        b.host.sh("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | sort -u").await?;
    let held = if environments.output.contains(half) { SUCCEEDED } else { "nothing" };
    lines.same(from, "look for the token", "every readable environment", "nothing", held);
    Ok(())
}

/// The name of any file in a folder.
fn a_file_of(folder: &std::path::Path) -> std::io::Result<std::ffi::OsString> {
    let mut files = std::fs::read_dir(folder)?.flatten().filter(|entry| entry.path().is_file());
    files.next().map(|entry| entry.file_name()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// The kernel's own ways out.
pub(super) async fn kernel(world: &mut World<'_>) -> Result<(), HostError> {
    let World { b, lines, .. } = world;
    lines.step("B on the kernel");
    let tried: Vec<Attempt> = b.host.inside(&["kernel"]).await?;
    for attempt in &tried {
        lines.attempt(b.facts.name, &attempt.target, Wall::Kernel, attempt);
    }
    Ok(())
}
