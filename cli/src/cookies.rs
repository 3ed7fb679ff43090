//! The cookies of one attachment: what a balancer sets, so that the next connection finds the same backend. The transport's
//! specification has clients keep them for as long as their connection (here: the attachment) lives.
//!
//! A worker is dialled by its address and at one path, so RFC 6265 comes down to this: no cookie of a domain, none of another
//! path, the newest of a name, none that was taken back.

use std::fmt;
use std::time::SystemTime;

use cookie::Cookie;
use tokio_tungstenite::tungstenite::http::header::{COOKIE, SET_COOKIE};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderValue};

/// The path that all connections of an attachment have.
const PATH: &str = "/acp";
/// RFC 6265 section 6.1 has clients keep at least so many of a domain.
const MOST: usize = 50;
/// And so many bytes of each, name, value and attributes.
const LONGEST: usize = 4096;

/// Names and values. What is printed of it are names.
#[derive(Default)]
pub(crate) struct Cookies(Vec<(String, String)>);

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

// === impl Cookies ===

impl Cookies {
    /// Takes what an answer sets and takes back. `secure`: the connection is encrypted.
    pub(crate) fn take(&mut self, answer: &HeaderMap, secure: bool) {
        let set = answer.get_all(SET_COOKIE).into_iter();
        for text in set.filter_map(|value| value.to_str().ok()).filter(|text| text.len() <= LONGEST)
        {
            let Ok(cookie) = Cookie::parse(text) else { continue };
            let elsewhere = cookie.domain().is_some() || !covers(cookie.path());
            if elsewhere || (cookie.secure() == Some(true) && !secure) {
                continue;
            }
            self.0.retain(|(name, _)| name != cookie.name());
            if !is_over(&cookie) && self.0.len() < MOST {
                self.0.push((cookie.name().to_owned(), cookie.value().to_owned()));
            }
        }
    }

    /// Adds them to a request.
    pub(crate) fn give(&self, request: &mut HeaderMap) {
        let all: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if let Ok(mut value) = HeaderValue::from_str(&all.join("; "))
            && !all.is_empty()
        {
            value.set_sensitive(true);
            request.insert(COOKIE, value);
        }
    }
}

/// RFC 6265 section 5.1.4. Where none is given, the default path of `/acp` is `/`.
fn covers(path: Option<&str>) -> bool {
    match path {
        Some(path) if path.starts_with('/') => path == "/" || path == PATH,
        Some(_) | None => true,
    }
}

/// Whether a cookie is there to be removed: Max-Age goes before Expires (RFC 6265 section 5.3).
fn is_over(cookie: &Cookie<'_>) -> bool {
    if let Some(age) = cookie.max_age() {
        return !age.is_positive();
    }
    cookie.expires_datetime().is_some_and(|at| SystemTime::from(at) <= SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(answers: &[&[&str]], secure: bool) -> Option<String> {
        let mut cookies = Cookies::default();
        for answer in answers {
            let pairs =
                answer.iter().map(|text| (SET_COOKIE, HeaderValue::from_str(text).unwrap()));
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value);
            }
            cookies.take(&headers, secure);
        }
        let mut request = HeaderMap::new();
        cookies.give(&mut request);
        request.get(COOKIE).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn what_was_set_last_is_sent_back_and_what_was_taken_back_is_not() {
        assert_eq!(after(&[], false), None);
        let first = ["route=a; Path=/; HttpOnly", "other=1; Path=/acp; SameSite=Lax"];
        assert_eq!(after(&[&first], false).as_deref(), Some("route=a; other=1"));
        assert_eq!(after(&[&first, &["route=b"]], false).as_deref(), Some("other=1; route=b"));
        for gone in [
            "route=; Max-Age=0",
            "route=x; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "route=x; Max-Age=0; Expires=Fri, 31 Dec 9999 23:59:59 GMT",
        ] {
            assert_eq!(after(&[&first, &[gone]], false).as_deref(), Some("other=1"), "{gone}");
        }
        let later = "route=x; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT";
        assert_eq!(after(&[&[later]], false).as_deref(), Some("route=x"));
    }

    #[test]
    fn cookies_of_other_places_and_of_encrypted_connections_stay_out() {
        for other in ["a=1; Path=/v1", "a=1; Path=/acp/x", "a=1; Domain=example.org", "a", "=x; b"]
        {
            assert_eq!(after(&[&[other]], false), None, "{other}");
        }
        assert_eq!(after(&[&["a=1; Secure"]], false), None);
        assert_eq!(after(&[&["a=1; Secure"]], true).as_deref(), Some("a=1"));
        let long = format!("a={}", "x".repeat(LONGEST));
        assert_eq!(after(&[&[&long]], false), None);
        let many: Vec<String> = (0..200).map(|number| format!("n{number}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(after(&[&many], false).unwrap().split("; ").count(), MOST);
    }

    #[test]
    fn values_are_not_printed() {
        let mut cookies = Cookies::default();
        let secret = HeaderValue::from_static("route=secret");
        cookies.take(&HeaderMap::from_iter([(SET_COOKIE, secret)]), false);
        assert_eq!(format!("{cookies:?}"), "[\"route\"]");
    }
}
