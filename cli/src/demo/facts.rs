//! What the demo knows of a session: what the agent sees from inside, and where that is on this machine.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use casemate_protocol::ids::SessionId;
use casemate_protocol::tier::Tier;

use super::host::{Host, HostError};
use crate::client::Client;

/// One session.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// `A` or `B`.
    pub(crate) name: &'static str,
    /// casemate's id of it.
    pub(crate) session: SessionId,
    /// The skills as its agent sees them, and their reported revision.
    pub(crate) skills: (String, String),
    /// Its own ports.
    pub(crate) ports: RangeInclusive<u16>,
    /// Its slot's directory on this machine.
    pub(crate) slot: PathBuf,
    /// Its worktree on this machine.
    pub(crate) work: PathBuf,
    /// Its HOME on this machine.
    pub(crate) home: PathBuf,
    /// Its worker's process as this machine counts, and as its agent sees it.
    pub(crate) worker: (i32, i32),
    /// Its worker's boot id.
    pub(crate) boot: String,
    /// The tier that its worker measured.
    pub(crate) tier: Tier,
}

// === impl Facts ===

impl Facts {
    /// Asks the agent, then the allocator.
    pub(crate) async fn learn(host: &mut Host, client: &Client) -> Result<Self, HostError> {
        let name = host.name;
        let environment = host.prompt("!env").await?;
        let variable = |wanted: &str| {
            let found =
                environment.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix('='));
            found.map(str::to_owned).ok_or_else(|| garbled(name, wanted, &environment))
        };
        let session = variable("CASEMATE_SESSION")?;
        let session: SessionId =
            session.parse().map_err(|_| garbled(name, "CASEMATE_SESSION", &session))?;
        let view = client.show(&session).await.map_err(|error| HostError::Call(name, error))?;
        let worker = view.worker.ok_or_else(|| garbled(name, "its worker", "there is none"))?;
        let outer =
            i32::try_from(worker.pid).map_err(|_| garbled(name, "its worker", "its pid"))?;
        let tree = worker.worktree.parent().unwrap_or(&worker.worktree).to_path_buf();
        let slot = tree.ancestors().nth(2).unwrap_or(&tree).to_path_buf();
        // The agent is its supervisor's child, whatever namespaces are in between.
        let parent = host.output("sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status").await?;
        let inner = parent.parse().map_err(|_| garbled(name, "its parent", &parent))?;
        let ports = variable("CASEMATE_PORTS")?;
        let (first, last) = ports.split_once('-').unwrap_or((&ports, &ports));
        let number = |text: &str| text.parse().map_err(|_| garbled(name, "CASEMATE_PORTS", &ports));
        Ok(Self {
            name,
            session,
            skills: (variable("CASEMATE_SKILLS")?, variable("CASEMATE_SKILLS_REVISION")?),
            ports: number(first)?..=number(last)?,
            home: tree.join("home"),
            work: worker.worktree,
            slot,
            worker: (outer, inner),
            boot: worker.boot.to_string(),
            tier: worker.tier,
        })
    }
}

fn garbled(name: &'static str, what: &str, answer: &str) -> HostError {
    HostError::Garbled(name, what.to_owned(), answer.to_owned())
}

/// The process on this machine whose command line holds `mark`: from the owner's point of view, over all namespaces.
pub(crate) fn process_with(mark: &str) -> Option<i32> {
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(Path::new("/proc").join(entry.file_name()).join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        // The decoy itself, not the shell that was told to start it.
        (line.contains(mark) && line.starts_with("sleep ")).then_some(pid)
    })
}
