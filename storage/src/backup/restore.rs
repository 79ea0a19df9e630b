//! The restoration of a backup into an empty log.

use std::io::Read;

use super::read::{BackupError, BackupObject, Reader, Summary};
use crate::{
    Key, Revision,
    log::{Change, Location, Log, LogError, Notifier, Outcome, Proposal},
};

/// Objects that are appended at once, and their bytes.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 4 << 20;

/// The reasons for which a backup is not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file is not a sound backup.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log has something already.
    #[error("{0} is not empty")]
    NotEmpty(Location),
    /// The log's revisions are not above those of the backup: clients would see revisions decrease.
    #[error("the revisions of {location} begin at {newest}, which is below the backup's {revision}")]
    Below {
        /// The place of the log.
        location: Location,
        /// The log's newest revision.
        newest: Revision,
        /// The backup's revision.
        revision: Revision,
    },
    /// The log does not take an object.
    #[error("{key} is not taken: {outcome:?}")]
    NotTaken {
        /// The object's key.
        key: Key,
        /// The outcome that the log reported.
        outcome: Outcome,
    },
}

/// Whether a restore may assign revisions below those that clients have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monotonicity {
    /// The log's newest revision must be at or above the backup's, so that every revision a client
    /// has seen is older than those after the restoration.
    Required,
    /// The log assigns its own revisions from any start, as a new etcd cluster does. Clients have
    /// to list again.
    Waived,
}

/// Appends the objects of a backup to a log without objects, each as a transaction of its own with
/// a new revision, and closes the log. Returns the newest revision.
///
/// # Errors
/// See [`RestoreError`]. After an error some of the objects may be in the log.
pub fn restore(
    source: impl Read,
    mut log: Box<dyn Log>,
    monotonicity: Monotonicity,
) -> Result<(Summary, Revision), RestoreError> {
    let mut reader = Reader::new(source)?;
    let bounds = log.start(Notifier::new(|_| ()))?;
    let mut is_empty = true;
    log.load(&mut |_| {
        is_empty = false;
        Ok(())
    })?;
    if !is_empty {
        return Err(RestoreError::NotEmpty(log.location()));
    }
    let (mut newest, revision) = (bounds.newest, reader.summary().revision);
    if newest < revision && monotonicity == Monotonicity::Required {
        return Err(RestoreError::Below { location: log.location(), newest, revision });
    }
    let mut batch = Vec::new();
    let mut bytes = 0;
    while let Some(BackupObject { key, created, stored, .. }) = reader.next_object()? {
        bytes += stored.len();
        let change = Change::Put { created: Some(created), stored };
        batch.push(vec![Proposal { key, previous: None, change }]);
        if batch.len() >= BATCH || bytes >= BATCH_BYTES {
            newest = append(&mut *log, &batch)?.unwrap_or(newest);
            batch.clear();
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        newest = append(&mut *log, &batch)?.unwrap_or(newest);
    }
    log.close()?;
    Ok((reader.summary(), newest))
}

/// Appends a batch, and returns its newest revision.
fn append(log: &mut dyn Log, batch: &[Vec<Proposal>]) -> Result<Option<Revision>, RestoreError> {
    let outcomes = log.append(batch)?;
    let mut newest = None;
    for (outcome, transaction) in outcomes.into_iter().zip(batch) {
        match (outcome, transaction.first()) {
            (Outcome::Committed(revision), _) => newest = newest.max(Some(revision)),
            (outcome, Some(proposal)) => {
                return Err(RestoreError::NotTaken { key: proposal.key.clone(), outcome });
            }
            (_, None) => {}
        }
    }
    // Records of the tail stay in memory until they are read.
    if let Some(newest) = newest {
        log.tail(newest)?;
    }
    Ok(newest)
}
