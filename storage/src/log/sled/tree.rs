//! The open tree, and what is in it: rows and marks.

use std::{
    fs::File,
    io,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use sled::Db;

use super::{
    directory::Directory,
    failure::{catch, failed, sled_failed},
    private,
    rows::{self, Header, SEGMENT, size},
    state::StateFile,
};
use crate::{CompactRevision, EntryId, Revision, log::error::LogError};

/// The open tree. Clones share it.
#[derive(Clone)]
pub(super) struct Tree {
    pub db: Db,
    /// sled's file, to sync what sled has only written to the kernel.
    file: Arc<File>,
    /// Remembers what was synced.
    pub state: Arc<StateFile>,
    pub path: Arc<Path>,
}

/// The mark of the compact revision.
pub(super) const COMPACT_REVISION: &[u8] = b"meta/floor";
/// The mark of the revisions that may have been given out.
pub(super) const RESERVED: &[u8] = b"meta/reserved";

/// sled's page cache: rows are not read again after loading, so it only has to hold the pages being
/// written.
const CACHE: u64 = 4 << 20;

/// The time to wait for sled's own threads to close its files.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

impl Tree {
    pub fn open(directory: &Directory) -> Result<Tree, LogError> {
        wait_for_sled(&directory.log(), directory.path())?;
        let removed = directory.remove_unfinished().and_then(|()| directory.remove_copy());
        removed.map_err(|cause| failed("cannot open", directory.path(), cause))?;
        Tree::open_log(directory, &directory.log())
    }

    /// Opens the files of a log of a directory.
    pub fn open_log(directory: &Directory, log: &Path) -> Result<Tree, LogError> {
        let path: Arc<Path> = directory.path().into();
        let config = sled::Config::new()
            .path(log)
            .mode(sled::Mode::HighThroughput)
            .segment_size(SEGMENT)
            .cache_capacity(CACHE)
            .flush_every_ms(None);
        let open = || config.open().map_err(|cause| sled_failed("cannot open", &path, cause));
        let db = catch(&path, open)?;
        let file = File::open(log.join("db")).map_err(|cause| failed("cannot open", &path, cause))?;
        if let Err(error) = private::restrict(log) {
            tracing::warn!(%error, path = %path.display(), "cannot take the rights of others to the log");
        }
        Ok(Tree { db, file: file.into(), state: directory.state().clone(), path })
    }

    pub fn mark(&self, name: &[u8]) -> Result<Option<Revision>, LogError> {
        let value = self.db.get(name).map_err(|cause| self.sled_failed("cannot read", cause))?;
        let revision = |value: sled::IVec| value.as_ref().try_into().map(Revision::from_bytes);
        value.map(revision).transpose().map_err(|_| self.damaged("its marks are unreadable"))
    }

    pub fn set_mark(&self, name: &[u8], revision: Revision) -> Result<(), LogError> {
        self.insert(name, &revision.to_bytes())
    }

    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), LogError> {
        self.db.insert(key, value).map(drop).map_err(|cause| self.sled_failed("cannot write", cause))
    }

    pub fn remove(&self, key: &[u8]) -> Result<Option<sled::IVec>, LogError> {
        self.db.remove(key).map_err(|cause| self.sled_failed("cannot write", cause))
    }

    /// Makes all that was written durable, which is everything up to a revision.
    pub fn flush(&self, newest: Revision) -> Result<(), LogError> {
        self.db.flush().map_err(|cause| self.sled_failed("cannot flush", cause))?;
        self.file.sync_data().map_err(|cause| self.failed("cannot flush", cause))?;
        self.state.advance(newest).map_err(|cause| self.failed("cannot flush", cause))
    }

    /// Returns `true` if sled has failed before. It accepts no more writes then.
    pub fn has_failed(&self) -> bool {
        self.db.flush().is_err()
    }

    /// Deletes the superseded entries up to a compact revision, and returns the bytes of the
    /// deleted rows.
    pub fn compact(
        &self,
        compact_revision: CompactRevision,
        superseded: &[EntryId],
    ) -> Result<u64, LogError> {
        self.set_mark(COMPACT_REVISION, compact_revision.revision())?;
        superseded.iter().try_fold(0, |bytes, id| Ok(bytes + self.remove_entry(*id)?))
    }

    fn remove_entry(&self, id: EntryId) -> Result<u64, LogError> {
        let removed = self.remove_parts(|part| rows::key(id, part))?;
        match removed {
            0 => self.remove_parts(|part| rows::earlier_key(id.revision, part)),
            bytes => Ok(bytes),
        }
    }

    /// Removes all rows of an entry; the first row has their number. Returns their bytes.
    fn remove_parts(&self, key: impl Fn(u16) -> Vec<u8>) -> Result<u64, LogError> {
        let remove = |part| {
            let key = key(part);
            let removed = self.remove(&key)?;
            let bytes = removed.as_ref().map_or(0, |value| size(&key, value));
            Ok((removed, bytes))
        };
        let (Some(first), bytes) = remove(0)? else { return Ok(0) };
        let parts = rows::parts(&first).unwrap_or_default();
        (1..parts).try_fold(bytes, |bytes, part| Ok(bytes + remove(part)?.1))
    }

    /// Returns the last revision with a complete transaction: a crash may have truncated the last
    /// one.
    pub fn last_revision(&self, compact_revision: CompactRevision) -> Result<Revision, LogError> {
        for row in self.db.scan_prefix(rows::PREFIX).rev() {
            let (key, value) = row.map_err(|cause| self.sled_failed("cannot read", cause))?;
            match rows::read(&key, &value).ok_or_else(|| self.damaged("its last row is unreadable"))? {
                // Below the compact revision, what followed may have been deleted since.
                Header { id, more: true, .. } if id.revision > compact_revision.revision() => {}
                Header { id, .. } => return Ok(id.revision),
            }
        }
        Ok(Revision::ZERO)
    }

    /// Deletes what comes after a revision.
    pub fn drop_after(&self, last: Revision) -> Result<(), LogError> {
        for row in self.db.range(rows::first_key(last.next())..).rev() {
            let (key, _) = row.map_err(|cause| self.sled_failed("cannot read", cause))?;
            if key.starts_with(rows::PREFIX) {
                self.remove(&key)?;
            }
        }
        Ok(())
    }

    pub fn damaged(&self, reason: impl Into<String>) -> LogError {
        LogError::Damaged { location: (&*self.path).into(), reason: reason.into() }
    }

    pub fn failed(&self, action: &'static str, cause: io::Error) -> LogError {
        failed(action, &self.path, cause)
    }

    pub fn sled_failed(&self, action: &'static str, cause: sled::Error) -> LogError {
        sled_failed(action, &self.path, cause)
    }
}

/// Waits until sled's threads have closed the file of a log, which they do some time after the last
/// handle is dropped.
pub(super) fn wait_for_sled(log: &Path, store: &Path) -> Result<(), LogError> {
    let Ok(file) = File::open(log.join("db")) else { return Ok(()) };
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    while file.try_lock().is_err() {
        if Instant::now() >= deadline {
            return Err(LogError::InUse { location: store.into() });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
