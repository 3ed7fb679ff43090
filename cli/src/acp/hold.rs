//! How much of the host's lines is kept for workers that have not acknowledged it: above a bound stdin is read no further.

use std::sync::{Condvar, Mutex, PoisonError};

/// Two of the longest lines. A cancel that comes behind more than this waits with it.
const FULL: usize = 128 * 1024 * 1024;

/// The count, in bytes.
#[derive(Debug, Default)]
pub(super) struct Hold {
    kept: Mutex<usize>,
    less: Condvar,
}

// === impl Hold ===

impl Hold {
    /// One link's part of it changed.
    pub(super) fn change(&self, before: usize, now: usize) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = (*kept + now).saturating_sub(before);
        self.less.notify_all();
    }

    /// Waits until there is room.
    pub(super) fn wait(&self) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.less.wait_while(kept, |kept| *kept > FULL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_goes_on_when_there_is_room() {
        let hold = std::sync::Arc::new(Hold::default());
        hold.change(0, FULL + 1);
        let waits = std::thread::spawn({
            let hold = std::sync::Arc::clone(&hold);
            move || hold.wait()
        });
        assert!(!waits.is_finished());
        hold.change(FULL + 1, 1);
        waits.join().unwrap();
    }
}
