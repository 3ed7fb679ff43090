//! One session's life in a worker of many: ports, a thread in the spawner, its start, its generation, its end.

use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::rc::Rc;

use casemate_protocol::audit::Event;
use casemate_protocol::worker::{StartError, StartEvent, WorkerConfig};

use super::measured::{Looked, Making as Walls};
use super::{Entry, Shared, floor, intake, place};
use crate::audit::Audit;
use crate::hosted::live::{self, Hosted};
use crate::hosted::ready::{self, Making, Probing, Ready};
use crate::layout::Layout;
use crate::ports::Claim;
use crate::process::reaper::Session;
use crate::provision::{self, Resolved};
use crate::relay::driver::Order;
use crate::report::Report;
use crate::{config, directories};

impl Shared {
    /// The whole of it. Nothing of the session is left when it is over.
    pub(super) async fn host(self: Rc<Self>, entry: Rc<Entry>) {
        let name = entry.intent.session.clone();
        if let Err(error) = self.live(&entry).await {
            let event = Event::worker_not_started(&name, error.kind(), &error.to_string());
            self.audit.record(event);
            entry.transcript.failed(&error);
        }
        let table = &self.table;
        table.entries.borrow_mut().remove(&name);
        table.changed.notify_one();
        tracing::info!(session = %name, "ended");
        entry.ended.send_replace(true);
    }

    /// From its ports to its last process.
    async fn live(&self, entry: &Entry) -> Result<(), StartError> {
        let config = self.config.host(entry.intent.clone());
        let claim = self.porter.claim(config.ports).await?;
        let session = self.session(&claim)?;
        let served = self.serve(entry, config, &claim, &session).await;
        if !session.close().await {
            tracing::error!(session = %entry.intent.session, "its processes hang in the kernel");
        }
        served
    }

    fn session(&self, claim: &Claim) -> Result<Rc<Session>, StartError> {
        let spawner = self.spawner.session_that_keeps(Some(claim.as_fd()));
        let spawner = spawner.map_err(|error| ready::no_session(&error))?;
        Ok(Rc::new(Session::new(spawner, Rc::clone(&self.reaper))))
    }

    async fn serve(
        &self,
        entry: &Entry,
        config: WorkerConfig,
        claim: &Claim,
        session: &Rc<Session>,
    ) -> Result<(), StartError> {
        let audit = self.audit.of(&config.session, config.generation);
        let (hosted, generation) = self.admit(entry, config, claim, session, &audit).await?;
        let (name, fixed) = (entry.intent.session.clone(), &hosted.fixed);
        tracing::info!(session = %name, policy = %fixed.policy_revision, "hosted");
        entry.transcript.event(&StartEvent::Ready {
            address: self.address,
            boot: fixed.boot.clone(),
            tier: fixed.tier,
            worktree: fixed.worktree.clone(),
        });
        self.registry.add(Rc::clone(&hosted));
        let told_to_stop = async {
            entry.stop.notified().await;
            let (code, words) = entry.farewell.borrow().clone();
            // Where nobody takes orders any more it is ending already.
            let _ = hosted.orders.send(Order::Stop(code, words)).await;
            std::future::pending::<u8>().await
        };
        let code = tokio::select! {
            code = generation => code,
            code = told_to_stop => code,
        };
        self.registry.remove(&name);
        self.counted.absorb(&hosted.metrics);
        audit.record(Event::session_over(&name, code));
        tracing::info!(session = %name, code, "its generation is over");
        Ok(())
    }

    /// Makes it, and lets nobody of an earlier generation in from then on. A generation that never came to be served may be asked
    /// for again.
    async fn admit(
        &self,
        entry: &Entry,
        config: WorkerConfig,
        claim: &Claim,
        session: &Rc<Session>,
        audit: &Audit,
    ) -> Result<(Rc<Hosted>, impl Future<Output = u8> + 'static), StartError> {
        let (name, state) = (&entry.intent.session, &self.config.volume.join("state"));
        let before = self.table.newest.borrow().get(name).copied();
        let now = (config.incarnation, config.generation);
        let trouble = |error: io::Error| StartError::Volume {
            message: format!(
                "the session's generation cannot be kept: {error}: check the volume's space and owner"
            ),
        };
        // It is on the disk by the time that all else is made.
        let both = async {
            let raised = async { floor::raise(state, name, now).await.map_err(trouble) };
            let (made, ()) = tokio::try_join!(self.make(entry, config, claim, session), raised)?;
            Ok(made)
        };
        let made = tokio::select! {
            made = both => made,
            () = entry.stop.notified() => {
                Err(StartError::Other { message: "ended while it started".into() })
            }
        };
        match made.and_then(|made| live::start(made, self.boot.clone(), audit)) {
            Ok(started) => {
                self.table.newest.borrow_mut().insert(name.clone(), now);
                Ok(started)
            }
            Err(error) => {
                floor::restore(state, name, before).map_err(trouble)?;
                Err(error)
            }
        }
    }

    async fn make(
        &self,
        entry: &Entry,
        config: WorkerConfig,
        claim: &Claim,
        session: &Rc<Session>,
    ) -> Result<Ready, StartError> {
        let report = &*entry.transcript;
        let policy = config::examine(&config)?;
        config::check_presence(&config)?;
        intake::apart(&config)?;
        let (place, placed) = place::of(&config.volume, &config.session)?;
        let layout = Layout::shared(&config, &place);
        directories::make(&config, &layout)?;
        entry.places.replace(layout.own());
        let provisioned = provision::is_done(&layout.outside.state, &config)?;
        let resolved = if provisioned { None } else { self.resolve(&config, report).await? };
        let probing = match self.measured.look(Walls::of(&policy.revision, &config)).await {
            Looked::Known(matrix) => Probing::Known(matrix),
            Looked::Turn(turn) => {
                let range = Box::new(self.porter.range().await?);
                Probing::Measure { spawner: &self.spawner, range, turn: Some(turn) }
            }
        };
        ready::make(Making {
            policy,
            file: self.file.clone(),
            others: self.others(entry),
            layout,
            resolved,
            withdrawal: None,
            ports: claim.own(),
            session: Rc::clone(session),
            // All of its sessions are one user's: the kernel counts them together.
            alone: false,
            shield: self.shield.clone(),
            probing,
            seed: Some(&self.seed),
            placed,
            report,
            config,
        })
        .await
    }

    /// The places of every other session that is hosted now. Those that come later find this one's among theirs.
    fn others(&self, entry: &Entry) -> Vec<PathBuf> {
        let entries = self.table.entries.borrow();
        let others = entries.values().filter(|other| !std::ptr::eq(&raw const ***other, entry));
        others.flat_map(|other| other.places.borrow().clone()).collect()
    }

    /// Names are looked up, and remotes tried, beside the sessions that are served.
    async fn resolve(
        &self,
        config: &WorkerConfig,
        report: &dyn Report,
    ) -> Result<Option<Resolved>, StartError> {
        let Some(remote) = provision::remote(config)? else { return Ok(None) };
        report.progress(format!("looking for {}", remote.url));
        self.porter.resolve(remote).await.map(Some)
    }
}
