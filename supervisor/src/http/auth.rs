//! Who may call what. Pure: headers and claims in, a refusal or nothing out.
//!
//! A browser sends `Origin`; no browser has business here, so its presence alone is a refusal, whatever the token.

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::sharing::UserId;
use casemate_protocol::token::{Audience, Claims, PublicKey, TokenError, is_workers};
use hyper::header::{AUTHORIZATION, HeaderMap, ORIGIN};

/// Whose signature a token must carry, and for which slot.
#[derive(Debug, Clone)]
pub struct Gate {
    key: PublicKey,
    slot: SlotId,
}

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is an `Origin` header.
    #[error("calls from browsers are refused: connect without an Origin header")]
    Origin,
    /// There is no token.
    #[error("no token: send `Authorization: Bearer` with the one that the allocator gave out")]
    NoToken,
    /// The token is wrong.
    #[error(transparent)]
    Token(#[from] TokenError),
}

// === impl Refusal ===

impl Refusal {
    /// The HTTP status code.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Origin => 403,
            Self::NoToken | Self::Token(_) => 401,
        }
    }
}

// === impl Gate ===

impl Gate {
    /// The gate of a slot's worker.
    #[must_use]
    pub fn new(key: PublicKey, slot: SlotId) -> Self {
        Self { key, slot }
    }

    /// Refuses whoever comes from a browser.
    ///
    /// # Errors
    /// [`Refusal::Origin`].
    pub fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
        if headers.contains_key(ORIGIN) { Err(Refusal::Origin) } else { Ok(()) }
    }

    /// What the token of a call opens in this worker; which session that is, is the caller's to look up. `now` is in seconds
    /// since the Unix epoch.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn claims(&self, headers: &HeaderMap, now: u64) -> Result<Claims, Refusal> {
        let claims = self.key.verify(bearer(headers)?, now)?;
        if claims.slot != self.slot {
            return Err(TokenError::Mismatch("slot").into());
        }
        Ok(claims)
    }

    /// Whether a call carries a token that says of itself that it is a worker's own, and then whether it is this one's.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn is_workers(
        &self,
        headers: &HeaderMap,
        user: &UserId,
        now: u64,
    ) -> Result<bool, Refusal> {
        let token = bearer(headers)?;
        if !is_workers(token) {
            return Ok(false);
        }
        let claims = self.key.verify_worker(token, now)?;
        if claims.slot != self.slot {
            return Err(TokenError::Mismatch("slot").into());
        }
        if claims.user != *user {
            return Err(TokenError::Mismatch("user").into());
        }
        Ok(true)
    }
}

/// Whether claims open this generation of this session for one of these audiences.
///
/// # Errors
/// [`TokenError::Mismatch`] with what differs.
pub fn compare(
    claims: &Claims,
    session: (&SessionId, Incarnation, Generation),
    wanted: &[Audience],
) -> Result<(), TokenError> {
    let mismatch = if claims.session != *session.0 {
        "session"
    } else if claims.incarnation != session.1 {
        "incarnation"
    } else if claims.generation != session.2 {
        "generation"
    } else if !wanted.contains(&claims.audience) {
        "audience"
    } else {
        return Ok(());
    };
    Err(TokenError::Mismatch(mismatch))
}

fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(Refusal::NoToken);
    };
    let (scheme, token) =
        value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or(Refusal::NoToken)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Refusal::NoToken) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::token::SigningSecret;
    use hyper::header::HeaderValue;

    fn setup() -> (SigningSecret, Gate, Claims) {
        let secret = SigningSecret::generate();
        let mut config = crate::testing::config(std::path::Path::new("/v"));
        config.verify_key = secret.public();
        let claims = Claims {
            session: config.session.clone(),
            incarnation: config.incarnation,
            generation: config.generation,
            slot: config.slot.clone(),
            audience: Audience::Attach,
            expires: 100,
        };
        (secret, Gate::new(config.verify_key, config.slot), claims)
    }

    /// As the endpoints ask: the worker's gate, then the session named by `own`.
    fn check(
        gate: &Gate,
        own: &Claims,
        headers: &HeaderMap,
        wanted: &[Audience],
        now: u64,
    ) -> Result<(), Refusal> {
        let claims = gate.claims(headers, now)?;
        compare(&claims, (&own.session, own.incarnation, own.generation), wanted)?;
        Ok(())
    }

    fn headers(token: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    #[test]
    fn a_token_of_this_worker_and_audience_passes() {
        let (secret, gate, claims) = setup();
        let headers = headers(&secret.sign(&claims));
        assert_eq!(check(&gate, &claims, &headers, &[Audience::Attach], 99), Ok(()));
        assert_eq!(
            check(&gate, &claims, &headers, &[Audience::Control], 99),
            Err(Refusal::Token(TokenError::Mismatch("audience")))
        );
        assert_eq!(
            check(&gate, &claims, &headers, &[Audience::Attach], 100).unwrap_err().status(),
            401
        );
    }

    #[test]
    fn each_claim_of_another_worker_is_refused_by_name() {
        let (secret, gate, claims) = setup();
        let own = claims.clone();
        let others = [
            ("session", Claims { session: SessionId::random(), ..claims.clone() }),
            ("slot", Claims { slot: SlotId::random(), ..claims.clone() }),
            ("incarnation", Claims { incarnation: Incarnation(2), ..claims.clone() }),
            ("generation", Claims { generation: Generation(2), ..claims }),
        ];
        for (name, claims) in others {
            let headers = headers(&secret.sign(&claims));
            let refused = check(&gate, &own, &headers, &[Audience::Attach], 1);
            assert_eq!(refused, Err(Refusal::Token(TokenError::Mismatch(name))));
        }
    }

    #[test]
    fn no_token_two_tokens_and_another_scheme_are_refused() {
        let (secret, gate, claims) = setup();
        let good = headers(&secret.sign(&claims));
        let mut two = good.clone();
        two.append(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        let basic = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Basic eDp5"))]);
        for headers in [HeaderMap::new(), two, basic] {
            assert_eq!(
                check(&gate, &claims, &headers, &[Audience::Attach], 1),
                Err(Refusal::NoToken)
            );
        }
    }

    #[test]
    fn any_origin_is_refused() {
        let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("null"))]);
        assert_eq!(Gate::check_origin(&headers).unwrap_err().status(), 403);
        assert_eq!(Gate::check_origin(&HeaderMap::new()), Ok(()));
    }
}
