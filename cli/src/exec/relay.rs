//! Streams, signals and sizes between this process and the worker, until the command's end.
//!
//! The socket is read at all times: what is to be written here waits in a queue that the window bounds, and what was
//! written is what is told to have been taken. So `casemate exec ... | less` holds the command up and nothing else.

use std::io::{self, Read as _};
use std::time::Duration;

use casemate_protocol::codes::exit;
use casemate_protocol::exec::{
    self, ExecEnd, ExecRequest, MAX_MESSAGE, Window, channel, read_taken,
};
use futures_util::{SinkExt as _, StreamExt as _};
use nix::sys::signal::Signal;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::terminal;
use crate::failure::Failure;
use crate::output;
use crate::socket::Socket;

/// The worker pings every 20 s.
const SILENT: Duration = Duration::from_secs(60);
/// Passed on. HUP is not: with its terminal gone this process leaves, and the worker hangs up.
const SIGNALS: [Signal; 5] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// Something that happened on this side.
enum News {
    /// So much of an output has been written in all.
    Written(u8, u64),
    /// An output cannot be written any more.
    Broken(u8, io::Error),
    Signal(Signal),
    Resized,
}

/// Runs it to its end.
pub(super) async fn run(mut socket: Socket, request: &ExecRequest) -> Result<ExecEnd, Failure> {
    let text = serde_json::to_string(request).expect("a request is plain data");
    send(&mut socket, Message::text(text)).await?;
    let (news, mut heard) = mpsc::channel(4);
    let mut typed = read_stdin().map_err(|error| failed("no thread for stdin", &error))?;
    let stdout = write(channel::STDOUT, tokio::io::stdout(), news.clone());
    let stderr = write(channel::STDERR, tokio::io::stderr(), news.clone());
    listen(&news)?;
    let mut stdin = Stdin::default();
    let mut signalled = None;
    loop {
        stdin.send(&mut socket).await?;
        let message = tokio::select! {
            message = timeout(SILENT, socket.next()) => message,
            data = typed.recv(), if stdin.wants_more() => {
                stdin.take(data, &mut socket).await?;
                continue;
            }
            news = heard.recv() => {
                let message = match news {
                    Some(News::Written(output, total)) => exec::taken(output, total),
                    Some(News::Broken(output, error)) => return unwritable(output, &error),
                    Some(News::Signal(signal)) => {
                        if signalled == Some(signal) || signal == Signal::SIGHUP {
                            return Ok(died(signal));
                        }
                        signalled = Some(signal);
                        let name = signal.as_str().trim_start_matches("SIG");
                        exec::message(channel::SIGNAL, name.as_bytes())
                    }
                    Some(News::Resized) if request.tty.is_some() => {
                        let size = serde_json::to_vec(&terminal::size()).expect("plain data");
                        exec::message(channel::RESIZE, &size)
                    }
                    Some(News::Resized) | None => continue,
                };
                send(&mut socket, Message::binary(message)).await?;
                continue;
            }
        };
        let message = match message {
            Ok(Some(Ok(Message::Binary(message)))) => message,
            Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) | Err(_) => return Err(lost()),
            Ok(Some(Ok(_))) => continue,
        };
        let Some((channel, data)) = message.split_first() else { return Err(lost()) };
        match *channel {
            channel::STDOUT => queue(&stdout, message.slice(1..)),
            channel::STDERR => queue(&stderr, message.slice(1..)),
            channel::TAKEN => {
                if let Some((channel::STDIN, total)) = read_taken(data) {
                    stdin.window.taken(total);
                }
            }
            channel::STATUS => {
                let end = serde_json::from_slice(data).map_err(|_| lost())?;
                return written([stdout, stderr], &mut heard).await.unwrap_or(Ok(end));
            }
            _ => {}
        }
    }
}

/// What goes to the command.
#[derive(Debug, Default)]
struct Stdin {
    window: Window,
    /// What has no room yet; while there is any, no more is read.
    pending: Vec<u8>,
    ended: bool,
}

impl Stdin {
    fn wants_more(&self) -> bool {
        self.pending.is_empty() && !self.ended
    }

    async fn take(&mut self, data: Option<Vec<u8>>, socket: &mut Socket) -> Result<(), Failure> {
        match data {
            Some(data) => self.pending = data,
            None => {
                self.ended = true;
                let close = exec::message(channel::CLOSE, &[channel::STDIN]);
                send(socket, Message::binary(close)).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, socket: &mut Socket) -> Result<(), Failure> {
        loop {
            let room = self.window.room().min(self.pending.len()).min(MAX_MESSAGE - 1);
            if room == 0 {
                return Ok(());
            }
            let now: Vec<u8> = self.pending.drain(..room).collect();
            send(socket, Message::binary(exec::message(channel::STDIN, &now))).await?;
            self.window.sent(room);
        }
    }
}

/// One output's queue and its writer.
struct Output {
    queue: mpsc::UnboundedSender<Bytes>,
    writer: tokio::task::JoinHandle<()>,
}

fn queue(output: &Output, data: Bytes) {
    // A writer that is gone has said so.
    let _ = output.queue.send(data);
}

/// Waits until all that is queued is written; what ended this process first, if anything did.
async fn written(
    outputs: [Output; 2],
    heard: &mut mpsc::Receiver<News>,
) -> Option<Result<ExecEnd, Failure>> {
    for Output { queue, mut writer } in outputs {
        drop(queue);
        loop {
            tokio::select! {
                biased;
                news = heard.recv() => match news {
                    Some(News::Broken(output, error)) => return Some(unwritable(output, &error)),
                    Some(News::Signal(signal)) => return Some(Ok(died(signal))),
                    _ => {}
                },
                _ = &mut writer => break,
            }
        }
    }
    None
}

/// A reader that has seen enough ends this process as it would have ended the command; a full disk, or no stdout at all, is a failure.
fn unwritable(output: u8, error: &io::Error) -> Result<ExecEnd, Failure> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Ok(died(Signal::SIGPIPE));
    }
    let name = if output == channel::STDERR { "stderr" } else { "stdout" };
    Err(Failure::because(exit::CANNOT_CREATE, format!("cannot write to {name}"), error))
}

/// As if this process had been ended by the signal, as the command would have been.
fn died(signal: Signal) -> ExecEnd {
    let number = signal as i32;
    ExecEnd::Exited { code: u8::try_from(128 + number).unwrap_or(u8::MAX), signal: Some(number) }
}

async fn send(socket: &mut Socket, message: Message) -> Result<(), Failure> {
    socket.send(message).await.map_err(|_| lost())
}

fn lost() -> Failure {
    Failure::new(
        exit::UNAVAILABLE,
        "the connection to the worker broke; whatever ran is being ended",
    )
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::because(exit::SOFTWARE, what, error)
}

/// A thread, for a read of a pipe cannot be cancelled; it ends with the process. Nothing comes behind the end.
fn read_stdin() -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (typed, taken) = mpsc::channel(1);
    let read_all = move || {
        let mut buffer = vec![0; MAX_MESSAGE - 1];
        loop {
            match io::stdin().lock().read(&mut buffer) {
                Ok(length @ 1..) => {
                    if typed.blocking_send(buffer[..length].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
            }
        }
    };
    std::thread::Builder::new().name("stdin".into()).spawn(read_all)?;
    Ok(taken)
}

fn write(
    channel: u8,
    mut file: impl AsyncWrite + Unpin + Send + 'static,
    news: mpsc::Sender<News>,
) -> Output {
    let (queue, mut data) = mpsc::unbounded_channel::<Bytes>();
    let writer = tokio::spawn(async move {
        let mut total = 0;
        while let Some(piece) = data.recv().await {
            let written = async {
                output::is_open(channel)?;
                file.write_all(&piece).await?;
                file.flush().await
            };
            if let Err(error) = written.await {
                let _ = news.send(News::Broken(channel, error)).await;
                return;
            }
            total += piece.len() as u64;
            // Nobody is left to be told behind the command's end.
            let _ = news.send(News::Written(channel, total)).await;
        }
    });
    Output { queue, writer }
}

fn listen(news: &mpsc::Sender<News>) -> Result<(), Failure> {
    let all = SIGNALS.into_iter().chain([Signal::SIGHUP, Signal::SIGWINCH]);
    for number in all {
        let mut signals = signal(SignalKind::from_raw(number as i32))
            .map_err(|error| failed("signals cannot be listened for", &error))?;
        let news = news.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                let said =
                    if number == Signal::SIGWINCH { News::Resized } else { News::Signal(number) };
                if news.send(said).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}
