//! Gets a session a live worker and connects to it.

use std::time::Duration;

use casemate_protocol::acp::bridge::{Attachment, Want};
use casemate_protocol::api::{Allocate, Attached, Intent, Phase};
use casemate_protocol::codes::exit;
use casemate_protocol::ids::{BootId, Generation, SessionId};
use casemate_protocol::key::Key;
use tokio::sync::Mutex;

use crate::client::{CallError, Client};
use crate::failure::Failure;
use crate::place::Place;
use crate::start;

/// How long to wait before a worker that could not be reached is tried again; tripled each time.
const PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(1000);
/// How long the allocator may take to say whether a worker lives.
const LOOK: Duration = Duration::from_secs(2);

/// The allocator of a place: started where none serves, looked for again where it went away.
#[derive(Debug)]
pub(crate) struct Allocator {
    place: Place,
    /// The one that answered last.
    client: Mutex<Option<Client>>,
    /// False for a private allocator, whose end is the end.
    restartable: bool,
}

/// Why there is no attachment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// The session is not known.
    #[error("{0}")]
    Unknown(String),
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] Failure),
}

// === impl Allocator ===

impl Allocator {
    /// Of a place; nothing is done yet.
    pub(crate) fn of(place: Place) -> Self {
        Self { place, client: Mutex::new(None), restartable: true }
    }

    /// One that serves already and is not to be replaced.
    pub(crate) fn private(place: Place, client: Client) -> Self {
        Self { place, client: Mutex::new(Some(client)), restartable: false }
    }

    /// Makes a call, once more where the allocator was restarted in between. Each call is idempotent.
    pub(crate) async fn call<T>(
        &self,
        call: impl AsyncFn(&Client) -> Result<T, CallError>,
    ) -> Result<Result<T, CallError>, Failure> {
        let known = self.client.lock().await.clone();
        if let Some(client) = known {
            match call(&client).await {
                Err(error) if self.restartable && is_stale(&error) => {}
                answer => return Ok(answer),
            }
        }
        let client = start::ensure(&self.place, &[]).await?;
        *self.client.lock().await = Some(client.clone());
        Ok(call(&client).await)
    }

    /// A live worker of the session that is wanted, and what `open` makes of its address and token.
    pub(crate) async fn attach<T>(
        &self,
        want: &Want,
        key: Option<&str>,
        intent: &Intent,
        open: impl AsyncFn(&Attached) -> Result<T, Failure>,
    ) -> Result<(Attachment, T), AttachError> {
        let mut attached = self.worker(want, key, intent).await?;
        let mut pause = PAUSE;
        let (status, opened) = loop {
            let reach = async {
                let status = Client::of(&attached)?.status().await?;
                Ok::<_, Failure>((status, open(&attached).await?))
            };
            match reach.await {
                Ok(both) => break both,
                Err(failure) if pause > LAST_PAUSE => return Err(failure.into()),
                // The worker may have gone between the answer and now, or the network stumbles: the allocator looks again.
                Err(failure) => {
                    tracing::debug!("not attached: {failure}");
                    tokio::time::sleep(pause).await;
                    pause *= 3;
                    attached = self.resume(&attached.session.id).await?;
                }
            }
        };
        tracing::info!(
            session = %attached.session.id,
            "besides the system's programs, the agent may read and run {}",
            granted(&attached.session.programs)
        );
        let attachment = Attachment {
            session: attached.session.id,
            created: attached.created,
            same_intent: attached.session.intent == *intent,
            acp_session: status.acp_session,
            evidence: status.evidence,
            tier: status.tier,
        };
        Ok((attachment, opened))
    }

    /// True where the allocator that was asked last still answers, and says that this generation's worker is gone.
    /// Starts none: a session goes on without.
    pub(crate) async fn is_gone(&self, session: &SessionId, generation: Generation) -> bool {
        let Some(client) = self.client.lock().await.clone() else { return false };
        let shown = tokio::time::timeout(LOOK, client.show(session)).await;
        shown.is_ok_and(|shown| {
            shown.is_ok_and(|view| {
                let lives = view.worker.is_some() || view.phase == Phase::Active;
                view.generation != generation || !lives
            })
        })
    }

    /// The status door of a session's live worker.
    pub(crate) async fn worker_of(&self, session: &SessionId) -> Result<Client, AttachError> {
        let attached = self.resume(session).await?;
        Ok(Client::of(&attached)?)
    }

    async fn worker(
        &self,
        want: &Want,
        key: Option<&str>,
        intent: &Intent,
    ) -> Result<Attached, AttachError> {
        match want {
            Want::Key(thread) => {
                let body = Allocate {
                    request_id: BootId::random().to_string(),
                    key: conversation(intent, thread.as_deref()),
                    intent: intent.clone(),
                };
                let answer =
                    self.call(async |client: &Client| client.allocate(&body).await).await?;
                Ok(answer.map_err(Failure::from)?)
            }
            Want::Blank => {
                let body = Allocate {
                    request_id: BootId::random().to_string(),
                    key: conversation(intent, None),
                    intent: Intent { repository: None, ..intent.clone() },
                };
                let answer =
                    self.call(async |client: &Client| client.allocate(&body).await).await?;
                Ok(answer.map_err(Failure::from)?)
            }
            Want::Session(session) => {
                let view = self.call(async |client: &Client| client.show(session).await).await?;
                let view = view.map_err(|error| unknown(session, error))?;
                // A host that names its conversation must not be led into another one by a stored id.
                if let Some(key) = key.filter(|key| *key != view.key.thread) {
                    return Err(AttachError::Unknown(format!(
                        "session {session} belongs to the conversation `{}`, not to `{key}`; session/new opens the \
                         right one",
                        view.key.thread
                    )));
                }
                self.resume(session).await
            }
        }
    }

    async fn resume(&self, session: &SessionId) -> Result<Attached, AttachError> {
        let answer = self.call(async |client: &Client| client.resume(session).await).await?;
        answer.map_err(|error| unknown(session, error))
    }
}

/// Paths as people read them, on one line whatever their names hold.
fn granted(programs: &[std::path::PathBuf]) -> String {
    let words: Vec<_> = programs.iter().map(|path| format!("{path:?}")).collect();
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

/// The key of a conversation on this machine; without a name, one that nobody else has.
fn conversation(intent: &Intent, thread: Option<&str>) -> Key {
    let program = intent.agent.first().map_or("", String::as_str);
    let agent = program.rsplit('/').next().unwrap_or(program);
    Key {
        tenant: "local".into(),
        agent: agent.into(),
        platform: "acp".into(),
        thread: thread.map_or_else(|| BootId::random().to_string(), Into::into),
    }
}

/// True where the answer came from an allocator that is not the place's any more.
fn is_stale(error: &CallError) -> bool {
    let refused = matches!(error, CallError::Refused(refused)
        if refused.kind == casemate_protocol::api::ErrorKind::Unauthorized);
    // Somebody else on its port: the next one is asked for, and found by its lock.
    error.is_connection() || refused || matches!(error, CallError::NotProven { .. })
}

fn unknown(session: &SessionId, error: CallError) -> AttachError {
    match error {
        CallError::Refused(refused)
            if refused.kind == casemate_protocol::api::ErrorKind::NotFound
                && refused.start.is_none() =>
        {
            AttachError::Unknown(format!(
                "no session {session} in this place ({}); session/new opens a new one",
                refused.message
            ))
        }
        other => AttachError::Failed(other.into()),
    }
}

impl AttachError {
    /// As a failed command.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::Unknown(message) => Failure::new(exit::NO_INPUT, message),
            Self::Failed(failure) => failure,
        }
    }
}
