//! Whether a conversation that was loaded is still the one that was left; what is said of it.
//!
//! Each prompt is recorded once the agent has it whole ([`Action::Record`]). A load recalls the record and compares it with what
//! the agent replays. A loss is durable before anybody is answered, and is told in the next turn of the conversation that
//! goes on, in whichever generation that is.

use super::calls::Call;
use super::{Action, Conn, Server, lines};
use crate::acp::continuity::record::{Entry, Record};
use crate::acp::continuity::replay::Replay;
use crate::acp::continuity::{Outcome, Verdict, begun_anew, meta, quirks};
use crate::acp::frame::Frame;

/// What waits to be told in more conversations than this is not all kept; agents have one or two.
const MOST: usize = 16;
/// So many characters of an agent's error are told.
const SHOWN: usize = 200;

/// A conversation that could not be loaded.
#[derive(Debug)]
pub(super) struct Failed {
    session: String,
    why: String,
    /// How many prompts it was sent; `None` where nobody knows.
    sent: Option<usize>,
}

// === impl Server ===

impl Server {
    /// What is recorded of a conversation that is being loaded, or could not be.
    pub(super) fn recalled(&mut self, session: &str, record: Option<&Record>) {
        let sent = record.map(|record| record.sent.as_slice());
        if let Some(opening) = self.conversations.opening.get_mut(session) {
            opening.recorded = sent.map(|sent| (sent.len(), Replay::new(sent)));
        } else if let Some(failed) = self.failed.as_mut().filter(|failed| failed.session == session)
        {
            failed.sent = sent.map(<[_]>::len);
        }
    }

    /// It could not be loaded.
    pub(super) fn has_failed(&mut self, session: &str, why: &str, sent: Option<usize>) {
        let why = why.chars().take(SHOWN).collect();
        self.failed = Some(Failed { session: session.to_owned(), why, sent });
    }

    /// The agent's error to a load, as its client gets it (raw JSON).
    pub(super) fn load_error(
        &mut self,
        session: &str,
        sent: Option<usize>,
        frame: &Frame<'_>,
    ) -> String {
        let error = frame.part("error").unwrap_or("{}");
        let why = frame.get_string(&["error", "message"]);
        self.has_failed(session, why.as_deref().unwrap_or("no reason given"), sent);
        if quirks::says_unknown(&self.handshake.agent_info(), error) {
            meta::unknown(error)
        } else {
            error.to_owned()
        }
    }

    /// A new conversation begins; true where it takes the place of one that could not be loaded.
    pub(super) fn begins_anew(&mut self, session: &str, out: &mut Vec<Action>) -> bool {
        let Some(failed) = self.failed.take() else { return false };
        // One that had itself taken the place of another, which nobody was told of yet.
        let before = self.saved.untold.remove(&failed.session);
        let lost = (failed.sent != Some(0)).then(|| begun_anew(&failed.why));
        let Some(text) = lost.or(before) else { return false };
        self.must_tell(session, text, out);
        true
    }

    /// The agent has accepted a load or resume; `replays`: it was asked to show what is recorded.
    pub(super) fn judge(
        &mut self,
        session: &str,
        recorded: Option<(usize, Replay)>,
        replays: bool,
        out: &mut Vec<Action>,
    ) -> Outcome {
        self.failed = None;
        let begins = recorded.is_none();
        let (sent, shown) = recorded.map(|(sent, replay)| (sent, replay.finish())).unzip();
        let verdict = Verdict::of(sent, shown.filter(|_| replays));
        if let Some(notice) = verdict.notice {
            self.must_tell(session, notice, out);
        }
        // From now on there is a record.
        let missing = Some(Entry::Missing(verdict.missing.clone()));
        let missing = missing.filter(|_| !verdict.missing.is_empty());
        let entry = if begins { Some(Entry::Begin) } else { missing };
        out.extend(entry.map(|entry| Action::Record { session: session.to_owned(), entry }));
        verdict.outcome
    }

    fn must_tell(&mut self, session: &str, text: String, out: &mut Vec<Action>) {
        let untold = &mut self.saved.untold;
        if untold.len() >= MOST && !untold.contains_key(session) {
            untold.pop_first();
        }
        // What was found out first is the loss; that less is left after it is none.
        untold.entry(session.to_owned()).or_insert(text);
        out.push(Action::Save(self.saved.clone()));
    }

    /// A turn of the conversation begins, whose client is attached.
    pub(super) fn tell_loss(&mut self, session: &str, out: &mut Vec<Action>) {
        let Some(conn) = self.client.as_ref().map(|client| client.conn) else { return };
        let Some(text) = self.saved.untold.remove(session) else { return };
        self.say(conn, &lines::quote(session), &text, out);
        out.push(Action::Save(self.saved.clone()));
    }

    /// The agent answered a prompt with an error: it need not keep it.
    pub(super) fn prompt_refused(&self, out: &mut Vec<Action>) {
        let session = self.turns.running().filter(|session| self.conversations.is_live(session));
        out.extend(
            session.map(|session| Action::Record {
                session: session.to_owned(),
                entry: Entry::Refused,
            }),
        );
    }

    /// Hands the agent's result to whoever asked, with the outcome in it.
    pub(super) fn hand_outcome(
        &self,
        call: &Call,
        frame: &Frame<'_>,
        outcome: Outcome,
        out: &mut Vec<Action>,
    ) {
        let result = meta::result(frame.part("result").unwrap_or("null"), outcome);
        self.hand_edited(call.conn, &call.id, frame, "result", result, out);
    }

    /// As [`Self::hand_to`], with another `part`, raw JSON.
    pub(super) fn hand_edited(
        &self,
        conn: Conn,
        id: &str,
        frame: &Frame<'_>,
        part: &str,
        raw: String,
        out: &mut Vec<Action>,
    ) {
        let Some(range) = frame.id_range().filter(|_| self.is_current(conn)) else { return };
        let mut edits = vec![(range, id.to_owned())];
        edits.extend(frame.locate(&[part]).map(|range| (range, raw)));
        out.push(Action::ToClient(conn, frame.splice(edits).into()));
    }
}
