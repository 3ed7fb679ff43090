//! Who may speak: a program of the same user that has read the discovery file, and no web page.
//!
//! A browser can reach loopback, so three things are asked for besides the token: no `Origin` at all, a `Host` that is
//! loopback (a rebound DNS name is not), and the token in a header that a form cannot set.

use std::net::SocketAddr;

use casemate_protocol::proof::{Nonce, Prover};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use sha2::{Digest as _, Sha256};

/// Why a call is refused before it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Sent by a web page.
    Origin,
    /// Sent to another name.
    Host,
    /// No token or a wrong one.
    Token,
}

/// Knows the bearer token by its digest, and as the key of a proof.
#[derive(Debug)]
pub(crate) struct Guard {
    digest: [u8; 32],
    prover: Prover,
    /// Where clients find this door.
    address: SocketAddr,
}

impl Guard {
    pub(crate) fn new(token: &str, address: SocketAddr) -> Self {
        Self { digest: Sha256::digest(token).into(), prover: Prover::new(token), address }
    }

    /// What convinces a client that it may send its token here.
    pub(crate) fn prove(&self, nonce: Nonce) -> String {
        self.prover.prove(self.address, nonce)
    }

    /// Where the call comes from; asked of every call.
    pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), Denied> {
        if headers.contains_key(ORIGIN) {
            return Err(Denied::Origin);
        }
        let mut hosts = headers.get_all(HOST).iter();
        match (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) {
            (Some(host), None) if is_loopback(host) => Ok(()),
            _ => Err(Denied::Host),
        }
    }

    /// Who calls; asked of every call but `/healthz`.
    pub(crate) fn check_token(&self, headers: &HeaderMap) -> Result<(), Denied> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return Err(Denied::Token) };
        let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
        let given: [u8; 32] = Sha256::digest(token.ok_or(Denied::Token)?).into();
        // Digests: how long the comparison takes says nothing about the token. Folded, so that it takes as long anyway.
        let difference = given.iter().zip(self.digest).fold(0u8, |all, (a, b)| all | (a ^ b));
        if difference == 0 { Ok(()) } else { Err(Denied::Token) }
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || port.starts_with(':') => name,
            _ => return false,
        },
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn only_the_whole_token_opens() {
        let guard = Guard::new("secret-token", ([127, 0, 0, 1], 1).into());
        let check = |value| guard.check_token(&headers(&[("authorization", value)]));
        assert_eq!(check("Bearer secret-token"), Ok(()));
        for wrong in
            ["Bearer secret-toke", "Bearer ", "Bearer secret-token2", "secret-token", "Basic x"]
        {
            assert_eq!(check(wrong), Err(Denied::Token), "{wrong}");
        }
        assert_eq!(guard.check_token(&headers(&[])), Err(Denied::Token));
        let twice =
            headers(&[("authorization", "Bearer x"), ("authorization", "Bearer secret-token")]);
        assert_eq!(guard.check_token(&twice), Err(Denied::Token));
    }

    #[test]
    fn pages_and_rebound_names_are_refused() {
        for host in ["127.0.0.1:80", "localhost", "LOCALHOST:1", "[::1]:80", "127.9.9.9"] {
            assert_eq!(Guard::check_origin(&headers(&[("host", host)])), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", "", "[::1", "localhost.x"]
        {
            assert_eq!(
                Guard::check_origin(&headers(&[("host", host)])),
                Err(Denied::Host),
                "{host}"
            );
        }
        assert_eq!(Guard::check_origin(&headers(&[])), Err(Denied::Host));
        for origin in ["null", "http://localhost"] {
            let with = headers(&[("host", "localhost"), ("origin", origin)]);
            assert_eq!(Guard::check_origin(&with), Err(Denied::Origin));
        }
    }
}
