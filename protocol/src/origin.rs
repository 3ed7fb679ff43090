//! Web origins: which pages may speak with a worker, and how they say whose they are.
//!
//! Written as browsers write them in the header `Origin` (RFC 6454 section 6.2): compared byte by byte, so that there is nothing to
//! interpret in what a page's browser sends.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The plain door by name, for clients that must be answered with a subprotocol: a browser that offered some and got none hangs up
/// (WHATWG WebSockets, "establish a WebSocket connection").
pub const PLAIN: &str = "casemate.acp.v1";

/// What a page puts before its token to offer it as a subprotocol, the one thing that it can say in a handshake. Never answered.
pub const BEARER: &str = "casemate.bearer.";

/// `scheme://host` or `scheme://host:port`, in the one spelling that browsers use.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Origin(String);

/// Text that no browser sends as an origin, or one that is everybody's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an origin: {why}")]
pub struct InvalidOrigin {
    text: String,
    why: &'static str,
}

/// Browsers leave these out (RFC 6454 section 6.2).
const DEFAULT_PORTS: [(&str, &str); 2] = [("http", "80"), ("https", "443")];

// === impl Origin ===

impl Origin {
    /// Whether the value of a request's `Origin` is this one.
    #[must_use]
    pub fn is(&self, sent: &str) -> bool {
        self.0 == sent
    }

    /// As it is sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for Origin {
    type Error = InvalidOrigin;

    fn try_from(text: String) -> Result<Self, InvalidOrigin> {
        match flaw(&text) {
            None => Ok(Self(text)),
            Some(why) => Err(InvalidOrigin { text, why }),
        }
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.0
    }
}

fn flaw(text: &str) -> Option<&'static str> {
    if text == "null" {
        return Some("sandboxed frames, files and redirects of anybody's send it");
    }
    if text.contains('*') {
        return Some("there are no patterns: name each origin");
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Some("write scheme://host or scheme://host:port");
    };
    let mut letters = scheme.bytes();
    let is_scheme = letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte)
        });
    if !is_scheme {
        return Some("a scheme is in lower case, as browsers send it");
    }
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or("?"))),
            None => return Some("an IPv6 address ends with `]`"),
        },
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    if host.is_empty() {
        return Some("a host is missing");
    }
    if rest.contains(['/', '?', '#', '@']) {
        return Some("write the host alone: no path, no user, no slash at the end");
    }
    let in_v6 = rest.starts_with('[');
    let of_host = |byte: u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' => true,
        b':' => in_v6,
        _ => false,
    };
    if !host.bytes().all(of_host) {
        return Some("a host is in lower case and ASCII (xn--), as browsers send it");
    }
    let port = port?;
    if DEFAULT_PORTS.contains(&(scheme, port)) {
        return Some("browsers leave the scheme's own port out");
    }
    let sound = port.parse::<u16>().is_ok_and(|number| number > 0 && number.to_string() == port);
    (!sound).then_some("a port is a number from 1 to 65535")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_browsers_send_is_taken_and_is_only_itself() {
        for text in [
            "https://app.example",
            "http://localhost:5173",
            "http://[::1]:3000",
            "https://xn--bcher-kva.example",
            "chrome-extension://abcdefghijklmnop",
            "vscode-webview://1a2b",
        ] {
            let origin: Origin = text.parse().unwrap();
            assert!(origin.is(text));
            for other in [
                text.to_uppercase(),
                format!("{text}/"),
                format!("{text}.evil.example"),
                format!(" {text}"),
                "null".to_owned(),
                String::new(),
            ] {
                assert!(!origin.is(&other), "{other}");
            }
        }
    }

    #[test]
    fn what_browsers_do_not_send_is_refused_with_the_reason() {
        for (text, word) in [
            ("null", "anybody"),
            ("*", "patterns"),
            ("https://*.example", "patterns"),
            ("app.example", "scheme://host"),
            ("HTTPS://app.example", "lower case"),
            ("https://App.example", "lower case"),
            ("https://bücher.example", "ASCII"),
            ("https://app.example/", "slash"),
            ("https://app.example/path", "path"),
            ("https://me@app.example", "user"),
            ("https://", "missing"),
            ("https://:8443", "missing"),
            ("http://app.example:80", "own port"),
            ("https://app.example:443", "own port"),
            ("https://app.example:", "65535"),
            ("https://app.example:0", "65535"),
            ("https://app.example:080", "65535"),
            ("https://app.example:65536", "65535"),
            ("https://[::1", "`]`"),
            ("https://[::1]8", "65535"),
            ("", "scheme://host"),
        ] {
            let error = text.parse::<Origin>().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
