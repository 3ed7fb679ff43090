//! The real, unmodified OpenAB broker, connected to a [`ChatGateway`].

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::chat_gateway::{ChatGateway, PLATFORM};
use crate::place::Place;
use crate::processes;

/// The binary that `OPENAB_BIN` names, if it names one.
#[must_use]
pub fn binary() -> Option<PathBuf> {
    std::env::var_os("OPENAB_BIN").map(PathBuf::from).filter(|path| path.is_file())
}

/// A running broker.
#[derive(Debug)]
pub struct OpenAb {
    child: Child,
}

// === impl OpenAb ===

impl OpenAb {
    /// Starts it with `agent` as its agent's command line, its state in the place's HOME, and waits until it has
    /// dialled the gateway.
    ///
    /// # Errors
    /// Where it cannot be started or does not dial within half a minute.
    pub fn start(
        binary: &Path,
        place: &Place,
        gateway: &ChatGateway,
        agent: &[String],
    ) -> io::Result<Self> {
        let config = place.path().join("openab.toml");
        std::fs::write(&config, configuration(place, gateway, agent))?;
        let log =
            File::options().create(true).append(true).open(place.path().join("openab.log"))?;
        let child = Command::new(binary)
            .args(["run", "-c"])
            .arg(&config)
            .env_clear()
            .envs(place.environment())
            .env("USER", "suite")
            .env("RUST_LOG", "openab=info")
            .current_dir(place.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let broker = Self { child };
        if gateway.wait_for_broker(Duration::from_secs(30)) {
            Ok(broker)
        } else {
            Err(io::Error::other("openab did not dial the gateway; see openab.log"))
        }
    }

    /// SIGTERM, as a rolling update does, and its end; false where it did not end in time.
    #[must_use]
    pub fn stop(mut self, place: &Place) -> bool {
        let _ = processes::signal(self.child.id().cast_signed(), Signal::SIGTERM);
        place.wait(&mut self.child, Duration::from_secs(10)).is_some()
    }

    /// Its agents' processes and all below.
    #[must_use]
    pub fn agents(&self) -> Vec<processes::Process> {
        processes::below(self.child.id().cast_signed())
    }
}

impl Drop for OpenAb {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// JSON strings and arrays of strings are TOML as well.
fn configuration(place: &Place, gateway: &ChatGateway, agent: &[String]) -> String {
    let mut text = format!(
        "[gateway]\nurl = {}\nplatform = {}\ntoken = \"stub\"\nstreaming = false\n\
         message_processing_mode = \"per-message\"\n\n\
         [agent]\ncommand = {}\nargs = {}\nworking_dir = {}\ninherit_env = []\nenv = {{ ",
        json!(gateway.url()),
        json!(PLATFORM),
        json!(agent[0]),
        json!(agent[1..]),
        json!(place.path()),
    );
    // OpenAB hands HOME and PATH on by itself.
    let more = place.environment().into_iter().filter(|(name, _)| name != "HOME" && name != "PATH");
    let more: Vec<String> =
        more.map(|(name, value)| format!("{} = {}", json!(name), json!(value))).collect();
    let _ = write!(
        text,
        "{} }}\n\n[pool]\nmax_sessions = 10\nsession_ttl_hours = 24\n",
        more.join(", ")
    );
    text
}
