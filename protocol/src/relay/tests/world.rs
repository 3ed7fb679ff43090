//! Two ends, the connection between them, and what came out: one step at a time, checked at each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::codes::close;
use crate::relay::bridge::{Action, BridgeEnd, Over};
use crate::relay::frame::{Frame, Standing};
use crate::relay::outgoing::Kept;
use crate::relay::supervisor::{SupervisorEnd, Taken};
use crate::relay::ticket::Refused;

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A side gets a message to send.
    PushUp,
    PushDown,
    /// The bridge gets one that may pass all but the first message.
    HurryUp,
    /// It wants its newest message back.
    Revoke,
    /// A side puts its next frame on the connection.
    SendUp,
    SendDown,
    /// The oldest frame on the connection arrives.
    ArriveUp,
    ArriveDown,
    /// A side has dealt with the oldest message that it was given.
    SettleUp,
    SettleDown,
    /// The spool gives its oldest message back.
    Unspool,
    /// The connection breaks: all that is on it is lost.
    Cut,
    /// A side notices.
    NoticeUp,
    NoticeDown,
    /// The bridge connects with its ticket.
    Dial,
    /// It tries and fails.
    DialInVain,
    /// Another client attaches.
    Supersede,
}

pub(super) const STEPS: [Step; 17] = [
    Step::PushUp,
    Step::PushDown,
    Step::HurryUp,
    Step::Revoke,
    Step::SendUp,
    Step::SendDown,
    Step::ArriveUp,
    Step::ArriveDown,
    Step::SettleUp,
    Step::SettleDown,
    Step::Unspool,
    Step::Cut,
    Step::NoticeUp,
    Step::NoticeDown,
    Step::Dial,
    Step::DialInVain,
    Step::Supersede,
];

/// How much may happen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) up: u64,
    pub(super) down: u64,
    /// Of those up.
    pub(super) hurried: u64,
    pub(super) revoked: u64,
    pub(super) cuts: u32,
    pub(super) vain: u32,
    pub(super) supersede: bool,
}

/// See the module. "Up" is from the bridge to the worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) bridge: BridgeEnd,
    pub(super) worker: SupervisorEnd,
    left: Budget,
    up: VecDeque<Bytes>,
    down: VecDeque<Bytes>,
    /// The connection carries.
    alive: bool,
    /// Who believes in it.
    bridge_up: bool,
    worker_up: bool,
    spool: VecDeque<Bytes>,
    pushed: (u64, u64),
    got: (u64, u64),
    settled: (u64, u64),
    /// Those that may pass others: the last that each must not pass.
    hurried: BTreeMap<u64, u64>,
    came_ahead: BTreeSet<u64>,
    revoked: BTreeSet<u64>,
    superseded: bool,
    pub(super) over: Option<Over>,
    size: usize,
}

/// A message in two pieces.
fn pieces(seq: u64, message: &[u8]) -> [Bytes; 2] {
    let (first, last) = message.split_at(message.len() / 2);
    [(first, false), (last, true)]
        .map(|(bytes, last)| Frame::Piece { seq, last, bytes: bytes.into() }.to_bytes())
}

fn copy(seq: u64, message: &[u8]) -> Bytes {
    Frame::Ahead { seq, bytes: message.into() }.to_bytes()
}

/// An acknowledgement that was said before, with less room than was given since.
fn ack(seq: u64) -> Bytes {
    Frame::Ack(Standing { seq, limit: 0 }).to_bytes()
}

// === impl World ===

impl World {
    /// A connection is open; messages have `size` bytes and more, the window `window`.
    pub(super) fn new(left: Budget, size: usize, window: u64, memory: usize) -> Self {
        let mut bridge = BridgeEnd::new();
        bridge.flow_mut().narrow(window);
        let mut worker = SupervisorEnd::new(1, "t".into(), memory, 0);
        worker.flow_mut().narrow(window);
        assert!(worker.opened());
        Self {
            bridge,
            worker,
            left,
            up: VecDeque::new(),
            down: VecDeque::new(),
            alive: true,
            bridge_up: true,
            worker_up: true,
            spool: VecDeque::new(),
            pushed: (0, 0),
            got: (0, 0),
            settled: (0, 0),
            hurried: BTreeMap::new(),
            came_ahead: BTreeSet::new(),
            revoked: BTreeSet::new(),
            superseded: false,
            over: None,
            size,
        }
    }

    /// The content of a message: its own number, and of more than one length.
    fn message(&self, number: u64) -> Bytes {
        let length = self.size + usize::try_from(number % 3).unwrap();
        vec![u8::try_from(number % 251).unwrap(); length].into()
    }

    /// Takes one step; false where it is not possible now.
    pub(super) fn step(&mut self, step: Step) -> bool {
        match step {
            Step::PushUp => {
                if self.left.up == 0 || self.over.is_some() {
                    return false;
                }
                self.left.up -= 1;
                self.pushed.0 += 1;
                let message = self.message(self.pushed.0);
                let kept = self.bridge.flow_mut().push(message);
                assert_eq!(kept, Kept::Here);
            }
            Step::HurryUp => {
                if self.left.up == 0 || self.left.hurried == 0 || self.over.is_some() {
                    return false;
                }
                self.left.up -= 1;
                self.left.hurried -= 1;
                let after = self.pushed.0.min(1);
                self.pushed.0 += 1;
                self.hurried.insert(self.pushed.0, after);
                let message = self.message(self.pushed.0);
                let kept = self.bridge.flow_mut().hurry(message, after);
                assert_eq!(kept, Kept::Here);
            }
            Step::Revoke => {
                let newest = self.pushed.0;
                let out = [self.left.revoked, newest].contains(&0) || self.over.is_some();
                if out || self.hurried.contains_key(&newest) || self.revoked.contains(&newest) {
                    return false;
                }
                let unsent = newest > self.bridge.flow().reach().sent;
                assert_eq!(self.bridge.flow_mut().revoke(newest), unsent);
                if !unsent {
                    return false;
                }
                self.left.revoked -= 1;
                self.revoked.insert(newest);
            }
            Step::PushDown => {
                if self.left.down == 0 || self.worker.is_over() || self.superseded {
                    return false;
                }
                self.left.down -= 1;
                self.pushed.1 += 1;
                let message = self.message(self.pushed.1);
                if let Kept::Spool(line) = self.worker.push(message) {
                    self.spool.push_back(line);
                }
            }
            Step::SendUp => {
                let Some(frame) = self.bridge_up.then(|| self.bridge.frame()).flatten() else {
                    return false;
                };
                if self.alive {
                    self.up.push_back(frame.to_bytes());
                }
            }
            Step::SendDown => {
                let Some(frame) = self.worker_up.then(|| self.worker.frame()).flatten() else {
                    return false;
                };
                if self.alive {
                    self.down.push_back(frame.to_bytes());
                }
            }
            Step::ArriveUp => {
                let Some(frame) = self.up.pop_front() else { return false };
                let took = self.worker.take(&frame).expect("bridges keep to the specification");
                assert!(took.is_none() || !self.superseded, "a superseded client is heard no more");
                match took {
                    Some(Taken::Message(number, line)) => {
                        self.got.0 += 1;
                        assert_eq!(number, self.got.0);
                        let known = self.came_ahead.contains(&number);
                        if known || self.revoked.contains(&number) {
                            assert!(line.is_empty(), "given out twice, or in spite of all");
                        } else {
                            assert_eq!(line, self.message(number));
                        }
                        self.worker.flow_mut().taken(number);
                    }
                    Some(Taken::Ahead(number, line)) => {
                        assert!(number > self.got.0 && self.hurried[&number] <= self.got.0);
                        assert!(self.came_ahead.insert(number), "given out twice");
                        assert_eq!(line, self.message(number));
                    }
                    None => {}
                }
            }
            Step::ArriveDown => {
                let Some(frame) = self.down.pop_front() else { return false };
                let mut actions = Vec::new();
                self.bridge.take(&frame, &mut actions).expect("workers keep to the specification");
                self.act(actions);
            }
            Step::SettleUp => {
                if self.settled.0 == self.got.0 {
                    return false;
                }
                self.settled.0 += 1;
                self.worker.flow_mut().settled(self.settled.0);
            }
            Step::SettleDown => {
                if self.settled.1 == self.got.1 {
                    return false;
                }
                self.settled.1 += 1;
                self.bridge.flow_mut().settled(self.settled.1);
            }
            Step::Unspool => {
                if !self.worker.flow().wants_spooled() {
                    return false;
                }
                let line = self.spool.pop_front().expect("the machine counts what is spooled");
                self.worker.flow_mut().unspooled(line);
            }
            Step::Cut => {
                if self.left.cuts == 0 || !self.alive || !self.bridge.is_welcome() {
                    return false;
                }
                self.left.cuts -= 1;
                self.break_connection();
            }
            Step::NoticeUp => {
                if !self.worker_up || self.alive {
                    return false;
                }
                self.worker_up = false;
                self.worker.cut(0);
            }
            Step::NoticeDown => {
                if !self.bridge_up || self.alive {
                    return false;
                }
                self.bridge_up = false;
                let mut actions = Vec::new();
                self.bridge.cut(0, 0, &mut actions);
                self.act(actions);
            }
            Step::Dial => {
                if !self.dial() {
                    return false;
                }
                if self.superseded {
                    let mut actions = Vec::new();
                    self.bridge.refused(Refused::Superseded, &mut actions);
                    self.act(actions);
                } else if self.worker.opened() {
                    self.break_connection();
                    (self.alive, self.bridge_up, self.worker_up) = (true, true, true);
                    self.bridge.opened();
                } else {
                    panic!("only a newer client ends it in this world");
                }
            }
            Step::DialInVain => {
                if self.left.vain == 0 || !self.dial() {
                    return false;
                }
                self.left.vain -= 1;
                let mut actions = Vec::new();
                self.bridge.cut(0, 0, &mut actions);
                self.act(actions);
            }
            Step::Supersede => {
                if !self.left.supersede || self.superseded {
                    return false;
                }
                self.superseded = true;
                self.worker.leave(close::SUPERSEDED, "newer", 0);
            }
        }
        true
    }

    /// Delivers again whatever has arrived, frame by frame, as a peer does that begins further back than it need. Nothing may come
    /// of it, and nothing may change; how many frames were delivered.
    pub(super) fn overlap(&self) -> usize {
        if self.superseded || self.over.is_some() {
            return 0;
        }
        let mut frames = 0;
        if self.worker.flow().is_open() {
            for number in 1..=self.got.0 {
                let empty = self.came_ahead.contains(&number) || self.revoked.contains(&number);
                let message = if empty { Bytes::new() } else { self.message(number) };
                for frame in pieces(number, &message).into_iter().chain([copy(number, &message)]) {
                    frames += self.changes_nothing_up(&frame);
                }
            }
            for number in &self.came_ahead {
                frames += self.changes_nothing_up(&copy(*number, &self.message(*number)));
            }
            frames += self.changes_nothing_up(&ack(self.worker.flow().reach().acked));
        }
        if self.bridge.flow().is_open() {
            for number in 1..=self.got.1 {
                for frame in pieces(number, &self.message(number)) {
                    frames += self.changes_nothing_down(&frame);
                }
            }
            frames += self.changes_nothing_down(&ack(self.bridge.flow().reach().acked));
        }
        frames
    }

    fn changes_nothing_up(&self, frame: &Bytes) -> usize {
        let mut worker = self.worker.clone();
        assert_eq!(worker.take(frame), Ok(None), "{frame:?} again");
        assert_eq!(worker, self.worker, "{frame:?} again");
        1
    }

    fn changes_nothing_down(&self, frame: &Bytes) -> usize {
        let (mut bridge, mut actions) = (self.bridge.clone(), Vec::new());
        assert_eq!(bridge.take(frame, &mut actions), Ok(()), "{frame:?} again");
        assert_eq!((&bridge, actions.len()), (&self.bridge, 0), "{frame:?} again");
        1
    }

    fn dial(&mut self) -> bool {
        let Some(at) = self.bridge.deadline() else { return false };
        let mut actions = Vec::new();
        self.bridge.tick(at, &mut actions);
        assert_eq!(actions, [Action::Dial("t".into())]);
        true
    }

    fn break_connection(&mut self) {
        self.alive = false;
        self.up.clear();
        self.down.clear();
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert!(self.over.is_none(), "nothing follows the end: {action:?}");
            match action {
                Action::Message(number, line) => {
                    self.got.1 += 1;
                    assert_eq!((number, &line), (self.got.1, &self.message(self.got.1)));
                    self.bridge.flow_mut().taken(number);
                }
                Action::Over(over) => self.over = Some(over),
                Action::Ask => {}
                Action::Dial(_) => panic!("only time dials"),
            }
        }
    }

    /// Nothing can happen any more: everything must have come through, or the newer client is why not.
    pub(super) fn check_end(&self) {
        if self.superseded {
            let over = self.over.as_ref().expect("the older client learns it");
            assert_eq!(over.code, Some(close::SUPERSEDED));
            assert!(self.bridge.deadline().is_none(), "and never comes back");
            assert!(over.reach.acked <= self.got.0 && self.got.0 <= over.reach.sent);
            return;
        }
        assert_eq!(self.over, None);
        assert_eq!(self.got, self.pushed, "lost: {self:?}");
        let acked = (self.bridge.flow().reach().acked, self.worker.flow().reach().acked);
        assert_eq!(acked, self.pushed, "kept for ever: {self:?}");
        assert!(self.spool.is_empty() && self.worker.flow().spooled() == 0);
        assert_eq!((self.bridge.flow().bytes_kept(), self.worker.flow().bytes_kept()), (0, 0));
    }

    /// Takes steps in a fixed order until nothing is possible.
    pub(super) fn run_out(&mut self) -> usize {
        let mut steps = 0;
        let orderly = |step: &Step| !matches!(step, Step::Cut | Step::DialInVain | Step::Supersede);
        while STEPS.into_iter().filter(orderly).any(|step| self.step(step)) {
            steps += 1;
            assert!(steps < 1_000_000, "it never ends: {self:?}");
        }
        steps
    }
}
