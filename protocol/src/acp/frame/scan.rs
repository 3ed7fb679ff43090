//! One pass over a line: where the members lie that a relay reads.
//!
//! Only the spine is looked at: the message, `params`, `params.update`, `result`. What nobody asked for is walked over
//! ([`super::walk`]), so neither depth nor size of a peer's payload costs stack or heap here.

use std::borrow::Cow;

use super::fold::alike;
use super::walk::{Bad, Walk};

/// Members of a message that count. Each once, and nothing that a lax reader takes for one of them.
const MESSAGE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Members of `params` that some role reads or replaces. Given twice, peers would disagree about which one counts.
const WATCHED: [&str; 9] = [
    "sessionId",
    "update",
    "cwd",
    "additionalDirectories",
    "mcpServers",
    "prompt",
    "requestId",
    "clientCapabilities",
    "modeId",
];

/// What the pass found.
#[derive(Debug, Default)]
pub(super) struct Scan<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) method: Option<&'a str>,
    pub(super) result: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) session: Option<&'a str>,
    pub(super) update: Option<&'a str>,
    /// The first member that was given twice.
    pub(super) duplicate: Option<&'static str>,
    /// The first member that has the name of one that counts but for its case.
    pub(super) lookalike: Option<&'static str>,
    /// How deep the line is nested.
    pub(super) depth: usize,
    /// There are line breaks in it, between its tokens.
    pub(super) breaks: bool,
}

/// Walks a whole line.
pub(super) fn scan(text: &str) -> Result<Scan<'_>, Bad> {
    let mut found = Scan::default();
    let mut walk = Walk::new(text);
    found.message(&mut walk)?;
    walk.end()?;
    (found.depth, found.breaks) = (walk.deepest(), walk.breaks());
    Ok(found)
}

impl<'a> Scan<'a> {
    fn message(&mut self, walk: &mut Walk<'a>) -> Result<(), Bad> {
        let mut seen = Seen::default();
        walk.members(|walk, name| {
            let Some(at) = self.known(&name, &MESSAGE, &mut seen) else {
                return walk.value().map(drop);
            };
            match MESSAGE[at] {
                "params" if walk.is_object() => return self.params(walk),
                "result" => {
                    // Answers are few: only they are walked twice.
                    let result = walk.value()?;
                    self.result = Some(result);
                    return if result.starts_with('{') { self.result(result) } else { Ok(()) };
                }
                "id" => self.id = Some(walk.value()?),
                "method" => self.method = Some(walk.value()?),
                "error" => self.error = Some(walk.value()?),
                _ => drop(walk.value()?),
            }
            Ok(())
        })
    }

    fn params(&mut self, walk: &mut Walk<'a>) -> Result<(), Bad> {
        let mut seen = Seen::default();
        walk.members(|walk, name| {
            match self.known(&name, &WATCHED, &mut seen).map(|at| WATCHED[at]) {
                Some("sessionId") => self.session = Some(walk.value()?),
                Some("update") if walk.is_object() => return self.update(walk),
                _ => drop(walk.value()?),
            }
            Ok(())
        })
    }

    fn update(&mut self, walk: &mut Walk<'a>) -> Result<(), Bad> {
        let mut seen = Seen::default();
        walk.members(|walk, name| {
            let known = self.known(&name, &["sessionUpdate"], &mut seen).is_some();
            let value = walk.value()?;
            if known {
                self.update = Some(value);
            }
            Ok(())
        })
    }

    /// An answer may name a session.
    fn result(&mut self, result: &'a str) -> Result<(), Bad> {
        let mut seen = Seen::default();
        Walk::new(result).members(|walk, name| {
            self.known(&name, &["sessionId"], &mut seen);
            walk.value().map(drop)
        })
    }

    /// Which of the members that count this is, if it is one and not the second; whatever else it is is noted.
    fn known(&mut self, name: &str, known: &[&'static str], seen: &mut Seen) -> Option<usize> {
        let Some(at) = known.iter().position(|known| *known == name) else {
            // A member that nobody reads: unless somebody else would.
            if let Some(known) = known.iter().find(|known| alike(name, known)) {
                self.lookalike.get_or_insert(known);
            }
            return None;
        };
        if seen.0 & 1 << at != 0 {
            self.duplicate.get_or_insert(known[at]);
        }
        seen.0 |= 1 << at;
        Some(at)
    }
}

/// Which of the members that count were there, a bit each.
#[derive(Default)]
struct Seen(u16);

/// All members of an object, in order; a name may come twice.
pub(super) fn members(object: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let mut members = Vec::with_capacity(8);
    let mut walk = Walk::new(object);
    walk.members(|walk, name| {
        members.push((name, walk.value()?));
        Ok(())
    })
    .ok()?;
    walk.end().ok()?;
    Some(members)
}

/// The one member of that name; `None` where there is none, or more than one.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let (mut found, mut count) = (None, 0usize);
    Walk::new(object)
        .members(|walk, key| {
            let value = walk.value()?;
            if key == name {
                found = Some(value);
                count += 1;
            }
            Ok(())
        })
        .ok()?;
    found.filter(|_| count == 1)
}
