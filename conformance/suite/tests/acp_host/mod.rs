//! An ACP host made of the official Rust client library: it owns one agent subprocess and what that said.

pub(crate) mod scene;

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ContentBlock, FileSystemCapabilities,
    InitializeRequest, InitializeResponse, LoadSessionRequest, NewSessionRequest,
    PermissionOptionKind, PromptRequest, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionId, SessionNotification,
    SessionUpdate, SetSessionModeRequest, StopReason, TextContent,
};
use agent_client_protocol::{Agent, ByteStreams, Client, Error};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

/// How long any one call may take: opencode's own start included, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A host with its subprocess.
pub(crate) struct Host {
    child: Child,
    link: ConnectionTo<Agent>,
    updates: Arc<Mutex<Vec<SessionNotification>>>,
    permissions: Arc<Mutex<Permissions>>,
    end: Option<oneshot::Sender<()>>,
    running: tokio::task::JoinHandle<()>,
}

/// What the agent has asked for.
#[derive(Default)]
struct Permissions {
    asked: usize,
    /// From now on nothing is answered.
    hold: bool,
    /// One that is dropped would be answered with an error.
    held: Vec<Box<dyn std::any::Any + Send>>,
}

// === impl Host ===

impl Host {
    /// Starts the subprocess and connects; nothing is sent yet.
    pub(crate) async fn start(command: std::process::Command) -> Self {
        let mut child = Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let transport = ByteStreams::new(
            child.stdin.take().expect("stdin was asked for").compat_write(),
            child.stdout.take().expect("stdout was asked for").compat(),
        );
        let updates = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&updates);
        let permissions = Arc::new(Mutex::new(Permissions::default()));
        let asked = Arc::clone(&permissions);
        let (link, linked) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let running = tokio::task::spawn_local(async move {
            let outcome = Client
                .v1()
                .on_receive_notification(
                    async move |update: SessionNotification, _| {
                        record.lock().unwrap_or_else(PoisonError::into_inner).push(update);
                        Ok(())
                    },
                    agent_client_protocol::on_receive_notification!(),
                )
                .on_receive_request(
                    async move |request: RequestPermissionRequest, responder, _| {
                        {
                            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                            asked.asked += 1;
                            if asked.hold {
                                asked.held.push(Box::new(responder));
                                return Ok(());
                            }
                        }
                        responder.respond(RequestPermissionResponse::new(allow_once(&request)))
                    },
                    agent_client_protocol::on_receive_request!(),
                )
                .connect_with(transport, async move |connection: ConnectionTo<Agent>| {
                    link.send(connection).ok();
                    ended.await.ok();
                    Ok(())
                })
                .await;
            if let Err(error) = outcome {
                eprintln!("the connection ended: {error}");
            }
        });
        let link = linked.await.expect("connecting needs no answer of the agent");
        Self { child, link, updates, permissions, end: Some(end), running }
    }

    /// The subprocess.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().expect("it was not waited for").cast_signed()
    }

    /// `initialize`, advertising what an editor has: files and terminals of the host.
    pub(crate) async fn initialize(&self) -> Result<InitializeResponse, Error> {
        let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
        let capabilities = ClientCapabilities::new().fs(files).terminal(true);
        let request = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities);
        in_time(self.link.send_request(request).block_task()).await
    }

    /// `session/new`.
    pub(crate) async fn new_session(&self, cwd: &std::path::Path) -> Result<SessionId, Error> {
        let request = NewSessionRequest::new(cwd);
        Ok(in_time(self.link.send_request(request).block_task()).await?.session_id)
    }

    /// `session/load`; what became of the conversation.
    pub(crate) async fn load(
        &self,
        session: &SessionId,
        cwd: &std::path::Path,
    ) -> Result<String, Error> {
        let request = LoadSessionRequest::new(session.clone(), cwd);
        let loaded = in_time(self.link.send_request(request).block_task()).await?;
        let outcome = loaded.meta.as_ref().map(|meta| &meta["casemate"]["continuity"]);
        Ok(outcome.and_then(|outcome| outcome.as_str()).unwrap_or_default().to_owned())
    }

    /// `session/prompt`, to the end of the turn.
    pub(crate) async fn prompt(
        &self,
        session: &SessionId,
        text: &str,
    ) -> Result<StopReason, Error> {
        let block = ContentBlock::Text(TextContent::new(text));
        let request = PromptRequest::new(session.clone(), vec![block]);
        Ok(in_time(self.link.send_request(request).block_task()).await?.stop_reason)
    }

    /// `session/set_mode`.
    #[allow(dead_code, reason = "not every test that has this host sets a mode")]
    pub(crate) async fn set_mode(&self, session: &SessionId, mode: &str) -> Result<(), Error> {
        let request = SetSessionModeRequest::new(session.clone(), mode.to_owned());
        in_time(self.link.send_request(request).block_task()).await.map(|_| ())
    }

    /// `session/cancel`.
    pub(crate) fn cancel(&self, session: &SessionId) {
        self.link
            .send_notification(CancelNotification::new(session.clone()))
            .expect("the connection stands");
    }

    /// Leaves what the agent asks for unanswered from now on.
    #[allow(dead_code, reason = "not every test that has this host is asked")]
    pub(crate) fn hold(&self) {
        self.permissions.lock().unwrap_or_else(PoisonError::into_inner).hold = true;
    }

    /// How often the agent has asked for a permission.
    #[allow(dead_code, reason = "as above")]
    pub(crate) fn asked(&self) -> usize {
        self.permissions.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// Waits until the agent has asked so often; false where it does not in time.
    #[allow(dead_code, reason = "as above")]
    pub(crate) async fn is_asked(&self, times: usize) -> bool {
        let asked = async {
            while self.asked() < times {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.is_ok()
    }

    /// What the agent has said to the user in a session, all turns and replays.
    pub(crate) fn said(&self, session: &SessionId) -> String {
        self.texts(session, |update| match update {
            SessionUpdate::AgentMessageChunk(chunk) => Some(&chunk.content),
            _ => None,
        })
    }

    /// What the agent replayed of the user's own texts.
    pub(crate) fn replayed(&self, session: &SessionId) -> String {
        self.texts(session, |update| match update {
            SessionUpdate::UserMessageChunk(chunk) => Some(&chunk.content),
            _ => None,
        })
    }

    /// What casemate has told the user in a session, all turns.
    pub(crate) fn told(&self, session: &SessionId) -> Vec<String> {
        let updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let of = updates.iter().filter(|update| update.session_id == *session);
        of.filter_map(|update| match &update.update {
            SessionUpdate::ToolCall(call) if call.title.starts_with("casemate: ") => {
                Some(call.title.clone())
            }
            _ => None,
        })
        .collect()
    }

    fn texts(
        &self,
        session: &SessionId,
        pick: impl Fn(&SessionUpdate) -> Option<&ContentBlock>,
    ) -> String {
        let updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        updates
            .iter()
            .filter(|update| update.session_id == *session)
            .filter_map(|update| match pick(&update.update)? {
                ContentBlock::Text(text) => Some(text.text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Ids of all sessions that an update named.
    #[allow(dead_code, reason = "not every test that has this host asks for it")]
    pub(crate) fn named(&self) -> Vec<SessionId> {
        let updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        updates.iter().map(|update| update.session_id.clone()).collect()
    }

    /// Waits until the agent has said `part` in a session; false where it does not in time.
    pub(crate) async fn wait_for(&self, session: &SessionId, part: &str) -> bool {
        self.wait_for_more(session, part, 0).await
    }

    /// Waits until it has said `part` more than `times`.
    pub(crate) async fn wait_for_more(
        &self,
        session: &SessionId,
        part: &str,
        times: usize,
    ) -> bool {
        let said = async {
            while self.said(session).matches(part).count() <= times {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, said).await.is_ok()
    }

    /// Closes the subprocess's stdin, as a host that quits does, and waits for its end.
    pub(crate) async fn quit(mut self) -> std::process::ExitStatus {
        drop(self.end.take());
        self.running.await.ok();
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("an agent leaves when its host has gone")
            .expect("a child can be waited for")
    }

    /// SIGKILL, as a host's crash does to its group.
    pub(crate) async fn crash(mut self) {
        self.child.kill().await.ok();
        drop(self.end.take());
        self.running.await.ok();
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, call).await.expect("the call is answered in time")
}

fn allow_once(request: &RequestPermissionRequest) -> RequestPermissionOutcome {
    let allowed =
        request.options.iter().find(|option| option.kind == PermissionOptionKind::AllowOnce);
    allowed.map_or(RequestPermissionOutcome::Cancelled, |option| {
        RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
    })
}

/// Runs a test's async body.
pub(crate) fn run(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime is to be had");
    tokio::task::LocalSet::new().block_on(&runtime, body);
}
