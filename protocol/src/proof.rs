//! How the allocator proves itself before a client says anything secret.
//!
//! A port says nothing about who listens on it: the discovery file may be of an allocator that died, and its port somebody
//! else's by now. So a client sends a nonce first and wants HMAC-SHA-256 (RFC 2104) of it under the bearer token, which only
//! the allocator and the readers of its private file know. The address that was dialled is part of the message: an answer
//! that is fetched from another door does not fit.
//!
//! In HTTP: `GET /healthz?nonce=` and the nonce; the answer's `proof` is checked by [`Nonce::is_proven`]. Both are 64
//! lower-case hexadecimal digits.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Parts this proof from any other use of the token.
const LABEL: &[u8] = b"casemate allocator 1\0";

/// 256 random bits that a client has never sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce([u8; 32]);

/// Not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a nonce is 64 lower-case hexadecimal digits")]
pub struct NonceError;

/// The server's side: the token as a key.
#[derive(Clone)]
pub struct Prover(Hmac<Sha256>);

// === impl Nonce ===

impl Nonce {
    /// A new one.
    ///
    /// # Panics
    /// Where the kernel has no randomness yet, which is over before any user process runs.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the kernel's random source answers once booted");
        Self(bytes)
    }

    /// Whether `proof` shows that whoever listens at `address` knows `token`. Takes the same time wherever it differs.
    #[must_use]
    pub fn is_proven(self, token: &str, address: SocketAddr, proof: &str) -> bool {
        from_hex(proof).is_some_and(|proof| {
            Prover::new(token).message(address, self).verify_slice(&proof).is_ok()
        })
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl FromStr for Nonce {
    type Err = NonceError;

    fn from_str(text: &str) -> Result<Self, NonceError> {
        from_hex(text).map(Self).ok_or(NonceError)
    }
}

// === impl Prover ===

impl Prover {
    /// For a bearer token.
    ///
    /// # Panics
    /// Never: HMAC takes keys of any length.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(Hmac::new_from_slice(token.as_bytes()).expect("HMAC takes keys of any length"))
    }

    /// The proof for a nonce, by the one who listens at `address`.
    #[must_use]
    pub fn prove(&self, address: SocketAddr, nonce: Nonce) -> String {
        hex(&self.message(address, nonce).finalize().into_bytes())
    }

    fn message(&self, address: SocketAddr, nonce: Nonce) -> Hmac<Sha256> {
        // Fixed length before the part of any length: no two messages are the same bytes.
        let address = address.to_string();
        self.0.clone().chain_update(LABEL).chain_update(nonce.0).chain_update(address)
    }
}

impl fmt::Debug for Prover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prover")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn only_the_tokens_owner_at_that_door_answers_that_nonce() {
        let nonce = Nonce::random();
        let proof = Prover::new("token").prove(door(20_000), nonce);
        assert!(nonce.is_proven("token", door(20_000), &proof));
        assert!(!nonce.is_proven("tokem", door(20_000), &proof));
        assert!(!nonce.is_proven("token", door(20_001), &proof));
        assert!(!Nonce::random().is_proven("token", door(20_000), &proof));
        for wrong in ["", &proof[..63], &proof.to_uppercase(), &"0".repeat(64), &nonce.to_string()]
        {
            assert!(!nonce.is_proven("token", door(20_000), wrong), "{wrong}");
        }
    }

    /// Computed with Python's hmac, so that two programs of different versions agree.
    #[test]
    fn the_proof_is_hmac_sha_256() {
        let nonce = Nonce([7; 32]);
        assert_eq!(Prover::new("t").prove(door(1), nonce), PYTHON);
    }
    const PYTHON: &str = "6b679c828617205431824cd97b331e9cee954e11836ae79a89f07a99bf829bd1";

    #[test]
    fn a_nonce_is_64_digits() {
        let nonce = Nonce::random();
        assert_eq!(nonce.to_string().parse(), Ok(nonce));
        assert_ne!(nonce, Nonce::random());
        for wrong in ["", "00", &"0".repeat(63), &"G".repeat(64), &"A".repeat(64)] {
            assert_eq!(wrong.parse::<Nonce>(), Err(NonceError));
        }
    }
}
