//! A log that keeps nothing: for stores that need not outlive their process. Their view is the only
//! copy.

use super::{
    error::LogError,
    interface::{Log, LogBounds},
    location::Location,
    notifier::Notifier,
    outcome::Outcome,
    transaction::{Record, Transaction, entries},
};
use crate::{CompactRevision, EntryId, Revision};

/// Gives out revisions and forgets the changes once they were read from the tail.
#[derive(Default)]
pub struct EphemeralLog {
    newest: Revision,
    unread: Vec<Record>,
}

impl EphemeralLog {
    /// Creates an empty log.
    pub fn new() -> EphemeralLog {
        EphemeralLog::default()
    }

    /// Creates a log without changes that continues after a revision.
    pub fn after(revision: Revision) -> EphemeralLog {
        EphemeralLog { newest: revision, unread: Vec::new() }
    }
}

impl Log for EphemeralLog {
    fn start(&mut self, _: Notifier) -> Result<LogBounds, LogError> {
        Ok(LogBounds { compact_revision: CompactRevision::default(), newest: self.newest })
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

    fn has_other_writers(&self) -> bool {
        false
    }

    fn compact(&mut self, _: CompactRevision, _: &[EntryId]) -> Result<(), LogError> {
        Ok(())
    }

    fn location(&self) -> Location {
        Location::Memory
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        Ok(())
    }
}
