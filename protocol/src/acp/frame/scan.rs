//! One pass over a line: where the members lie that a relay reads.
//!
//! serde_json walks values that nobody asked for without recursion and without building them, so neither depth nor
//! size of a peer's payload costs stack or heap here. Only the spine is visited: the message, `params`, `params.update`,
//! `result`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::fold::alike;

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
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    pub(super) session: Option<&'a RawValue>,
    pub(super) update: Option<&'a RawValue>,
    /// The first member that was given twice.
    pub(super) duplicate: Option<&'static str>,
    /// The first member that has the name of one that counts but for its case.
    pub(super) lookalike: Option<&'static str>,
}

impl Scan<'_> {
    /// A member that nobody reads: unless somebody else would.
    fn unread(&mut self, key: &str, watched: &[&'static str]) {
        if let Some(name) = watched.iter().find(|name| alike(key, name)) {
            self.lookalike.get_or_insert(name);
        }
    }
}

/// Walks a whole line.
pub(super) fn scan(text: &str) -> Result<Scan<'_>, serde_json::Error> {
    let mut found = Scan::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.deserialize_map(Message(&mut found))?;
    reader.end()?;
    if let Some(result) = found.result
        && result.get().starts_with('{')
    {
        // Answers are few, so only they are walked twice.
        serde_json::Deserializer::from_str(result.get())
            .deserialize_map(Spine { found: &mut found, level: Level::Result })?;
    }
    Ok(found)
}

struct Message<'s, 'a>(&'s mut Scan<'a>);

impl<'a> Visitor<'a> for Message<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut params, mut version) = (false, false);
        while let Some(key) = map.next_key::<CowStr<'a>>()? {
            let (name, place) = match &*key.0 {
                "id" => ("id", &mut self.0.id),
                "method" => ("method", &mut self.0.method),
                "result" => ("result", &mut self.0.result),
                "error" => ("error", &mut self.0.error),
                "params" => {
                    if std::mem::replace(&mut params, true) {
                        self.0.duplicate.get_or_insert("params");
                    }
                    map.next_value_seed(Spine { found: self.0, level: Level::Params })?;
                    continue;
                }
                "jsonrpc" => {
                    if std::mem::replace(&mut version, true) {
                        self.0.duplicate.get_or_insert("jsonrpc");
                    }
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                other => {
                    self.0.unread(other, &MESSAGE);
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if place.replace(map.next_value()?).is_some() {
                self.0.duplicate.get_or_insert(name);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Params,
    Update,
    Result,
}

/// `params`, `params.update` or `result`, whatever type they turn out to have.
struct Spine<'s, 'a> {
    found: &'s mut Scan<'a>,
    level: Level,
}

impl<'a> DeserializeSeed<'a> for Spine<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Spine<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'a>>(self, map: A) -> Result<(), A::Error> {
        let Self { found, level } = self;
        match level {
            Level::Params => params(found, map),
            Level::Update => update(found, map),
            Level::Result => result(found, map),
        }
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

fn params<'a, A: MapAccess<'a>>(found: &mut Scan<'a>, mut map: A) -> Result<(), A::Error> {
    let mut seen = 0u16;
    while let Some(key) = map.next_key::<CowStr<'a>>()? {
        match WATCHED.iter().position(|name| *name == key.0) {
            Some(index) => {
                if seen & (1 << index) != 0 {
                    found.duplicate.get_or_insert(WATCHED[index]);
                }
                seen |= 1 << index;
            }
            None => found.unread(&key.0, &WATCHED),
        }
        match &*key.0 {
            "sessionId" => found.session = Some(map.next_value()?),
            "update" => {
                map.next_value_seed(Spine { found: &mut *found, level: Level::Update })?;
            }
            _ => {
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
    Ok(())
}

fn update<'a, A: MapAccess<'a>>(found: &mut Scan<'a>, mut map: A) -> Result<(), A::Error> {
    const NAME: &str = "sessionUpdate";
    while let Some(key) = map.next_key::<CowStr<'a>>()? {
        if key.0 != NAME {
            found.unread(&key.0, &[NAME]);
            map.next_value::<IgnoredAny>()?;
        } else if found.update.replace(map.next_value()?).is_some() {
            found.duplicate.get_or_insert(NAME);
        }
    }
    Ok(())
}

/// An answer may name a session.
fn result<'a, A: MapAccess<'a>>(found: &mut Scan<'a>, mut map: A) -> Result<(), A::Error> {
    const NAME: &str = "sessionId";
    let mut seen = false;
    while let Some(key) = map.next_key::<CowStr<'a>>()? {
        if key.0 != NAME {
            found.unread(&key.0, &[NAME]);
        } else if std::mem::replace(&mut seen, true) {
            found.duplicate.get_or_insert(NAME);
        }
        map.next_value::<IgnoredAny>()?;
    }
    Ok(())
}

/// Borrows where the JSON string has no escapes (serde's own `Cow` always owns).
pub(super) struct CowStr<'a>(pub(super) Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for CowStr<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = CowStr<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<CowStr<'de>, E> {
                Ok(CowStr(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<CowStr<'de>, E> {
                Ok(CowStr(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// All members of an object, in order; a name may come twice.
pub(super) fn members(object: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(Cow<'de, str>, &'de str)>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::with_capacity(8);
            while let Some(key) = map.next_key::<CowStr<'de>>()? {
                members.push((key.0, map.next_value::<&'de RawValue>()?.get()));
            }
            Ok(members)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(object);
    let members = reader.deserialize_map(Members).ok()?;
    reader.end().ok()?;
    Some(members)
}

/// The one member of that name; `None` where there is none, or more than one.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    struct Find<'n>(&'n str);
    impl<'de> Visitor<'de> for Find<'_> {
        type Value = Option<&'de RawValue>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let (mut found, mut count) = (None, 0usize);
            while let Some(key) = map.next_key::<CowStr<'de>>()? {
                if key.0 == self.0 {
                    found = Some(map.next_value()?);
                    count += 1;
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found.filter(|_| count == 1))
        }
    }
    let mut reader = serde_json::Deserializer::from_str(object);
    reader.deserialize_map(Find(name)).ok().flatten().map(RawValue::get)
}
