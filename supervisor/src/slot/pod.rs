//! That this is a Pod of its own, as tier `pod` says: measured, not believed.
//!
//! What keeps sessions apart in this tier is made by the kubelet. Shown here: a pid namespace that is not the node's, with this process
//! as its init; a network namespace that has the Pod's address and not the node's; that nothing of the node, of other Pods and of
//! a service account is there, which is tried again later, from behind the agent's wall ([`ELSEWHERE`]).

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use casemate_protocol::ids::SlotId;
use casemate_protocol::slot::paths::variable;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;
use nix::errno::Errno;

/// The first pid namespace of a machine (PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h).
const FIRST_PIDS: &str = "pid:[4026531836]";

/// Where files of other Pods, of the node and of a service account would be: none of it exists in a Pod of ours. Landlock
/// answers EACCES for what is there, so ENOENT is no wall's word.
pub const ELSEWHERE: [&str; 4] = [
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/run/containerd",
    "/var/run/secrets/kubernetes.io/serviceaccount",
];

/// Which slot this is.
///
/// # Errors
/// [`StartError::Config`] where the Pod does not say.
pub fn slot() -> Result<SlotId, StartError> {
    let uid = std::env::var(variable::POD_UID).unwrap_or_default();
    SlotId::of_uid(&uid).ok_or_else(|| StartError::Config {
        message: format!(
            "{} is not the UID of a Pod: fill it from `metadata.uid` by the downward API",
            variable::POD_UID
        ),
    })
}

/// What was seen of the Pod.
#[derive(Debug)]
pub struct Measured {
    /// One line a fact.
    pub lines: Vec<String>,
    /// Its address.
    pub address: IpAddr,
}

/// Looks. To be called while this process may make sockets.
///
/// # Errors
/// [`StartError::Tier`] naming what does not hold, [`StartError::Config`] where the Pod does not say its addresses.
pub fn measure() -> Result<Measured, StartError> {
    let pids = fs::read_link("/proc/self/ns/pid");
    let pids = pids.map(|link| link.display().to_string()).unwrap_or_default();
    if std::process::id() != 1 || pids.is_empty() || pids == FIRST_PIDS {
        return Err(missing(
            "this process is not the init of a pid namespace of its own: let the Pod share none",
        ));
    }
    if let Some((path, there)) =
        ELSEWHERE.into_iter().find_map(|path| Some((path, is_there(path)?)))
    {
        return Err(missing(&format!(
            "{path} is in the Pod ({there}): mount nothing of the node and no service account's token"
        )));
    }
    let (own, nodes) = (address(variable::POD_IP)?, address(variable::HOST_IP)?);
    if let Err(errno) = is_here(own) {
        return Err(missing(&format!("the Pod's address {own} is not in its network ({errno})")));
    }
    match is_here(nodes) {
        Err(Errno::EADDRNOTAVAIL) => {}
        Err(errno) => {
            return Err(missing(&format!("whose network this is does not show ({errno})")));
        }
        Ok(()) => {
            return Err(missing(&format!(
                "the node's address {nodes} is in the Pod's network: take `hostNetwork` out of it"
            )));
        }
    }
    let lines = vec![
        format!("pid namespace of the Pod's own ({pids}), supervisor is its init"),
        format!("network namespace of the Pod's own: has {own} and not the node's {nodes}"),
    ];
    Ok(Measured { lines, address: own })
}

/// How it shows that there is something; what cannot be looked at is taken to be there.
fn is_there(path: &str) -> Option<String> {
    match fs::symlink_metadata(path) {
        Ok(_) => Some("it is there".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
    }
}

fn address(name: &str) -> Result<IpAddr, StartError> {
    let text = std::env::var(name).unwrap_or_default();
    text.parse().map_err(|_| StartError::Config {
        message: format!("{name} is no address: fill it by the downward API"),
    })
}

/// Whether an address is one of this network's own: the kernel binds to no other (ip(7)).
///
/// # Errors
/// EADDRNOTAVAIL of another's; anything else tells nothing.
pub fn is_here(address: IpAddr) -> Result<(), Errno> {
    match TcpListener::bind(SocketAddr::new(address, 0)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or(0))),
    }
}

fn missing(message: &str) -> StartError {
    StartError::Tier { wanted: Tier::Pod, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_here_or_it_is_not() {
        assert_eq!(is_here([127, 0, 0, 1].into()), Ok(()));
        // RFC 5737: nobody's.
        assert_eq!(is_here([198, 51, 100, 7].into()), Err(Errno::EADDRNOTAVAIL));
    }

    #[test]
    fn a_process_of_the_machine_is_no_pod() {
        let error = measure().unwrap_err();
        assert!(matches!(error, StartError::Tier { wanted: Tier::Pod, .. }), "{error}");
    }
}
