//! Shared parts of the tests: an owner of stores, logs to open stores in, and short functions for
//! common operations.

#![allow(missing_docs, clippy::unwrap_used)]

#[cfg(test)]
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(test)]
use crate::log::{Durability, SledLog};
use crate::{
    BucketSnapshot, CompactRevision, DeleteOutcome, EntryId, Event, Expect, Index, Indexed, Key, Options,
    PutOutcome, Revision, Store, Unreadable,
    log::{
        EphemeralLog, Location, Log, LogBounds, LogError, MemoryLog, Notifier, Outcome, Record, Transaction,
        UnreadableEntry,
    },
};

/// An owner whose values are text with an `@`, after which the revision is inserted.
#[derive(Debug)]
pub struct Marked;

impl Index for Marked {
    /// The text before the mark.
    type Meta = String;
    type Frame = String;
    type Author = ();

    fn index(&self, _: &Key, stored: &[u8]) -> Result<Indexed<String>, Unreadable> {
        let text = std::str::from_utf8(stored).map_err(|e| Unreadable(e.to_string()))?;
        let (before, _) = text.split_once('@').ok_or_else(|| Unreadable("no mark".into()))?;
        Ok(Indexed { meta: before.into(), stamp: before.len() + 1 })
    }
}

/// A log in which a store can be opened, and opened again.
pub trait TestLog {
    fn log(&self) -> impl Log;

    fn open(&self) -> Store<Marked> {
        self.open_with(Options::default())
    }

    fn open_with(&self, options: Options) -> Store<Marked> {
        Store::open(Box::new(self.log()), Marked, options).unwrap()
    }
}

impl TestLog for MemoryLog {
    fn log(&self) -> impl Log {
        self.share()
    }
}

/// A log that stores nothing, for tests without a second opening.
pub struct Ephemeral;

impl TestLog for Ephemeral {
    fn log(&self) -> impl Log {
        EphemeralLog::new()
    }
}

/// Opens each store as a fork of another one, which is then dropped.
pub struct Forked;

impl TestLog for Forked {
    fn log(&self) -> impl Log {
        EphemeralLog::new()
    }

    fn open_with(&self, options: Options) -> Store<Marked> {
        Ephemeral.open().fork(Marked, &options).unwrap()
    }
}

/// A directory that is deleted in the end.
#[cfg(test)]
pub struct Disk(tempfile::TempDir);

#[cfg(test)]
impl Disk {
    pub(crate) fn new() -> Disk {
        Disk(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
impl TestLog for Disk {
    fn log(&self) -> impl Log {
        SledLog::open(self.path(), Durability::None).unwrap()
    }
}

/// A log in memory to which a foreign writer appends around the appends of the stores opened here.
/// Values that the foreign writer stores under names that start with `undecodable` cannot be
/// decoded.
pub struct Contested {
    log: MemoryLog,
    before_append: Arc<Mutex<BeforeAppend>>,
    after_append: Arc<Mutex<AfterAppend>>,
}

type BeforeAppend = Box<dyn FnMut(&mut MemoryLog, &[Transaction]) + Send>;
type AfterAppend = Box<dyn FnMut(&mut MemoryLog) + Send>;

impl Contested {
    /// Creates a log with a foreign writer. `before_append` is called before each append with a
    /// handle of its own and the transactions that will be appended.
    pub fn new(
        log: &MemoryLog,
        before_append: impl FnMut(&mut MemoryLog, &[Transaction]) + Send + 'static,
    ) -> Contested {
        Contested {
            log: log.share(),
            before_append: Arc::new(Mutex::new(Box::new(before_append))),
            after_append: Arc::new(Mutex::new(Box::new(|_| ()))),
        }
    }

    /// Adds a foreign writer that runs once after an append with a conflict, before the tail is
    /// read.
    pub fn after_append(self, after_append: impl FnMut(&mut MemoryLog) + Send + 'static) -> Contested {
        Contested { after_append: Arc::new(Mutex::new(Box::new(after_append))), ..self }
    }
}

impl TestLog for Contested {
    fn log(&self) -> impl Log {
        Contested {
            log: self.log.share(),
            before_append: self.before_append.clone(),
            after_append: self.after_append.clone(),
        }
    }
}

impl Log for Contested {
    fn start(&mut self, notifier: Notifier) -> Result<LogBounds, LogError> {
        self.log.start(notifier)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        self.log.load(&mut |record| visit(decoded(record)))
    }

    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError> {
        self.before_append.lock()(&mut self.log.share(), batch);
        let outcomes = self.log.append(batch)?;
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Conflict(_))) {
            self.after_append.lock()(&mut self.log.share());
        }
        Ok(outcomes)
    }

    fn tail(&mut self, until: Revision) -> Result<Vec<Record>, LogError> {
        Ok(self.log.tail(until)?.into_iter().map(decoded).collect())
    }

    fn has_other_writers(&self) -> bool {
        true
    }

    fn compact(&mut self, compact_revision: CompactRevision, superseded: &[EntryId]) -> Result<(), LogError> {
        self.log.compact(compact_revision, superseded)
    }

    fn location(&self) -> Location {
        self.log.location()
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        Box::new(self.log).close()
    }
}

fn decoded(record: Record) -> Record {
    match record {
        Record::Entry(entry) if entry.key.name().starts_with("undecodable") => {
            let reason = Unreadable("unknown encoding".into());
            Record::Unreadable(UnreadableEntry { id: entry.id, key: entry.key, reason })
        }
        record => record,
    }
}

/// Commits a transaction regardless of the current state, as another writer would.
pub fn overwrite(log: &mut MemoryLog, mut transaction: Transaction) -> Revision {
    loop {
        match log.append(std::slice::from_ref(&transaction)).unwrap().remove(0) {
            Outcome::Committed(revision) => return revision,
            Outcome::Conflict(conflict) => transaction[conflict.index].previous = conflict.found,
            other => panic!("{other:?}"),
        }
    }
}

pub fn key(name: &str) -> Key {
    Key::new("things", name)
}

pub async fn put(store: &Store<Marked>, key: &Key, text: &str) -> Revision {
    match store.put(key.clone(), Expect::Any, format!("{text}@")).await.unwrap() {
        PutOutcome::Stored(object) => object.revision,
        PutOutcome::Conflict { .. } => panic!("{key} is in conflict with nothing"),
    }
}

pub async fn delete(store: &Store<Marked>, key: &Key) -> Revision {
    match store.delete(key.clone(), Expect::Any).await.unwrap() {
        DeleteOutcome::Deleted { revision, .. } => revision,
        DeleteOutcome::Conflict { .. } => panic!("{key} is not there"),
    }
}

/// Formats events as text: `+name=bytes` created, `~name=bytes` changed, `-name=bytes` deleted.
pub fn render_events(events: &[Arc<Event<Marked>>]) -> String {
    let render = |event: &Arc<Event<Marked>>| {
        let (sign, bytes) = match (&event.before, &event.after) {
            (None, Some(after)) => ('+', after.bytes.clone()),
            (Some(_), Some(after)) => ('~', after.bytes.clone()),
            (Some(before), None) => ('-', before.restamped(event.revision)),
            (None, None) => panic!("an event of nothing"),
        };
        format!("{sign}{}={}", event.key.name(), String::from_utf8_lossy(&bytes))
    };
    events.iter().map(render).collect::<Vec<_>>().join(" ")
}

/// Returns a bucket as text: `name=bytes`.
pub fn render_bucket(bucket: &BucketSnapshot<Marked>) -> String {
    let show = |object: &Arc<crate::Object<Marked>>| {
        format!("{}={}", object.key.name(), String::from_utf8_lossy(&object.bytes))
    };
    bucket.iter().map(show).collect::<Vec<_>>().join(" ")
}
