//! A log in memory that several stores of one process may share, as several processes would share a
//! cluster's.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    error::LogError,
    interface::{Log, LogBounds},
    location::Location,
    notifier::{Notification, Notifier},
    outcome::{Conflict, Outcome},
    transaction::{Change, Entry, Proposal, Record, Transaction, entries},
};
use crate::{CompactRevision, EntryId, Key, Revision};

/// One store's handle on a shared log. Appended data lasts as long as any handle.
#[derive(Default)]
pub struct MemoryLog {
    shared: Arc<Mutex<Shared>>,
    /// The reader ID of this handle; None before it is opened.
    reader: Option<u64>,
}

#[derive(Default)]
struct Shared {
    compact_revision: CompactRevision,
    newest: Revision,
    entries: BTreeMap<EntryId, Entry>,
    heads: HashMap<Key, Revision>,
    /// Superseded entries: not needed for loading, but another handle may not have read them yet.
    superseded: BTreeSet<EntryId>,
    readers: BTreeMap<u64, Reader>,
}

struct Reader {
    /// The revision up to which the handle's tail has returned changes.
    read: Revision,
    notifier: Notifier,
}

impl MemoryLog {
    /// Creates a new log, and returns the first handle on it.
    pub fn new() -> MemoryLog {
        MemoryLog::default()
    }

    /// Returns another handle on the same log, for another store or a later one.
    pub fn share(&self) -> MemoryLog {
        MemoryLog { shared: self.shared.clone(), reader: None }
    }
}

impl Shared {
    /// Commits a transaction, unless another writer changed one of its keys.
    fn commit(&mut self, transaction: &[Proposal]) -> Outcome {
        let found = |proposal: &Proposal| self.heads.get(&proposal.key).copied();
        if let Some(index) = transaction.iter().position(|proposal| found(proposal) != proposal.previous) {
            return Outcome::Conflict(Conflict {
                index,
                found: found(&transaction[index]),
                newest: self.newest,
            });
        }
        self.newest = self.newest.next();
        for entry in entries(transaction, self.newest) {
            match entry.change {
                Change::Put { .. } => self.heads.insert(entry.key.clone(), self.newest),
                Change::Delete => self.heads.remove(&entry.key),
            };
            self.entries.insert(entry.id, entry);
        }
        Outcome::Committed(self.newest)
    }
}

impl Log for MemoryLog {
    fn start(&mut self, notifier: Notifier) -> Result<LogBounds, LogError> {
        let mut shared = self.shared.lock();
        let bounds = LogBounds { compact_revision: shared.compact_revision, newest: shared.newest };
        let id = shared.readers.last_key_value().map_or(0, |(last, _)| last + 1);
        shared.readers.insert(id, Reader { read: bounds.newest, notifier });
        drop(shared);
        self.reader = Some(id);
        Ok(bounds)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        let shared = self.shared.lock();
        let newest = self.reader.and_then(|id| shared.readers.get(&id)).map_or(shared.newest, |r| r.read);
        let known = shared.entries.range(..EntryId::end(newest));
        known.map(|(_, entry)| Record::Entry(entry.clone())).try_for_each(visit)
    }

    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError> {
        let mut shared = self.shared.lock();
        let outcomes = batch.iter().map(|transaction| shared.commit(transaction)).collect();
        for (_, other) in shared.readers.iter().filter(|(id, _)| Some(**id) != self.reader) {
            other.notifier.notify(Notification::Changed);
        }
        Ok(outcomes)
    }

    fn tail(&mut self, _: Revision) -> Result<Vec<Record>, LogError> {
        let mut shared = self.shared.lock();
        let newest = shared.newest;
        let Some(reader) = self.reader.and_then(|id| shared.readers.get_mut(&id)) else {
            return Ok(Vec::new());
        };
        let read = std::mem::replace(&mut reader.read, newest);
        let unread = shared.entries.range((Bound::Excluded(EntryId::end(read)), Bound::Unbounded));
        Ok(unread.map(|(_, entry)| Record::Entry(entry.clone())).collect())
    }

    fn has_other_writers(&self) -> bool {
        true
    }

    fn compact(&mut self, compact_revision: CompactRevision, superseded: &[EntryId]) -> Result<(), LogError> {
        let mut shared = self.shared.lock();
        shared.compact_revision = shared.compact_revision.max(compact_revision);
        shared.superseded.extend(superseded);
        let read_by_all = shared.readers.values().map(|reader| reader.read).min().unwrap_or_default();
        let unread = shared.superseded.split_off(&EntryId::first(read_by_all.next()));
        for id in std::mem::replace(&mut shared.superseded, unread) {
            shared.entries.remove(&id);
        }
        Ok(())
    }

    fn location(&self) -> Location {
        Location::Memory
    }

    fn close(mut self: Box<Self>) -> Result<(), LogError> {
        if let Some(id) = self.reader.take() {
            self.shared.lock().readers.remove(&id);
        }
        Ok(())
    }
}
