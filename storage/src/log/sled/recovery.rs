//! Opening a log: the newest revision that it has, and whether that is all that was ever
//! acknowledged.

use super::{
    directory::Directory,
    durability::Durability,
    failure::failed,
    journal::{self, Journal},
    state::{State, boot},
    tree::{COMPACT_REVISION, RESERVED, Tree},
};
use crate::{CompactRevision, Revision, log::error::LogError};

/// A log that was found in a directory, or began there.
pub(super) struct Recovered {
    pub tree: Tree,
    pub journal: Option<Journal>,
    /// After the first and up to the second there is a row for every revision.
    pub whole: (Revision, Revision),
    pub compact_revision: CompactRevision,
    pub newest: Revision,
    pub reserved: Revision,
}

/// Opens the log of a directory.
pub(super) fn recover(directory: &Directory, durability: Durability) -> Result<Recovered, LogError> {
    let was = directory.was();
    if was != State::New {
        directory.unseal()?;
    }
    let tree = Tree::open(directory)?;
    let reserved = tree.reserved(directory)?;
    let compact_revision = CompactRevision::at(tree.mark(COMPACT_REVISION)?.unwrap_or_default());
    let last = tree.last_revision(compact_revision)?;
    let newest = last.max(compact_revision.revision());
    tree.check_end(was, newest)?;
    tree.drop_after(last)?;
    let newest = tree.replay_journal(directory, was, newest)?;
    let whole = (compact_revision.revision(), newest);
    let mut recovered = Recovered { tree, journal: None, whole, compact_revision, newest, reserved };
    if reserved > newest {
        recovered.settle_reserved(was, last)?;
    }
    if matches!(was, State::Open { .. }) {
        // Flushes data that a killed process left in the cache of the operating system, since
        // readers see it from here on.
        recovered.tree.flush(newest)?;
    }
    recovered.journal = recovered.tree.begin_journal(directory, durability)?;
    Ok(recovered)
}

impl Recovered {
    /// Decides about the revisions that were reserved and are not there: they were never given out,
    /// or they are lost.
    fn settle_reserved(&mut self, was: State, last: Revision) -> Result<(), LogError> {
        let (tree, newest, reserved) = (&self.tree, self.newest, self.reserved);
        if let State::Sealed { .. } = was {
            return Err(tree.damaged(format!("nothing after revision {newest}")));
        }
        if was.is_complete() {
            tracing::info!(path = %tree.path.display(), %newest, "the process was killed; nothing is lost");
            tree.set_mark(RESERVED, newest)?;
            tree.flush(newest)?;
            self.reserved = newest;
        } else {
            tracing::warn!(path = %tree.path.display(), %newest, %reserved, "the store was not closed; history is lost");
            // Later rows would hide that those up to here are not all there.
            tree.set_mark(COMPACT_REVISION, reserved)?;
            tree.flush(last)?;
            (self.newest, self.compact_revision) = (reserved, CompactRevision::at(reserved));
        }
        Ok(())
    }
}

impl Tree {
    /// Returns the mark of the reserved revisions, writing it to a new log.
    fn reserved(&self, directory: &Directory) -> Result<Revision, LogError> {
        match self.mark(RESERVED)? {
            Some(reserved) => Ok(reserved),
            None if directory.was() == State::New => {
                self.set_mark(RESERVED, Revision::ZERO)?;
                self.flush(Revision::ZERO)?;
                // From here on, an empty log is a lost one.
                directory.unseal()?;
                Ok(Revision::ZERO)
            }
            None => Err(self.damaged("its log is empty")),
        }
    }

    /// Fails if the log does not end where the state of its directory says.
    fn check_end(&self, was: State, newest: Revision) -> Result<(), LogError> {
        match was {
            State::New if newest > Revision::ZERO => Err(self.damaged("its file `store` is empty")),
            State::Open { synced, .. } | State::Sealed { synced, .. } if newest < synced => Err(self
                .damaged(format!(
                    "it ends at revision {newest}, but everything up to revision {synced} was on disk"
                ))),
            _ => Ok(()),
        }
    }

    /// Writes what a journal has after the newest revision of the log, and flushes it. Returns the
    /// newest revision then.
    pub fn replay_journal(
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

    /// Begins the journal that the durability needs, and records whether a killed process loses
    /// anything from now on. The log is on disk, and no record of an earlier journal is needed any
    /// more.
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
