//! A worker that waits in its Pod for one session ([`casemate_protocol::slot`]): what it has, what it is bound to, how far that is.
//!
//! Owns the bind. Invariants: of all that is asked one bind is taken, and never another as long as this process lives; it is on the
//! volume before anybody is told; nothing of a session runs before the canary was refused.

pub mod canary;
pub mod content;
pub mod intake;
pub mod pod;
mod session;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

use casemate_protocol::ids::{BootId, RefusalId, SessionId, SlotId};
use casemate_protocol::slot::{
    Bind, BindEvent, BindRefusal, Bound, Canary, SlotConfig, SlotPhase, SlotStatus, paths,
};
use casemate_protocol::worker::StartError;
use tokio::sync::Notify;

use crate::report::Report as _;
use crate::shared::floor::{self, Floor};
use crate::shared::transcript::Transcript;

use content::Found;
use intake::{Decision, Own, Standing};

pub use session::Session;

/// What was said while a session was made.
pub type Told = Transcript<BindEvent>;

/// The one slot of a worker.
#[derive(Debug)]
pub struct Slot {
    /// What the Pod was given.
    pub config: SlotConfig,
    /// The slot, by the UID of its Pod.
    pub id: SlotId,
    /// This start.
    pub boot: BootId,
    /// What the configuration names.
    found: RefCell<Rc<Found>>,
    /// How the supervisor is shielded and what of the Pod was measured: one line a mechanism.
    pub enforcement: Vec<String>,
    /// The Pod's.
    address: IpAddr,
    /// What the volume was used for before.
    floors: BTreeMap<SessionId, Floor>,
    taken: RefCell<Option<Taken>>,
    serves: Cell<bool>,
    ends: Cell<bool>,
    came: Notify,
    stop: Notify,
    /// The refusal that somebody is to see the canary's target answer after.
    refusal: RefCell<Option<RefusalId>>,
    answered: Notify,
}

/// The bind that was taken.
#[derive(Debug, Clone)]
pub struct Taken {
    /// It.
    pub bind: Bind,
    /// How it goes.
    pub told: Rc<Told>,
}

// === impl Slot ===

impl Slot {
    /// One that waits.
    #[must_use]
    pub fn new(
        config: SlotConfig,
        id: SlotId,
        found: Found,
        enforcement: Vec<String>,
        address: IpAddr,
        floors: BTreeMap<SessionId, Floor>,
    ) -> Self {
        Self {
            config,
            id,
            boot: BootId::random(),
            found: RefCell::new(Rc::new(found)),
            enforcement,
            address,
            floors,
            taken: RefCell::default(),
            serves: Cell::default(),
            ends: Cell::default(),
            came: Notify::new(),
            stop: Notify::new(),
            refusal: RefCell::default(),
            answered: Notify::new(),
        }
    }

    /// Takes a bind whose signature is right, or finds it taken; how it goes is in what is returned. `from`: whence it was sent.
    ///
    /// # Errors
    /// [`BindRefusal`].
    pub fn bind(&self, asked: Bind, from: IpAddr) -> Result<Rc<Told>, BindRefusal> {
        if self.phase() == SlotPhase::Waiting && asked.slot == self.id {
            self.look_again()?;
        }
        let found = self.found();
        let own = Own {
            slot: &self.id,
            policy: &found.policy.revision,
            skills: found.skills.as_deref(),
            canary: self.config.canary != Canary::NotTried,
            address: self.address,
        };
        let mut taken = self.taken.borrow_mut();
        let standing = match &*taken {
            _ if self.ends.get() => Standing::Ending,
            Some(taken) => Standing::Bound(&taken.bind),
            None => Standing::Waiting(&self.floors),
        };
        if intake::decide(&own, &asked, from, standing)? == Decision::Same {
            if asked.answered.is_some() && asked.answered == *self.refusal.borrow() {
                self.answered.notify_one();
            }
            return taken.as_ref().map(|taken| Rc::clone(&taken.told)).ok_or(BindRefusal::Ending);
        }
        let told = Rc::new(Told::default());
        // No suspension point since the look: whoever asks next finds this one.
        *taken = Some(Taken { bind: asked, told: Rc::clone(&told) });
        self.came.notify_one();
        Ok(told)
    }

    /// What the configuration names, as it was when it was last looked at: at the start, and when the bind came.
    #[must_use]
    pub fn found(&self) -> Rc<Found> {
        Rc::clone(&self.found.borrow())
    }

    fn look_again(&self) -> Result<(), BindRefusal> {
        let found = content::read(&self.config)
            .map_err(|error| BindRefusal::Content { error: error.to_string() })?;
        self.found.replace(Rc::new(found));
        Ok(())
    }

    /// Completes with the bind when there is one.
    pub async fn taken(&self) -> Taken {
        loop {
            if let Some(taken) = self.taken.borrow().clone() {
                return taken;
            }
            self.came.notified().await;
        }
    }

    /// Keeps what the worker is bound to on the volume; then says so.
    ///
    /// # Errors
    /// [`StartError::Volume`].
    pub async fn keep(&self, taken: &Taken) -> Result<(), StartError> {
        let Bind { session, incarnation, generation, .. } = &taken.bind;
        let raised = floor::raise(Path::new(paths::STATE), session, (*incarnation, *generation));
        raised.await.map_err(|error| StartError::Volume {
            message: format!(
                "the session's generation cannot be kept: {error}: check the volume's space and owner"
            ),
        })?;
        taken.told.say(BindEvent::Bound(self.bound(&taken.bind)));
        Ok(())
    }

    /// Tells whoever bound this worker of a refused connection, and completes when somebody has seen the target answer after it.
    async fn answered(&self, taken: &Taken, target: SocketAddr) {
        let refusal = RefusalId::random();
        self.refusal.replace(Some(refusal.clone()));
        taken.told.say(BindEvent::Refused { target, refusal });
        self.answered.notified().await;
    }

    fn bound(&self, bind: &Bind) -> Bound {
        Bound {
            session: bind.session.clone(),
            incarnation: bind.incarnation,
            generation: bind.generation,
            boot: self.boot.clone(),
        }
    }

    /// From now on the session is served.
    pub fn serves(&self) {
        self.serves.set(true);
    }

    /// From now on no bind is taken.
    pub fn ends(&self, why: Option<&StartError>) {
        self.ends.set(true);
        if let (Some(why), Some(taken)) = (why, &*self.taken.borrow()) {
            taken.told.failed(why);
        }
    }

    /// Asks the worker to end.
    pub fn ask_to_stop(&self) {
        self.stop.notify_one();
    }

    /// Completes when it was asked to.
    pub async fn asked_to_stop(&self) {
        self.stop.notified().await;
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> SlotPhase {
        match &*self.taken.borrow() {
            _ if self.ends.get() => SlotPhase::Ending,
            None => SlotPhase::Waiting,
            Some(taken) if self.serves.get() => SlotPhase::Serving(self.bound(&taken.bind)),
            Some(taken) => SlotPhase::Starting(self.bound(&taken.bind)),
        }
    }

    /// For `/v1/status`.
    #[must_use]
    pub fn status(&self) -> SlotStatus {
        SlotStatus {
            slot: self.id.clone(),
            name: self.config.name.clone(),
            boot: self.boot.clone(),
            phase: self.phase(),
            policy_revision: self.found().policy.revision.clone(),
            skills_revision: self.found().skills.clone(),
            enforcement: self.enforcement.clone(),
        }
    }
}
