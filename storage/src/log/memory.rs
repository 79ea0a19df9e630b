//! A log in memory that several stores of one process may share, as several processes would share a cluster's.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Appended, Change, Entry, Extent, Log, LogError, Proposal, Signal, Tap, number};
use crate::{Floor, Key, Revision};

/// One store's handle on a shared log. What is appended lasts as long as any handle does.
#[derive(Default)]
pub struct MemoryLog {
    shared: Arc<Mutex<Shared>>,
    /// Which reader this handle is; none before it is opened.
    reader: Option<u64>,
}

#[derive(Default)]
struct Shared {
    floor: Floor,
    newest: Revision,
    entries: BTreeMap<Revision, Entry>,
    heads: HashMap<Key, Revision>,
    /// Of no use for loading, but perhaps unread by another handle.
    garbage: BTreeSet<Revision>,
    readers: BTreeMap<u64, Reader>,
}

struct Reader {
    /// What the handle's tail has handed out already.
    read: Revision,
    tap: Tap,
}

impl MemoryLog {
    pub fn new() -> MemoryLog {
        MemoryLog::default()
    }

    /// Another handle on the same log, for another store or a later one.
    pub fn share(&self) -> MemoryLog {
        MemoryLog { shared: self.shared.clone(), reader: None }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for MemoryLog {
    fn start(&mut self, tap: Tap) -> Result<Extent, LogError> {
        let mut shared = self.lock();
        let extent = Extent { floor: shared.floor, newest: shared.newest };
        let id = shared.readers.last_key_value().map_or(0, |(last, _)| last + 1);
        shared.readers.insert(id, Reader { read: extent.newest, tap });
        drop(shared);
        self.reader = Some(id);
        Ok(extent)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Entry) -> Result<(), LogError>) -> Result<(), LogError> {
        let shared = self.lock();
        let newest = self.reader.and_then(|id| shared.readers.get(&id)).map_or(shared.newest, |r| r.read);
        shared.entries.range(..=newest).try_for_each(|(_, entry)| visit(entry.clone()))
    }

    fn append(&mut self, batch: &[Vec<Proposal>]) -> Result<Appended, LogError> {
        let mut shared = self.lock();
        if batch
            .iter()
            .flatten()
            .any(|proposal| shared.heads.get(&proposal.key).copied() != proposal.previous)
        {
            return Ok(Appended::Stale { newest: shared.newest });
        }
        let entries = number(batch, shared.newest);
        let revisions: Vec<_> = entries.iter().map(|entry| entry.revision).collect();
        for entry in entries {
            match entry.change {
                Change::Put { .. } => shared.heads.insert(entry.key.clone(), entry.revision),
                Change::Delete => shared.heads.remove(&entry.key),
            };
            shared.newest = entry.revision;
            shared.entries.insert(entry.revision, entry);
        }
        for (_, other) in shared.readers.iter().filter(|(id, _)| Some(**id) != self.reader) {
            other.tap.signal(Signal::Changed);
        }
        Ok(Appended::Done(revisions))
    }

    fn tail(&mut self, _: Revision) -> Result<Vec<Entry>, LogError> {
        let mut shared = self.lock();
        let newest = shared.newest;
        let Some(reader) = self.reader.and_then(|id| shared.readers.get_mut(&id)) else {
            return Ok(Vec::new());
        };
        let read = std::mem::replace(&mut reader.read, newest);
        let unread = shared.entries.range((Bound::Excluded(read), Bound::Unbounded));
        Ok(unread.map(|(_, entry)| entry.clone()).collect())
    }

    fn compact(&mut self, floor: Floor, garbage: &[Revision]) -> Result<(), LogError> {
        let mut shared = self.lock();
        shared.floor = shared.floor.max(floor);
        shared.garbage.extend(garbage);
        let read_by_all = shared.readers.values().map(|reader| reader.read).min().unwrap_or_default();
        let unread = shared.garbage.split_off(&read_by_all.next());
        for revision in std::mem::replace(&mut shared.garbage, unread) {
            shared.entries.remove(&revision);
        }
        Ok(())
    }

    fn place(&self) -> PathBuf {
        "memory".into()
    }

    fn close(mut self: Box<Self>) -> Result<(), LogError> {
        if let Some(id) = self.reader.take() {
            self.lock().readers.remove(&id);
        }
        Ok(())
    }
}
