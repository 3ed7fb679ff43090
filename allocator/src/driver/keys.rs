//! The key that tokens are signed with, and its replacement while workers serve.
//!
//! A worker checks tokens with the public keys that it was told. The order keeps every living worker reachable: each is told of
//! both keys, then the new one is made durable and used, then each is told to forget the old one. A crash between any two leaves a
//! key that every worker takes; [`Driver::settle_keys`] does the rest after the next start.

use std::collections::BTreeMap;
use std::sync::Arc;

use casemate_allocator_core::record::{Record, Serving};
use casemate_protocol::api::{ApiError, ErrorKind, Rotated};
use casemate_protocol::audit::Event;
use casemate_protocol::ids::SlotId;
use casemate_protocol::sharing::UserId;
use casemate_protocol::token::{Audience, PublicKey, SigningSecret};
use casemate_protocol::worker::Keys;

use super::shared::own_token;
use super::{Driver, lock, token};
use crate::refusal::{IntoApi as _, refuse};
use crate::worker::client::{self, CallError};

/// One that is to be told of keys.
pub(super) enum Told {
    /// A session's own worker.
    Own(Box<Record>),
    /// One that sessions share.
    Common(SlotId, UserId),
}

impl Driver {
    /// The key in use.
    pub(super) fn secret(&self) -> SigningSecret {
        lock(&self.secret).clone()
    }

    /// Replaces the key: tokens that were given out before open nothing any more, what is attached stays attached.
    pub(crate) async fn rotate_key(self: &Arc<Self>) -> Result<Rotated, ApiError> {
        let _alone = self.rotating.lock().await;
        let (old, new) = (self.secret(), SigningSecret::generate());
        let home = self.home.clone();
        let kept = new.clone();
        let keep = tokio::task::spawn_blocking(move || home.keep_next_secret(&kept));
        self.disk(keep).await?;
        for (name, worker, told) in self.workers()? {
            if let Err(error) = teach(&worker, &told, &old, &[old.public(), new.public()]).await {
                self.home.forget_next_secret();
                let message = format!(
                    "{name} was not told of the new key, so the old one stays: {error}; stop it (`casemate sessions stop`) and try again"
                );
                return Err(refuse(ErrorKind::Unavailable, message));
            }
        }
        let home = self.home.clone();
        let promote = tokio::task::spawn_blocking(move || home.use_next_secret());
        self.disk(promote).await?;
        *lock(&self.secret) = new.clone();
        let mut rotated = Rotated { key: new.public().into(), workers: 0, behind: Vec::new() };
        for (name, worker, told) in self.workers()? {
            match self.forget_old(&worker, &told, &old).await {
                Ok(()) => rotated.workers += 1,
                Err(error) => {
                    tracing::warn!(worker = name, %error, "it goes on taking the old key");
                    rotated.behind.push(name);
                }
            }
        }
        self.audit.record(Event::keys_in_force(&[rotated.key.clone()]));
        Ok(rotated)
    }

    /// After a start: no worker takes a key any more that is not in use.
    pub(crate) async fn settle_keys(self: Arc<Self>) {
        let _alone = self.rotating.lock().await;
        let secret = self.secret();
        let Ok(workers) = self.workers() else { return };
        for (name, worker, told) in workers {
            if let Err(error) = teach(&worker, &told, &secret, &[secret.public()]).await {
                tracing::warn!(worker = name, %error, "it may take another key");
            }
        }
    }

    /// A worker serves that was started with `started`: where that is in use no more, it is told so.
    pub(super) async fn catch_up(
        &self,
        worker: &Serving,
        told: &Told,
        started: &SigningSecret,
    ) -> Result<(), CallError> {
        if self.secret().public() == started.public() {
            return Ok(());
        }
        self.forget_old(worker, told, started).await
    }

    /// One that came to serve while the key was replaced may know the old one alone.
    async fn forget_old(
        &self,
        worker: &Serving,
        told: &Told,
        old: &SigningSecret,
    ) -> Result<(), CallError> {
        let secret = self.secret();
        match teach(worker, told, &secret, &[secret.public()]).await {
            Err(CallError::Refused { status: 401, .. }) => {
                teach(worker, told, old, &[secret.public()]).await
            }
            outcome => outcome,
        }
    }

    /// All that serve, with a name for people.
    fn workers(&self) -> Result<Vec<(String, Serving, Told)>, ApiError> {
        let all = self.store.sessions().map_err(|error| error.into_api())?;
        let mut own = Vec::new();
        let mut common = BTreeMap::new();
        for stored in all.into_iter().filter(|stored| self.living(&stored.record).is_some()) {
            let Ok(serving) = Self::serving(&stored.record) else { continue };
            let serving = serving.clone();
            match stored.plan.user {
                Some(user) => {
                    let slot = stored.record.slot;
                    let name = format!("the worker of slot {slot}");
                    common.insert(slot.to_string(), (name, serving, Told::Common(slot, user)));
                }
                None => {
                    let name = format!("the worker of session {}", stored.record.id);
                    own.push((name, serving, Told::Own(Box::new(stored.record))));
                }
            }
        }
        Ok(own.into_iter().chain(common.into_values()).collect())
    }

    async fn disk(
        &self,
        written: tokio::task::JoinHandle<Result<(), crate::home::HomeError>>,
    ) -> Result<(), ApiError> {
        written
            .await
            .map_err(|error| refuse(ErrorKind::Internal, error))?
            .map_err(|error| error.into_api())
    }
}

/// Tells a worker what keys to take, by a token that `by` signs.
async fn teach(
    worker: &Serving,
    told: &Told,
    by: &SigningSecret,
    keys: &[PublicKey],
) -> Result<(), CallError> {
    let token = match told {
        Told::Own(record) => token(by, record, Audience::Control),
        Told::Common(slot, user) => own_token(by, slot, user),
    };
    client::keys(worker, &token, &Keys { accept: keys.to_vec() }).await
}
