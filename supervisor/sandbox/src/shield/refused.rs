//! What a process of ours hears when its filter refuses a call: EPERM, and a line in its log.
//!
//! The kernel sends SIGSYS in place of the call (SECCOMP_RET_TRAP in seccomp(2)). The handler puts `-EPERM` where the call's
//! result is read, so that whoever made it sees a refusal, and writes one line to stderr, once for each call. It runs
//! wherever the call was made: it allocates nothing, takes no lock, and calls only write(2), which both lists allow.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::ShieldError;
use crate::wall::syscalls;

/// `SYS_SECCOMP` of asm-generic/siginfo.h: a filter sent it, not a process.
const BY_FILTER: c_int = 1;
/// No table has a number that high.
const NUMBERS: usize = 512;

static TOLD: [AtomicBool; NUMBERS] = [const { AtomicBool::new(false) }; NUMBERS];
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// How many calls this process's own filter has refused so far; 0 unless something is wrong.
#[must_use]
pub fn refused_calls() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Installs the handler and lets SIGSYS through.
pub(super) fn answer() -> Result<(), ShieldError> {
    let handler = SigAction::new(
        SigHandler::SigAction(handle),
        SaFlags::SA_ONSTACK | SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler is async-signal-safe, as its module's head says, and nobody else handles SIGSYS.
    unsafe { sigaction(Signal::SIGSYS, &handler) }.map_err(ShieldError::Handler)?;
    SigSet::from(Signal::SIGSYS).thread_unblock().map_err(ShieldError::Handler)
}

extern "C" fn handle(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO, which nix sets, the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    if code != BY_FILTER {
        return;
    }
    // SAFETY: the kernel passes the interrupted context as well, which is this handler's alone while it runs.
    let number = unsafe { refuse(context.cast::<libc::ucontext_t>()) };
    REFUSED.fetch_add(1, Ordering::Relaxed);
    if !TOLD.get(number).is_some_and(|told| told.swap(true, Ordering::Relaxed)) {
        tell(syscalls::name(number).unwrap_or("of unknown name"));
    }
}

/// Puts the answer where the call's result is read; the call's number.
///
/// # Safety
/// `context` is the context of an interrupted system call, and nobody else reads or writes it.
#[cfg(target_arch = "x86_64")]
unsafe fn refuse(context: *mut libc::ucontext_t) -> usize {
    // SAFETY: the caller's word. A pointer, as the kernel's context is shorter than the library's type: a reference would
    // claim what is behind it.
    let result = unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RAX as usize] };
    // The kernel has put the number back there before it sent the signal.
    // SAFETY: as above.
    let number = unsafe { result.replace(-i64::from(Errno::EPERM as i32)) };
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn refuse(context: *mut libc::ucontext_t) -> usize {
    // SAFETY: the caller's word, and a pointer for the reason above.
    let registers = unsafe { &raw mut (*context).uc_mcontext.regs };
    // SAFETY: as above. The number is in the ninth, the result is read from the first.
    let number = unsafe { (*registers)[8] };
    // SAFETY: as above.
    unsafe { (*registers)[0] = (-i64::from(Errno::EPERM as i32)).cast_unsigned() };
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// One line of the log's format, without a time: telling the time may be what was refused.
fn tell(name: &str) {
    let parts = [
        r#"{"level":"ERROR","message":"the process's own filter refused a system call","call":""#,
        name,
        "\"}\n",
    ];
    let mut line = [0_u8; 192];
    let mut length = 0;
    for (place, byte) in line.iter_mut().zip(parts.iter().flat_map(|part| part.bytes())) {
        *place = byte;
        length += 1;
    }
    // SAFETY: the first `length` bytes of a live array. Where stderr is gone, nothing is to be done.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), length) };
}
