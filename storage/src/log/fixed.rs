//! A log of changes that are known already. It takes no others.

use std::mem;

use super::{
    error::LogError,
    interface::{Log, LogBounds},
    location::Location,
    notifier::Notifier,
    outcome::{Outcome, Rejected},
    transaction::{Entry, Record, Transaction},
};
use crate::{CompactRevision, EntryId, Revision};

/// The history of another store, read-only.
pub struct FixedLog {
    compact_revision: CompactRevision,
    newest: Revision,
    entries: Vec<Entry>,
    reason: String,
}

impl FixedLog {
    /// Creates a log of changes.
    ///
    /// - `compact_revision`: the revision that the history begins with
    /// - `entries`: every live object at that revision, then every change after it, in order of
    ///   their ids
    /// - `reason`: the reason for which each write is rejected
    pub fn new(
        compact_revision: CompactRevision,
        entries: Vec<Entry>,
        reason: impl Into<String>,
    ) -> FixedLog {
        let last = entries.iter().map(|entry| entry.id.revision).max().unwrap_or_default();
        let newest = last.max(compact_revision.revision());
        FixedLog { compact_revision, newest, entries, reason: reason.into() }
    }
}

impl Log for FixedLog {
    fn start(&mut self, _: Notifier) -> Result<LogBounds, LogError> {
        Ok(LogBounds { compact_revision: self.compact_revision, newest: self.newest })
    }

    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        mem::take(&mut self.entries).into_iter().map(Record::Entry).try_for_each(visit)
    }

    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError> {
        let rejected = |_| Outcome::Rejected(Rejected(self.reason.clone()));
        Ok(batch.iter().map(rejected).collect())
    }

    fn tail(&mut self, _: Revision) -> Result<Vec<Record>, LogError> {
        Ok(Vec::new())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Marked;
    use crate::{Expect, Key, Options, Store, StoreError, log::Change};

    fn key(name: &str) -> Key {
        Key::new("things", name)
    }

    fn put(name: &str, revision: u64, stored: &'static str) -> Entry {
        let id = EntryId::first(Revision(revision));
        Entry { id, key: key(name), change: Change::Put { created: None, stored: stored.into() } }
    }

    #[tokio::test]
    async fn history_is_there_with_its_authors_and_writes_are_rejected() {
        let deleted = Entry { change: Change::Delete, ..put("b", 9, "") };
        let entries = vec![put("a", 3, "one@"), put("b", 2, "two@"), put("a", 8, "three@"), deleted];
        let compacted = CompactRevision::at(Revision(5));
        let log = Box::new(FixedLog::new(compacted, entries, "it is a record"));
        let author = |revision: Revision| (revision == Revision(8)).then_some(());
        let store = Store::open_with_authors(log, Marked, Options::default(), &author).unwrap();
        assert_eq!(store.revision(), Revision(9));
        assert_eq!(&store.get(&key("a")).unwrap().bytes[..], b"three@8");
        let before = store.snapshot_at("things", Revision(5)).unwrap();
        assert_eq!(before.iter().map(|object| object.bytes.clone()).collect::<Vec<_>>(), ["one@3", "two@2"]);
        assert!(store.snapshot_at("things", Revision(4)).is_err());
        let mut watcher = store.watch(&"things".into(), Revision(5)).unwrap();
        let events = watcher.try_next().unwrap();
        assert_eq!(events.iter().map(|event| event.author).collect::<Vec<_>>(), [Some(()), None]);
        let error = store.put(key("c"), Expect::Any, "c@").await.map(drop).unwrap_err();
        assert!(
            matches!(&error, StoreError::Rejected(reason) if reason.to_string() == "it is a record"),
            "{error}"
        );
        assert_eq!(store.revision(), Revision(9));
    }
}
