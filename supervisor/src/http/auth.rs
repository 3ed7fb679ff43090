//! Who may call what. Pure: headers and claims in, a refusal or nothing out.
//!
//! A browser sends `Origin` with each handshake and no page can keep it from doing so. A page has business at `/acp` alone, and there
//! only where its origin is listed; else the header's presence is a refusal, whatever the token. Nothing that a browser adds by itself
//! (cookies, an address) opens anything: the token is always the page's own to say.

use std::cell::RefCell;

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::origin::{BEARER, PLAIN};
use casemate_protocol::sharing::UserId;
use casemate_protocol::slot::Bind;
use casemate_protocol::token::{Audience, Claims, PublicKey, TokenError, is_slots, is_workers};
use hyper::header::{AUTHORIZATION, HeaderMap, ORIGIN};

use super::upgrade;

/// Whose signature a token must carry, and for which slot.
#[derive(Debug)]
pub struct Gate {
    keys: RefCell<Vec<PublicKey>>,
    slot: SlotId,
}

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is an `Origin` header, and it is not one that may call this.
    #[error(
        "this page's origin may not call here: name it in `origins`; programs connect without an Origin header"
    )]
    Origin,
    /// There is no token.
    #[error("no token: send `Authorization: Bearer` with the one that the allocator gave out")]
    NoToken,
    /// A page offers none.
    #[error("no token: offer the subprotocols `{PLAIN}` and `{BEARER}` with the token behind it")]
    NoOffer,
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
            Self::NoToken | Self::NoOffer | Self::Token(_) => 401,
        }
    }
}

// === impl Gate ===

impl Gate {
    /// The gate of a slot's worker.
    #[must_use]
    pub fn new(key: PublicKey, slot: SlotId) -> Self {
        Self { keys: RefCell::new(vec![key]), slot }
    }

    /// Tokens must carry a signature of one of these from now on.
    pub fn accept(&self, keys: Vec<PublicKey>) {
        self.keys.replace(keys);
    }

    /// Whether just these are accepted now.
    #[must_use]
    pub fn accepts(&self, keys: &[PublicKey]) -> bool {
        *self.keys.borrow() == keys
    }

    /// What the first key says whose signature a token carries.
    fn verified<T>(
        &self,
        verify: impl Fn(&PublicKey) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        for key in &*self.keys.borrow() {
            match verify(key) {
                Err(TokenError::Signature) => {}
                outcome => return outcome,
            }
        }
        Err(TokenError::Signature)
    }

    /// What the token of a call opens in this worker; which session that is, is the caller's to look up. `now` is in seconds
    /// since the Unix epoch.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn claims(&self, headers: &HeaderMap, now: u64) -> Result<Claims, Refusal> {
        self.opens(bearer(headers)?, now)
    }

    /// As [`Gate::claims`], of a page: it says its token by a subprotocol, or, where it is no page but has an origin, as programs do.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn claims_of_page(&self, headers: &HeaderMap, now: u64) -> Result<Claims, Refusal> {
        let token = match (offered_token(headers)?, headers.contains_key(AUTHORIZATION)) {
            (Some(token), false) => token,
            (None, true) => bearer(headers)?,
            // Two tokens, or none.
            (Some(_), true) | (None, false) => return Err(Refusal::NoOffer),
        };
        self.opens(token, now)
    }

    fn opens(&self, token: &str, now: u64) -> Result<Claims, Refusal> {
        let claims = self.verified(|key| key.verify(token, now))?;
        if claims.slot != self.slot {
            return Err(TokenError::Mismatch("slot").into());
        }
        Ok(claims)
    }

    /// Whether a call carries a token that says of itself that it is a slot's own, and then whether it is this one's.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn is_slots(&self, headers: &HeaderMap, now: u64) -> Result<bool, Refusal> {
        let Ok(token) = bearer(headers) else { return Ok(false) };
        if !is_slots(token) {
            return Ok(false);
        }
        let claims = self.verified(|key| key.verify_slot(token, now))?;
        if claims.slot != self.slot {
            return Err(TokenError::Mismatch("slot").into());
        }
        Ok(true)
    }

    /// What a signed bind says; which slot it is for, is the slot's to look at.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn bind(&self, signed: &str, now: u64) -> Result<Bind, TokenError> {
        self.verified(|key| key.verify_bind(signed, now))
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
        let claims = self.verified(|key| key.verify_worker(token, now))?;
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

/// The origin of the page that a request comes from; `None`: it comes from a program.
///
/// # Errors
/// [`Refusal::Origin`] of two, and of one that is no text.
pub fn origin(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(ORIGIN).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Refusal::Origin),
        (Some(_), Some(_)) => Err(Refusal::Origin),
    }
}

/// The token that is offered as a subprotocol.
fn offered_token(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut tokens = upgrade::offered(headers).filter_map(|word| word.strip_prefix(BEARER));
    match (tokens.next(), tokens.next()) {
        (token, None) => Ok(token),
        (_, Some(_)) => Err(Refusal::NoOffer),
    }
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
    use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};

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
    fn keys_can_be_replaced_and_each_that_is_accepted_opens() {
        let (old, gate, claims) = setup();
        let new = SigningSecret::generate();
        let opens = |secret: &SigningSecret| {
            check(&gate, &claims, &headers(&secret.sign(&claims)), &[Audience::Attach], 1)
        };
        let wrong = Err(Refusal::Token(TokenError::Signature));
        assert_eq!((opens(&old), opens(&new)), (Ok(()), wrong));
        gate.accept(vec![old.public(), new.public()]);
        assert_eq!((opens(&old), opens(&new)), (Ok(()), Ok(())));
        let late = headers(&new.sign(&claims));
        let expired = Err(Refusal::Token(TokenError::Expired));
        assert_eq!(check(&gate, &claims, &late, &[Audience::Attach], 100), expired);
        gate.accept(vec![new.public()]);
        assert_eq!((opens(&old), opens(&new)), (wrong, Ok(())));
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
    fn one_origin_is_a_page_and_two_are_nobody() {
        let mut headers = HeaderMap::new();
        assert_eq!(origin(&headers), Ok(None));
        headers.append(ORIGIN, HeaderValue::from_static("null"));
        assert_eq!(origin(&headers), Ok(Some("null")));
        headers.append(ORIGIN, HeaderValue::from_static("https://app.example"));
        assert_eq!(origin(&headers).unwrap_err().status(), 403);
        let bytes = HeaderValue::from_bytes(b"https://\xff").unwrap();
        assert_eq!(origin(&HeaderMap::from_iter([(ORIGIN, bytes)])), Err(Refusal::Origin));
    }

    #[test]
    fn a_page_offers_one_token_and_programs_none() {
        let (secret, gate, claims) = setup();
        let token = secret.sign(&claims);
        let offers = |words: &str| {
            let value = HeaderValue::from_str(words).unwrap();
            HeaderMap::from_iter([(SEC_WEBSOCKET_PROTOCOL, value)])
        };
        let good = offers(&format!("{PLAIN},{BEARER}{token}"));
        assert_eq!(gate.claims_of_page(&good, 1), Ok(claims.clone()));
        assert_eq!(gate.claims(&good, 1), Err(Refusal::NoToken), "of a program");
        assert_eq!(gate.claims_of_page(&headers(&token), 1), Ok(claims));
        let mut both = good.clone();
        both.extend(headers(&token));
        for wrong in [
            both,
            offers(&format!("{BEARER}{token}, {BEARER}{token}")),
            offers(&format!("Casemate.Bearer.{token}")),
            offers(PLAIN),
            HeaderMap::new(),
        ] {
            assert_eq!(gate.claims_of_page(&wrong, 1), Err(Refusal::NoOffer), "{wrong:?}");
        }
        let refused = gate.claims_of_page(&offers(&format!("{BEARER}{token}x")), 1);
        assert!(matches!(refused, Err(Refusal::Token(_))), "{refused:?}");
    }
}
