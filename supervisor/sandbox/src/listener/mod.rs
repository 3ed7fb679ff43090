//! What a process behind a wall tries of the network, told to whoever listens: seccomp's user notification
//! (seccomp_unotify(2)).
//!
//! A wall that has a [`Listener`] wears one more program ([`program`]), which has the kernel ask about connect(2) and bind(2)
//! before it makes them. Each is looked at and answered with "go on" by a thread of this process ([`serve`]). **It is for
//! telling only**: nothing is ever allowed or refused here, Landlock and the wall's own program decide as without it, and
//! so a process that changes its address behind the reader's back gains nothing but a wrong notice.
//!
//! What always holds: a listener's descriptor exists in this process alone, and only with a thread that reads it. Without one each
//! connect(2) behind the wall would hang; where the thread cannot be made, the wall is not to be had. Where the kernel gives no
//! listener, the program is left out and [`Listener::deaf`] says so.

mod look;
mod notify;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Builder, sleep};
use std::time::Duration;

use casemate_protocol::policy::decide::{Transport, Way};
use nix::errno::Errno;

use crate::WallError;
use crate::wall::Program;
use notify::{Notification, Woken};
pub(crate) use notify::{SET_FLAGS, SYNC_WAKE_UP, WAIT_KILLABLE};

/// An attempt, as it was when it was read: by the time that the kernel reads the address, it may be another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The thread, in this process's pid namespace.
    pub pid: i32,
    /// connect(2) or bind(2).
    pub way: Way,
    /// By the socket.
    pub transport: Transport,
    /// The address as it was given.
    pub address: SocketAddr,
}

/// Hears of attempts, in threads of the listener's own, while the one who tries waits: none of these may block.
pub trait Listener: fmt::Debug + Send + Sync {
    /// Somebody is about to try. Other families than IPv4 and IPv6, and other sockets than TCP's and UDP's, are not told.
    fn tried(&self, attempt: Attempt);
    /// Somebody is about to try something that could not be read: a process that is not dumpable, an address that is none.
    fn unread(&self);
    /// The kernel gives no listener, with this errno: `EBUSY` where there is one around this process, `EINVAL` where it
    /// is older than Linux 5.19.
    fn deaf(&self, errno: i32);
}

/// Enough for the thread's loop in an unoptimised build.
const STACK: usize = 256 << 10;
/// After a failure that should not be: the one who tries waits that much longer.
const PAUSE: Duration = Duration::from_millis(10);

/// The program that has the kernel ask.
pub(crate) fn program() -> Result<Program, WallError> {
    crate::wall::notifying(&["connect", "bind"])
}

/// Gives a listener's descriptor its thread, which ends with the last process behind the wall.
pub(crate) fn serve(descriptor: OwnedFd, listener: Arc<dyn Listener>) -> io::Result<()> {
    notify::wake_in_step(&descriptor);
    Builder::new()
        .name("told".to_owned())
        .stack_size(STACK)
        .spawn(move || run(&descriptor, &*listener))
        .map(drop)
}

/// Leaves only when nobody is left who could ask: who is not answered hangs.
fn run(descriptor: &OwnedFd, listener: &dyn Listener) {
    loop {
        match notify::next(descriptor) {
            Ok(Woken::Asked(asked)) => answer(descriptor, &asked, listener),
            Ok(Woken::Again) => {}
            Ok(Woken::Over) => return,
            Err(_) => sleep(PAUSE),
        }
    }
}

fn answer(descriptor: &OwnedFd, asked: &Notification, listener: &dyn Listener) {
    let seen = look::at(asked);
    // Whoever asked may be gone and its number another's: what was read is of the right process only if it still waits.
    if notify::still_waits(descriptor, asked) {
        match seen {
            Ok(Some(attempt)) => listener.tried(attempt),
            Ok(None) => {}
            Err(_) => listener.unread(),
        }
    }
    // Told first: who is refused and says so must not be heard before the refusal is.
    // ENOENT: it is gone. Anything else would be this program's mistake, and there is nobody to hand it to.
    while notify::go_on(descriptor, asked) == Err(Errno::EINTR) {}
}
