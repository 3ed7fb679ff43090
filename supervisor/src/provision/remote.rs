//! URLs of Git repositories: what may be passed on, and what is a secret.
//!
//! Pure. A credential in a URL goes to git as a header in its environment for the time of the clone: never to argv,
//! never into the clone's configuration, where the agent would read it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// An http(s) remote, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// The URL without userinfo.
    pub url: String,
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// `Authorization: Basic ...`, where the URL had a userinfo.
    pub header: Option<String>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Why a URL is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// Another scheme, or none.
    #[error("only http:// and https:// remotes are cloned; give one, or a path on this machine")]
    Scheme,
    /// No host, a bad port, or white space.
    #[error("the URL has no valid host and port")]
    Authority,
}

// === impl Remote ===

impl Remote {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`RemoteError`] where it is not an http(s) URL.
    pub fn parse(text: &str) -> Result<Self, RemoteError> {
        let (scheme, rest) = text.split_once("://").ok_or(RemoteError::Scheme)?;
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "http" => 80,
            "https" => 443,
            _ => return Err(RemoteError::Scheme),
        };
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(RemoteError::Authority);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (userinfo, address) = match authority.rsplit_once('@') {
            Some((userinfo, address)) => (Some(userinfo), address),
            None => (None, authority),
        };
        let (host, port) = split_port(address).ok_or(RemoteError::Authority)?;
        let port = match port {
            Some(port) => port.parse().map_err(|_| RemoteError::Authority)?,
            None => default_port,
        };
        if host.is_empty() {
            return Err(RemoteError::Authority);
        }
        Ok(Self {
            url: format!("{scheme}://{address}{path}"),
            host: host.to_owned(),
            port,
            header: userinfo.map(basic),
        })
    }
}

fn split_port(address: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = address.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after {
            "" => Some((host, None)),
            after => Some((host, Some(after.strip_prefix(':')?))),
        };
    }
    Some(match address.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (address, None),
    })
}

fn basic(userinfo: &str) -> String {
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let mut plain = unescape(user);
    plain.push(b':');
    plain.extend(unescape(password));
    format!("Authorization: Basic {}", STANDARD.encode(plain))
}

/// Percent-decoding (RFC 3986 section 2.1); a broken escape stands for itself.
fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

/// A local source's own `origin`, as far as it may be given to the clone: a network URL without a credential.
#[must_use]
pub(super) fn origin_to_keep(origin: &str) -> Option<String> {
    let origin = origin.trim();
    if origin.is_empty() || origin.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return None;
    }
    if let Some((scheme, rest)) = origin.split_once("://") {
        let authority = rest.split('/').next().unwrap_or_default();
        let userinfo = authority.rsplit_once('@').map(|(userinfo, _)| userinfo);
        let keep = match scheme {
            "http" | "https" => userinfo.is_none(),
            // ssh needs a user name, which is no secret; a password is.
            "ssh" | "git" => userinfo.is_none_or(|userinfo| !userinfo.contains(':')),
            _ => false,
        };
        return keep.then(|| origin.to_owned());
    }
    // scp-like: user@host:path. A path of this machine means nothing inside.
    let (host, path) = origin.split_once(':')?;
    (!host.is_empty() && !host.contains('/') && !path.is_empty() && !path.starts_with(':'))
        .then(|| origin.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_leaves_the_url_and_becomes_a_header() {
        let remote = Remote::parse("https://me:p%40ss@git.example:8443/a/b.git").unwrap();
        assert_eq!(remote.url, "https://git.example:8443/a/b.git");
        assert_eq!((remote.host.as_str(), remote.port), ("git.example", 8443));
        let expected = format!("Authorization: Basic {}", STANDARD.encode("me:p@ss"));
        assert_eq!(remote.header.as_deref(), Some(expected.as_str()));
        assert!(!format!("{remote:?}").contains("Basic"));
    }

    #[test]
    fn hosts_and_default_ports() {
        let parts = |url: &str| Remote::parse(url).map(|r| (r.host, r.port));
        assert_eq!(parts("http://h/r"), Ok(("h".into(), 80)));
        assert_eq!(parts("HTTPS://h"), Ok(("h".into(), 443)));
        assert_eq!(parts("http://[::1]:81/r"), Ok(("::1".into(), 81)));
        assert_eq!(parts("ssh://h/r"), Err(RemoteError::Scheme));
        assert_eq!(parts("ext::sh -c true"), Err(RemoteError::Scheme));
        assert_eq!(parts("http://:80/"), Err(RemoteError::Authority));
        assert_eq!(parts("http://h:x/"), Err(RemoteError::Authority));
        assert_eq!(parts("http://h/a b"), Err(RemoteError::Authority));
    }

    #[test]
    fn an_origin_is_kept_where_it_has_no_secret_and_means_something_elsewhere() {
        for kept in ["https://h/r.git", "ssh://git@h/r", "git@h:r.git"] {
            assert_eq!(origin_to_keep(kept).as_deref(), Some(kept));
        }
        for dropped in ["", "https://t@h/r", "https://u:p@h/r", "ssh://u:p@h/r", "/srv/r", "../r"] {
            assert_eq!(origin_to_keep(dropped), None, "{dropped}");
        }
        assert_eq!(origin_to_keep("file:///srv/r"), None);
        assert_eq!(origin_to_keep("ext::sh -c x"), None);
    }
}
