//! One attachment to a worker, over as many connections as it takes.
//!
//! Owns [`BridgeEnd`] and the connection. A connection that breaks is dialled again by ticket, whether the allocator is up
//! or down; the driver learns of it only when there is no way back. Lines for the worker wait here meanwhile, counted by
//! [`Hold`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use casemate_protocol::acp::bridge::{Ending, Fate, Link};
use casemate_protocol::api::Attached;
use casemate_protocol::codes::exit;
use casemate_protocol::relay::bridge::{Action, BridgeEnd, Over};
use casemate_protocol::relay::frame::Packet;
use casemate_protocol::relay::outgoing::Kept;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::acp::driver::News;
use crate::acp::hold::Hold;
use crate::acp::host::Room;
use crate::acp::receipt::Receipt;
use crate::attach::Allocator;
use crate::cookies::Cookies;
use crate::failure::Failure;
use crate::heard::Clock;
use crate::socket::{self, NotOpened, Socket};

/// How often the worker is asked whether it is there.
const PING: Duration = Duration::from_secs(15);
/// How long nothing at all may come from it. Four pings: its machine may have been asleep for one.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the worker may take to greet.
const GREETING: Duration = Duration::from_secs(10);
/// How long leaving may take.
const FAREWELL: Duration = Duration::from_millis(300);

/// A connection on which both have greeted.
#[derive(Debug)]
pub(super) struct Greeted {
    socket: Socket,
    end: BridgeEnd,
    attached: Attached,
    cookies: Cookies,
}

/// The driver's handle. Dropping it leaves the attachment to itself; [`Self::close`] leaves in order.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Rc<Shared>,
    closed: oneshot::Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    end: RefCell<BridgeEnd>,
    receipt: Rc<Receipt>,
    leaving: Cell<bool>,
    /// What of [`Hold`] is this link's.
    counted: Cell<usize>,
    hold: Arc<Hold>,
}

/// A message of the worker and its number, which counts as taken.
struct Brought(u64, Bytes);

/// What a link needs from its surroundings.
pub(super) struct Surroundings {
    pub(super) news: mpsc::Sender<News>,
    pub(super) room: Room,
    pub(super) hold: Arc<Hold>,
    pub(super) allocator: Rc<Allocator>,
}

/// Opens a new attachment and waits for the worker's greeting: from then on it survives its connection.
pub(super) async fn greet(attached: &Attached) -> Result<Greeted, Failure> {
    let opened = socket::open_resumable(attached).await?;
    let (mut socket, cookies) = opened;
    let mut end = BridgeEnd::new();
    let hello = async {
        while let Some(frame) = end.frame() {
            socket.send(Message::binary(frame)).await.ok()?;
        }
        while !end.is_welcome() {
            if let Message::Binary(frame) = socket.next().await?.ok()? {
                end.take(&frame, &mut Vec::new()).ok()?;
            }
        }
        Some(())
    };
    match timeout(GREETING, hello).await {
        Ok(Some(())) => Ok(Greeted { socket, end, attached: attached.clone(), cookies }),
        Ok(None) | Err(_) => Err(Failure::new(
            exit::UNAVAILABLE,
            format!("the worker at {} did not greet", attached.address),
        )),
    }
}

// === impl Writer ===

impl Writer {
    /// Queues one line.
    pub(super) fn send(&self, line: Vec<u8>) {
        let kept = self.shared.end.borrow_mut().flow_mut().push(line);
        debug_assert_eq!(kept, Kept::Here, "a client's end spools nothing");
        self.shared.count();
        self.shared.receipt.work.notify_one();
    }

    /// Queues a cancel of the lines `of`, past all that wait but them. Lines of which nothing was ever sent are taken back
    /// instead; which ones.
    pub(super) fn cancel(&self, line: Vec<u8>, of: Vec<u64>) -> Vec<u64> {
        let mut end = self.shared.end.borrow_mut();
        let flow = end.flow_mut();
        let (revoked, sent): (Vec<u64>, Vec<u64>) =
            of.into_iter().partition(|number| flow.revoke(*number));
        let kept = flow.hurry(line, sent.into_iter().max().unwrap_or_default());
        debug_assert_eq!(kept, Kept::Here, "a client's end spools nothing");
        drop(end);
        self.shared.count();
        self.shared.receipt.work.notify_one();
        revoked
    }

    /// For acknowledging what this link brought.
    pub(super) fn receipt(&self) -> Rc<Receipt> {
        Rc::clone(&self.shared.receipt)
    }

    /// Leaves, waiting a moment until what was queued is gone.
    pub(super) async fn close(self) {
        self.shared.leaving.set(true);
        self.shared.end.borrow_mut().leave();
        self.shared.receipt.work.notify_one();
        let _ = timeout(FAREWELL, self.closed).await;
    }
}

/// Starts the attachment's task.
pub(super) fn start(link: Link, greeted: Greeted, surroundings: Surroundings) -> Writer {
    let shared = Rc::new(Shared {
        end: RefCell::new(greeted.end),
        receipt: Rc::default(),
        leaving: Cell::new(false),
        counted: Cell::new(0),
        hold: Arc::clone(&surroundings.hold),
    });
    let (closing, closed) = oneshot::channel();
    let kept = Rc::clone(&shared);
    let (socket, mut cookies) = (greeted.socket, greeted.cookies);
    tokio::task::spawn_local(async move {
        let over = live(&kept, link, socket, &greeted.attached, &mut cookies, &surroundings).await;
        kept.hold.change(kept.counted.replace(0), 0);
        let _ = closing.send(());
        if let Some(over) = over {
            let fate = Fate { reach: over.reach, agent_ended: over.agent_ended };
            let ending = Ending { code: over.code, reason: over.reason, fate: Some(fate) };
            // The driver is gone: nobody is to be told.
            let _ = surroundings.news.send(News::WorkerEnded(link, ending)).await;
        }
    });
    Writer { shared, closed }
}

/// Until the attachment is over; `None` where it was left.
async fn live(
    shared: &Shared,
    link: Link,
    socket: Socket,
    attached: &Attached,
    cookies: &mut Cookies,
    around: &Surroundings,
) -> Option<Over> {
    let started = Instant::now();
    let now = || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut socket = Some(socket);
    // What a connection brought belongs to the host: the connection's end does not take it back.
    let mut brought = VecDeque::new();
    loop {
        let mut actions = Vec::new();
        if let Some(socket) = socket.take() {
            let over = connected(shared, link, socket, &mut brought, around).await;
            tokio::select! {
                biased;
                told = hand_on(&mut brought, link, &around.news) => told?,
                () = shared.left() => return None,
            }
            if let Some(over) = over {
                return Some(over);
            }
            shared.end.borrow_mut().cut(now(), chance(), &mut actions);
        } else {
            let at = shared.end.borrow().deadline()?;
            tokio::select! {
                () = sleep_until(started + Duration::from_millis(at)) => {}
                () = shared.left() => return None,
            }
            shared.end.borrow_mut().tick(now(), &mut actions);
        }
        if shared.leaving.get() {
            return None;
        }
        let mut queue = VecDeque::from(actions);
        while let Some(action) = queue.pop_front() {
            let mut more = Vec::new();
            match action {
                Action::Dial(ticket) => {
                    match socket::open_again(attached, &ticket, cookies).await {
                        Ok(open) => {
                            shared.end.borrow_mut().opened();
                            socket = Some(open);
                        }
                        Err(NotOpened::Refused(refused)) => {
                            shared.end.borrow_mut().refused(refused, &mut more);
                        }
                        Err(NotOpened::Failed(failure)) => {
                            tracing::debug!("not connected again: {failure}");
                            shared.end.borrow_mut().cut(now(), chance(), &mut more);
                        }
                    }
                }
                Action::Ask => {
                    let session = &attached.session;
                    if around.allocator.is_gone(&session.id, session.generation).await {
                        shared.end.borrow_mut().worker_gone(&mut more);
                    }
                }
                Action::Over(over) => return Some(over),
                Action::Message(..) => {}
            }
            queue.extend(more);
        }
    }
}

/// One connection, to its end; what ended the attachment with it.
async fn connected(
    shared: &Shared,
    link: Link,
    socket: Socket,
    brought: &mut VecDeque<Brought>,
    around: &Surroundings,
) -> Option<Over> {
    let clock = socket.get_ref().clock();
    let (mut sink, mut stream) = socket.split();
    let over = tokio::select! {
        over = read(&mut stream, &clock, shared, link, brought, around) => over,
        () = write(&mut sink, shared) => None,
    };
    if over.is_some() {
        // The answer to the worker's last word, and the close that both wait for.
        let last = async {
            while let Some(frame) = shared.frame() {
                sink.feed(Message::binary(frame)).await?;
            }
            sink.send(Message::Close(None)).await
        };
        let _ = timeout(FAREWELL, last).await;
    }
    over
}

async fn read(
    stream: &mut SplitStream<Socket>,
    clock: &Clock,
    shared: &Shared,
    link: Link,
    brought: &mut VecDeque<Brought>,
    around: &Surroundings,
) -> Option<Over> {
    let mut room = around.room.clone();
    loop {
        room.wait().await;
        let frame = match clock.next(stream, SILENCE).await {
            Some(Ok(Message::Binary(frame))) => frame,
            // Pongs were waited for; pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(_) | None => return None,
        };
        let mut actions = Vec::new();
        let broken = shared.end.borrow_mut().take(&frame, &mut actions).is_err();
        shared.count();
        shared.receipt.work.notify_one();
        let mut end = None;
        for action in actions {
            match action {
                Action::Message(number, line) => brought.push_back(Brought(number, line)),
                Action::Over(over) => end = Some(over),
                Action::Dial(_) | Action::Ask => {}
            }
        }
        if broken || end.is_some() {
            return end;
        }
        hand_on(brought, link, &around.news).await?;
    }
}

/// Tells the driver of all that was brought; `None` where it is gone. Whoever gives this up loses nothing.
async fn hand_on(
    brought: &mut VecDeque<Brought>,
    link: Link,
    news: &mpsc::Sender<News>,
) -> Option<()> {
    while !brought.is_empty() {
        // A send that is given up would take its message along.
        let place = news.reserve().await.ok()?;
        let Brought(number, line) = brought.pop_front()?;
        place.send(News::Worker(link, number, line));
    }
    Some(())
}

async fn write(sink: &mut SplitSink<Socket, Message>, shared: &Shared) {
    let mut pings = interval_at(Instant::now() + PING, PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while let Some(frame) = shared.frame() {
            if sink.feed(Message::binary(frame)).await.is_err() {
                return;
            }
        }
        if sink.flush().await.is_err() {
            return;
        }
        tokio::select! {
            () = shared.receipt.work.notified() => {}
            _ = pings.tick() => {
                if sink.send(Message::Ping(Vec::new().into())).await.is_err() {
                    return;
                }
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    fn frame(&self) -> Option<Packet> {
        let mut end = self.end.borrow_mut();
        end.flow_mut().settled(self.receipt.settled());
        end.frame()
    }

    fn count(&self) {
        let now = self.end.borrow().flow().bytes_kept();
        self.hold.change(self.counted.replace(now), now);
    }

    /// Completes when the driver leaves.
    async fn left(&self) {
        while !self.leaving.get() {
            self.receipt.work.notified().await;
        }
    }
}

/// For the jitter of pauses alone.
fn chance() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn what_a_connection_brought_stays_where_it_ends_while_the_driver_has_no_room() {
        let (news, mut driver) = mpsc::channel(1);
        let mut brought: VecDeque<_> =
            (1..=3).map(|number| Brought(number, Bytes::from(number.to_string()))).collect();
        let mut got = Vec::new();
        while !brought.is_empty() {
            // Given up each time, as by a connection that breaks.
            let _ = hand_on(&mut brought, Link(7), &news).now_or_never();
            while let Ok(News::Worker(_, number, line)) = driver.try_recv() {
                assert_eq!(line, number.to_string());
                got.push(number);
            }
        }
        assert_eq!(got, [1, 2, 3]);
        drop(driver);
        brought.push_back(Brought(4, Bytes::new()));
        assert_eq!(hand_on(&mut brought, Link(7), &news).now_or_never(), Some(None));
    }
}
