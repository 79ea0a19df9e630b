//! The queue of entries that the log may delete: superseded versions and deletions, once history no
//! longer contains their events.

use std::collections::VecDeque;

use crate::EntryId;

/// The number of entries in one deletion from the log.
const BATCH: usize = 256;

/// The size of a batch, in bytes, from which it takes no further entries, so that no writer waits
/// long for the deletion of large entries.
const BATCH_BYTES: usize = 2 << 20;

/// The size of superseded entries, in bytes, from which they are deleted.
const DUE_BYTES: usize = 1 << 20;

/// The superseded entries of the log, in the order in which they must be deleted.
#[derive(Default)]
pub(crate) struct CompactionQueue {
    entries: VecDeque<(EntryId, usize)>,
    bytes: usize,
}

impl CompactionQueue {
    pub fn push(&mut self, id: EntryId, bytes: usize) {
        self.entries.push_back((id, bytes));
        self.bytes += bytes;
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether there are enough entries or bytes for a batch.
    pub fn is_due(&self) -> bool {
        self.entries.len() >= BATCH || self.bytes >= DUE_BYTES
    }

    /// Returns the next batch of entries to delete.
    pub fn batch(&self) -> Vec<EntryId> {
        let mut bytes = 0;
        let fits = |(_, size): &&(EntryId, usize)| {
            let fits = bytes < BATCH_BYTES;
            bytes += size;
            fits
        };
        self.entries.iter().take(BATCH).take_while(fits).map(|(id, _)| *id).collect()
    }

    /// Removes a batch that was deleted from the log.
    pub fn remove_batch(&mut self, length: usize) {
        self.bytes -= self.entries.drain(..length).map(|(_, size)| size).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Revision;

    #[test]
    fn batches_are_bounded_by_entries_and_bytes() {
        for (case, sizes, due, batches) in [
            ("nothing", vec![], false, vec![]),
            ("a few small entries wait for more", vec![10; 255], false, vec![255]),
            ("many small entries", vec![10; 600], true, vec![256, 256, 88]),
            ("one entry of more than the bytes that may wait", vec![DUE_BYTES], true, vec![1]),
            ("large entries", vec![BATCH_BYTES / 2; 5], true, vec![2, 2, 1]),
            ("an entry larger than a batch", vec![5 * BATCH_BYTES, 1], true, vec![1, 1]),
        ] {
            let mut superseded = CompactionQueue::default();
            for (revision, size) in (1..).zip(&sizes) {
                superseded.push(EntryId::first(Revision(revision)), *size);
            }
            assert_eq!(superseded.is_due(), due, "{case}");
            let mut taken = Vec::new();
            let mut lengths = Vec::new();
            while !superseded.is_empty() {
                let batch = superseded.batch();
                superseded.remove_batch(batch.len());
                lengths.push(batch.len());
                taken.extend(batch);
            }
            assert_eq!(lengths, batches, "{case}");
            assert!(taken.is_sorted() && taken.len() == sizes.len(), "{case}");
            assert_eq!(superseded.bytes, 0, "{case}");
        }
    }
}
