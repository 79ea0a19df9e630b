//! A log that remembers nothing: for stores that need not outlive their process, whose view is then the only copy.

use std::path::PathBuf;

use super::{Appended, Entry, Extent, Log, LogError, Proposal, Tap};
use crate::{Floor, Revision};

/// Gives out revisions and forgets the changes once they were read from the tail.
#[derive(Default)]
pub struct EphemeralLog {
    newest: Revision,
    unread: Vec<Entry>,
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

    fn load(&mut self, _: &mut dyn FnMut(Entry) -> Result<(), LogError>) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, batch: &[Vec<Proposal>]) -> Result<Appended, LogError> {
        let entries = super::number(batch, self.newest);
        let revisions = entries.iter().map(|entry| entry.revision).collect();
        self.newest = entries.last().map_or(self.newest, |entry| entry.revision);
        self.unread.extend(entries);
        Ok(Appended::Done(revisions))
    }

    fn tail(&mut self, _: Revision) -> Result<Vec<Entry>, LogError> {
        Ok(std::mem::take(&mut self.unread))
    }

    fn compact(&mut self, _: Floor, _: &[Revision]) -> Result<(), LogError> {
        Ok(())
    }

    fn place(&self) -> PathBuf {
        "memory".into()
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        Ok(())
    }
}
