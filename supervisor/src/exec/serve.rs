//! One command, from the request to its last word.
//!
//! Owns the WebSocket and the command. It ends in one of four ways: by itself; by its time-out; with the session; or because
//! the client is gone. In the last three [`super::ending`] ends it, so nothing runs on that nobody hears.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::audit::Event;
use casemate_protocol::codes::close;
use casemate_protocol::exec::{self, ExecEnd, MAX_MESSAGE, MAX_REQUEST, channel};
use casemate_sandbox::Exit;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::request::{self, Wanted};
use super::running::Hold;
use super::start::{self, Child, Ends};
use super::wire::{self, Gone, Shared, Sink, Socket};
use super::{Door, ending};
use crate::http::pulse::{self, CLOSING};

/// How long the request may take to come.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How long output may pause behind the command's end, where something that it left behind holds it open.
const AFTER_END: Duration = Duration::from_millis(200);
/// How long the last output of an ended command has to reach a client.
const FLUSH: Duration = Duration::from_secs(5);

/// Serves one client; `hold` is given back when all is said or the command has ended unheard.
pub async fn serve(stream: Upgraded, door: Rc<Door>, hold: Hold) {
    let config = WebSocketConfig::default()
        .read_buffer_size(64 * 1024)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_REQUEST))
        .max_frame_size(Some(MAX_REQUEST));
    let mut socket =
        WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, Some(config)).await;
    match timeout(REQUEST_WITHIN, first(&mut socket)).await {
        Ok(Some(text)) => run(socket, &text, &door, hold).await,
        Ok(None) => {}
        Err(_) => {
            let message = "no request came within 10 s".to_owned();
            say_end(&mut socket, &ExecEnd::Refused { message }).await;
        }
    }
}

async fn first(socket: &mut Socket) -> Option<String> {
    loop {
        match socket.next().await? {
            Ok(Message::Text(text)) => return Some(text.to_string()),
            Ok(Message::Binary(_)) => {
                let message = "the first message is the request, as JSON text".to_owned();
                say_end(socket, &ExecEnd::Refused { message }).await;
                return None;
            }
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

async fn run(mut socket: Socket, text: &str, door: &Door, hold: Hold) {
    let wanted = match request::read(text, &door.env, &door.work) {
        Ok(wanted) => wanted,
        Err(end) => return say_end(&mut socket, &end).await,
    };
    match start::start(door, &wanted) {
        Ok(child) => attend(socket, door, child, &wanted, hold).await,
        Err(end) => {
            // In fixed words: where it was looked for is the value of a variable.
            let why = match end {
                ExecEnd::NotFound { .. } => "not found in the session",
                _ => "not to be run in the session",
            };
            door.audit.record(Event::not_launched(EXEC, &name_of(&wanted), why));
            say_end(&mut socket, &end).await;
        }
    }
}

/// What it is called in the audit log.
fn name_of(wanted: &Wanted) -> String {
    wanted.argv.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned())
}

/// Why such a process runs, in the audit log.
const EXEC: &str = "exec";

/// What came of relaying.
enum Relayed {
    /// All that it wrote was sent, and this was its end.
    Ended(Option<Exit>),
    Gone(Gone),
}

async fn attend(socket: Socket, door: &Door, child: Child, wanted: &Wanted, hold: Hold) {
    let Child { leader, end, ends } = child;
    let pid = leader.pid();
    tracing::info!(pid, program = ?wanted.argv.first(), "exec");
    let (name, arguments) = (name_of(wanted), wanted.argv.len().saturating_sub(1));
    door.running.started();
    door.audit.record(Event::launched(EXEC, &name, arguments, pid));
    let (mut sink, mut stream) = socket.split();
    let shared = Shared::default();
    let mut cause = None;
    let relayed = {
        let (stdin, is_terminal) = (Rc::clone(&ends.stdin), ends.is_terminal);
        let heard = wire::hear(&mut stream, &shared, ends.clone(), leader);
        let mut relay = pin!(async {
            tokio::select! {
                outcome = tell(&mut sink, ends, &shared, end) => match outcome {
                    Ok(exit) => Relayed::Ended(exit),
                    Err(_) => Relayed::Gone(Gone::Away),
                },
                gone = heard => Relayed::Gone(gone),
                () = wire::feed(stdin, &shared, is_terminal) => Relayed::Gone(Gone::Away),
            }
        });
        let first = tokio::select! {
            biased;
            relayed = &mut relay => Some(relayed),
            () = after(wanted.timeout) => {
                cause = Some(ExecEnd::TimedOut);
                None
            }
            () = door.running.hung_up() => {
                cause = Some(ExecEnd::SessionEnded);
                None
            }
        };
        match first {
            Some(relayed) => relayed,
            // Its last words are relayed while it makes use of the grace.
            None => {
                let mut ended = pin!(ending::end(leader, door.grace));
                tokio::select! {
                    relayed = &mut relay => {
                        ended.await;
                        relayed
                    }
                    () = &mut ended => {
                        timeout(FLUSH, &mut relay).await.unwrap_or(Relayed::Ended(None))
                    }
                }
            }
        }
    };
    // Its pipes are closed by now; a terminal's foreground group has got SIGHUP for it (tty_ioctl(4)).
    match relayed {
        Relayed::Ended(exit) => {
            door.audit.record(Event::ended(EXEC, &name, pid, exit.map(Exit::code)));
            let end = cause.unwrap_or_else(|| said(exit));
            tracing::info!(pid, ?end, "exec ended");
            finish(&mut sink, &mut stream, &end, hold).await;
        }
        Relayed::Gone(gone) => {
            tracing::info!(pid, ?gone, "exec ended by its client");
            if let Gone::Broke(words) = gone {
                let frame =
                    CloseFrame { code: CloseCode::from(close::PROTOCOL), reason: words.into() };
                let _ = timeout(CLOSING, sink.send(Message::Close(Some(frame)))).await;
            }
            ending::end(leader, door.grace).await;
            door.audit.record(Event::ended(EXEC, &name, pid, None));
        }
    }
}

fn said(exit: Option<Exit>) -> ExecEnd {
    match exit {
        Some(exit @ Exit::Code(_)) => ExecEnd::Exited { code: exit.code(), signal: None },
        Some(exit @ Exit::Signal(signal)) => {
            ExecEnd::Exited { code: exit.code(), signal: Some(signal) }
        }
        None => ExecEnd::SessionEnded,
    }
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// One output: what was read and not yet sent is never more than a buffer.
struct Output {
    channel: u8,
    pipe: Option<Rc<super::stream::Stream>>,
    buffer: Vec<u8>,
}

impl Output {
    fn of(channel: u8, pipe: Option<Rc<super::stream::Stream>>) -> Self {
        Self { channel, pipe, buffer: vec![0; MAX_MESSAGE - 1] }
    }

    /// Reads as much as the client has room for; never completes while it has none, or behind the end.
    async fn read(&mut self, shared: &Shared) -> usize {
        let room = shared.room(self.channel).min(self.buffer.len());
        match &self.pipe {
            // What cannot be read any more has ended.
            Some(pipe) if room > 0 => pipe.read(&mut self.buffer[..room]).await.unwrap_or(0),
            _ => std::future::pending().await,
        }
    }

    async fn send(&mut self, length: usize, sink: &mut Sink, shared: &Shared) -> Result<(), Error> {
        if length > 0 {
            return shared.send(sink, self.channel, &self.buffer[..length]).await;
        }
        self.pipe = None;
        sink.send(Message::binary(vec![channel::CLOSE, self.channel])).await
    }

    fn waits_for_the_client(&self, shared: &Shared) -> bool {
        self.pipe.is_some() && shared.room(self.channel) == 0
    }
}

/// Sends what the command writes, and what it has taken, until its end.
async fn tell(
    sink: &mut Sink,
    ends: Ends,
    shared: &Shared,
    mut end: oneshot::Receiver<Exit>,
) -> Result<Option<Exit>, Error> {
    let mut stdout = Output::of(channel::STDOUT, Some(ends.stdout));
    let mut stderr = Output::of(channel::STDERR, ends.stderr);
    drop(ends.stdin);
    let mut pings = pulse::pings();
    let mut exited = None;
    let mut told = 0;
    loop {
        let taken = shared.taken.get();
        if taken > told {
            sink.send(Message::binary(exec::taken(channel::STDIN, taken))).await?;
            told = taken;
        }
        let open = stdout.pipe.is_some() || stderr.pipe.is_some();
        if let Some(exit) = exited
            && !open
        {
            return Ok(exit);
        }
        let waits = stdout.waits_for_the_client(shared) || stderr.waits_for_the_client(shared);
        tokio::select! {
            length = stdout.read(shared) => stdout.send(length, sink, shared).await?,
            length = stderr.read(shared) => stderr.send(length, sink, shared).await?,
            () = shared.news.notified() => {}
            _ = pings.tick() => sink.send(Message::Ping(Bytes::new())).await?,
            exit = &mut end, if exited.is_none() => exited = Some(exit.ok()),
            // Held open by something that was left behind.
            () = sleep(AFTER_END), if exited.is_some() && !waits => {
                (stdout.pipe, stderr.pipe) = (None, None);
            }
        }
    }
}

async fn say_end(socket: &mut Socket, end: &ExecEnd) {
    let _ = timeout(CLOSING, async {
        let sent = socket.send(status(end)).await;
        if sent.is_ok() && socket.close(None).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
    })
    .await;
}

async fn finish(
    sink: &mut Sink,
    stream: &mut futures_util::stream::SplitStream<Socket>,
    end: &ExecEnd,
    hold: Hold,
) {
    // Best effort: a peer that does not answer the close is left.
    let _ = timeout(CLOSING, async {
        let sent = sink.send(status(end)).await;
        // All is said; a peer that takes its time to leave keeps nobody busy.
        drop(hold);
        if sent.is_ok() && sink.send(Message::Close(None)).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    })
    .await;
}

fn status(end: &ExecEnd) -> Message {
    let json = serde_json::to_vec(end).expect("an end is plain data");
    Message::binary(exec::message(channel::STATUS, &json))
}
