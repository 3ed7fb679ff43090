//! What a supervisor of many sessions has its porter do, since its own filter refuses it: claims, names, ranges.
//!
//! Both sides are here: [`start`] says what the porter does, before there is a thread; the methods of [`Porter`] ask. A claim
//! that comes back is looked at again; the rest is believed as what this process would have found itself. What may be asked
//! is no more than the worker was configured for, but for the names, of which whoever has taken over the supervisor can ask any.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use casemate_inside::catalogue::Decoys;
use casemate_protocol::ids::PlaceId;
use casemate_protocol::ports::PortPool;
use casemate_protocol::worker::StartError;
use casemate_sandbox::porter::{self, Answer, Errand};
use casemate_sandbox::shield::Confined;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ports::{self, Claim};
use crate::probe::range::{Ground, Range};
use crate::provision::{self, Remote, Resolved};
use crate::slot::canary::{self, Try};
use crate::words::chain;

/// The porter of this worker.
#[derive(Debug, Clone)]
pub struct Porter(Arc<porter::Porter>);

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// A range of the worker's pool, this one first.
    Claim { preferred: u16 },
    /// Which address of a host answers.
    Reach { shown: String, host: String, port: u16 },
    /// Decoys for the probe, here in the ground.
    Range { place: PlaceId },
    /// One try of a connection that is to be refused.
    Canary { target: SocketAddr },
}

/// One at a time: what is measured at once slows each other down.
static RANGE: Mutex<()> = Mutex::new(());

/// Starts it. `pool`: what it claims ports of.
///
/// # Errors
/// [`StartError::Shield`] where it has no filter, [`StartError::Other`] where there is no process.
pub fn start(pool: PortPool, ground: &Ground) -> Result<Porter, StartError> {
    let place = ground.path().to_owned();
    porter::Porter::start(ground.path(), move |words| answer(words, pool, &place))
        .map(|porter| Porter(Arc::new(porter)))
        .map_err(|error| {
            let message = chain(&error);
            match error {
                porter::PorterError::Fork(_) => StartError::Other { message },
                _ => StartError::Shield { message },
            }
        })
}

// === the porter's side ===

fn answer(words: &[u8], pool: PortPool, ground: &Path) -> Answer {
    match serde_json::from_slice(words) {
        Ok(Request::Claim { preferred }) => claim(PortPool { preferred, ..pool }),
        Ok(Request::Reach { shown, host, port }) => {
            told(&provision::reach(&shown, &host, port), Vec::new())
        }
        Ok(Request::Range { place }) => range(ground, &place),
        Ok(Request::Canary { target }) => told(&Ok(canary::attempt(target)), Vec::new()),
        Err(error) => {
            told(&Err::<(), _>(StartError::Other { message: error.to_string() }), Vec::new())
        }
    }
}

fn claim(pool: PortPool) -> Answer {
    match ports::claim(pool) {
        Ok(claim) => told(&Ok(()), vec![claim.hand_over()]),
        Err(error) => told(&Err::<(), _>(error), Vec::new()),
    }
}

fn range(ground: &Path, place: &PlaceId) -> Answer {
    let alone = RANGE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = Range::make_below(ground, place);
    let handed = made.as_ref().map_err(StartError::clone).and_then(|range| {
        range.handed_over().map_err(|error| StartError::Other { message: error.to_string() })
    });
    let mut answer = match handed {
        Ok((decoys, program)) => told(&Ok(decoys), vec![program]),
        Err(error) => told(&Err::<(), _>(error), Vec::new()),
    };
    // In this order they go.
    answer.held = made.ok().map(|range| Box::new((range, alone)) as _);
    answer
}

fn told<T: Serialize>(what: &Result<T, StartError>, descriptors: Vec<OwnedFd>) -> Answer {
    // It always can be written: numbers and text. An empty answer is none.
    Answer { words: serde_json::to_vec(what).unwrap_or_default(), descriptors, held: None }
}

// === impl Porter ===

impl Porter {
    /// A range of ports, of the pool of the worker.
    ///
    /// # Errors
    /// As [`ports::claim`].
    pub async fn claim(&self, pool: PortPool) -> Result<Claim, StartError> {
        let (errand, ()) = self.run(Request::Claim { preferred: pool.preferred }).await?;
        let socket = errand.descriptors.into_iter().next().ok_or_else(|| gone("no claim came"))?;
        Claim::handed(socket, pool)
    }

    /// As [`provision::resolve`].
    ///
    /// # Errors
    /// As there.
    pub async fn resolve(&self, remote: Remote) -> Result<Resolved, StartError> {
        let (shown, host, port) = (remote.url.clone(), remote.host.clone(), remote.port);
        let (_, address): (_, IpAddr) = self.run(Request::Reach { shown, host, port }).await?;
        Ok(Resolved::at(remote, address))
    }

    /// As [`Range::make_below`], in the worker's ground.
    ///
    /// # Errors
    /// As there.
    pub async fn range(&self) -> Result<Range, StartError> {
        let (mut errand, decoys): (_, Decoys) =
            self.run(Request::Range { place: PlaceId::random() }).await?;
        let program = errand.descriptors.pop().ok_or_else(|| gone("no program came"))?;
        Ok(Range::of_porter(decoys, File::from(program), errand))
    }

    /// As [`canary::attempt`].
    ///
    /// # Errors
    /// [`StartError::Other`] where the porter is gone.
    pub async fn attempt(&self, target: SocketAddr) -> Result<Try, StartError> {
        self.run(Request::Canary { target }).await.map(|(_, tried)| tried)
    }

    async fn run<T: DeserializeOwned>(&self, request: Request) -> Result<(Errand, T), StartError> {
        let words = serde_json::to_vec(&request).map_err(|error| gone(&error.to_string()))?;
        let porter = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || porter.ask(&words)).await;
        let errand = asked
            .map_err(io::Error::other)
            .and_then(|errand| errand)
            .map_err(|error| gone(&error.to_string()))?;
        let said: Result<T, StartError> =
            serde_json::from_slice(&errand.words).map_err(|error| gone(&error.to_string()))?;
        Ok((errand, said?))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// What it wears.
    #[must_use]
    pub fn confined(&self) -> Confined {
        self.0.confined()
    }

    /// Ends what it is at; whoever waits for that hears so.
    pub fn close(&self) {
        self.0.close();
    }

    /// Returns when it is gone. Nobody else may wait for children in the meantime.
    pub fn end(self) {
        self.close();
        if let Some(porter) = Arc::into_inner(self.0) {
            porter.end();
        }
    }
}

fn gone(why: &str) -> StartError {
    StartError::Other {
        message: format!(
            "the worker's porter process does not answer ({why}): start the worker again"
        ),
    }
}
