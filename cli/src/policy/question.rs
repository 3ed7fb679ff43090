//! What `casemate policy explain` is asked. Pure.

use casemate_protocol::policy::decide::Transport;
use casemate_protocol::policy::{
    Bound, PathTemplate, Resource, Scope, SocketCall, SocketFamily, SocketType,
};

const FORMS: &str = "ask for /PATH or {home}/PATH, connect HOST:PORT[/udp], bind PORT[/udp], signal, abstract-socket, \
                     syscall NAME [ARGUMENT...], socket|socketpair FAMILY TYPE [PROTOCOL], rlimit NAME, bound NAME or env NAME";

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Path(PathTemplate),
    Connect { transport: Transport, host: Option<String>, family: Option<SocketFamily>, port: u16 },
    Bind { transport: Transport, port: u16 },
    Scope(Scope),
    Limit(Resource),
    Bound(Bound),
    Syscall { name: String, arguments: Vec<Option<u64>> },
    Socket { call: SocketCall, family: u64, kind: u64, protocol: Option<u64> },
    Variable(String),
}

// === impl Question ===

impl Question {
    /// Reads the words; the error says what to write.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [path] if path.starts_with(['/', '{']) => PathTemplate::parse(path).map(Self::Path),
            ["connect", to] => connect(to),
            ["bind", port] => {
                let (port, transport) = transport(port)?;
                Ok(Self::Bind { transport, port: self::port(port)? })
            }
            ["signal"] => Ok(Self::Scope(Scope::Signal)),
            ["abstract-socket"] => Ok(Self::Scope(Scope::AbstractUnixSocket)),
            ["rlimit", name] => limit(name),
            ["bound", name] => bound(name),
            ["syscall", name, arguments @ ..] if arguments.len() <= 6 => {
                let arguments = arguments
                    .iter()
                    .map(|word| if *word == "_" { Ok(None) } else { number(word).map(Some) })
                    .collect::<Result<_, _>>()?;
                Ok(Self::Syscall { name: (*name).to_owned(), arguments })
            }
            [call @ ("socket" | "socketpair"), family, kind, protocol @ ..]
                if protocol.len() <= 1 =>
            {
                let call =
                    if *call == "socket" { SocketCall::Socket } else { SocketCall::Socketpair };
                socket(call, family, kind, protocol.first().copied())
            }
            ["env", name] => Ok(Self::Variable((*name).to_owned())),
            _ => Err(FORMS.to_owned()),
        }
    }
}

/// `443`, `443/tcp` or `53/udp`, of a host or alone.
fn transport(word: &str) -> Result<(&str, Transport), String> {
    match word.rsplit_once('/') {
        None => Ok((word, Transport::Tcp)),
        Some((rest, "tcp")) => Ok((rest, Transport::Tcp)),
        Some((rest, "udp")) => Ok((rest, Transport::Udp)),
        Some((_, other)) => Err(format!("\"{other}\" has no port rules: write /tcp or /udp")),
    }
}

fn limit(name: &str) -> Result<Question, String> {
    let known = Resource::ALL.into_iter().find(|known| known.to_string() == name);
    known.map(Question::Limit).ok_or_else(|| {
        let names = Resource::ALL.map(|known| known.to_string()).join(", ");
        format!("\"{name}\" is no resource: write one of {names}")
    })
}

fn bound(name: &str) -> Result<Question, String> {
    let known = Bound::ALL.into_iter().find(|known| known.to_string() == name);
    known.map(Question::Bound).ok_or_else(|| {
        let names = Bound::ALL.map(|known| known.to_string()).join(", ");
        format!("\"{name}\" is no bound: write one of {names}")
    })
}

/// `host:443`, `[::1]:443` or `443`. An address tells the family.
fn connect(to: &str) -> Result<Question, String> {
    let (to, transport) = transport(to)?;
    let (host, port) = match to.rsplit_once(':') {
        Some((host, port)) => (Some(host.trim_start_matches('[').trim_end_matches(']')), port),
        None => (None, to),
    };
    let port = self::port(port)?;
    let family = host.and_then(|host| match host.parse() {
        Ok(std::net::IpAddr::V4(_)) => Some(SocketFamily::Inet),
        Ok(std::net::IpAddr::V6(_)) => Some(SocketFamily::Inet6),
        Err(_) => None,
    });
    Ok(Question::Connect { transport, host: host.map(str::to_owned), family, port })
}

fn port(word: &str) -> Result<u16, String> {
    word.parse().map_err(|_| format!("\"{word}\" is no port: write 0 to 65535"))
}

/// Decimal, `0x` hexadecimal or `0o` octal; a negative one is its two's complement.
fn number(word: &str) -> Result<u64, String> {
    let wrong = || format!("\"{word}\" is no number: write 12, -1, 0x1f, 0o17, or _ for any");
    if let Some(digits) = word.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| wrong());
    }
    if let Some(digits) = word.strip_prefix("0o") {
        return u64::from_str_radix(digits, 8).map_err(|_| wrong());
    }
    let negative = || word.parse::<i64>().map(i64::cast_unsigned);
    word.parse::<u64>().or_else(|_| negative()).map_err(|_| wrong())
}

fn socket(
    call: SocketCall,
    family: &str,
    kind: &str,
    protocol: Option<&str>,
) -> Result<Question, String> {
    let word = family.to_lowercase();
    let known = SocketFamily::ALL.into_iter().find(|family| family.to_string() == word);
    let family = match known {
        Some(family) => family.number().into(),
        None => number(family).map_err(|_| {
            format!("\"{family}\" is no family: write unix, inet, inet6, netlink, alg, vsock or a number")
        })?,
    };
    let word = kind.to_lowercase();
    let known = SocketType::ALL.into_iter().find(|kind| kind.to_string() == word);
    let kind = match known {
        Some(kind) => kind.number().into(),
        None => number(kind).map_err(|_| {
            format!("\"{kind}\" is no type: write stream, dgram, raw, seqpacket or a number")
        })?,
    };
    let protocol = protocol.map(protocol_number).transpose()?;
    Ok(Question::Socket { call, family, kind, protocol })
}

/// IPPROTO_* by name (netinet/in.h), or the number.
fn protocol_number(word: &str) -> Result<u64, String> {
    match word.to_lowercase().as_str() {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp" => Ok(1),
        "sctp" => Ok(132),
        "udplite" => Ok(136),
        "mptcp" => Ok(262),
        other => number(other)
            .map_err(|_| format!("\"{word}\" is no protocol: write tcp, udp, mptcp or a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Question, String> {
        Question::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn each_form_is_read() {
        let path = |text: &str| Ok(Question::Path(PathTemplate::parse(text).unwrap()));
        assert_eq!(parse("/etc/passwd"), path("/etc/passwd"));
        assert_eq!(parse("{home}/x"), path("{home}/x"));
        let (tcp, udp) = (Transport::Tcp, Transport::Udp);
        let connect = |transport, host: Option<&str>, family, port| {
            Ok(Question::Connect { transport, host: host.map(str::to_owned), family, port })
        };
        assert_eq!(parse("connect example.org:443"), connect(tcp, Some("example.org"), None, 443));
        let four = Some(SocketFamily::Inet);
        assert_eq!(parse("connect 127.0.0.1:80/tcp"), connect(tcp, Some("127.0.0.1"), four, 80));
        let six = Some(SocketFamily::Inet6);
        assert_eq!(parse("connect [::1]:53/udp"), connect(udp, Some("::1"), six, 53));
        assert_eq!(parse("connect 80"), connect(tcp, None, None, 80));
        assert_eq!(parse("bind 0"), Ok(Question::Bind { transport: tcp, port: 0 }));
        assert_eq!(parse("bind 5/udp"), Ok(Question::Bind { transport: udp, port: 5 }));
        assert_eq!(parse("signal"), Ok(Question::Scope(Scope::Signal)));
        assert_eq!(parse("abstract-socket"), Ok(Question::Scope(Scope::AbstractUnixSocket)));
        assert_eq!(parse("rlimit nofile"), Ok(Question::Limit(Resource::Nofile)));
        assert_eq!(parse("bound disk"), Ok(Question::Bound(Bound::Disk)));
        let arguments = vec![Some(0x10), None, Some(u64::MAX)];
        let call = Question::Syscall { name: "clone".to_owned(), arguments };
        assert_eq!(parse("syscall clone 0x10 _ -1"), Ok(call));
        let call = SocketCall::Socket;
        let socket = |kind, protocol| Ok(Question::Socket { call, family: 2, kind, protocol });
        assert_eq!(parse("socket inet stream mptcp"), socket(1, Some(262)));
        assert_eq!(parse("socket 2 DGRAM"), socket(2, None));
        assert_eq!(parse("env HOME"), Ok(Question::Variable("HOME".to_owned())));
    }

    #[test]
    fn a_wrong_question_says_what_to_write() {
        let cases = [
            ("etc/passwd", "ask for /PATH"),
            ("/etc/../x", "contains . or .."),
            ("{hom}/x", "no placeholder {hom}"),
            ("connect example.org", "is no port"),
            ("bind 65536", "is no port"),
            ("syscall clone x", "is no number"),
            ("syscall a 1 2 3 4 5 6 7", "ask for"),
            ("socket ip stream", "is no family"),
            ("socket inet udp", "is no type"),
            ("socket inet dgram quic", "is no protocol"),
            ("connect 80/sctp", "has no port rules"),
            ("rlimit files", "is no resource: write one of as, core"),
            ("bound nofile", "is no bound: write one of processes, disk, files"),
            ("env", "ask for"),
        ];
        for (text, part) in cases {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
