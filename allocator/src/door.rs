//! Where the allocator listens: on a port that no agent can get.
//!
//! Landlock decides about bind(2) and connect(2). It does not see a socket that listens without having been bound: the
//! kernel then picks a port of `net.ipv4.ip_local_port_range` (ip(7)). So no port that casemate trusts lies in that range:
//! neither the allocator's, of the pool here, nor the workers', of the pool above it. Where an administrator has widened
//! the range, [`Exposed`] says so and how to mend it; it is no refusal, because the allocator proves itself anyway
//! (`casemate_protocol::proof`).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use casemate_protocol::ports::OURS;
use tokio::net::TcpListener;

/// The allocators' own ports, below those of the workers.
const POOL: RangeInclusive<u16> = 20_000..=20_999;

/// The kernel may hand out ports of casemate's to whoever asks for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    range: (u16, u16),
    reserved: String,
}

/// Listens at an address; for port 0 at the first free port of the pool.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.port() != 0 {
        return TcpListener::bind(address).await;
    }
    for port in POOL {
        match TcpListener::bind(SocketAddr::new(address.ip(), port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            outcome => return outcome,
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Whether this machine keeps casemate's ports for whoever asks for them; `None`: it does, or does not tell.
#[must_use]
pub fn exposed_ports() -> Option<Exposed> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok();
    let reserved = read("ip_local_reserved_ports").unwrap_or_default();
    exposed(&read("ip_local_port_range")?, &reserved)
}

fn exposed(range: &str, reserved: &str) -> Option<Exposed> {
    let mut ends = range.split_ascii_whitespace().map(str::parse::<u16>);
    let (Some(Ok(low)), Some(Ok(high))) = (ends.next(), ends.next()) else { return None };
    let reserved = reserved.trim();
    let kept: Vec<RangeInclusive<u16>> = reserved.split(',').filter_map(span).collect();
    let open =
        |port: &u16| (low..=high).contains(port) && !kept.iter().any(|kept| kept.contains(port));
    OURS.clone()
        .any(|port| open(&port))
        .then(|| Exposed { range: (low, high), reserved: reserved.to_owned() })
}

/// `a` or `a-b`, as `ip_local_reserved_ports` has them.
fn span(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}

impl Exposed {
    /// What to run as root.
    #[must_use]
    pub fn fix(&self) -> String {
        let comma = if self.reserved.is_empty() { "" } else { "," };
        format!(
            "sysctl -w net.ipv4.ip_local_reserved_ports={}{comma}{}-{}",
            self.reserved,
            OURS.start(),
            OURS.end()
        )
    }
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.range;
        write!(
            f,
            "net.ipv4.ip_local_port_range is {low}-{high}: any program, an agent too, may be given ports of casemate's ({}-{})",
            OURS.start(),
            OURS.end()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_lie_below_the_kernels_range_unless_somebody_widened_it() {
        assert_eq!(exposed("32768\t60999\n", "\n"), None);
        assert_eq!(exposed("32000 60999", ""), None);
        assert_eq!(exposed("garbage", ""), None);
        let wide = exposed("1024 65535", "8080,9000-9010\n").unwrap();
        assert!(wide.to_string().contains("1024-65535"), "{wide}");
        assert_eq!(
            wide.fix(),
            "sysctl -w net.ipv4.ip_local_reserved_ports=8080,9000-9010,20000-31999"
        );
        assert!(exposed("31999 60999", "").is_some());
        assert!(exposed("1024 65535", "20000-31998").is_some());
        for reserved in ["20000-31999", "1,20000-25000, 25001-40000"] {
            assert_eq!(exposed("1024 65535", reserved), None, "{reserved}");
        }
    }

    #[test]
    fn the_workers_ports_are_ours_as_well() {
        use casemate_allocator_core::seat::{SEATS, Seat};
        let pool = Seat(SEATS - 1).ports();
        let last = pool.claims().max().unwrap() + casemate_protocol::ports::RANGE - 1;
        assert!(OURS.contains(&pool.first) && OURS.contains(&last) && pool.first > *POOL.end());
    }

    #[tokio::test]
    async fn the_first_free_port_of_the_pool_is_taken() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (one, two) = (listen(any).await.unwrap(), listen(any).await.unwrap());
        let ports = [&one, &two].map(|listener| listener.local_addr().unwrap().port());
        assert!(ports.iter().all(|port| POOL.contains(port)) && ports[0] != ports[1]);
        let error = listen(one.local_addr().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
