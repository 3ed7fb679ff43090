//! The embedded store. One change is one serialised, durable transaction: a change that returned has survived any crash,
//! and no two changes see each other half done. That is what the core's decisions rest on.
//!
//! | table | key | value (JSON) |
//! |---|---|---|
//! | `sessions` | session id | [`Stored`] |
//! | `keys` | key digest | [`KeyRow`]: kept for ever, so that an incarnation's number is never given twice |
//! | `requests` | request id | [`Request`]; goes with its session |
//! | `handshakes` | profile handshake key | the stored answer to `initialize`, as it came |

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use casemate_allocator_core::allocate::Request;
use casemate_allocator_core::record::Record;
use casemate_protocol::ids::{Incarnation, SessionId};
use redb::backends::InMemoryBackend;
use redb::{
    Database, ReadableDatabase as _, ReadableTable as _, StorageBackend as _, TableDefinition,
    TableError, WriteTransaction,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::home::HomeError;
use crate::plan::Plan;

type Table = TableDefinition<'static, &'static str, &'static [u8]>;
const SESSIONS: Table = TableDefinition::new("sessions");
const KEYS: Table = TableDefinition::new("keys");
const REQUESTS: Table = TableDefinition::new("requests");
const HANDSHAKES: Table = TableDefinition::new("handshakes");

/// Why the store could not be read or changed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk.
    #[error("the disk under the store is full; free some space and try again")]
    Full,
    /// Another process has it open.
    #[error("the store {0} is open in another process; stop that one first")]
    InUse(PathBuf),
    /// Anything else.
    #[error("the store failed; restart the allocator")]
    Database(#[source] Box<redb::Error>),
    /// The values of `--env` could not be kept beside it.
    #[error("the values of --env could not be written")]
    Values(#[source] HomeError),
    /// A row is not what this version writes.
    #[error("a row of the store cannot be read; was it written by a newer casemate?")]
    Row(#[source] serde_json::Error),
}

/// A session with what its workers are made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// What the core decides about.
    pub record: Record,
    /// What a worker is started from.
    pub plan: Plan,
}

/// What is remembered of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyRow {
    /// Its newest incarnation.
    pub incarnation: Incarnation,
    /// That one's session.
    pub newest: SessionId,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    // After an I/O error (a full disk) redb refuses everything until it is opened again.
    database: RwLock<Option<Database>>,
}

/// An open transaction.
#[allow(missing_debug_implementations, reason = "redb's transaction has none")]
pub(crate) struct Change<'a>(&'a WriteTransaction);

fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Io(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            ) =>
        {
            StoreError::Full
        }
        error => StoreError::Database(Box::new(error)),
    }
}

fn open(path: &Path) -> Result<Database, StoreError> {
    // Made before redb makes it: it holds what agents are started with.
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    drop(file.map_err(failed)?);
    let database = Database::create(path).map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => StoreError::InUse(path.to_owned()),
        other => failed(other),
    })?;
    let transaction = database.begin_write().map_err(failed)?;
    for table in [SESSIONS, KEYS, REQUESTS, HANDSHAKES] {
        transaction.open_table(table).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    Ok(database)
}

/// The sessions of a store that nobody has open, from what its file holds, newest first. Works on a copy in memory: one
/// that was not closed, because its allocator was killed, is repaired there.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn sessions_in(content: &[u8]) -> Result<Vec<Stored>, StoreError> {
    let copy = InMemoryBackend::new();
    let filled = copy.set_len(content.len() as u64).and_then(|()| copy.write(0, content));
    filled.map_err(failed)?;
    let database = Database::builder().create_with_backend(copy).map_err(failed)?;
    sessions(&database)
}

fn sessions(database: &Database) -> Result<Vec<Stored>, StoreError> {
    let transaction = database.begin_read().map_err(failed)?;
    let table = match transaction.open_table(SESSIONS) {
        // Its first allocator was killed before it had made any.
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        table => table.map_err(failed)?,
    };
    let mut all: Vec<Stored> = Vec::new();
    for row in table.iter().map_err(failed)? {
        all.push(parse(row.map_err(failed)?.1.value())?);
    }
    all.sort_by(|a, b| (b.record.created, &b.record.id).cmp(&(a.record.created, &a.record.id)));
    Ok(all)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(StoreError::Row)
}

// === impl Stored ===

impl Stored {
    /// Whether it shares its worker.
    #[must_use]
    pub(crate) fn shares(&self) -> bool {
        self.plan.user.is_some()
    }

    /// What its worker's audit log is called: one that sessions share, by their slot.
    #[must_use]
    pub(crate) fn log_name(&self) -> &str {
        if self.shares() { self.record.slot.as_str() } else { self.record.id.as_str() }
    }
}

// === impl Store ===

impl Store {
    /// Opens or makes it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn open(path: PathBuf) -> Result<Self, StoreError> {
        let database = open(&path)?;
        Ok(Self { path, database: RwLock::new(Some(database)) })
    }

    fn with<T>(
        &self,
        body: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let failure = {
            let database = self.database.read().expect("no holder panics");
            match database.as_ref().map(body) {
                Some(Err(error @ (StoreError::Full | StoreError::Database(_)))) => Some(error),
                Some(result) => return result,
                None => None,
            }
        };
        // Broken: opened again for the next call. This one fails, its transaction is void.
        let mut slot = self.database.write().expect("no holder panics");
        *slot = None;
        match open(&self.path) {
            Ok(database) => {
                *slot = Some(database);
                Err(failure.unwrap_or(StoreError::Full))
            }
            Err(error) => Err(failure.unwrap_or(error)),
        }
    }

    /// Runs `body` in one transaction; durable when this returns `Ok`, void otherwise.
    ///
    /// # Errors
    /// [`StoreError`]; the transaction is void.
    pub(crate) fn change<T>(
        &self,
        body: impl FnOnce(&Change<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.with(|database| {
            let transaction = database.begin_write().map_err(failed)?;
            let value = body(&Change(&transaction))?;
            transaction.commit().map_err(failed)?;
            Ok(value)
        })
    }

    fn read<T: DeserializeOwned>(&self, table: Table, key: &str) -> Result<Option<T>, StoreError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(failed)?;
            let table = transaction.open_table(table).map_err(failed)?;
            table.get(key).map_err(failed)?.map(|row| parse(row.value())).transpose()
        })
    }

    /// One session.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn session(&self, id: &SessionId) -> Result<Option<Stored>, StoreError> {
        self.read(SESSIONS, id.as_str())
    }

    /// All sessions, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn sessions(&self) -> Result<Vec<Stored>, StoreError> {
        self.with(sessions)
    }

    /// A stored handshake.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn handshake(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(failed)?;
            let table = transaction.open_table(HANDSHAKES).map_err(failed)?;
            Ok(table.get(key).map_err(failed)?.map(|row| row.value().to_vec()))
        })
    }

    /// Stores a handshake.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn put_handshake(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.change(|change| {
            let mut table = change.0.open_table(HANDSHAKES).map_err(failed)?;
            table.insert(key, value).map_err(failed)?;
            Ok(())
        })
    }
}

// === impl Change ===

impl Change<'_> {
    fn get<T: DeserializeOwned>(&self, table: Table, key: &str) -> Result<Option<T>, StoreError> {
        let table = self.0.open_table(table).map_err(failed)?;
        table.get(key).map_err(failed)?.map(|row| parse(row.value())).transpose()
    }

    fn put(&self, table: Table, key: &str, value: &impl Serialize) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(value).map_err(StoreError::Row)?;
        let mut table = self.0.open_table(table).map_err(failed)?;
        table.insert(key, bytes.as_slice()).map_err(failed)?;
        Ok(())
    }

    /// One session.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn session(&self, id: &SessionId) -> Result<Option<Stored>, StoreError> {
        self.get(SESSIONS, id.as_str())
    }

    /// All sessions, in no order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn sessions(&self) -> Result<Vec<Stored>, StoreError> {
        let table = self.0.open_table(SESSIONS).map_err(failed)?;
        let mut all = Vec::new();
        for row in table.iter().map_err(failed)? {
            all.push(parse(row.map_err(failed)?.1.value())?);
        }
        Ok(all)
    }

    /// Writes a session.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn put_session(&self, stored: &Stored) -> Result<(), StoreError> {
        self.put(SESSIONS, stored.record.id.as_str(), stored)
    }

    /// Forgets a session and every request that named it. Its key's row stays.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn remove_session(&self, id: &SessionId) -> Result<(), StoreError> {
        self.0.open_table(SESSIONS).map_err(failed)?.remove(id.as_str()).map_err(failed)?;
        let mut requests = self.0.open_table(REQUESTS).map_err(failed)?;
        let mut stale = Vec::new();
        for row in requests.iter().map_err(failed)? {
            let (key, value) = row.map_err(failed)?;
            if parse::<Request>(value.value())?.session == *id {
                stale.push(key.value().to_owned());
            }
        }
        for key in stale {
            requests.remove(key.as_str()).map_err(failed)?;
        }
        Ok(())
    }

    /// What is remembered of a key.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn key(&self, digest: &str) -> Result<Option<KeyRow>, StoreError> {
        self.get(KEYS, digest)
    }

    /// Writes a key's row.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn put_key(&self, digest: &str, row: &KeyRow) -> Result<(), StoreError> {
        self.put(KEYS, digest, row)
    }

    /// An earlier request.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn request(&self, id: &str) -> Result<Option<Request>, StoreError> {
        self.get(REQUESTS, id)
    }

    /// Writes a request.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn put_request(&self, id: &str, request: &Request) -> Result<(), StoreError> {
        self.put(REQUESTS, id, request)
    }
}
