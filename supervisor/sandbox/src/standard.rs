//! Which of the standard descriptors this process was started without (`>&-`).
//!
//! Rust's runtime opens `/dev/null` in their place before `main` (std's `sys::pal::unix::init`), so that no file of ours gets their numbers.
//! Afterwards what is written there is gone and nobody can tell. So it is looked up before: by a function that the loader calls first
//! (`.init_array`, gABI "Initialization and Termination Functions").

use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: `.init_array` holds pointers to functions of the C ABI, and this is one. It runs before `main` in the one thread that there is,
// allocates nothing, does not panic, and uses nothing that Rust's runtime sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let mut closed = 0;
    for descriptor in 0..3 {
        // SAFETY: F_GETFD takes no argument and only reads the flags of a descriptor, open or not (fcntl(2)).
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            closed |= 1 << descriptor;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Whether descriptor 0, 1 or 2 was closed when this process started.
#[must_use]
pub fn was_closed(descriptor: u8) -> bool {
    descriptor < 3 && CLOSED.load(Ordering::Relaxed) & (1 << descriptor) != 0
}
