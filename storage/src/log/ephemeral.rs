//! A log that remembers nothing: for stores that need not outlive their process, whose view is then the only copy.

use std::path::PathBuf;

use super::{Extent, Log, LogError, Outcome, Record, Tap, Transaction, entries};
use crate::{EntryId, Floor, Revision};

/// Gives out revisions and forgets the changes once they were read from the tail.
#[derive(Default)]
pub struct EphemeralLog {
    newest: Revision,
    unread: Vec<Record>,
}

impl EphemeralLog {
    pub fn new() -> EphemeralLog {
        EphemeralLog::default()
    }
}

impl Log for EphemeralLog {
    fn start(&mut self, _: Tap) -> Result<Extent, LogError> {
        Ok(Extent { floor: Floor::default(), newest: self.newest })
    }

    fn load(&mut self, _: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError> {
        let commit = |transaction: &Transaction| {
            self.newest = self.newest.next();
            self.unread.extend(entries(transaction, self.newest).into_iter().map(Record::Entry));
            Outcome::Committed(self.newest)
        };
        Ok(batch.iter().map(commit).collect())
    }

    fn tail(&mut self, _: Revision) -> Result<Vec<Record>, LogError> {
        Ok(std::mem::take(&mut self.unread))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn compact(&mut self, _: Floor, _: &[EntryId]) -> Result<(), LogError> {
        Ok(())
    }

    fn place(&self) -> PathBuf {
        "memory".into()
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        Ok(())
    }
}
