//! Random names and counters: session, slot, boot, generation, incarnation, epoch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// RFC 4648 base32 in lower case, so that an id is a DNS label, a file name and a Git ref component at once.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Length of the random part: 26 characters carry the 128 bits.
const RANDOM_LEN: usize = 26;

/// Text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {kind} id (expected `{prefix}` and {RANDOM_LEN} characters of a-z2-7)")]
pub struct InvalidId {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

fn random_part() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("the kernel's random source answers once booted");
    part(u128::from_be_bytes(bytes))
}

fn part(mut bits: u128) -> String {
    let mut text = String::with_capacity(RANDOM_LEN);
    for _ in 0..RANDOM_LEN {
        text.push(char::from(ALPHABET[usize::try_from(bits & 31).expect("five bits")]));
        bits >>= 5;
    }
    text
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// A new id with 128 random bits.
            #[must_use]
            pub fn random() -> Self {
                Self(format!(concat!($prefix, "{}"), random_part()))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let valid = text.strip_prefix($prefix).is_some_and(|rest| {
                    rest.len() == RANDOM_LEN && rest.bytes().all(|b| ALPHABET.contains(&b))
                });
                if valid {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { text: text.to_owned(), kind: $kind, prefix: $prefix })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

random_id!(
    /// A session: the logical conversation of a key. Outlives its workers; also the ACP session id that hosts see.
    SessionId, "s-", "session"
);
random_id!(
    /// A slot: what one worker lives in (a Pod with its volume, or a directory on one machine). Never renamed.
    SlotId, "w-", "slot"
);
impl SlotId {
    /// The slot that a Pod is, by the Pod's UID (RFC 9562, as Kubernetes makes them): another Pod, another slot, whatever its name. `None` of
    /// other text.
    #[must_use]
    pub fn of_uid(uid: &str) -> Option<Self> {
        let groups: Vec<&str> = uid.split('-').collect();
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let digits = groups.concat();
        if lengths != [8, 4, 4, 4, 12] || !digits.bytes().all(hexadecimal) {
            return None;
        }
        let bits = u128::from_str_radix(&digits, 16).ok()?;
        Some(Self(format!("w-{}", part(bits))))
    }
}

random_id!(
    /// One start of a supervisor process. A restarted container is a new worker although its slot is the same.
    BootId, "b-", "boot"
);
random_id!(
    /// Where a session's trees are within a slot that it shares: not to be guessed from the session's id, which others may know.
    PlaceId, "p-", "place"
);
random_id!(
    /// One refused connection to a canary's target: whoever saw the target answer after it says so by this name.
    RefusalId, "r-", "refusal"
);

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The value before anything was counted.
            pub const ZERO: Self = Self(0);

            /// The next value. Counters are 64 bit wide and never wrap.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

counter!(
    /// Counts a session's workers; never falls. Whatever names an older generation is stale.
    Generation
);
counter!(
    /// Counts the lives of a key: close and retention end one, the next message opens the next.
    Incarnation
);
counter!(
    /// Counts the attachments within a generation.
    Epoch
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_id_parses_back_and_is_a_dns_label() {
        let id = SessionId::random();
        assert_eq!(id.as_str().parse::<SessionId>(), Ok(id.clone()));
        assert!(id.as_str().len() <= 63);
    }

    #[test]
    fn a_pods_uid_names_one_slot_and_no_other_text_does() {
        let uid = "9f3c1b52-0a77-4f2e-8d31-5c6b7a8f9012";
        let slot = SlotId::of_uid(uid).unwrap();
        assert_eq!(slot.as_str().parse(), Ok(slot.clone()));
        let other = SlotId::of_uid("9f3c1b52-0a77-4f2e-8d31-5c6b7a8f9013").unwrap();
        assert_ne!(slot, other);
        for wrong in [
            "",
            "9f3c1b520a774f2e8d315c6b7a8f9012",
            "9F3C1B52-0a77-4f2e-8d31-5c6b7a8f9012",
            "+f3c1b52-0a77-4f2e-8d31-5c6b7a8f9012",
            "9f3c1b52-0a77-4f2e-8d31-5c6b7a8f901",
            "9f3c1b5-20a77-4f2e-8d31-5c6b7a8f9012",
            "9f3c1b52-0a77-4f2e-8d31-5c6b7a8f9012-",
        ] {
            assert_eq!(SlotId::of_uid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in [
            "",
            "s-",
            "w-aaaaaaaaaaaaaaaaaaaaaaaaaa",
            "s-../../../../../../../../etc",
            "s-AAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }
}
