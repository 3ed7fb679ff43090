//! From the start to the end: signals passed on, orphans reaped, nothing left.

use std::fs;
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::codes::exit;
use casemate_sandbox::{SessionSpawner, Spawner};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::bounds::{Held, Limits};
use super::{Refused, broken, say};
use crate::process::agent::signal_group;
use crate::process::reaper::{Reaper, Session};

/// What the command is to deal with. TERM is passed on as well, and begins the grace.
const FORWARDED: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];
/// Between two looks at who is left.
const LOOK: Duration = Duration::from_millis(5);
/// How long the kernel may take to end what was killed.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// Starts the command with `start`, held to `limits`, and leaves when nothing of it is left; its exit code.
pub(super) fn run(
    spawner: Spawner,
    scoped: bool,
    limits: Option<Limits>,
    grace: Duration,
    start: impl FnOnce(&SessionSpawner) -> Result<i32, Refused>,
) -> Result<u8, Refused> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| broken(&error))?;
    let code = tokio::task::LocalSet::new()
        .block_on(&runtime, watch(&spawner, scoped, limits, grace, start));
    spawner.end();
    code
}

async fn watch(
    spawner: &Spawner,
    scoped: bool,
    limits: Option<Limits>,
    grace: Duration,
    start: impl FnOnce(&SessionSpawner) -> Result<i32, Refused>,
) -> Result<u8, Refused> {
    let children = Reaper::subscribe().map_err(|error| broken(&error))?;
    let reaper = Reaper::new(spawner);
    tokio::task::spawn_local(Rc::clone(&reaper).run(children));
    let mut signals = listen()?;
    let session = match scoped {
        true => spawner.session(),
        false => spawner.session_without_scope(),
    };
    let session = session.map_err(|error| Refused {
        code: exit::KERNEL,
        message: format!(
            "{}: or leave the layer out by --without scope",
            crate::words::chain(&error)
        ),
    })?;
    let session = Rc::new(Session::new(session, reaper));
    let mut held = limits.map(|limits| limits.hold(&session)).transpose()?;
    let pid = start(&session.spawner)?;
    let mut end = session.end_of(pid);
    let mut deadline: Option<Instant> = None;
    let mut excess = None;
    let ended = loop {
        tokio::select! {
            exit = &mut end => break exit.ok(),
            cause = too_much(&mut held) => {
                excess = Some(cause);
                break None;
            }
            Some(signal) = signals.recv() => {
                signal_group(pid, signal);
                if signal == Signal::SIGTERM {
                    deadline = deadline.or(Some(Instant::now() + grace));
                }
            }
            () = at(deadline) => {
                say("the grace is over: what is left is killed");
                deadline = None;
                signal_group(pid, Signal::SIGKILL);
            }
            () = session.reaper.spawner_end() => break None,
        }
    };
    let excess = excess.or_else(|| held.as_ref().and_then(Held::broken));
    if scoped {
        session.close().await;
    } else {
        session.spawner.close();
    }
    if !all_gone(spawner.pid()).await {
        say("killed processes have not ended: they hang in the kernel");
    }
    if let Some(cause) = excess {
        say(&cause);
        return Ok(exit::BOUNDS);
    }
    Ok(ended.map_or(exit::SOFTWARE, |exit| exit.code()))
}

async fn too_much(held: &mut Option<Held>) -> String {
    match held {
        Some(held) => held.too_much().await,
        None => std::future::pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

fn listen() -> Result<mpsc::Receiver<Signal>, Refused> {
    let (tell, told) = mpsc::channel(16);
    for number in FORWARDED {
        let mut signals =
            signal(SignalKind::from_raw(number as i32)).map_err(|error| broken(&error))?;
        let tell = tell.clone();
        tokio::task::spawn_local(async move {
            while signals.recv().await.is_some() {
                if tell.send(number).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(told)
}

/// Ends whoever is left below this process: orphans become its children, so killing children until there are none
/// ends all, whatever sessions and groups they made. The reaper takes their ends.
async fn all_gone(spawner: i32) -> bool {
    let until = Instant::now() + KILLED_WITHIN;
    while Instant::now() < until {
        let left = children(spawner);
        if left.is_empty() {
            return true;
        }
        for pid in left {
            // A child of ours that is not reaped yet keeps its number: nobody else is meant.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        sleep(LOOK).await;
    }
    false
}

/// Everybody whose parent this process is, zombies included, but the spawner.
fn children(spawner: i32) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != spawner && parent(*pid) == Some(own))
        .collect()
}

/// Field 4 of proc_pid_stat(5).
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
