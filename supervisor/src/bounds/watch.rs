//! Watches a session's disk and says what is to be said; one task for each session.
//!
//! A walk over its trees is dear, a look at the volume is not (statfs(2)): a walk is made where enough was written on the volume since
//! the last one, by whomever. The spawner makes it, and it never takes more than a twentieth of one processor's time.

use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::usage::HeldBy;
use casemate_sandbox::beneath::Measured;
use nix::sys::statvfs::statvfs;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::Bounds;
use super::verdict::{self, Verdict};
use crate::relay::driver::Order;

/// Between two looks at the volume.
const LOOK: Duration = Duration::from_secs(1);
/// A walk's time, times this, passes before the next one.
const REST: u32 = 20;

/// What is left on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Free {
    size: u64,
    bytes: u64,
    /// `None` where the file system has no fixed number.
    files: Option<u64>,
}

/// Watches until the session's generation takes no orders any more.
pub async fn run(bounds: Rc<Bounds>, orders: mpsc::WeakSender<Order>) {
    let mut watch = Watch {
        bounds,
        orders,
        first: None,
        walks: 0,
        before: None,
        rest: Instant::now(),
        told: [false; 3],
    };
    while watch.look().await.is_some() {
        sleep(LOOK).await;
    }
}

struct Watch {
    bounds: Rc<Bounds>,
    orders: mpsc::WeakSender<Order>,
    /// The first walk's findings.
    first: Option<Measured>,
    /// Walks that have ended.
    walks: u32,
    /// The volume, as the last walk began.
    before: Option<Free>,
    /// No walk before this.
    rest: Instant,
    /// Whether it was said, of tasks, volume and disk, and holds still.
    told: [bool; 3],
}

// === impl Watch ===

impl Watch {
    /// One look; `None` where nobody takes orders.
    async fn look(&mut self) -> Option<()> {
        let bounds = Rc::clone(&self.bounds);
        let tasks = match bounds.held_by {
            HeldBy::Kernel => verdict::of_tasks(bounds.limits.processes, bounds.tasks().tasks),
            HeldBy::Watch => None,
        };
        self.tell(0, tasks).await?;
        let free = bounds.trees.first().and_then(|tree| free(tree));
        bounds.volume_free.set(free.map(|free| free.bytes));
        bounds.volume_free_files.set(free.and_then(|free| free.files));
        let full = free.and_then(|free| verdict::of_volume(free.size, free.bytes, free.files));
        self.tell(1, full).await?;
        self.walked().await?;
        if self.due(free) && self.bounds.measure() {
            self.before = free;
        }
        Some(())
    }

    fn due(&self, free: Option<Free>) -> bool {
        let limits = &self.bounds.limits;
        if limits.disk.or(limits.files).is_none() || Instant::now() < self.rest {
            return false;
        }
        let (Some(before), Some(now)) = (self.before, free) else { return true };
        let far = |before: u64, now: u64, limit: Option<u64>, least, most| {
            let step = limit.map_or(most, |limit| (limit / 64).clamp(least, most));
            before.abs_diff(now) >= step
        };
        let files = before.files.zip(now.files);
        far(before.bytes, now.bytes, limits.disk, 1 << 20, 256 << 20)
            // Where files are not counted by the file system, their blocks have to tell.
            || files.is_some_and(|(before, now)| far(before, now, limits.files, 100, 10_000))
    }

    /// What the walk that was asked for last has found, once it has ended.
    async fn walked(&mut self) -> Option<()> {
        let usage = self.bounds.tasks();
        if usage.walks == self.walks {
            return Some(());
        }
        self.walks = usage.walks;
        self.rest = Instant::now() + Duration::from_millis(usage.walk_ms.into()) * REST;
        self.bounds.measured.set(Some((usage.measured, Instant::now())));
        let first = *self.first.get_or_insert(usage.measured);
        match verdict::of_disk(&self.bounds.limits, first, usage.measured) {
            Verdict::Fine => self.tell(2, None).await,
            Verdict::Tell(text) => self.tell(2, Some(text)).await,
            Verdict::End(cause) => self.orders.upgrade()?.send(Order::End(cause)).await.ok(),
        }
    }

    /// Says something once, until it has ceased to hold.
    async fn tell(&mut self, which: usize, text: Option<String>) -> Option<()> {
        let orders = self.orders.upgrade()?;
        let told = self.told.get_mut(which)?;
        match text {
            None => *told = false,
            Some(text) if !*told => {
                *told = true;
                orders.send(Order::Notice(text)).await.ok()?;
            }
            Some(_) => {}
        }
        Some(())
    }
}

fn free(tree: &std::path::Path) -> Option<Free> {
    let volume = statvfs(tree).ok()?;
    let files = Some(volume.files_available()).filter(|_| volume.files() > 0);
    let unit = volume.fragment_size();
    let (size, bytes) = (volume.blocks() * unit, volume.blocks_available() * unit);
    Some(Free { size, bytes, files })
}
