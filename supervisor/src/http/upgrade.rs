//! The WebSocket handshake (RFC 6455 section 4.2). Pure: a request's headers in, the accepting value or a refusal out.
//!
//! No extension is ever agreed to, and no subprotocol but one that was offered: official ACP clients fail on what they did
//! not ask for.

use casemate_protocol::origin::PLAIN;
use casemate_protocol::relay::SUBPROTOCOL;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Why it is no handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoUpgrade {
    /// An ordinary request.
    #[error("this endpoint speaks WebSocket: send an upgrade request")]
    NotAsked,
    /// Another version of the protocol.
    #[error("only WebSocket version 13 is spoken")]
    Version,
    /// No key, or one that is not 16 bytes in base64.
    #[error("Sec-WebSocket-Key is missing or wrong")]
    Key,
}

/// The value of `Sec-WebSocket-Accept`.
///
/// # Errors
/// [`NoUpgrade`].
pub fn accept(headers: &HeaderMap) -> Result<String, NoUpgrade> {
    if !has_word(headers, &CONNECTION, "upgrade") || !has_word(headers, &UPGRADE, "websocket") {
        return Err(NoUpgrade::NotAsked);
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(NoUpgrade::Version);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or(NoUpgrade::Key)?.as_bytes();
    // 16 bytes are 24 characters of base64, the last two of them padding.
    if key.len() != 24 || !key.ends_with(b"==") {
        return Err(NoUpgrade::Key);
    }
    Ok(derive_accept_key(key))
}

/// What is spoken at `/acp`, by the name that a client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subprotocol {
    /// The plain door, which clients that offer nothing get as well.
    Plain,
    /// The resumable door.
    Relay,
}

// === impl Subprotocol ===

impl Subprotocol {
    /// The one that a client would like best of those that are spoken. It never is one that carries a token.
    #[must_use]
    pub fn chosen(headers: &HeaderMap) -> Option<Self> {
        offered(headers).find_map(|word| match word {
            PLAIN => Some(Self::Plain),
            SUBPROTOCOL => Some(Self::Relay),
            _ => None,
        })
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => PLAIN,
            Self::Relay => SUBPROTOCOL,
        }
    }
}

/// The subprotocols that a client offers, in its order. They differ by case (RFC 6455 section 4.1).
pub(super) fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    words(headers, &SEC_WEBSOCKET_PROTOCOL)
}

fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    words(headers, name).any(|part| part.eq_ignore_ascii_case(word))
}

fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn the_example_of_rfc_6455_is_answered_as_there() {
        let headers = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
        assert_eq!(accept(&headers).as_deref(), Ok("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }

    #[test]
    fn the_first_known_subprotocol_is_chosen_and_nothing_else_is_ever_answered() {
        let chosen = |offer| Subprotocol::chosen(&headers(&[("sec-websocket-protocol", offer)]));
        assert_eq!(Subprotocol::chosen(&HeaderMap::new()), None);
        assert_eq!(chosen("casemate.bearer.x, casemate.acp.v1"), Some(Subprotocol::Plain));
        assert_eq!(chosen("x,casemate.relay.v1,casemate.acp.v1"), Some(Subprotocol::Relay));
        for other in ["casemate.bearer.x", "Casemate.ACP.v1", "casemate.relay.v1x", "acp", ""] {
            assert_eq!(chosen(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_handshake_is_refused_with_its_reason() {
        assert_eq!(accept(&HeaderMap::new()), Err(NoUpgrade::NotAsked));
        let mut list = vec![("connection", "upgrade"), ("upgrade", "websocket")];
        assert_eq!(accept(&headers(&list)), Err(NoUpgrade::Version));
        list.push(("sec-websocket-version", "13"));
        list.push(("sec-websocket-key", "short"));
        assert_eq!(accept(&headers(&list)), Err(NoUpgrade::Key));
    }
}
