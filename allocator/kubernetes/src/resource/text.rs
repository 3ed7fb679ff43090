//! Text of a known form. The API server checks it by the pattern in the schema, the allocator again when it reads it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Text that does not have its form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidText {
    text: String,
    form: &'static str,
}

impl fmt::Display for InvalidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.text.escape_debug(), self.form)
    }
}

impl std::error::Error for InvalidText {}

macro_rules! text {
    ($(#[doc = $doc:literal])* $name:ident, $form:literal, $most:literal, $pattern:literal, $holds:expr) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The regular expression that the API server holds it against.
            pub const PATTERN: &str = $pattern;

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidText;

            fn try_from(text: String) -> Result<Self, InvalidText> {
                let holds: fn(&str) -> bool = $holds;
                if text.len() <= $most && holds(&text) {
                    Ok(Self(text))
                } else {
                    Err(InvalidText { text, form: $form })
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidText;

            fn from_str(text: &str) -> Result<Self, InvalidText> {
                text.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "maxLength": $most, "pattern": $pattern})
            }
        }
    };
}

text!(
    /// A name of an object: a DNS label (RFC 1123).
    Label,
    "a name of at most 63 characters of a-z, 0-9 and `-`, with a letter or digit at both ends",
    63,
    "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
    is_label
);
text!(
    /// A name of an object that may have dots: a DNS subdomain (RFC 1123).
    ObjectName,
    "a name of at most 253 characters: labels of a-z, 0-9 and `-`, joined by dots",
    253,
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
    |text| text.split('.').all(is_label)
);
text!(
    /// A key of a ConfigMap or Secret.
    DataKey,
    "a key of at most 253 characters of A-Z, a-z, 0-9, `-`, `_` and `.`",
    253,
    r"^[-._a-zA-Z0-9]*[-_a-zA-Z0-9][-._a-zA-Z0-9]*$",
    |text| is_of(text, |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.bytes().any(|byte| byte != b'.')
);
text!(
    /// A name of an environment variable (POSIX XBD 8.1).
    Variable,
    "a variable's name: letters, digits and `_`, not beginning with a digit",
    128,
    "^[A-Za-z_][A-Za-z0-9_]*$",
    |text| is_of(text, |byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.as_bytes()[0].is_ascii_digit()
);
text!(
    /// An amount of bytes or of processors, as Kubernetes writes it: `500m`, `2`, `4Gi`. Above zero.
    Quantity,
    "a quantity: a number and nothing, m, k, M, G, T, Ki, Mi, Gi or Ti (`500m`, `4Gi`)",
    24,
    r"^(0*[1-9][0-9]*(\.[0-9]+)?|0+\.[0-9]*[1-9][0-9]*)(m|k|M|G|T|Ki|Mi|Gi|Ti)?$",
    is_quantity
);
text!(
    /// A time span: a whole number above zero and s, m, h or d (`90s`, `30m`, `7d`).
    Period,
    "a time span: a whole number above zero and s, m, h or d (`30m`)",
    10,
    "^[1-9][0-9]{0,8}[smhd]$",
    |text| seconds(text).is_some()
);
text!(
    /// A content's revision: the SHA-256 of its bytes.
    Revision,
    "a revision: `sha256:` and 64 hexadecimal digits",
    71,
    "^sha256:[0-9a-f]{64}$",
    |text| text.strip_prefix("sha256:").is_some_and(is_digest)
);
text!(
    /// A SHA-256 in hex.
    Digest,
    "64 hexadecimal digits",
    64,
    "^[0-9a-f]{64}$",
    is_digest
);
text!(
    /// A resource's name, as a container's limits have it: `memory`, `nvidia.com/gpu`.
    ResourceName,
    "a resource's name (`memory`, `nvidia.com/gpu`)",
    253,
    r"^([a-z0-9][a-z0-9.-]*/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
    |text| {
        let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        domain.is_none_or(|domain| {
            is_of(domain, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte))
                && !domain.starts_with(['.', '-'])
        }) && is_of(name, plain)
            && ends(name.bytes().next())
            && ends(name.bytes().last())
    }
);
text!(
    /// The proxy's URL, without credentials.
    ProxyUrl,
    "an http(s) URL of a host without credentials and path",
    1024,
    r"^https?://[^/@\s]+/?$",
    |text| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest))
            .is_some_and(|host| is_of(host, |byte| !b"/@".contains(&byte)) && !host.contains(char::is_whitespace))
    }
);
text!(
    /// An absolute path in a container, without `..`, `:` and spaces.
    AbsolutePath,
    "an absolute path of letters, digits, `-`, `_`, `.`, `+` and `@`, without `..`",
    512,
    r"^(/(\.?[A-Za-z0-9_+@-][A-Za-z0-9_.+@-]*))+$",
    |text| text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(|part| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+@-".contains(&byte);
        is_of(part, plain) && part != "." && !part.starts_with("..")
    }))
);
text!(
    /// Where a repository is cloned from: http or https, without credentials.
    RepositoryUrl,
    "an http(s) URL without credentials",
    1024,
    r"^https?://[^/@\s]+(/[^\s]*)?$",
    |text| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        rest.is_some_and(|rest| {
            let host = rest.split('/').next().unwrap_or_default();
            !host.is_empty() && !host.contains('@') && !rest.contains(char::is_whitespace)
        })
    }
);
text!(
    /// An image: a name with a tag or, as it should be, a digest.
    ImageName,
    "an image's name, with a tag or a digest",
    512,
    r"^[a-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$",
    |text| {
        let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
        is_of(name, plain)
            && (name.as_bytes()[0].is_ascii_lowercase() || name.as_bytes()[0].is_ascii_digit())
            && digest.is_none_or(|digest| digest.parse::<Revision>().is_ok())
    }
);
text!(
    /// An image by digest.
    PinnedImage,
    "an image by digest (NAME@sha256:...)",
    512,
    r"^[a-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}$",
    |text| text.parse::<ImageName>().is_ok_and(|image| image.is_pinned())
);
text!(
    /// A range of addresses (RFC 4632, RFC 4291): `10.0.0.0/8`, `fd00::/8`.
    Cidr,
    "a range of addresses (`10.0.0.0/8`)",
    49,
    r"^[0-9a-fA-F.:]+/[0-9]{1,3}$",
    |text| text.split_once('/').is_some_and(|(address, bits)| {
        let most = match address.parse() {
            Ok(std::net::IpAddr::V4(_)) => 32,
            Ok(std::net::IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
);

// === impl ImageName ===

impl ImageName {
    /// Its bytes are named, not only a tag that moves.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.0.contains('@')
    }
}

// === impl Period ===

impl Period {
    /// How long.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs(seconds(&self.0).unwrap_or_default())
    }
}

fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !is_of(number, |byte| byte.is_ascii_digit()) || number.len() > 9 || number.starts_with('0') {
        return None;
    }
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

// === the forms ===

fn is_of(text: &str, plain: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(plain)
}

fn is_label(text: &str) -> bool {
    is_of(text, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && is_of(text, |byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    let (whole, part) =
        number.split_once('.').map_or((number, None), |(whole, part)| (whole, Some(part)));
    let digits = |text: &str| is_of(text, |byte| byte.is_ascii_digit());
    ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"].contains(&unit)
        && digits(whole)
        && part.is_none_or(digits)
        && number.bytes().any(|byte| (b'1'..=b'9').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds<T: std::str::FromStr>(good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(text.parse::<T>().is_ok(), "{text}");
        }
        for text in bad {
            assert!(text.parse::<T>().is_err(), "{text}");
        }
    }

    #[test]
    fn forms() {
        holds::<Label>(&["a", "a-b", "0"], &["", "-a", "a-", "A", "a.b", &"a".repeat(64)]);
        holds::<ObjectName>(&["a.b", "a"], &["", "a..b", ".a", "a.", "a_b"]);
        holds::<DataKey>(&["ca.crt", "_", "..a"], &["", ".", "..", "a/b"]);
        holds::<Variable>(&["_A1"], &["", "1A", "A-B", "A=b"]);
        holds::<Quantity>(
            &["1", "500m", "4Gi", "0.5", "1.5Gi", "010"],
            &["", "0", "0.0", "-1", "1gi", "1 Gi", "Gi", ".5", "1.", "1e3"],
        );
        holds::<ResourceName>(&["cpu", "nvidia.com/gpu"], &["", "/a", "a/", "a b", "-a", "a/b/c"]);
        holds::<ProxyUrl>(
            &["http://p:3128", "https://p/"],
            &["", "http://", "http://u@p", "http://p/a", "ftp://p"],
        );
        holds::<Period>(
            &["1s", "30m", "2h", "999999999d"],
            &["", "0s", "5", "s", "1ms", "-1s", "1.5h", "01s", "1é"],
        );
        holds::<AbsolutePath>(
            &["/a", "/a/.b/c.d", "/opt/x@1+2"],
            &["", "/", "a", "/a/", "/a//b", "/a/../b", "/..", "/.", "/a b", "/a:b", "/...", "/a\0"],
        );
        holds::<RepositoryUrl>(
            &["https://git.example/a/b.git", "http://h", "https://h:8443/a@b"],
            &[
                "",
                "git@h:a",
                "ssh://h/a",
                "https://u:p@h/a",
                "https://",
                "https:///a",
                "https://h/a b",
            ],
        );
        holds::<Cidr>(&["10.0.0.0/8", "fd00::/8"], &["10.0.0.0", "10.0.0.0/33", "x/8", "::/129"]);
        let digest = format!("r.example:5000/a/b@sha256:{}", "0a".repeat(32));
        holds::<ImageName>(
            &["alpine:3", "localhost/a", &digest],
            &["", "-a", "a@sha256:00", "a b", "A"],
        );
        holds::<PinnedImage>(&[&digest], &["alpine:3"]);
        assert!(digest.parse::<ImageName>().unwrap().is_pinned());
        assert_eq!("2h".parse::<Period>().unwrap().duration(), Duration::from_secs(7200));
    }

    #[test]
    fn an_error_does_not_carry_control_characters() {
        let error = "a\u{1b}[2J".parse::<Label>().unwrap_err().to_string();
        assert!(!error.contains('\u{1b}'), "{error}");
    }
}
