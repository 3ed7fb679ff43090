//! A Pod's own network without a cluster: a network namespace, and a pair of interfaces between it and the machine. What a NetworkPolicy
//! does there, a routing rule does here (ip-rule(8)): packets to one port are refused, all others pass.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The namespace goes when this does.
pub(crate) struct Network {
    name: String,
    /// The machine's end.
    pub(crate) outside: Ipv4Addr,
    /// The Pod's.
    pub(crate) inside: Ipv4Addr,
}

// === impl Network ===

impl Network {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        // Four addresses each of the upper half of those for measuring (RFC 2544); other processes have others.
        let number = process.wrapping_mul(32).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let base = u32::from(Ipv4Addr::new(198, 19, 0, 0)) + (number % (1 << 14)) * 4;
        let [outside, inside] = [1, 2].map(|at| Ipv4Addr::from(base + at));
        let network = Self { name: format!("cm{number:x}"), outside, inside };
        let name = &network.name;
        ip(&format!("netns add {name}"));
        ip(&format!("link add {name}o type veth peer name {name}i netns {name}"));
        ip(&format!("address add {outside}/30 dev {name}o"));
        ip(&format!("link set {name}o up"));
        ip(&format!("-netns {name} address add {inside}/30 dev {name}i"));
        ip(&format!("-netns {name} link set {name}i up"));
        ip(&format!("-netns {name} link set lo up"));
        network
    }

    /// What comes before a program to run it there.
    pub(crate) fn before(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--net=/run/netns/{}", self.name)]
    }

    /// Somebody who listens on the machine's end.
    pub(crate) fn listener(&self) -> TcpListener {
        TcpListener::bind((IpAddr::from(self.outside), 0)).unwrap()
    }

    /// From now on nothing gets from there to this port.
    pub(crate) fn close(&self, port: u16) {
        let (name, outside) = (&self.name, self.outside);
        ip(&format!("-netns {name} rule add to {outside} ipproto tcp dport {port} prohibit"));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The pair goes with its end in there.
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

fn ip(words: &str) {
    let said = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(said.status.success(), "ip {words}: {}", String::from_utf8_lossy(&said.stderr));
}
