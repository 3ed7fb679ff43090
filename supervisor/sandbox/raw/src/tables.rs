//! getpid(2) by the other tables of an x86-64 kernel, whose numbers mean other calls.

use std::io;

/// By the i386 table. The process dies of `SIGSEGV` where the kernel has none, of `SIGSYS` behind a filter that minds.
#[must_use]
pub fn i386_getpid() -> i64 {
    let pid: i64;
    // SAFETY: getpid has no arguments; the instruction changes rax and, on some processors, r8 to r11.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => pid, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    pid
}

/// By its x32 number.
///
/// # Errors
/// `ENOSYS` where the kernel has no x32.
pub fn x32_getpid() -> io::Result<i64> {
    // SAFETY: getpid has no arguments.
    let pid = unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}
