//! That the Pod's NetworkPolicy is in force: a connection that it does not allow is refused.
//!
//! A policy takes effect some time after its Pod has an address, and until then everything passes. So a connection to a target
//! that no policy allows is tried until it is refused. A target that is gone, or that no way leads to, refuses as well. Hence two
//! controls: the target has the very address that the bind came from ([`super::intake`]), so packets pass between the two; and
//! whoever signed the bind connects to it once more *after* the refusal, and says that it answered
//! ([`casemate_protocol::slot::Bind::answered`]). What is left between the two is what looks at ports and directions: the policy.
//!
//! The supervisor's own filter lets it make no socket, so each try is an errand of its porter's.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use casemate_protocol::worker::StartError;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::pod;
use crate::shared::porter::Porter;

/// Some fifty times what a connection within a cluster takes.
const ANSWER: Duration = Duration::from_millis(500);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// A lost packet is sent again after a second (RFC 6298), which [`ANSWER`] does not wait for: one silence may be that.
const SILENCES: u32 = 2;

/// What came of one try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Try {
    /// Connected.
    LetThrough,
    /// Nobody answered.
    Silent,
    /// Refused on the way, with this errno.
    Refused(i32),
    /// It failed before it was on its way, which tells nothing.
    Failed(i32),
    /// The target's address is one of the Pod's own.
    Here,
}

/// Tries once.
#[must_use]
pub fn attempt(target: SocketAddr) -> Try {
    match pod::is_here(target.ip()) {
        Ok(()) => return Try::Here,
        Err(Errno::EADDRNOTAVAIL) => {}
        Err(errno) => return Try::Failed(errno as i32),
    }
    connect(target)
}

fn connect(target: SocketAddr) -> Try {
    match TcpStream::connect_timeout(&target, ANSWER) {
        Ok(_) => Try::LetThrough,
        Err(error) if error.kind() == ErrorKind::TimedOut => Try::Silent,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            match Errno::from_raw(errno) {
                // What `REJECT` of the usual kinds makes of it (icmp(7)); a packet that is dropped on its way out is EPERM.
                Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::EACCES | Errno::EPERM => {
                    Try::Refused(errno)
                }
                Errno::ETIMEDOUT => Try::Silent,
                _ => Try::Failed(errno),
            }
        }
    }
}

/// Tries until it is refused; how, in words.
///
/// # Errors
/// [`StartError::Shield`] where it is still let through, or nothing is shown, when `within` is over; at once where it is the Pod's own.
pub async fn refused(
    porter: &Porter,
    target: SocketAddr,
    within: Duration,
) -> Result<String, StartError> {
    let began = Instant::now();
    let (mut passed, mut silences) = (0u32, 0);
    loop {
        let tried = porter.attempt(target).await?;
        silences = if tried == Try::Silent { silences + 1 } else { 0 };
        let how = match tried {
            Try::Refused(errno) => Some(Errno::from_raw(errno).to_string()),
            Try::Silent if silences >= SILENCES => Some("no answer".to_owned()),
            Try::Here => {
                return Err(StartError::Shield {
                    message: format!(
                        "the canary {target} is an address of this Pod, and nothing is refused there: name a port of whoever binds"
                    ),
                });
            }
            _ => None,
        };
        if let Some(how) = how {
            let took = began.elapsed().as_millis();
            return Ok(format!(
                "network policy in force: a connection to {target} was refused ({how}) after {passed} that passed, {took} ms"
            ));
        }
        passed += u32::from(tried == Try::LetThrough);
        if began.elapsed() >= within {
            return Err(StartError::Shield {
                message: format!(
                    "the Pod's NetworkPolicy is not in force: a connection to {target} gave {tried:?} after {} s: use a network that enforces \
                     policies, or a profile that does without",
                    within.as_secs()
                ),
            });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_lets_through_and_a_closed_port_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        assert_eq!(connect(target), Try::LetThrough);
        drop(listener);
        assert_eq!(connect(target), Try::Refused(Errno::ECONNREFUSED as i32));
    }

    #[test]
    fn what_is_here_is_not_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        for here in ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::", "::ffff:127.0.0.1"] {
            let target = SocketAddr::new(here.parse().unwrap(), port);
            assert_eq!(attempt(target), Try::Here, "{here}");
        }
        assert!(listener.accept().is_err(), "nobody came");
    }
}
