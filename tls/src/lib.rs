//! TLS between a worker's door and those who call it: what the worker serves with ([`server`]), whom a client believes ([`client`]),
//! what the allocator issues ([`issue`]).
//!
//! TLS 1.3 alone, HTTP/1.1 alone, one kind of key (ECDSA on P-256), no session resumption. A client believes the one authority that it
//! was given and the one name: no roots of the web, none of the system. Owns no state and reads no file.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "issue")]
pub mod issue;
mod provider;
#[cfg(feature = "server")]
pub mod server;

/// What is spoken inside (RFC 7301; the WebSocket handshake of RFC 6455 is HTTP/1.1).
#[cfg(any(feature = "client", feature = "server"))]
const ALPN: &[u8] = b"http/1.1";
