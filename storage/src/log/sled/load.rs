//! Loading: one thread reads the rows, and another makes objects of them meanwhile.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use super::{
    rows::{self, Assembler, Header, size},
    tree::Tree,
};
use crate::{
    Revision,
    log::{
        error::LogError,
        transaction::{Entry, Record},
    },
};

/// Entries are passed on in batches of so many, or of so many bytes.
const BATCH: usize = 256;
const BATCH_BYTES: u64 = 1 << 20;
/// The number of batches that may wait.
const WAITING: usize = 4;

impl Tree {
    /// Passes every entry to `visit`, while a thread reads those that follow. After the first
    /// revision and up to the second, there must be a whole transaction for each. Returns the bytes
    /// of all rows.
    pub(super) fn load(
        &self,
        revisions: (Revision, Revision),
        visit: &mut dyn FnMut(Record) -> Result<(), LogError>,
    ) -> Result<u64, LogError> {
        thread::scope(|scope| {
            let (batches, loaded) = mpsc::sync_channel(WAITING);
            let read = move || self.read(revisions, Batches::new(batches));
            let reader = thread::Builder::new().name("coracle-load".to_owned()).spawn_scoped(scope, read);
            let reader = reader.map_err(|cause| self.failed("cannot start to load", cause))?;
            // After an error here the receiver is dropped, and the reader ends.
            loaded.into_iter().flatten().try_for_each(visit)?;
            reader.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Reads every entry: see [`Tree::load`].
    fn read(
        &self,
        (compact_revision, last): (Revision, Revision),
        mut batches: Batches,
    ) -> Result<u64, LogError> {
        let mut bytes = 0;
        let mut known = compact_revision;
        let mut previous: Option<Header> = None;
        let mut assembler = Assembler::default();
        for row in self.db.scan_prefix(rows::PREFIX) {
            let (key, value) = row.map_err(|cause| self.sled_failed("cannot read", cause))?;
            self.touch(&key)?;
            let size = size(&key, &value);
            bytes += size;
            let unreadable = || self.damaged(format!("unreadable after revision {known}"));
            let header = rows::read(&key, &value).ok_or_else(unreadable)?;
            if header.id.revision > compact_revision {
                self.check_order(previous, header, compact_revision)?;
                previous = Some(header);
            } else if header.part > 0 && !assembler.is_incomplete() {
                // A crash came between the deletion of its first row and of this one.
                continue;
            }
            let Some(entry) = assembler.take(&key, &value).map_err(|_| unreadable())? else { continue };
            known = known.max(entry.id.revision);
            if batches.push(entry, size).is_break() {
                return Ok(bytes);
            }
        }
        if assembler.is_incomplete() || known != last {
            return Err(self.damaged(format!("nothing after revision {known}")));
        }
        _ = batches.send();
        Ok(bytes)
    }

    /// Makes sure that nothing is missing between two rows above the compact revision. (Parts of an
    /// entry are the assembler's concern.)
    pub(super) fn check_order(
        &self,
        previous: Option<Header>,
        row: Header,
        compact_revision: Revision,
    ) -> Result<(), LogError> {
        let known = previous.map_or(compact_revision, |previous| previous.id.revision);
        if row.part > 0 {
            return Ok(());
        }
        if row.id.revision > known.next() {
            return Err(self.damaged(format!("no revisions between {known} and {}", row.id.revision)));
        }
        let continues = previous.filter(|previous| previous.more && !previous.is_earlier);
        let follows = match continues {
            Some(previous) => {
                row.id.revision == previous.id.revision && row.id.index == previous.id.index.saturating_add(1)
            }
            None => row.id.revision == known.next() && row.id.index == 0,
        };
        if follows { Ok(()) } else { Err(self.damaged(format!("half a transaction at revision {known}"))) }
    }

    /// Marks a page in sled's cache as used. sled evicts pages only after 64 uses of a shard of its
    /// cache, and a scan uses each page once: without this, loading would leave everything in
    /// memory twice.
    pub(super) fn touch(&self, key: &[u8]) -> Result<(), LogError> {
        self.db.contains_key(key).map(drop).map_err(|cause| self.sled_failed("cannot read", cause))
    }
}

/// Entries on their way to who makes objects of them.
struct Batches {
    batches: SyncSender<Vec<Record>>,
    next: Vec<Record>,
    bytes: u64,
}

impl Batches {
    fn new(batches: SyncSender<Vec<Record>>) -> Batches {
        Batches { batches, next: Vec::new(), bytes: 0 }
    }

    /// Adds an entry. Breaks when the receiver is dropped.
    fn push(&mut self, entry: Entry, bytes: u64) -> ControlFlow<()> {
        self.next.push(Record::Entry(entry));
        self.bytes += bytes;
        match self.next.len() < BATCH && self.bytes < BATCH_BYTES {
            true => ControlFlow::Continue(()),
            false => self.send(),
        }
    }

    fn send(&mut self) -> ControlFlow<()> {
        self.bytes = 0;
        match self.batches.send(std::mem::take(&mut self.next)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
