//! Proof that nothing lives in a slot. Until it is given, the slot's session keeps the worker that it has on record:
//! unknown counts as alive.

use std::path::Path;
use std::time::Duration;

use casemate_allocator_core::record::Process;
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use super::{lock, process};

/// After KILL; the kernel needs time to tear down a large address space.
const AFTER_KILL: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// It could not be proven.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StillAlive(String);

/// Ends whatever lives in the slot whose lock is at `lock`: the recorded process (TERM, `grace`, KILL), then whoever
/// else holds the lock. Returns when nothing does.
pub(crate) async fn fence(
    recorded: Option<&Process>,
    lock_path: &Path,
    grace: Duration,
) -> Result<(), StillAlive> {
    if let Some(recorded) = recorded {
        end(recorded, grace).await?;
    }
    // The launcher is gone; its namespace's processes follow it within moments.
    if released(lock_path, Duration::from_secs(1)).await {
        return Ok(());
    }
    let holder = lock::holder(lock_path).and_then(process::identify);
    let holder = holder.filter(|holder| process::looks_like_worker(holder.pid));
    let left = recorded.map(process::left_of_group).unwrap_or_default();
    for stray in holder.into_iter().chain(left) {
        tracing::warn!(pid = stray.pid, "ending a worker that nobody knows");
        end(&stray, Duration::ZERO).await?;
    }
    if released(lock_path, AFTER_KILL).await {
        return Ok(());
    }
    Err(StillAlive(format!(
        "a process that cannot be ended holds {}; `fuser -v` on it names the process",
        lock_path.display()
    )))
}

async fn end(process: &Process, grace: Duration) -> Result<(), StillAlive> {
    let io = |error| StillAlive(format!("cannot watch process {}: {error}", process.pid));
    let Some(handle) = process::Handle::open(process).map_err(io)? else { return Ok(()) };
    if !grace.is_zero() {
        handle.signal(Signal::TERM);
        if timeout(grace, handle.exited()).await.is_ok() {
            return Ok(());
        }
    }
    handle.signal(Signal::KILL);
    timeout(AFTER_KILL, handle.exited())
        .await
        .map_err(|_| StillAlive(format!("process {} does not end although killed", process.pid)))
}

/// Waits until nobody holds the lock.
pub(crate) async fn released(lock_path: &Path, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        // An unreadable lock proves nothing.
        if matches!(lock::is_held(lock_path), Ok(false)) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(POLL).await;
    }
}
