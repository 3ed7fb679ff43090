//! What the command may take of the machine: the policy's `[bounds]`, held as for a worker's session, but always by count.
//!
//! Whether nobody else runs as the user is not known here, so the kernel holds all of the user only, well above what there is. The
//! spawner counts within the session's signal scope, hence the layer stands only where the scope does.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use casemate_protocol::policy;
use casemate_protocol::usage::HeldBy;
use casemate_sandbox::{Places, Wall};
use tokio::sync::mpsc;

use super::{Refused, broken, say};
use crate::bounds::backstop::backstop;
use crate::bounds::{Bounds, watch};
use crate::process::reaper::Session;
use crate::relay::driver::Order;

/// Notices that nobody has read yet; each is said once, until it has ceased to hold.
const ORDERS: usize = 8;

/// What is to be held.
#[derive(Debug)]
pub(super) struct Limits {
    bounds: policy::Bounds,
    backstop: Option<u32>,
    trees: Vec<PathBuf>,
}

/// What is held while the command runs.
#[derive(Debug)]
pub(super) struct Held {
    bounds: Rc<Bounds>,
    orders: mpsc::Receiver<Order>,
    /// The watch goes on while this is there.
    _open: mpsc::Sender<Order>,
}

// === impl Limits ===

impl Limits {
    pub(super) fn of(bounds: policy::Bounds, places: &Places) -> Self {
        let backstop = backstop(bounds.processes);
        Self { bounds, backstop, trees: apart(&[&places.work, &places.home, &places.scratch]) }
    }

    /// The wall with the kernel's part of it.
    pub(super) fn wall(&self, wall: Wall) -> Wall {
        match self.backstop {
            Some(tasks) => wall.limit_tasks(tasks),
            None => wall,
        }
    }

    /// One line for the report.
    pub(super) fn summary(&self) -> String {
        Bounds::words(&self.bounds, HeldBy::Watch, self.backstop)
    }

    /// Holds the session to them, and watches its disk.
    pub(super) fn hold(self, session: &Rc<Session>) -> Result<Held, Refused> {
        let bounds =
            Bounds::set(self.bounds, HeldBy::Watch, self.backstop, self.trees, Rc::clone(session));
        let bounds = bounds.map_err(|error| broken(&error))?;
        let (open, orders) = mpsc::channel(ORDERS);
        tokio::task::spawn_local(watch::run(Rc::clone(&bounds), open.downgrade()));
        Ok(Held { bounds, orders, _open: open })
    }
}

// === impl Held ===

impl Held {
    /// Completes where the session has taken too much of the disk, with the words for it. What is to be told before is.
    pub(super) async fn too_much(&mut self) -> String {
        loop {
            match self.orders.recv().await {
                Some(Order::End(cause)) => return cause,
                Some(Order::Notice(text)) => say(&text),
                // The watch sends no other, and it cannot be the last to hold the channel.
                Some(_) | None => std::future::pending().await,
            }
        }
    }

    /// Why the spawner ended the session, where it did.
    pub(super) fn broken(&self) -> Option<String> {
        self.bounds.broken()
    }
}

/// Those that lie below no other: nothing is counted twice.
fn apart(trees: &[&PathBuf]) -> Vec<PathBuf> {
    let below = |path: &Path, other: &Path| path != other && path.starts_with(other);
    let mut own: Vec<PathBuf> = Vec::new();
    for tree in trees {
        if !own.contains(tree) && !trees.iter().any(|other| below(tree, other)) {
            own.push(tree.to_path_buf());
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_another_is_counted_once() {
        let apart = |paths: [&str; 3]| apart(&paths.map(PathBuf::from).each_ref());
        assert_eq!(apart(["/a", "/b", "/c"]).len(), 3);
        assert_eq!(apart(["/a", "/a", "/a"]), [Path::new("/a")]);
        assert_eq!(apart(["/a/b", "/a", "/ab"]), [Path::new("/a"), Path::new("/ab")]);
    }
}
