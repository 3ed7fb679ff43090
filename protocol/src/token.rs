//! Bearer tokens: signed claims that bind a caller to one generation of one session.
//!
//! `cm1.<claims>.<signature>`: claims are JSON, both parts base64url without padding, the signature is Ed25519
//! (RFC 8032) over the text before its dot. The supervisor holds only the public key. A worker of many sessions has tokens of
//! its own besides (`cw1.…`), which open none of them; so has one that waits for its session (`cs1.…`), and what binds that one to it
//! (`cb1.…`) is signed in the same way.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ids::{Generation, Incarnation, SessionId, SlotId};
use crate::sharing::WorkerClaims;
use crate::slot::{Bind, SlotClaims};

const PREFIX: &str = "cm1";
/// Of a worker's own tokens: the prefix is signed too, so one is never taken for the other.
const WORKER_PREFIX: &str = "cw1";
/// Of a slot's own tokens.
const SLOT_PREFIX: &str = "cs1";
/// Of what binds a slot.
const BIND_PREFIX: &str = "cb1";

/// What a token opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// `/acp`: speak with the agent; also reads status.
    Attach,
    /// The allocator's own calls: quiesce, status, metrics.
    Control,
    /// `/v1/exec`: run commands in the session. Whoever may speak with the agent may not do that by itself: the agent's
    /// own limits (what it asks a person for, what it refuses) do not hold for a command.
    Exec,
}

/// The signed claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The session.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The one generation that this token opens.
    pub generation: Generation,
    /// The slot that the worker lives in.
    pub slot: SlotId,
    /// What it opens.
    pub audience: Audience,
    /// Seconds since the Unix epoch after which it is refused.
    pub expires: u64,
}

/// Why a token was refused. Never carries the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not three dot-separated parts of the known version.
    #[error("malformed token")]
    Malformed,
    /// The signature does not fit any known key.
    #[error("token signature is wrong")]
    Signature,
    /// Past its expiry.
    #[error("token has expired; ask the allocator for a new one")]
    Expired,
    /// Right signature, but for another session, slot, incarnation, generation or audience.
    #[error("token is for another {0}")]
    Mismatch(&'static str),
}

/// The allocator's private key.
#[derive(Clone)]
pub struct SigningSecret(SigningKey);

/// The public half, as 32 raw bytes in base64url.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(VerifyingKey);

// === impl SigningSecret ===

impl SigningSecret {
    /// A new random key.
    #[must_use]
    pub fn generate() -> Self {
        let mut seed = [0u8; 32];
        getrandom::fill(&mut seed).expect("the kernel's random source answers once booted");
        Self::from_seed(&seed)
    }

    /// The key of a stored 32-byte seed.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The seed, for storing. Keep it where no agent can read.
    #[must_use]
    pub fn seed(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs claims.
    #[must_use]
    pub fn sign(&self, claims: &Claims) -> String {
        self.sign_as(PREFIX, claims)
    }

    /// Signs a worker's own claims.
    #[must_use]
    pub fn sign_worker(&self, claims: &WorkerClaims) -> String {
        self.sign_as(WORKER_PREFIX, claims)
    }

    /// Signs a slot's own claims.
    #[must_use]
    pub fn sign_slot(&self, claims: &SlotClaims) -> String {
        self.sign_as(SLOT_PREFIX, claims)
    }

    /// Signs what binds a slot's worker to a session.
    #[must_use]
    pub fn sign_bind(&self, bind: &Bind) -> String {
        self.sign_as(BIND_PREFIX, bind)
    }

    fn sign_as(&self, prefix: &str, claims: &impl Serialize) -> String {
        let json = serde_json::to_vec(claims).expect("claims are plain data");
        let signed = format!("{prefix}.{}", URL_SAFE_NO_PAD.encode(json));
        let signature = self.0.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
    }
}

impl std::fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

// === impl PublicKey ===

impl PublicKey {
    /// Checks signature and expiry. `now` is in seconds since the Unix epoch.
    ///
    /// # Errors
    /// [`TokenError::Malformed`], [`TokenError::Signature`] or [`TokenError::Expired`].
    pub fn verify(&self, token: &str, now: u64) -> Result<Claims, TokenError> {
        let claims: Claims = self.signed(PREFIX, token)?;
        if claims.expires <= now {
            return Err(TokenError::Expired);
        }
        Ok(claims)
    }

    /// Checks a worker's own token, as [`PublicKey::verify`] does a session's.
    ///
    /// # Errors
    /// As there.
    pub fn verify_worker(&self, token: &str, now: u64) -> Result<WorkerClaims, TokenError> {
        let claims: WorkerClaims = self.signed(WORKER_PREFIX, token)?;
        if claims.expires <= now {
            return Err(TokenError::Expired);
        }
        Ok(claims)
    }

    /// Checks a slot's own token, as [`PublicKey::verify`] does a session's.
    ///
    /// # Errors
    /// As there.
    pub fn verify_slot(&self, token: &str, now: u64) -> Result<SlotClaims, TokenError> {
        let claims: SlotClaims = self.signed(SLOT_PREFIX, token)?;
        if claims.expires <= now {
            return Err(TokenError::Expired);
        }
        Ok(claims)
    }

    /// Checks what is to bind a slot, as [`PublicKey::verify`] does a session's token.
    ///
    /// # Errors
    /// As there.
    pub fn verify_bind(&self, signed: &str, now: u64) -> Result<Bind, TokenError> {
        let bind: Bind = self.signed(BIND_PREFIX, signed)?;
        if bind.expires <= now {
            return Err(TokenError::Expired);
        }
        Ok(bind)
    }

    /// What a token of the kind that begins with `wanted` says, where its signature is right.
    fn signed<T: DeserializeOwned>(&self, wanted: &str, token: &str) -> Result<T, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (prefix, body) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        if prefix != wanted {
            return Err(TokenError::Malformed);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        let signature = Signature::from_slice(&signature).map_err(|_| TokenError::Malformed)?;
        // Strict: refuses the small-order keys and malleable signatures that RFC 8032 verification lets pass.
        self.0.verify_strict(signed.as_bytes(), &signature).map_err(|_| TokenError::Signature)?;
        let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError::Malformed)?;
        serde_json::from_slice(&body).map_err(|_| TokenError::Malformed)
    }
}

/// Whether a token says of itself that it is a slot's own; what it proves is another matter.
#[must_use]
pub fn is_slots(token: &str) -> bool {
    token.split_once('.').is_some_and(|(prefix, _)| prefix == SLOT_PREFIX)
}

/// Whether a token says of itself that it is a worker's own; what it proves is another matter.
#[must_use]
pub fn is_workers(token: &str) -> bool {
    token.split_once('.').is_some_and(|(prefix, _)| prefix == WORKER_PREFIX)
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        URL_SAFE_NO_PAD.encode(key.0.to_bytes())
    }
}

impl TryFrom<String> for PublicKey {
    type Error = TokenError;

    fn try_from(text: String) -> Result<Self, TokenError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| TokenError::Malformed)?;
        VerifyingKey::from_bytes(&bytes).map(Self).map_err(|_| TokenError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            session: SessionId::random(),
            incarnation: Incarnation(1),
            generation: Generation(3),
            slot: SlotId::random(),
            audience: Audience::Attach,
            expires: 100,
        }
    }

    #[test]
    fn a_signed_token_verifies_until_it_expires() {
        let secret = SigningSecret::generate();
        let claims = claims();
        let token = secret.sign(&claims);
        assert_eq!(secret.public().verify(&token, 99), Ok(claims));
        assert_eq!(secret.public().verify(&token, 100), Err(TokenError::Expired));
    }

    #[test]
    fn another_key_or_a_changed_claim_is_refused() {
        let secret = SigningSecret::generate();
        let token = secret.sign(&claims());
        assert_eq!(
            SigningSecret::generate().public().verify(&token, 1),
            Err(TokenError::Signature)
        );
        let parts: Vec<&str> = token.split('.').collect();
        let forged = URL_SAFE_NO_PAD
            .encode(serde_json::to_vec(&Claims { expires: u64::MAX, ..claims() }).unwrap());
        let forged = format!("{}.{forged}.{}", parts[0], parts[2]);
        assert_eq!(secret.public().verify(&forged, 1), Err(TokenError::Signature));
    }

    #[test]
    fn a_sessions_token_is_never_taken_for_a_workers_own_nor_the_other_way_round() {
        let secret = SigningSecret::generate();
        let own =
            WorkerClaims { slot: SlotId::random(), user: "ann".parse().unwrap(), expires: 100 };
        let token = secret.sign_worker(&own);
        assert!(is_workers(&token));
        assert_eq!(secret.public().verify_worker(&token, 99), Ok(own));
        assert_eq!(secret.public().verify_worker(&token, 100), Err(TokenError::Expired));
        assert_eq!(secret.public().verify(&token, 99), Err(TokenError::Malformed));
        let session = secret.sign(&claims());
        assert!(!is_workers(&session));
        assert_eq!(secret.public().verify_worker(&session, 99), Err(TokenError::Malformed));
        // The prefix is signed: a token cannot be turned into one of the other kind.
        let turned = session.replacen("cm1", "cw1", 1);
        assert_eq!(secret.public().verify_worker(&turned, 99), Err(TokenError::Signature));
    }

    #[test]
    fn the_secret_is_not_printed() {
        assert_eq!(format!("{:?}", SigningSecret::generate()), "SigningSecret(..)");
    }
}
