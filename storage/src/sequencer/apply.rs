//! Applies a record of the log to the view: it changes an object, or is quarantined.

use std::sync::Arc;

use crate::{
    Event, Index, Object,
    compaction::CompactionQueue,
    index::read,
    log::{Change, Entry, Location, LogError, Record, UnreadableEntry},
    sequencer::pending::Known,
    view::State,
};

/// The result of applying a record of the log.
pub(super) enum Applied<I: Index> {
    Event(Arc<Event<I>>),
    /// It deletes what the view does not have.
    Nothing,
    Quarantined,
}

/// The source of records.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub location: &'a Location,
    /// Whether others may write to the log, too.
    pub has_other_writers: bool,
}

/// Brings a record into the view. Only an unreadable record of a log without other writers is an
/// error.
pub(super) fn apply<I: Index>(
    state: &mut State<I>,
    index: &I,
    record: Record,
    known: Known<I>,
    source: Source<'_>,
) -> Result<Applied<I>, LogError> {
    let entry = match record {
        Record::Entry(entry) => entry,
        Record::Unreadable(entry) => return quarantine(state, entry, source),
    };
    let Entry { id, key, change } = entry;
    let key = state.intern(key);
    let after = match change {
        Change::Delete if state.get(&key).is_none() => {
            state.lift_quarantine(&key, id.revision);
            return Ok(Applied::Nothing);
        }
        Change::Delete => None,
        Change::Put { created, stored } => {
            let indexed = match known.indexed.map_or_else(|| read(index, &key, &stored), Ok) {
                Ok(indexed) => indexed,
                Err(reason) => return quarantine(state, UnreadableEntry { id, key, reason }, source),
            };
            let created = created.unwrap_or(id.revision);
            Some(Arc::new(Object::new(key.clone(), created, id, &stored, indexed)))
        }
    };
    Ok(Applied::Event(state.apply(key, id, after, known.author)))
}

/// Keeps an unreadable entry of another writer out of the view.
fn quarantine<I: Index>(
    state: &mut State<I>,
    entry: UnreadableEntry,
    source: Source<'_>,
) -> Result<Applied<I>, LogError> {
    let UnreadableEntry { id, key, reason } = &entry;
    if !source.has_other_writers {
        let reason = format!("{key} at revision {}: {reason}", id.revision);
        return Err(LogError::Damaged { location: source.location.clone(), reason });
    }
    tracing::error!(
        %key, revision = %id.revision, %reason, path = %source.location,
        "another writer's entry is unreadable; its key keeps the last readable version and takes no writes"
    );
    state.quarantine(entry);
    Ok(Applied::Quarantined)
}

/// Forgets the oldest event. What the log no longer needs for it: the version it superseded, and a
/// deletion itself.
///
/// In this order: a log that has lost a deletion but not the version before it would bring the
/// object back.
pub(super) fn forget<I: Index>(state: &mut State<I>, superseded: &mut CompactionQueue, event: &Event<I>) {
    state.forget(event);
    if let Some(before) = &event.before {
        superseded.push(before.entry_id(), before.bytes.len());
    }
    if event.after.is_none() {
        superseded.push(event.entry_id(), 0);
    }
}
