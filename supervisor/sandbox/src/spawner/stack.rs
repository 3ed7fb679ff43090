//! The stack on which a vfork child runs: its own mapping, above a page that faults.

use std::ptr::{NonNull, null_mut};

use nix::errno::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// The child calls a dozen system calls and holds a signal set: a few hundred bytes, some kilobytes unoptimised.
const SIZE: usize = 64 << 10;
/// At least one page on every architecture that Linux has (64 KiB on some arm64).
const GUARD: usize = 64 << 10;

/// A mapping of `GUARD` unreadable bytes and, above them, `SIZE` bytes of stack. Reused for every child of a thread:
/// CLONE_VFORK lets one child at a time exist on it.
#[derive(Debug)]
pub(super) struct Stack {
    base: NonNull<u8>,
}

impl Stack {
    pub(super) fn new() -> Result<Self, Errno> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                null_mut(),
                GUARD + SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE,
            )
        }
        .map_err(errno)?;
        let stack = Self { base: NonNull::new(base.cast()).ok_or(Errno::ENOMEM)? };
        // SAFETY: the lowest GUARD bytes of our own new mapping; nothing points into it yet.
        unsafe { rustix::mm::mprotect(base, GUARD, MprotectFlags::empty()) }.map_err(errno)?;
        Ok(stack)
    }

    /// One past the highest byte, where a stack that grows down begins; page-aligned, hence 16-byte aligned as both
    /// the x86-64 and the AArch64 procedure call standards ask.
    pub(super) fn top(&mut self) -> *mut libc::c_void {
        // SAFETY: GUARD + SIZE is the mapping's length, so the result is one past the same allocation.
        unsafe { self.base.as_ptr().add(GUARD + SIZE) }.cast()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and `&mut self` means that no child runs on it.
        // An error would leave memory mapped, nothing worse.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), GUARD + SIZE) };
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}
