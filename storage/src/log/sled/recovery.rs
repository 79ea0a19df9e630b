//! Opening a log: the newest revision that it has, and whether that is all that was ever acknowledged.

use super::{
    COMPACT_REVISION, Durability, RESERVED, SledLog, Tree,
    directory::Directory,
    failed,
    journal::{self, Journal},
    reserve::Reserve,
    state::{State, boot},
    unsynced::Unsynced,
};
use crate::{CompactRevision, Revision, log::LogError};

impl SledLog {
    pub(super) fn recover(
        directory: Directory,
        mut reserve: Reserve,
        durability: Durability,
    ) -> Result<SledLog, LogError> {
        let was = directory.was();
        if was != State::New {
            directory.unseal()?;
        }
        let tree = Tree::open(&directory)?;
        let mut reserved = match tree.mark(RESERVED)? {
            Some(reserved) => reserved,
            None if was == State::New => {
                tree.set_mark(RESERVED, Revision::ZERO)?;
                tree.flush(Revision::ZERO)?;
                // From here on, an empty log is a lost one.
                directory.unseal()?;
                Revision::ZERO
            }
            None => return Err(tree.damaged("its log is empty")),
        };
        let mut compact_revision = CompactRevision::at(tree.mark(COMPACT_REVISION)?.unwrap_or_default());
        let last = tree.last_revision(compact_revision)?;
        let mut newest = last.max(compact_revision.revision());
        match was {
            State::New if newest > Revision::ZERO => {
                return Err(tree.damaged("its file `store` is empty"));
            }
            State::Open { synced, .. } | State::Sealed { synced, .. } if newest < synced => {
                return Err(tree.damaged(format!(
                    "it ends at revision {newest}, but everything up to revision {synced} was on disk"
                )));
            }
            _ => {}
        }
        tree.drop_after(last)?;
        newest = tree.replay_journal(&directory, was, newest)?;
        let whole = (compact_revision.revision(), newest);
        if reserved > newest {
            if let State::Sealed { .. } = was {
                return Err(tree.damaged(format!("nothing after revision {newest}")));
            }
            if was.is_complete() {
                tracing::info!(path = %tree.path.display(), %newest, "the process was killed; nothing is lost");
                tree.set_mark(RESERVED, newest)?;
                tree.flush(newest)?;
                reserved = newest;
            } else {
                tracing::warn!(path = %tree.path.display(), %newest, %reserved, "the store was not closed; history is lost");
                newest = reserved;
                compact_revision = CompactRevision::at(newest);
                // Later rows would hide that those up to here are not all there.
                tree.set_mark(COMPACT_REVISION, newest)?;
                tree.flush(last)?;
            }
        }
        if was != State::New && !matches!(was, State::Sealed { .. }) {
            // What a killed process left with the operating system is shown from here on.
            tree.flush(newest.min(whole.1))?;
        }
        let journal = tree.begin_journal(&directory, durability)?;
        reserve.hold();
        Ok(SledLog {
            flusher: None,
            tree: Some(tree),
            directory,
            reserve,
            durability,
            whole,
            compact_revision,
            newest,
            reserved,
            unread: Vec::new(),
            unsynced: Unsynced::new(journal),
            notifier: None,
            live_bytes: 0,
            can_shrink: true,
        })
    }
}

impl Tree {
    /// Writes what a journal has after the newest revision of the log, and flushes it. Returns the newest revision then.
    pub(super) fn replay_journal(
        &self,
        directory: &Directory,
        was: State,
        newest: Revision,
    ) -> Result<Revision, LogError> {
        let path = directory.path();
        if !journal::has_records(path) {
            return Ok(newest);
        }
        if !matches!(was, State::Open { .. }) {
            return Err(self.damaged("its journal has records, but it was not in use"));
        }
        let recovered =
            journal::recover(path, newest).map_err(|cause| failed("cannot read the journal", path, cause))?;
        match recovered.damage {
            Some(damage) if was.is_complete() => return Err(self.damaged(damage)),
            // The end of the journal was not on disk when the machine stopped.
            Some(damage) => tracing::warn!(path = %path.display(), damage, "the journal ends early"),
            None => {}
        }
        for (key, value) in &recovered.rows {
            self.insert(key, value)?;
        }
        self.flush(recovered.newest)?;
        Ok(recovered.newest)
    }

    /// Begins the journal that the durability needs, and records whether a killed process loses anything from now on. The log is
    /// on disk, and no record of an earlier journal is needed any more.
    fn begin_journal(
        &self,
        directory: &Directory,
        durability: Durability,
    ) -> Result<Option<Journal>, LogError> {
        let failed = |cause| failed("cannot begin the journal", directory.path(), cause);
        let journal = match durability {
            Durability::Interval(_) => Some(Journal::create(directory.path()).map_err(failed)?),
            Durability::Sync | Durability::None => {
                journal::remove(directory.path()).map_err(failed)?;
                None
            }
        };
        let boot = if durability == Durability::None { None } else { boot() };
        self.state.set_boot(boot).map_err(failed)?;
        Ok(journal)
    }
}
