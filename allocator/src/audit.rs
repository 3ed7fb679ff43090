//! The allocator's audit log, `audit.ndjson` in its home, and the workers' logs as far as they are its business.
//!
//! Owns the log for the allocator's life (the home's lock sees to it that there is one) and `audit.head`, its newest
//! durable line, which is written beside it so that a cut end shows. The heads of the workers' logs are written into it
//! as they are met, and once more when a worker is proven gone: what is cut from a worker's log afterwards shows.
//!
//! `started` is required: an allocator that cannot write it does not start. All else is recorded as the disk allows, and
//! counted where it does not; it is on the disk within the clockwork's next look, 5 s at most.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use casemate_audit::{FILE, FILE_BEFORE, Log, OpenError};
use casemate_protocol::audit::{Event, Head, Source};
use casemate_protocol::ids::SlotId;
use casemate_protocol::tier::Tier;

use crate::home::{Home, write_private};

/// The head of a worker that is only looked at is written down at most so often.
const BETWEEN_ANCHORS: Duration = Duration::from_secs(60);
/// Logs of deleted sessions that are kept, newest first.
const KEPT: usize = 200;

/// A handle on the log.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    home: Home,
    log: Arc<Mutex<Log>>,
    anchors: Arc<Mutex<HashMap<String, (Head, Instant)>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

// === impl Audit ===

impl Audit {
    /// Opens the log of a home that the caller has locked.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) fn open(home: &Home) -> Result<Self, OpenError> {
        let source = Source {
            program: "allocator",
            version: env!("CARGO_PKG_VERSION"),
            ..Source::default()
        };
        let log = Log::open(File::open(home.path())?.into(), source)?;
        Ok(Self { home: home.clone(), log: Arc::new(Mutex::new(log)), anchors: Arc::default() })
    }

    /// The allocator serves from now on.
    ///
    /// # Errors
    /// The disk's: it must not.
    pub(crate) fn started(&self, tier: Tier) -> io::Result<()> {
        lock(&self.log).require(&[Event::started("allocator", tier, &[])])?;
        self.flush();
        Ok(())
    }

    /// Writes an event, or counts it.
    pub(crate) fn record(&self, event: Event) {
        lock(&self.log).record(event);
    }

    /// A worker said where its log stands.
    pub(crate) fn met(&self, name: &str, head: Option<Head>) {
        let Some(head) = head else { return };
        let mut anchors = lock(&self.anchors);
        let known = anchors.get(name);
        if known.is_some_and(|(last, at)| *last == head || at.elapsed() < BETWEEN_ANCHORS) {
            return;
        }
        anchors.insert(name.to_owned(), (head, Instant::now()));
        self.record(Event::anchored(name, head));
    }

    /// A worker, or one session of one that goes on, is proven gone: where its log ends by now. A log that does not end with a
    /// line that holds is told as well.
    pub(crate) fn gone(&self, name: &str, slot: &SlotId) {
        let last = lock(&self.anchors).remove(name).map(|(head, _)| head);
        match casemate_audit::newest(&self.home.slot(slot).join("state")) {
            Ok(Some(head)) if Some(head) != last => self.record(Event::anchored(name, head)),
            Ok(Some(_)) => {}
            Ok(None) => tracing::debug!(name, "its worker wrote no audit log"),
            Err(error) => tracing::warn!(name, %error, "its audit log cannot be read"),
        }
    }

    /// Sets a slot's log aside before that is deleted. Deleting goes on where that fails: it was asked for.
    pub(crate) fn set_aside(&self, name: &str, slot: &SlotId) {
        let from = self.home.slot(slot).join("state");
        let to = self.home.kept_logs().join(name);
        if !from.join(FILE).exists() {
            return;
        }
        let moved = DirBuilder::new().recursive(true).mode(0o700).create(&to).and_then(|()| {
            for name in [FILE_BEFORE, FILE] {
                match std::fs::rename(from.join(name), to.join(name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            self.forget_oldest()
        });
        if let Err(error) = moved {
            tracing::error!(name, %error, "its audit log was not set aside");
        }
    }

    fn forget_oldest(&self) -> io::Result<()> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(self.home.kept_logs())? {
            let entry = entry?;
            all.push((entry.metadata()?.modified()?, entry.path()));
        }
        all.sort_unstable();
        let extra = all.len().saturating_sub(KEPT);
        all.iter().take(extra).try_for_each(|(_, path)| std::fs::remove_dir_all(path))
    }

    /// Makes it durable and writes its head beside it. Waits for the disk.
    pub(crate) fn flush(&self) {
        let Some(head) = lock(&self.log).head() else { return };
        let path = self.home.audit_head();
        if std::fs::read_to_string(&path).is_ok_and(|known| known.trim_end() == head.to_string()) {
            return;
        }
        if let Err(error) = write_private(&path, format!("{head}\n").as_bytes()) {
            tracing::error!(%error, "the audit log's head cannot be written");
        }
    }

    /// For the end.
    pub(crate) fn settle(&self) {
        self.record(Event::stopped("allocator", 0));
        lock(&self.log).settle();
        self.flush();
    }
}
