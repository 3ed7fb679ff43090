//! One casemate session as a bridge sees it.

use std::collections::{HashMap, VecDeque};

use crate::acp::bridge::{Action, Link, Want, message};
use crate::ids::SessionId;

/// Lines kept for a conversation whose `session/new` is not answered, and their bytes; agents send a handful.
const HELD: usize = 1024;
const HELD_BYTES: usize = 16 * 1024 * 1024;

/// Where a session's attachment stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The driver is at it.
    Attaching(Link),
    /// Our own request (`initialize`, a repeated `authenticate`, a load whose replay is swallowed, a `session/new` after a
    /// failed load) is on its way; nothing else is sent until it is answered.
    Preparing(Link, Step),
    /// Requests go through.
    Ready(Link),
    /// No connection; the next prompt or load makes one.
    Detached,
    /// Another client took it: only an explicit load takes it back.
    Superseded,
}

/// The steps of [`State::Preparing`], in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Initialize,
    Authenticate,
    Reload,
    Renew,
}

/// What a request of the host is, as far as its handling differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `session/new`.
    New,
    /// `session/load`, `session/resume`.
    Load,
    /// `session/prompt`.
    Prompt,
    /// `authenticate`.
    Authenticate,
    /// Anything else that names a session.
    Other,
}

/// A request that cannot be sent yet.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) kind: Kind,
    /// Raw JSON.
    pub(super) id: String,
    /// As the host wrote it.
    pub(super) line: Vec<u8>,
}

/// A request that was sent.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) kind: Kind,
    /// Which line of its link it is, counted from 1.
    pub(super) number: u64,
    /// What may be said again, with the host's ids: `authenticate` to other workers, a prompt to the next worker where
    /// this one was just being stopped, a load that fails as a resume where the agent can do no better.
    pub(super) line: Option<Vec<u8>>,
}

/// The session.
#[derive(Debug)]
pub(super) struct Session {
    /// Known once attached.
    pub(super) id: Option<SessionId>,
    /// The conversation's name, where one was given.
    pub(super) key: Option<String>,
    pub(super) state: State,
    /// The agent's own session id.
    pub(super) acp: Option<String>,
    /// Raw JSON of the host's `cwd`: an own load needs one (the worker puts the worktree's path in its place).
    pub(super) cwd: String,
    pub(super) waiting: VecDeque<Waiting>,
    /// By raw id.
    pub(super) sent: HashMap<String, Sent>,
    /// What the user must learn in the next turn.
    pub(super) notices: Vec<String>,
    /// Its weaker tier was told.
    pub(super) weak_said: bool,
    /// Lines about a conversation whose `session/new` is not answered yet.
    held: Vec<Vec<u8>>,
    /// One found no room, and none is kept any more.
    held_no_more: bool,
    /// The tool call that shows the re-attachment.
    pub(super) waking: Option<String>,
    /// This bridge made it.
    pub(super) created: bool,
    /// Made to ask the agent what it can, and for nothing else.
    pub(super) blank: bool,
    /// A `session/new` or load of the host is meant for it.
    pub(super) claimed: bool,
    /// The host was given its id, or gave it.
    pub(super) used: bool,
    pub(super) same_intent: bool,
    /// What the agent can: load, resume.
    pub(super) can_load: bool,
    pub(super) can_resume: bool,
}

// === impl Session ===

impl Session {
    pub(super) fn attaching(link: Link, want: &Want) -> Self {
        let (id, key) = match want {
            Want::Session(id) => (Some(id.clone()), None),
            Want::Key(key) => (None, key.clone()),
            Want::Blank => (None, None),
        };
        let id_given = id.is_some();
        Self {
            id,
            key,
            state: State::Attaching(link),
            acp: None,
            cwd: "\"/\"".into(),
            waiting: VecDeque::new(),
            sent: HashMap::new(),
            notices: Vec::new(),
            weak_said: false,
            held: Vec::new(),
            held_no_more: false,
            waking: None,
            created: false,
            blank: *want == Want::Blank,
            claimed: id_given || *want == Want::Blank,
            used: id_given,
            same_intent: true,
            can_load: false,
            can_resume: false,
        }
    }

    pub(super) fn is_attaching(&self) -> bool {
        matches!(self.state, State::Attaching(_))
    }

    pub(super) fn link(&self) -> Option<Link> {
        match self.state {
            State::Attaching(link) | State::Preparing(link, _) | State::Ready(link) => Some(link),
            State::Detached | State::Superseded => None,
        }
    }

    /// A `session/new` is on its way, whose answer will name the conversation.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.state, State::Preparing(_, Step::Renew))
            || self.sent.values().any(|sent| sent.kind == Kind::New)
    }

    /// Keeps a line until the conversation that it is about is known. Where one finds no room that is said in the next turn, and none
    /// after it is kept: what the host gets is a beginning, without a gap.
    pub(super) fn hold(&mut self, line: &str) {
        let bytes: usize = self.held.iter().map(Vec::len).sum();
        let room = self.held.len() < HELD && bytes + line.len() <= HELD_BYTES;
        if room && !self.held_no_more {
            self.held.push(line.as_bytes().to_vec());
        } else if !std::mem::replace(&mut self.held_no_more, true) {
            let text = "the agent said more before this conversation was open than is kept; the rest of that is lost";
            self.notices.push(text.into());
        }
    }

    /// The lines that were kept. Where no other conversation is being opened, what comes from now on is kept anew.
    pub(super) fn let_go(&mut self) -> Vec<Vec<u8>> {
        self.held_no_more &= self.is_opening();
        std::mem::take(&mut self.held)
    }

    /// The numbers of the prompts that are sent and not answered, in order.
    pub(super) fn prompts(&self) -> Vec<u64> {
        let prompts = self.sent.values().filter(|sent| sent.kind == Kind::Prompt);
        let mut numbers: Vec<u64> = prompts.map(|sent| sent.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Prompts that were never sent are answered `cancelled`, as ACP asks.
    pub(super) fn cancel_unsent(&mut self, out: &mut Vec<Action>) {
        if self.waiting.iter().any(|waiting| waiting.kind == Kind::Prompt)
            && let (Some(id), Some(tool)) = (&self.id, self.waking.take())
        {
            let title = "casemate: cancelled before the session was awake";
            out.push(Action::ToHost(message::step(id, &tool, title, message::Step::Failed)));
        }
        self.waiting.retain(|waiting| {
            let prompt = waiting.kind == Kind::Prompt;
            if prompt {
                out.push(Action::ToHost(message::cancelled(&waiting.id, true)));
            }
            !prompt
        });
    }
}
