//! The transactions that were appended, but may not be on disk yet.
//!
//! They are kept in memory, to be written again should sled fail, and in the journal, where a
//! killed process leaves them.

use std::{collections::VecDeque, io, sync::Arc};

use parking_lot::Mutex;

use super::{journal::Journal, rows::Row};
use crate::{Revision, log::transaction::Entry};

/// The bytes from which on a flush comes before the next batch.
const FULL: usize = 4 << 20;

/// Transactions in order, until they are flushed. Clones share them.
#[derive(Clone)]
pub(super) struct Unsynced {
    transactions: Arc<Mutex<Transactions>>,
    /// None if a killed process may lose them, or if each is flushed at once.
    journal: Option<Journal>,
}

#[derive(Default)]
struct Transactions {
    /// The values are shared with the view.
    list: VecDeque<Unflushed>,
    /// The bytes of all their rows.
    bytes: usize,
}

struct Unflushed {
    revision: Revision,
    entries: Vec<Entry>,
    /// The bytes of the rows of its batch, if it is the last one of that; otherwise 0.
    bytes: usize,
}

impl Unsynced {
    pub fn new(journal: Option<Journal>) -> Unsynced {
        Unsynced { transactions: Arc::default(), journal }
    }

    /// Writes the rows of a batch to the journal, if there is one.
    ///
    /// # Errors
    /// They are not in the journal: only a flush saves them.
    pub fn write_journal(&self, rows: &[Row], newest: Revision) -> io::Result<()> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.append(rows, newest))
    }

    /// Prepares for a flush, which makes durable what was added before.
    pub fn begin_flush(&self) {
        self.journal.iter().for_each(Journal::rotate);
    }

    /// Returns whether a flush is due before more is added.
    pub fn is_full(&self) -> bool {
        self.transactions.lock().bytes >= FULL
    }

    /// Adds the transactions of a batch, whose rows have so many bytes.
    pub fn add(&self, transactions: &[Vec<Entry>], bytes: usize) {
        let mut kept = self.transactions.lock();
        for entries in transactions {
            let Some(last) = entries.last() else { continue };
            kept.list.push_back(Unflushed { revision: last.id.revision, entries: entries.clone(), bytes: 0 });
        }
        if let Some(last) = kept.list.back_mut() {
            last.bytes += bytes;
            kept.bytes += bytes;
        }
    }

    /// Returns the newest revision that may not be on disk.
    pub fn newest(&self) -> Option<Revision> {
        self.transactions.lock().list.back().map(|last| last.revision)
    }

    /// Forgets the transactions up to a revision, which are on disk.
    pub fn drop_up_to(&self, flushed: Revision) {
        let mut kept = self.transactions.lock();
        while kept.list.front().is_some_and(|first| first.revision <= flushed)
            && let Some(first) = kept.list.pop_front()
        {
            kept.bytes -= first.bytes;
        }
        if kept.list.is_empty() {
            *kept = Transactions::default();
        }
        drop(kept);
        // Transactions that stay in the journal are already flushed; removing them is retried after
        // the next flush.
        if let Some(Err(error)) = self.journal.as_ref().map(|journal| journal.discard(flushed)) {
            tracing::warn!(%error, "the journal cannot be emptied");
        }
    }

    pub fn transactions(&self) -> Vec<Vec<Entry>> {
        self.transactions.lock().list.iter().map(|kept| kept.entries.clone()).collect()
    }
}
