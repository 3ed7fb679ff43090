//! Feeds the bridge's state machine and does what it says.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use casemate_protocol::acp::bridge::{
    Action, Attachment, Bridge, Ending, Event, Link, Refusal, Settings, Want,
};
use casemate_protocol::api::End;
use casemate_protocol::codes::{exit, rpc};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SessionId;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_tungstenite::tungstenite::Bytes;

use crate::acp::hold::Hold;
use crate::acp::host::{self, Line, Outbox};
use crate::acp::link::{self, Greeted, Surroundings, Writer};
use crate::attach::{Allocator, AttachError};
use crate::client::Client;
use crate::failure::Failure;

/// How long `initialize` may wait for a worker: hosts give up after 30 s and kill this process without a word.
const INITIALIZE: Duration = Duration::from_secs(25);
/// How long the end may take: OpenAB sends SIGKILL 1.5 s after SIGTERM.
const LAST: Duration = Duration::from_millis(1200);
/// Lines in flight from all sources; workers are held back by bytes, see [`Outbox`].
const NEWS: usize = 64;

/// What the driver's tasks have to say.
pub(super) enum News {
    Host(Line),
    Handshake(Option<String>),
    Attached(Link, Box<Result<(Attachment, Greeted), AttachError>>),
    /// A line and its number.
    Worker(Link, u64, Bytes),
    WorkerEnded(Link, Ending),
    Stopped(SessionId, Result<(), Refusal>),
}

struct Driver {
    bridge: Bridge,
    settings: Settings,
    allocator: Rc<Allocator>,
    news: mpsc::Sender<News>,
    outbox: Outbox,
    hold: Arc<Hold>,
    writers: HashMap<Link, Writer>,
    /// Calls whose outcome nobody waits for, but which are not to be cut off.
    chores: JoinSet<()>,
    /// When `initialize` is answered at the latest.
    late: Option<Instant>,
    /// Why no session was opened yet.
    failed: Option<Failure>,
    /// A session was opened: what fails from then on fails for it alone.
    served: bool,
}

/// Serves the host on stdio.
pub(super) async fn serve(settings: Settings, allocator: Allocator) -> Result<u8, Failure> {
    let local = tokio::task::LocalSet::new();
    local.run_until(serve_locally(settings, allocator)).await
}

async fn serve_locally(settings: Settings, allocator: Allocator) -> Result<u8, Failure> {
    let failed =
        |error: std::io::Error| Failure::because(exit::SOFTWARE, "cannot serve stdio", &error);
    let mut signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
        .map(signal)
        .into_iter()
        .collect::<Result<Vec<Signal>, _>>()
        .map_err(failed)?;
    let (news, mut inbox) = mpsc::channel(NEWS);
    let hold = Arc::new(Hold::default());
    host::read(news.clone(), Arc::clone(&hold)).map_err(failed)?;
    let mut driver = Driver {
        bridge: Bridge::new(settings.clone()),
        settings,
        allocator: Rc::new(allocator),
        outbox: Outbox::start(news.clone()),
        news,
        hold,
        writers: HashMap::new(),
        chores: JoinSet::new(),
        late: None,
        failed: None,
        served: false,
    };
    loop {
        let late = driver.late;
        tokio::select! {
            Some(news) = inbox.recv() => {
                if matches!(news, News::Host(Line::End)) {
                    break;
                }
                driver.take(news);
            }
            () = any(&mut signals) => break,
            () = sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() => {
                driver.late = None;
                driver.happens(Event::HandshakeLate);
            }
        }
    }
    match driver.leave(&mut inbox).await {
        Some(failure) => Err(failure),
        None => Ok(exit::OK),
    }
}

/// Waits for any of them.
async fn any(signals: &mut [Signal]) {
    std::future::poll_fn(|context| {
        for signal in signals.iter_mut() {
            if signal.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(());
            }
        }
        std::task::Poll::Pending
    })
    .await;
}

// === impl Driver ===

impl Driver {
    fn take(&mut self, news: News) {
        match news {
            News::Host(Line::Whole(line)) => self.happens(Event::FromHost(&line)),
            News::Host(Line::Overlong(outline)) => self.happens(Event::HostOverlong(&outline)),
            News::Host(Line::End) => {}
            News::Handshake(stored) => self.happens(Event::Handshake(stored.as_deref())),
            News::Attached(link, outcome) => match *outcome {
                Ok((attachment, greeted)) => {
                    let surroundings = Surroundings {
                        news: self.news.clone(),
                        room: self.outbox.room(),
                        hold: Arc::clone(&self.hold),
                        allocator: Rc::clone(&self.allocator),
                    };
                    let writer = link::start(link, greeted, surroundings);
                    self.writers.insert(link, writer);
                    self.happens(Event::Attached(link, attachment));
                }
                Err(error) => {
                    let refusal = refusal(&error);
                    // A host may name a session that is gone, and go on with another.
                    if let AttachError::Failed(failure) = error {
                        self.fails(failure);
                    }
                    self.happens(Event::AttachFailed(link, refusal));
                }
            },
            News::Worker(link, number, line) => {
                self.happens(Event::FromWorker(link, &line));
                if let Some(writer) = self.writers.get(&link) {
                    self.outbox.mark(writer.receipt(), number);
                }
            }
            News::WorkerEnded(link, ending) => {
                self.writers.remove(&link);
                self.fails(Failure::new(exit::UNAVAILABLE, ending.reason.clone()));
                self.happens(Event::WorkerEnded(link, ending));
            }
            News::Stopped(session, outcome) => self.happens(Event::Stopped(session, outcome)),
        }
    }

    fn happens(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.bridge.handle(event, &mut actions);
        for action in actions {
            self.act(action);
        }
        if !self.bridge.is_introducing() {
            self.late = None;
        }
        if self.bridge.serves() {
            self.served = true;
            self.failed = None;
        } else if let (None, Some(why)) = (&self.failed, self.bridge.given_up()) {
            self.failed = Some(Failure::new(exit::UNAVAILABLE, why));
        }
    }

    /// Before the first session it is how this process ends as well: few hosts show what they were answered.
    fn fails(&mut self, failure: Failure) {
        if !self.served {
            self.failed = Some(failure);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::ToHost(line) => self.outbox.push(line),
            Action::ToWorker(link, line) => {
                if let Some(writer) = self.writers.get(&link) {
                    writer.send(line);
                }
            }
            Action::Cancel { link, line, of } => {
                let revoked = self.writers.get(&link).map(|writer| writer.cancel(line, of));
                if let Some(revoked) = revoked.filter(|revoked| !revoked.is_empty()) {
                    self.happens(Event::Revoked(link, revoked));
                }
            }
            Action::LoadHandshake(key) => self.load_handshake(key),
            Action::StoreHandshake(key, result) => {
                let allocator = Rc::clone(&self.allocator);
                self.chores.spawn_local(async move {
                    let call =
                        async |client: &Client| client.store_handshake(&key, result.clone()).await;
                    if let Err(failure) = flat(allocator.call(call).await) {
                        tracing::warn!("the agent's introduction is not stored: {failure}");
                    }
                });
            }
            Action::Attach(link, want) => self.attach(link, want),
            Action::Detach(link) => {
                if let Some(writer) = self.writers.remove(&link) {
                    self.chores.spawn_local(writer.close());
                }
            }
            Action::Stop(session) => self.stop(session),
            Action::Discard(session) => self.discard(session),
            Action::Log(text) => tracing::debug!("{text}"),
            Action::Warn(text) => eprintln!("casemate: {text}"),
        }
    }

    fn load_handshake(&mut self, key: String) {
        self.late = Some(Instant::now() + INITIALIZE);
        let (allocator, news) = (Rc::clone(&self.allocator), self.news.clone());
        tokio::task::spawn_local(async move {
            let answer =
                flat(allocator.call(async |client: &Client| client.handshake(&key).await).await);
            let stored = answer.unwrap_or_else(|failure| {
                // Attaching will fail in the same way, with an answer to the host.
                tracing::warn!("no stored introduction: {failure}");
                None
            });
            // The driver is gone: nobody waits for it.
            let _ = news.send(News::Handshake(stored)).await;
        });
    }

    fn attach(&mut self, id: Link, want: Want) {
        let (allocator, news) = (Rc::clone(&self.allocator), self.news.clone());
        let settings = self.settings.clone();
        tokio::task::spawn_local(async move {
            let key = settings.key.as_deref();
            let outcome = allocator.attach(&want, key, &settings.intent, link::greet).await;
            // The driver is gone: the session stays as it is and its key finds it.
            let _ = news.send(News::Attached(id, Box::new(outcome))).await;
        });
    }

    fn stop(&mut self, session: SessionId) {
        let (allocator, news) = (Rc::clone(&self.allocator), self.news.clone());
        self.chores.spawn_local(async move {
            let end = End { force: true, ..End::by(EndReason::Shutdown) };
            let outcome = flat(
                allocator.call(async |client: &Client| client.stop(&session, &end).await).await,
            );
            let outcome = outcome
                .map(drop)
                .map_err(|failure| Refusal { code: rpc::WORKER, message: failure.to_string() });
            // The driver is gone: nobody waits for it.
            let _ = news.send(News::Stopped(session, outcome)).await;
        });
    }

    fn discard(&mut self, session: SessionId) {
        let allocator = Rc::clone(&self.allocator);
        self.chores.spawn_local(async move {
            let end = End { discard: true, force: true, ..End::by(EndReason::Unused) };
            let call = async |client: &Client| client.close(&session, &end).await;
            if let Err(failure) = flat(allocator.call(call).await) {
                tracing::warn!(
                    "session {session} was made and not used, and is still there: {failure}"
                );
            }
        });
    }

    /// The host is gone or this process is to end: attachments end, sessions go on. What kept the first one from being opened, if none was.
    async fn leave(mut self, inbox: &mut mpsc::Receiver<News>) -> Option<Failure> {
        let failed = self.failed.take();
        let deadline = Instant::now() + LAST;
        self.happens(Event::HostEnded);
        while !self.bridge.finished() {
            match timeout_at(deadline, inbox.recv()).await {
                Ok(Some(news)) => self.take(news),
                Ok(None) | Err(_) => break,
            }
        }
        // Tasks that report to the inbox must not wait for a reader that is gone.
        inbox.close();
        // Past the deadline nothing more can be done for them: sessions are found by their keys, unused ones expire.
        let _ = timeout_at(deadline, async {
            self.outbox.drained().await;
            while self.chores.join_next().await.is_some() {}
        })
        .await;
        failed
    }
}

fn flat<T>(answer: Result<Result<T, crate::client::CallError>, Failure>) -> Result<T, Failure> {
    answer?.map_err(Failure::from)
}

fn refusal(error: &AttachError) -> Refusal {
    match error {
        AttachError::Unknown(message) => Refusal { code: rpc::NOT_FOUND, message: message.clone() },
        AttachError::Failed(failure) => Refusal { code: rpc::WORKER, message: failure.to_string() },
    }
}
