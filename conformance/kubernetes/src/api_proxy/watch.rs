//! Events of a watch: a line of JSON each.

use super::fault::Watches;

/// Puts lines together again and says which go on.
#[derive(Debug, Default)]
pub(super) struct Events {
    rest: Vec<u8>,
    seen: u64,
}

impl Events {
    /// The whole lines of what has come, but for those that are dropped.
    pub(super) fn take(&mut self, bytes: &[u8], watches: Watches) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let mut kept = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if !self.drops(&line, watches) {
                kept.extend(line);
            }
        }
        kept
    }

    fn drops(&mut self, line: &[u8], watches: Watches) -> bool {
        // Without bookmarks and errors a watcher would not learn where it stands: that is no lost event.
        let is = |kind: &str| {
            let mark = format!("\"type\":\"{kind}\"");
            line.windows(mark.len()).take(64).any(|part| part == mark.as_bytes())
        };
        if watches.drop_every == 0 || is("BOOKMARK") || is("ERROR") {
            return false;
        }
        self.seen += 1;
        self.seen.is_multiple_of(watches.drop_every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_event_is_left_out_wherever_the_pieces_end() {
        let all = "{\"type\":\"ADDED\",\"object\":1}\n{\"type\":\"MODIFIED\",\"object\":2}\n{\"type\":\"BOOKMARK\"}\n{\"type\":\"DELETED\"}\n";
        let kept =
            "{\"type\":\"ADDED\",\"object\":1}\n{\"type\":\"BOOKMARK\"}\n{\"type\":\"DELETED\"}\n";
        let watches = Watches { drop_every: 2, ..Watches::default() };
        for size in 1..all.len() {
            let mut events = Events::default();
            let pieces = all.as_bytes().chunks(size);
            let taken: Vec<u8> = pieces.flat_map(|piece| events.take(piece, watches)).collect();
            assert_eq!(String::from_utf8_lossy(&taken), kept, "pieces of {size}");
        }
    }
}
