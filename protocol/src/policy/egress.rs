//! Which hosts an agent may speak to: the words of `[egress]` and `[[host]]`, and whether a host is named.
//!
//! Pure. Port rules are a wall by themselves and always hold; hosts come on top. What of it this build's walls can
//! hold is said by [`Egress::unenforced`], and a policy that asks for more starts no worker.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// How much of the network is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// None: no port is connected to and no socket made that leaves the machine.
    None,
    /// The hosts of `[[host]]`, at ports of `[[tcp]]`.
    AllowList,
    /// Every host, at ports of `[[tcp]]`.
    Open,
}

/// What kind of address a name may lead to. Link-local ones (a cloud's metadata service) are of no kind: a host rule has
/// to name them as addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Whatever is neither private nor loopback nor link-local.
    Public,
    /// RFC 1918, RFC 6598 (100.64.0.0/10), RFC 4193 (fc00::/7).
    Private,
    /// 127.0.0.0/8 and ::1.
    Loopback,
}

impl Reach {
    /// The kind of an address; `None`: link-local, unspecified, multicast.
    #[must_use]
    pub fn of(address: IpAddr) -> Option<Self> {
        // A v4 address in v6 clothes is the v4 address.
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, ..] = v4.octets();
                if v4.is_loopback() {
                    Some(Self::Loopback)
                } else if v4.is_link_local() || v4.is_multicast() || v4.is_broadcast() || a == 0 {
                    None
                } else if v4.is_private() || (a == 100 && b & 0xc0 == 64) {
                    Some(Self::Private)
                } else {
                    Some(Self::Public)
                }
            }
            IpAddr::V6(v6) if v6 == Ipv6Addr::LOCALHOST => Some(Self::Loopback),
            IpAddr::V6(v6)
                if v6.is_unicast_link_local() || v6.is_multicast() || v6.is_unspecified() =>
            {
                None
            }
            IpAddr::V6(v6) if v6.is_unique_local() => Some(Self::Private),
            IpAddr::V6(_) => Some(Self::Public),
        }
    }
}

/// The section, with its hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Egress {
    /// How much is there.
    pub mode: Mode,
    /// Why.
    pub reason: String,
    /// The line of `[egress]` in the file, from 1.
    pub line: usize,
    /// The hosts; empty unless the mode is [`Mode::AllowList`].
    pub hosts: Vec<HostRule>,
}

// === impl Egress ===

impl Egress {
    /// Why this build cannot hold the section; `None`: it can.
    ///
    /// [`Mode::None`] holds, since such a policy lists neither a port to connect to nor a socket that leaves the machine,
    /// and [`Mode::Open`] asks for no more than the ports. Hosts need somebody who reads each connection's address.
    #[must_use]
    pub fn unenforced(&self) -> Option<&'static str> {
        match self.mode {
            Mode::None | Mode::Open => None,
            Mode::AllowList => Some(
                "not enforced by this build: Landlock knows ports, not hosts; write mode = \"open\" to have the ports alone, or \"none\"",
            ),
        }
    }
}

/// Hosts that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// The hosts; never empty.
    pub names: Vec<HostPattern>,
    /// What kinds of addresses the names may lead to; never empty. Addresses among `names` are meant as they are.
    pub reach: Vec<Reach>,
    /// Why.
    pub reason: String,
    /// The line in the file, from 1.
    pub line: usize,
}

/// `api.example.com:443`, `*.example.com`, `192.0.2.1:8080`, `[2001:db8::1]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPattern {
    /// Which hosts.
    pub host: Host,
    /// Which port; `None`: each that a `[[tcp]]` rule names.
    pub port: Option<u16>,
}

/// The host of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// This name, in lower case, and no other.
    Name(String),
    /// Every name below this one, at any depth; not the name itself.
    Below(String),
    /// This address.
    Address(IpAddr),
}

// === impl HostPattern ===

impl HostPattern {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = split(text);
        let port = match port {
            None => None,
            Some(digits) => {
                let number = digits.parse::<u16>().ok().filter(|number| *number != 0);
                Some(number.ok_or_else(|| {
                    format!(
                        "\"{text}\": \"{digits}\" is no port: write 1 to 65535, or leave it out"
                    )
                })?)
            }
        };
        let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(host).parse::<IpAddr>() {
            if bare.is_some() != address.is_ipv6() {
                return Err(format!(
                    "\"{text}\": write an IPv6 address, and it alone, in brackets"
                ));
            }
            return Ok(Self { host: Host::Address(address.to_canonical()), port });
        }
        let (name, is_below) = match host.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (host, false),
        };
        check_name(text, name)?;
        if is_below && !name.contains('.') {
            return Err(format!(
                "\"{text}\" is a whole top-level domain: name the domain below which the hosts are"
            ));
        }
        let name = name.to_owned();
        Ok(Self { host: if is_below { Host::Below(name) } else { Host::Name(name) }, port })
    }

    /// Whether it names a host, by name (case does not matter, nor a dot at the end) or address, and this port.
    #[must_use]
    pub fn covers(&self, host: &str, port: u16) -> bool {
        if self.port.is_some_and(|own| own != port) {
            return false;
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match &self.host {
            Host::Name(name) => host == *name,
            Host::Below(name) => host
                .strip_suffix(name.as_str())
                .and_then(|front| front.strip_suffix('.'))
                .is_some_and(|front| !front.is_empty()),
            Host::Address(address) => {
                host.parse::<IpAddr>().is_ok_and(|asked| asked.to_canonical() == *address)
            }
        }
    }
}

impl HostPattern {
    /// Whether it names everything that the other one names.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (Host::Below(own), Host::Name(name) | Host::Below(name)) if self.host != other.host => {
                name.strip_suffix(own.as_str()).is_some_and(|front| front.ends_with('.'))
            }
            (own, other) => own == other,
        };
        host && (self.port.is_none() || self.port == other.port)
    }
}

/// Host and port; the colons of an address in brackets are its own.
fn split(text: &str) -> (&str, Option<&str>) {
    let after_brackets = text.rfind(']').map_or(0, |at| at + 1);
    match text[after_brackets..].rfind(':') {
        // More than one colon and no brackets: an IPv6 address, which is refused for its brackets.
        Some(_) if after_brackets == 0 && text.matches(':').count() > 1 => (text, None),
        Some(at) => (&text[..after_brackets + at], Some(&text[after_brackets + at + 1..])),
        None => (text, None),
    }
}

/// RFC 1123: labels of letters, digits and hyphens.
fn check_name(text: &str, name: &str) -> Result<(), String> {
    if name.contains('*') {
        return Err(format!(
            "\"{text}\": * stands for whole labels in front only: write *.example.com"
        ));
    }
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(format!("\"{text}\": write host names in lower case"));
    }
    if !name.is_ascii() {
        return Err(format!("\"{text}\": write the name as DNS has it (xn--...)"));
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.chars().all(|c| c.is_ascii_digit());
    let last = name.rsplit('.').next().unwrap_or_default();
    if name.len() > 253 || !name.split('.').all(is_label) || is_number(last) {
        return Err(format!(
            "\"{text}\" is no host: write a name, an address, or *.example.com, and :PORT behind it"
        ));
    }
    Ok(())
}

// === impl Display: each word as it is written in a file ===

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::AllowList => "allow-list",
            Self::Open => "open",
        })
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Loopback => "loopback",
        })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => f.write_str(name)?,
            Host::Below(name) => write!(f, "*.{name}")?,
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            Host::Address(address) => write!(f, "{address}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_read_and_written_alike() {
        for text in [
            "api.example.com:443",
            "*.example.com",
            "*.a.example.com:8443",
            "localhost:1",
            "192.0.2.1:80",
            "[2001:db8::1]:443",
            "[::1]",
            "xn--bcher-kva.example",
        ] {
            assert_eq!(HostPattern::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_pattern_names_the_fix() {
        let long = "a".repeat(64);
        let cases = [
            ("", "is no host"),
            (":443", "is no host"),
            ("example.com:0", "is no port"),
            ("example.com:65536", "is no port"),
            ("example.com:", "is no port"),
            ("::1", "in brackets"),
            ("[192.0.2.1]:80", "in brackets"),
            ("*.com", "top-level domain"),
            ("*", "* stands for whole labels"),
            ("a.*.example.com", "* stands for whole labels"),
            ("*a.example.com", "* stands for whole labels"),
            ("Example.com", "lower case"),
            ("bücher.example", "xn--"),
            ("example..com", "is no host"),
            ("example.com.", "is no host"),
            ("-a.example.com", "is no host"),
            ("a b.example.com", "is no host"),
            ("https://example.com", "is no port"),
            ("256.1.1.1", "is no host"),
            (long.as_str(), "is no host"),
        ];
        for (text, part) in cases {
            let message = HostPattern::parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_name_covers_itself_and_a_star_what_is_below() {
        let covers =
            |pattern: &str, host, port| HostPattern::parse(pattern).unwrap().covers(host, port);
        assert!(covers("example.com:443", "EXAMPLE.com.", 443));
        assert!(!covers("example.com:443", "example.com", 80));
        assert!(covers("example.com", "example.com", 80));
        for host in ["a.example.com", "a.b.example.com"] {
            assert!(covers("*.example.com", host, 1) && !covers("example.com", host, 1), "{host}");
        }
        for host in ["example.com", ".example.com", "badexample.com", "example.com.evil.org"] {
            assert!(!covers("*.example.com", host, 1), "{host}");
        }
        assert!(covers("127.0.0.1:80", "::ffff:127.0.0.1", 80));
        assert!(covers("[::1]", "0:0::1", 80) && !covers("[::1]", "::2", 80));
    }

    #[test]
    fn the_metadata_service_is_of_no_kind() {
        let of = |text: &str| Reach::of(text.parse().unwrap());
        for address in ["127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(of(address), Some(Reach::Loopback), "{address}");
        }
        for address in ["10.1.2.3", "172.31.0.1", "192.168.1.1", "100.64.0.1", "fd00::1"] {
            assert_eq!(of(address), Some(Reach::Private), "{address}");
        }
        for address in ["8.8.8.8", "100.128.0.1", "172.32.0.1", "2001:db8::1"] {
            assert_eq!(of(address), Some(Reach::Public), "{address}");
        }
        for address in ["169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
            assert_eq!(of(address), None, "{address}");
        }
    }
}
