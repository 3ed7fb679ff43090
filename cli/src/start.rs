//! Finds the allocator of a place, and starts one where none serves. Two that start at once start one.
//!
//! The discovery file is believed only while the allocator that wrote it holds its lock, and the address in it only once
//! whoever listens there has proven to know the token ([`crate::client`]).

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use casemate_protocol::api::Endpoint;
use casemate_protocol::codes::exit;
use casemate_protocol::tier::Tier;
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::failure::Failure;
use crate::place::Place;

/// How long a start may take: measuring the machine and finding the workers of an earlier run.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// What a background allocator inherits. Not the rest: it outlives its caller, whose secrets are none of its business.
const INHERITED: [&str; 20] = [
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RUST_LOG",
    "RUST_BACKTRACE",
];

/// The allocator of this place, if one serves.
pub(crate) async fn find(place: &Place) -> Result<Option<Client>, Failure> {
    Ok(serving(place).await?.map(|(client, _)| client))
}

/// The tier that the allocator of this place gives new sessions, where it says so.
pub(crate) async fn tier(place: &Place) -> Result<Option<Tier>, Failure> {
    Ok(serving(place).await?.and_then(|(_, endpoint)| endpoint.tier))
}

/// What the allocator of this place says of itself, if one serves.
pub(crate) async fn endpoint(place: &Place) -> Result<Option<Endpoint>, Failure> {
    Ok(serving(place).await?.map(|(_, endpoint)| endpoint))
}

/// The process id of the allocator that serves this place.
pub(crate) async fn pid(place: &Place) -> Result<Option<Pid>, Failure> {
    let Some((_, endpoint)) = serving(place).await? else { return Ok(None) };
    Ok(i32::try_from(endpoint.pid).ok().map(Pid::from_raw))
}

/// Waits until the allocator has ended its workers and let go of the place.
pub(crate) async fn wait_for_end(place: &Place, pid: Pid) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        // Not the process: whoever started it may not have taken its end yet.
        if !u32::try_from(pid.as_raw()).is_ok_and(|pid| is_alive(place, pid).unwrap_or(true)) {
            return Ok(());
        }
        sleep(POLL).await;
    }
    Err(Failure::new(
        exit::BUSY,
        "`casemate up` takes long to end its workers; try again in a moment",
    ))
}

async fn serving(place: &Place) -> Result<Option<(Client, Endpoint)>, Failure> {
    let path = place.endpoint();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::because(exit::DENIED, path.display(), &error)),
    };
    // A file that is half written or of an older version is as good as none: a start replaces it.
    let Ok(endpoint) = serde_json::from_str::<Endpoint>(&text) else { return Ok(None) };
    if !is_alive(place, endpoint.pid)? {
        return Ok(None);
    }
    let client = Client::new(&endpoint)?;
    Ok(client.is_healthy().await?.then_some((client, endpoint)))
}

/// Whether the allocator that wrote the discovery file lives: it holds its lock, with its process id inside, as long as it
/// does. Otherwise the file's port and process id may be anybody's.
fn is_alive(place: &Place, pid: u32) -> Result<bool, Failure> {
    let path = place.up_lock();
    let failed = |error: &std::io::Error| Failure::because(exit::DENIED, path.display(), error);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(&error)),
    };
    // Shared: two that look at once see no allocator in each other. Given back at once, by closing.
    match file.try_lock_shared() {
        Ok(()) => return Ok(false),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(failed(&error)),
    }
    let mut holder = String::new();
    file.read_to_string(&mut holder).map_err(|error| failed(&error))?;
    Ok(holder.trim().parse() == Ok(pid))
}

/// The allocator of this place; started with these further options where none serves.
pub(crate) async fn ensure(place: &Place, options: &[String]) -> Result<Client, Failure> {
    if let Some(client) = find(place).await? {
        return Ok(client);
    }
    let until = Instant::now() + PATIENCE;
    let _lock = lock(place, until).await?;
    if let Some(client) = find(place).await? {
        return Ok(client);
    }
    let log = place.log();
    let mut child = spawn(place, &log, options)?;
    while Instant::now() < until {
        if let Some(client) = find(place).await? {
            // Its end is taken for as long as this process lives, so that it leaves no zombie.
            std::thread::spawn(move || child.wait());
            return Ok(client);
        }
        if let Ok(Some(status)) = child.try_wait() {
            // Somebody ran `casemate up` by hand in between: theirs is as good.
            if let Some(client) = find(place).await? {
                return Ok(client);
            }
            let code =
                status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::SOFTWARE);
            let last = last_line(&log);
            return Err(Failure::new(
                code,
                format!("`casemate up` ended: {last} (log: {})", log.display()),
            ));
        }
        sleep(POLL).await;
    }
    let text = format!("`casemate up` does not get ready; its log is {}", log.display());
    Err(Failure::new(exit::UNAVAILABLE, text))
}

/// Waits for whoever is starting an allocator just now.
async fn lock(place: &Place, until: Instant) -> Result<File, Failure> {
    let path = place.start_lock();
    let failed = |error: &std::io::Error| {
        Failure::because(exit::CANNOT_CREATE, format!("cannot use {}", path.display()), error)
    };
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|e| failed(&e))?;
    }
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| failed(&error))?;
    while Instant::now() < until {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => sleep(POLL).await,
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
    }
    Err(Failure::new(
        exit::BUSY,
        format!("{} is held for too long by another start", path.display()),
    ))
}

fn spawn(place: &Place, log: &Path, options: &[String]) -> Result<Child, Failure> {
    let failed = |error: &std::io::Error| {
        Failure::because(exit::CANNOT_CREATE, "cannot start `casemate up`", error)
    };
    let stderr = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(log)
        .map_err(|error| failed(&error))?;
    let own = std::env::current_exe().map_err(|error| failed(&error))?;
    let kept = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    // The child makes a session of its own first thing, so that a signal to its caller's group does not reach it.
    Command::new(own)
        .arg("--home")
        .arg(place.home())
        .args(["up", "--background"])
        .args(options)
        .env_clear()
        .envs(kept)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(|error| failed(&error))
}

fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let tail = text.len().saturating_sub(4096);
    String::from_utf8_lossy(&text[tail..])
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
        .trim_start_matches("casemate: ")
        .to_owned()
}
