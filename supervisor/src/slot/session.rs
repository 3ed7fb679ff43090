//! From the bind on: the canary, then the one session's life.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::audit::Event;
use casemate_protocol::codes::close;
use casemate_protocol::slot::{BindEvent, Canary, paths};
use casemate_protocol::worker::{StartError, WorkerConfig};
use casemate_sandbox::{Spawner, users};

use super::{Slot, Taken, canary};
use crate::audit::Audit;
use crate::config;
use crate::hosted::live::{self, Hosted};
use crate::hosted::ready::{self, Making, Probing, Ready};
use crate::hosted::registry::Registry;
use crate::layout::Layout;
use crate::ports::Claim;
use crate::process::reaper;
use crate::provision::{self, Resolved};
use crate::relay::driver::Order;
use crate::report::Report as _;
use crate::shared::porter::Porter;

/// What the one session of a slot is made of.
#[derive(Debug)]
pub struct Session<'a> {
    /// The slot.
    pub slot: &'a Rc<Slot>,
    /// The bind.
    pub taken: &'a Taken,
    /// Its ports.
    pub claim: &'a Claim,
    /// Gives the probe its sessions.
    pub spawner: &'a Spawner,
    /// Connects and looks up.
    pub porter: &'a Porter,
    /// Where its processes run.
    pub processes: Rc<reaper::Session>,
    /// Where calls for it are led.
    pub registry: &'a Registry,
    /// The worker's log.
    pub audit: &'a Audit,
    /// The file that the configuration came from: no agent may read it.
    pub file: &'a Path,
}

// === impl Session ===

impl Session<'_> {
    /// Makes it; whoever asked hears how it goes.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(
        &self,
    ) -> Result<(Rc<Hosted>, impl Future<Output = u8> + 'static), StartError> {
        let Self { slot, taken, .. } = self;
        slot.keep(taken).await?;
        let network = self.closed().await?;
        let bind = taken.bind.clone();
        let found = slot.found();
        let config = slot.config.bound(bind, found.content.clone());
        let audit = self.audit.of(&config.session, config.generation);
        let mut ready = self.make(config).await?;
        let skills = ready.skills.as_ref().and_then(|skills| skills.revision(|_| ()));
        if skills != found.skills {
            return Err(StartError::Config {
                message: "the skills were changed after the bind was taken: bind another slot"
                    .into(),
            });
        }
        ready.enforcement.push(network);
        let (hosted, generation) = live::start(ready, slot.boot.clone(), &audit)?;
        self.registry.add(Rc::clone(&hosted));
        slot.serves();
        let fixed = &hosted.fixed;
        tracing::info!(session = %fixed.session, policy = %fixed.policy_revision, "serves");
        taken.told.say(BindEvent::Ready { tier: fixed.tier, worktree: fixed.worktree.clone() });
        Ok((hosted, generation))
    }

    /// The first of all: nothing of a session runs while its Pod is open.
    async fn closed(&self) -> Result<String, StartError> {
        let Canary::Refused { within } = self.slot.config.canary else {
            return Ok("network policy: not tried".to_owned());
        };
        let target = self.taken.bind.canary.ok_or_else(|| StartError::Shield {
            message: "a bind without a canary was taken: report this".into(),
        })?;
        self.taken.told.progress(format!("waiting until a connection to {target} is refused"));
        let within = Duration::from_secs(within);
        let network = canary::refused(self.porter, target, within).await?;
        let answered = self.slot.answered(self.taken, target);
        tokio::time::timeout(within, answered).await.map_err(|_| StartError::Shield {
            message: format!(
                "a connection to {target} was refused, and whoever bound this worker did not say within {} s that the target answers: what \
                 is gone refuses as well",
                within.as_secs()
            ),
        })?;
        let network = format!("{network}; the target answered whoever bound it afterwards");
        tracing::info!(%network, "closed");
        Ok(network)
    }

    async fn make(&self, config: WorkerConfig) -> Result<Ready, StartError> {
        let report = &*self.taken.told;
        let policy = config::examine(&config)?;
        config::check_presence(&config)?;
        let layout = Layout::in_pod(&config);
        let provisioned = provision::is_done(&layout.outside.state, &config)?;
        let resolved = if provisioned { None } else { self.resolve(&config).await? };
        let range = Box::new(self.porter.range().await?);
        ready::make(Making {
            policy,
            file: Some(self.file.to_owned()),
            others: vec![paths::SLOT.into(), paths::KEY.into()],
            layout,
            resolved,
            withdrawal: None,
            ports: self.claim.own(),
            session: Rc::clone(&self.processes),
            // Its init is this process; whose the user is besides, the user namespace tells.
            alone: users::in_own_namespace(),
            shield: self.slot.enforcement.clone(),
            probing: Probing::Measure { spawner: self.spawner, range, turn: None },
            seed: None,
            placed: None,
            report,
            config,
        })
        .await
    }

    /// Names are looked up, and remotes tried, where sockets may be made.
    async fn resolve(&self, config: &WorkerConfig) -> Result<Option<Resolved>, StartError> {
        let Some(remote) = provision::remote(config)? else { return Ok(None) };
        self.taken.told.progress(format!("looking for {}", remote.url));
        self.porter.resolve(remote).await.map(Some)
    }
}

impl Slot {
    /// From now on the holder of the slot's own token stops the session in order.
    pub fn stops(self: &Rc<Self>, hosted: &Rc<Hosted>) {
        let (slot, orders) = (Rc::clone(self), hosted.orders.clone());
        tokio::task::spawn_local(async move {
            slot.asked_to_stop().await;
            let stop = Order::Stop(close::GOING_AWAY, "the worker was stopped".to_owned());
            // Where nobody takes orders any more the worker is ending already.
            let _ = orders.send(stop).await;
        });
    }

    /// For the log: why nothing is served.
    pub fn failed(&self, audit: &Audit, error: &StartError) {
        if let Some(taken) = &*self.taken.borrow() {
            let session = &taken.bind.session;
            let event = Event::worker_not_started(session, error.kind(), &error.to_string());
            audit.record(event);
        }
        self.ends(Some(error));
    }
}
