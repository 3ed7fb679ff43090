//! The machine's audit records, read as they are made (netlink(7), NETLINK_AUDIT; linux/audit.h).

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// Types of records.
pub(crate) const SECCOMP: u16 = 1326;
pub(crate) const LANDLOCK_ACCESS: u16 = 1423;

/// Types of requests, and the group that gets every record.
const GET: u16 = 1000;
const SET: u16 = 1001;
const READLOG: u32 = 1;

/// Until when a record that is to come has come, and one that is not would have.
const PATIENCE: Duration = Duration::from_secs(2);

/// Landlock records nothing while auditing is off: it is on for as long as this lives, and then as it was.
pub(crate) struct Log {
    control: OwnedFd,
    records: OwnedFd,
    was_on: bool,
}

impl Log {
    /// `None` where this process may not.
    pub(crate) fn open() -> Option<Self> {
        let make = |groups| -> nix::Result<OwnedFd> {
            let flags = SockFlag::SOCK_CLOEXEC;
            let made =
                socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkAudit)?;
            bind(made.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
            setsockopt(&made, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000))?;
            Ok(made)
        };
        let (control, records) = (make(0).ok()?, make(READLOG).ok()?);
        // A larger buffer than the default: others' tests write records as well.
        setsockopt(&records, sockopt::RcvBufForce, &(4 << 20)).ok()?;
        let status = request(&control, GET, &[]).ok()?;
        let enabled =
            status.get(4..8).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()))?;
        let log = Self { control, records, was_on: enabled != 0 };
        if !log.was_on {
            log.turn(true).ok()?;
        }
        Some(log)
    }

    /// `struct audit_status`: a mask with bit 0 for the field `enabled`, and that field.
    fn turn(&self, on: bool) -> io::Result<()> {
        let mut status = [0_u8; 40];
        status[..4].copy_from_slice(&1_u32.to_ne_bytes());
        status[4..8].copy_from_slice(&u32::from(on).to_ne_bytes());
        request(&self.control, SET, &status).map(drop)
    }

    /// Forgets what has come so far.
    pub(crate) fn drain(&mut self) {
        while self.next(MsgFlags::MSG_DONTWAIT).is_some() {}
    }

    /// Collects records until the answer is that everything is there, or patience ends.
    pub(crate) fn records(
        &mut self,
        found: impl Fn(&[(u16, String)]) -> (bool, bool),
    ) -> (bool, bool) {
        let until = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while Instant::now() < until && found(&all) != (true, true) {
            all.extend(self.next(MsgFlags::empty()));
        }
        found(&all)
    }

    fn next(&self, flags: MsgFlags) -> Option<(u16, String)> {
        let mut buffer = [0; 9000];
        let length = recv(self.records.as_raw_fd(), &mut buffer, flags).ok()?;
        let kind = u16::from_ne_bytes(buffer.get(4..6)?.try_into().ok()?);
        Some((kind, String::from_utf8_lossy(buffer.get(16..length)?).into_owned()))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if !self.was_on {
            // Nothing to be done about a machine that does not take it back.
            let _ = self.turn(false);
        }
    }
}

/// Sends one request and returns the body of what comes back first, but for the bare acknowledgement.
fn request(control: &OwnedFd, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    // NLM_F_REQUEST, and NLM_F_ACK where there is no other answer.
    message.extend((if kind == GET { 1_u16 } else { 5 }).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    send(control.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut buffer = [0; 9000];
    let length = recv(control.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    let is_error = u16::from_ne_bytes([buffer[4], buffer[5]]) == 2;
    let code = i32::from_ne_bytes([buffer[16], buffer[17], buffer[18], buffer[19]]);
    if is_error && code != 0 {
        return Err(io::Error::from_raw_os_error(-code));
    }
    Ok(buffer[16..length].to_vec())
}
