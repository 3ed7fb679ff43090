//! What the C library's allocator does with memory that is free again.

/// Below this a buffer comes out of the heap, in bytes; one above it goes back to the kernel when it is dropped.
#[cfg(target_env = "gnu")]
const MAPPED: i32 = 1 << 20;
/// So much of the heap's end may be free before it goes back to the kernel, in bytes.
#[cfg(target_env = "gnu")]
const KEPT: i32 = 1 << 20;

/// Keeps a little of what is free for the next who asks. By default glibc gives a buffer of 128 KiB back at once, so that each one
/// that is read into costs a system call, its page faults and pages full of zeros (mallopt(3), `M_MMAP_THRESHOLD` and
/// `M_TRIM_THRESHOLD`). Other C libraries have no such setting and are left alone. For a process that has one thread.
pub fn keep_a_little() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in [(libc::M_MMAP_THRESHOLD, MAPPED), (libc::M_TRIM_THRESHOLD, KEPT)] {
        // Why not safe: a C function. SAFETY: it takes two numbers, and nobody allocates meanwhile, as there is one thread. What it
        // refuses stays as it was.
        unsafe { libc::mallopt(what, bytes) };
    }
}
