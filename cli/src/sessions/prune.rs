//! `casemate sessions prune`: closes the sessions that nobody has used for long. Without `--yes` it only says which.

use std::time::Duration;

use casemate_protocol::api::{End, ErrorKind, Phase, SessionList, SessionView};
use casemate_protocol::codes::exit;
use casemate_protocol::end::EndReason;
use serde_json::json;

use super::{now, print, recorded, table, write};
use crate::client::{CallError, Client};
use crate::failure::Failure;
use crate::place::Place;
use crate::{span, start};

/// Options of `casemate sessions prune`.
#[derive(Debug, clap::Args)]
pub(super) struct Prune {
    /// Those that have been asleep for so long: 12h, 30d
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = span::parse)]
    older_than: Duration,
    /// Delete their files even where work is unpushed, and what sessions that ended so long ago left behind
    #[arg(long)]
    discard: bool,
    /// Close them; without it they are only listed
    #[arg(long)]
    yes: bool,
}

// === impl Prune ===

impl Prune {
    pub(super) async fn run(&self, json: bool, place: &Place) -> Result<u8, Failure> {
        let list = match recorded(place)? {
            Some(list) => list,
            None => start::ensure(place, &[]).await?.list().await.map_err(Failure::from)?,
        };
        let old: Vec<SessionView> =
            list.sessions.into_iter().filter(|view| self.is_old(view, now())).collect();
        if old.is_empty() && !json {
            return write(b"no session is that old\n");
        }
        if old.is_empty() || !self.yes {
            return print(json, &SessionList { sessions: old }, |list| {
                table::list(&list.sessions, now()) + "\nnothing was closed: --yes closes these\n"
            });
        }
        self.close(json, old, &start::ensure(place, &[]).await?).await
    }

    /// Asleep, or ended with something left, for long enough. One whose worker lives is not old, however long ago it was made.
    fn is_old(&self, view: &SessionView, now: u64) -> bool {
        let ripe = match view.phase {
            Phase::Asleep => true,
            Phase::Ended => self.discard,
            Phase::Starting | Phase::Active | Phase::Stopping => false,
        };
        let since = view.last_end.as_ref().map_or(view.created, |last| last.at);
        ripe && now.saturating_sub(since) >= self.older_than.as_secs()
    }

    /// Each by itself: what one refuses does not keep the others. The exit code is the first refusal's.
    async fn close(
        &self,
        json: bool,
        old: Vec<SessionView>,
        client: &Client,
    ) -> Result<u8, Failure> {
        let (mut closed, mut code) = (Vec::new(), exit::OK);
        for view in old {
            // Somebody may have come back to it meanwhile: only what was listed is closed.
            let end = End {
                discard: self.discard,
                generation: Some(view.generation),
                ..End::by(EndReason::Close)
            };
            let outcome = client.close(&view.id, &end).await;
            if matches!(&outcome, Err(CallError::Refused(error)) if error.kind == ErrorKind::Conflict)
            {
                continue;
            }
            match outcome.map_err(Failure::from) {
                Ok(view) if json => closed.push(view),
                Ok(view) => drop(write(table::closed(&view).as_bytes())?),
                Err(failure) => {
                    eprintln!("casemate: {}: {failure}", view.id);
                    code = if code == exit::OK { failure.code() } else { code };
                }
            }
        }
        if json {
            print(true, &json!({ "sessions": closed }), |_| String::new())?;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use casemate_protocol::api::{Intent, LastEnd};
    use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
    use casemate_protocol::key::Key;

    use super::*;

    fn view(phase: Phase, ended: Option<u64>) -> SessionView {
        let at =
            |at| LastEnd { reason: EndReason::Idle, detail: String::new(), evidence: None, at };
        SessionView {
            id: SessionId::random(),
            key: Key {
                tenant: "t".into(),
                agent: "a".into(),
                platform: "p".into(),
                thread: "1".into(),
            },
            incarnation: Incarnation(1),
            generation: Generation(1),
            intent: Intent::default(),
            phase,
            slot: SlotId::random(),
            worker: None,
            last_end: ended.map(at),
            next: None,
            kept: None,
            created: 0,
            programs: Vec::new(),
        }
    }

    #[test]
    fn only_what_sleeps_is_old_and_what_ended_where_it_is_discarded() {
        let prune = |discard| Prune { older_than: Duration::from_secs(100), discard, yes: false };
        let old = |discard, phase, ended| prune(discard).is_old(&view(phase, ended), 1000);
        for discard in [false, true] {
            assert!(old(discard, Phase::Asleep, Some(900)));
            assert!(!old(discard, Phase::Asleep, Some(901)));
            assert!(old(discard, Phase::Asleep, None), "since it was made");
            assert_eq!(old(discard, Phase::Ended, Some(900)), discard);
            for alive in [Phase::Starting, Phase::Active, Phase::Stopping] {
                assert!(!old(discard, alive, Some(0)), "{alive:?}");
            }
            // A clock that was set back makes nothing old.
            assert!(!old(discard, Phase::Asleep, Some(5000)));
        }
    }
}
