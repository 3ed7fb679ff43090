//! What the walls refuse, on its way from the threads that hear of it to the relay, which tells it.
//!
//! Owns what was heard and not yet told. The hearing side ([`Listener`]) runs in threads of the sandbox's while a process
//! waits for its connect(2), so it decides, notes and wakes, and never waits: the same refusal again is a number, and of
//! different ones no more than [`MOST`] are kept. It decides for telling only; what is allowed is the kernel's to decide.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use casemate_protocol::policy::decide::Setting;
use casemate_protocol::policy::told::{Refusal, guess, refusal, refused_call, said};
use casemate_protocol::policy::{LogSource, Place, Policy, Telling, secrets};
use casemate_sandbox::{Attempt, Listener, Places, RefusedCall, landlock_abi};
use nix::errno::Errno;
use tokio::sync::Notify;

/// Different refusals that wait to be told.
const MOST: usize = 32;
/// Different calls and kinds of sockets that are told in a worker's life.
const MOST_CALLS: usize = 64;

/// The refusals of one session.
#[derive(Debug)]
pub struct Told {
    policy: Policy,
    setting: Setting,
    /// What no policy grants.
    closed: Vec<PathBuf>,
    waiting: Mutex<Waiting>,
    /// Notified when something waits.
    woken: Notify,
    unread: AtomicU64,
    /// Why the kernel gives no listener; 0: it does.
    deaf: AtomicI32,
}

/// What was heard since it was taken last.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Each refusal once, with how often it was.
    pub refusals: Vec<(Refusal, u64)>,
    /// Others, for which there was no room.
    pub beyond: u64,
    /// Calls and kinds of sockets that were told before.
    pub again: u64,
    /// Those that were told, over a worker's life: they are a habit of a program's, such as a C library's look for a name service at each
    /// start, and once is enough.
    calls: Vec<String>,
}

/// What a policy's placeholders stand for there.
pub(crate) fn setting(policy: &Policy, places: &Places) -> Setting {
    let text = |path: &PathBuf| path.display().to_string();
    let own = [
        (Place::Work, vec![text(&places.work)]),
        (Place::Home, vec![text(&places.home)]),
        (Place::Scratch, vec![text(&places.scratch)]),
        (Place::Skills, places.skills.iter().map(text).collect()),
        (Place::Programs, places.programs.iter().map(text).collect()),
    ];
    Setting {
        tier: places.tier,
        // A kernel without one builds no wall.
        landlock_abi: landlock_abi().unwrap_or(policy.landlock_abi),
        places: own.into_iter().collect(),
        ports: Some(places.ports),
        connect: Some(places.connect.clone()),
    }
}

// === impl Told ===

impl Told {
    /// Of a session under this policy; `None` where the policy says that nothing is told.
    #[must_use]
    pub fn of(policy: &Policy, places: &Places) -> Option<Arc<Self>> {
        if policy.denials == Telling::Quiet {
            return None;
        }
        // Without a table of mounts no wall was built.
        let mounted = casemate_sandbox::mounted_secrets().unwrap_or_default();
        Some(Arc::new(Self {
            policy: policy.clone(),
            setting: setting(policy, places),
            closed: [places.never.clone(), places.private.clone(), mounted].concat(),
            waiting: Mutex::default(),
            woken: Notify::new(),
            unread: AtomicU64::new(0),
            deaf: AtomicI32::new(0),
        }))
    }

    /// What a text says of paths that were refused, as far as the policy refuses them. Their links are not followed: by the time
    /// that this is read they may be others.
    #[must_use]
    pub fn guesses(&self, text: &str) -> Vec<Refusal> {
        let closed = |path: &str| {
            let path = Path::new(path);
            let meets = |known: &PathBuf| path.starts_with(known) || known.starts_with(path);
            let known = self.closed.iter().any(meets) || secrets::meets(path);
            known.then(|| {
                "No policy can: keys, tokens, state or other sessions are there.".to_owned()
            })
        };
        let told = |one| guess(&self.policy, &self.setting, one, &str::to_owned, &closed);
        said(text).iter().filter_map(told).collect()
    }

    /// What waits, at once.
    #[must_use]
    pub fn take(&self) -> Waiting {
        let mut waiting = self.locked();
        let calls = std::mem::take(&mut waiting.calls);
        let taken = std::mem::take(&mut *waiting);
        waiting.calls = calls;
        taken
    }

    /// What was heard so far was nobody's.
    pub fn forget(&self) {
        *self.locked() = Waiting::default();
    }

    /// Completes when something waits, or did since the last time that this completed.
    pub async fn some(&self) {
        self.woken.notified().await;
    }

    /// Attempts that could not be read, so that nobody can say whether they were refused.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    /// One line for the status.
    #[must_use]
    pub fn summary(told: Option<&Self>) -> String {
        match told.map(|told| told.deaf.load(Ordering::Relaxed)) {
            None => "refusals are not told: the policy's denials are quiet".to_owned(),
            Some(0) if told.is_some_and(|told| told.policy.logs(LogSource::Seccomp)) => {
                "refusals are told: connect, bind; system calls and sockets are the kernel's to record"
                    .to_owned()
            }
            Some(0) => "refusals are told: connect, bind, sockets, system calls".to_owned(),
            Some(errno) => format!(
                "refusals are not told: the kernel gives no seccomp listener ({})",
                Errno::from_raw(errno).desc()
            ),
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Waiting> {
        // A panic elsewhere cannot leave half a change.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Told {
    fn tried(&self, Attempt { way, transport, address, .. }: Attempt) {
        let Some(refusal) = refusal(&self.policy, &self.setting, transport, way, address) else {
            return;
        };
        self.locked().add(refusal);
        self.woken.notify_one();
    }

    fn refused(&self, RefusedCall { name, arguments, .. }: RefusedCall) {
        let Some(refusal) = refused_call(&self.policy, &self.setting, name, &arguments) else {
            return;
        };
        self.locked().add_call(refusal);
        self.woken.notify_one();
    }

    fn unread(&self) {
        self.unread.fetch_add(1, Ordering::Relaxed);
    }

    fn deaf(&self, errno: i32) {
        self.deaf.store(errno, Ordering::Relaxed);
    }
}

// === impl Waiting ===

impl Waiting {
    fn add(&mut self, refusal: Refusal) {
        if let Some((_, times)) = self.refusals.iter_mut().find(|(known, _)| *known == refusal) {
            *times += 1;
        } else if self.refusals.len() < MOST {
            self.refusals.push((refusal, 1));
        } else {
            self.beyond += 1;
        }
    }

    fn add_call(&mut self, refusal: Refusal) {
        let waits = self.refusals.iter().any(|(known, _)| *known == refusal);
        if waits {
            self.add(refusal);
        } else if self.calls.contains(&refusal.what) || self.calls.len() == MOST_CALLS {
            self.again += 1;
        } else {
            self.calls.push(refusal.what.clone());
            self.add(refusal);
        }
    }
}

#[cfg(test)]
mod tests {
    use casemate_protocol::policy::DEVELOPER;
    use casemate_protocol::policy::decide::{Transport, Way};
    use casemate_protocol::ports::PortRange;
    use casemate_protocol::tier::Tier;

    use super::*;

    fn told() -> Arc<Told> {
        let places = Places {
            ports: PortRange { first: 21_009, count: 15 },
            connect: vec![4000],
            ..Places::new("/work".into(), "/home/agent".into(), "/tmp".into(), Tier::Domain)
        };
        Told::of(&Policy::parse(DEVELOPER).unwrap(), &places).unwrap()
    }

    fn attempt(port: u16) -> Attempt {
        let address = ([127, 0, 0, 1], port).into();
        Attempt { pid: 1, way: Way::Connect, transport: Transport::Tcp, address }
    }

    #[test]
    fn a_flood_is_a_number_and_nothing_allowed_is_told() {
        let told = told();
        for port in [443, 4000, 21_009, 8080, 8080, 8080] {
            told.tried(attempt(port));
        }
        let waiting = told.take();
        assert_eq!(waiting.refusals.len(), 1);
        assert_eq!((waiting.refusals[0].1, waiting.beyond), (3, 0));
        assert!(told.take().refusals.is_empty());
        for port in 5000..6000 {
            told.tried(attempt(port));
        }
        let waiting = told.take();
        assert_eq!((waiting.refusals.len(), waiting.beyond), (MOST, 1000 - MOST as u64));
    }

    #[test]
    fn a_call_is_told_once_in_a_life_and_counted_after_that() {
        let told = told();
        let call = |name, first| {
            told.refused(RefusedCall { pid: 1, name, arguments: [first, 2, 0, 0, 0, 0] });
        };
        for _ in 0..3 {
            call("ptrace", 0);
        }
        call("clone3", 0);
        let waiting = told.take();
        assert_eq!((waiting.refusals.len(), waiting.refusals[0].1, waiting.again), (1, 3, 0));
        call("ptrace", 0);
        call("socket", 2);
        let waiting = told.take();
        assert_eq!((waiting.refusals.len(), waiting.again), (1, 1));
        for family in 50..500 {
            call("socket", family);
        }
        let waiting = told.take();
        let total = waiting.refusals.len() as u64 + waiting.beyond + waiting.again;
        assert_eq!((waiting.refusals.len(), total), (MOST, 450));
        assert!(told.locked().calls.len() <= MOST_CALLS);
    }

    #[test]
    fn the_status_says_who_is_told_of_what() {
        let told = told();
        assert_eq!(
            Told::summary(Some(&told)),
            "refusals are told: connect, bind, sockets, system calls"
        );
        told.deaf(Errno::EBUSY as i32);
        assert!(Told::summary(Some(&told)).contains("no seccomp listener"));
        assert!(Told::summary(None).contains("quiet"));
    }
}
