//! Lines that may be kept for long, out of the memory that they were read into.
//!
//! Others share that memory: of ten thousand short lines, each read with much that nobody keeps, it would all be kept. A short
//! line is copied to where only such lines are, one behind the other, so that none costs an allocation of its own.

use bytes::{Bytes, BytesMut};

/// A line of fewer bytes is short.
const SHORT: usize = 16 * 1024;
/// So much is allocated at once, and freed when the last line in it is.
const CHUNK: usize = 64 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lasting {
    /// Room for the next ones.
    chunk: BytesMut,
}

// === impl Lasting ===

impl Lasting {
    /// The line in memory that it may keep.
    pub(super) fn keep(&mut self, line: Bytes) -> Bytes {
        if line.len() >= SHORT {
            return line;
        }
        if self.chunk.capacity() < line.len() {
            self.chunk = BytesMut::with_capacity(CHUNK);
        }
        self.chunk.extend_from_slice(&line);
        self.chunk.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lines_lie_together_and_leave_what_they_were_read_into() {
        let read = Bytes::from(vec![b'x'; 4 * CHUNK]);
        let mut lasting = Lasting::default();
        let lines: Vec<_> =
            [100, SHORT - 1, 0, 7].map(|length| lasting.keep(read.slice(..length))).into();
        assert!(
            lines
                .windows(2)
                .all(|two| two[1].is_empty() || two[0].as_ptr_range().end <= two[1].as_ptr())
        );
        assert!(lines.iter().all(|line| read[..line.len()] == line[..]));
        let long = lasting.keep(read.slice(..SHORT));
        assert_eq!(long.as_ptr(), read.as_ptr());
        drop(long);
        assert!(read.is_unique());
    }
}
