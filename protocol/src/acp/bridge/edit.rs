//! Takes members out of JSON objects, puts others in, and leaves every kept value as its raw text.
//!
//! Only the frames of the set-up (`initialize`) are edited in this way; all others are spliced.

use std::collections::HashSet;

use crate::acp::frame::{self, FrameError};

/// What becomes of a member.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It stays, byte for byte.
    Keep,
    /// It goes.
    Drop,
    /// Its value becomes this raw JSON.
    Become(String),
}

/// The object with each member's fate applied; key order stays. `fate` is asked with folded names ([`frame::folded`]),
/// which it compares with lower-case ones: what the host takes for a member is treated as one.
///
/// # Errors
/// [`FrameError`] where `object` is not an object, or names a member twice, in whatever case, or `fate` says so.
pub(crate) fn edit(
    object: &str,
    mut fate: impl FnMut(&str, &str) -> Result<Fate, FrameError>,
) -> Result<String, FrameError> {
    let mut out = String::with_capacity(object.len());
    out.push('{');
    let members = frame::object(object)
        .ok_or_else(|| FrameError::NotJson("not an object where one must be".into()))?;
    let mut seen = HashSet::with_capacity(members.len());
    for (key, value) in &members {
        let name = frame::folded(key);
        let fate = fate(&name, value)?;
        if !seen.insert(name) {
            return Err(FrameError::Duplicate(key.clone().into_owned()));
        }
        let value = match fate {
            Fate::Keep => (*value).to_owned(),
            Fate::Drop => continue,
            Fate::Become(value) => value,
        };
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&quote(key));
        out.push(':');
        out.push_str(&value);
    }
    out.push('}');
    Ok(out)
}

/// The object with the member set to raw JSON, wherever it was and in whatever case.
///
/// # Errors
/// [`FrameError`] as [`edit`].
pub(crate) fn set(object: &str, name: &str, value: &str) -> Result<String, FrameError> {
    let mut found = false;
    let wanted = frame::folded(name);
    let mut out = edit(object, |key, _| {
        Ok(if key == wanted {
            found = true;
            Fate::Become(value.to_owned())
        } else {
            Fate::Keep
        })
    })?;
    if !found {
        out.pop();
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&format!("{}:{value}}}", quote(name)));
    }
    Ok(out)
}

/// A JSON string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("text is always a JSON string")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_values_stay_byte_for_byte() {
        let out = edit(r#"{ "a" : 1.0e+2, "b": {"x" : "\u00e9"}, "c":[1 ,2] }"#, |key, _| {
            Ok(if key == "b" { Fate::Drop } else { Fate::Keep })
        });
        assert_eq!(out.unwrap(), r#"{"a":1.0e+2,"c":[1 ,2]}"#);
    }

    #[test]
    fn a_member_is_set_whether_it_was_there_or_not() {
        assert_eq!(set(r#"{"a":1,"b":2}"#, "a", "true").unwrap(), r#"{"a":true,"b":2}"#);
        assert_eq!(set(r#"{"a":1}"#, "b", "{}").unwrap(), r#"{"a":1,"b":{}}"#);
        assert_eq!(set("{}", "b", "{}").unwrap(), r#"{"b":{}}"#);
    }

    #[test]
    fn a_member_given_twice_is_refused() {
        assert!(edit(r#"{"fs":{},"f\u0073":{}}"#, |_, _| Ok(Fate::Keep)).is_err());
    }
}
