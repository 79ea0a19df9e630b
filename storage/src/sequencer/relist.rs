//! A log of others that has compacted changes before they were read: everything is listed again.

use std::sync::Arc;

use super::{
    Sequencer,
    apply::{Applied, Source, apply},
    pending::Known,
};
use crate::{
    CompactRevision, Event, Index, Revision, StoreError,
    log::{Change, LogError, Record, Unknown},
    view::State,
};

/// The lists that are begun before the log has failed: each may be overtaken by a compaction, which
/// is rare.
const ATTEMPTS: usize = 10;

impl<I: Index> Sequencer<I> {
    /// Replaces the view by what the log has now. History begins anew there: watches from before
    /// end as compacted.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if there are writes whose events are among the lost ones.
    pub(super) fn relist(&mut self, has_own_writes: bool) -> Result<Vec<Arc<Event<I>>>, StoreError> {
        tracing::warn!(path = %self.location, "the history of the log is lost; all objects are listed again");
        let mut attempt = 0;
        let (state, revision) = loop {
            attempt += 1;
            match self.list() {
                Err(LogError::HistoryLost { .. }) if attempt < ATTEMPTS => {}
                listed => break listed.map_err(|error| self.shared.fail(error))?,
            }
        };
        self.changed = self.state.bucket_names().chain(state.bucket_names()).cloned().collect();
        self.changed.sort();
        self.changed.dedup();
        self.state = state;
        self.compact_revision = CompactRevision::at(revision);
        self.timeline.clear();
        self.superseded = Default::default();
        self.unpublished = 0;
        self.shared.evict_rebuilt(&self.state);
        self.publish();
        match has_own_writes {
            true => Err(StoreError::Unknown(Unknown("the changes of the log were compacted".to_owned()))),
            false => Ok(Vec::new()),
        }
    }

    /// Lists every object. Those that have not changed are shared with the current view.
    fn list(&mut self) -> Result<(State<I>, Revision), LogError> {
        let mut state = State::following(&self.state);
        let (index, current) = (&self.shared.index, &self.state);
        let source = Source { location: &self.location, has_other_writers: self.log.has_other_writers() };
        let revision = self.log.relist(&mut |record| {
            if let Record::Entry(entry) = &record
                && let Change::Put { .. } = entry.change
                && let Some(object) =
                    current.get(&entry.key).filter(|object| object.revision == entry.id.revision)
            {
                let event = state.apply(object.key.clone(), entry.id, Some(object.clone()), None);
                state.forget(&event);
                return Ok(());
            }
            if let Applied::Event(event) = apply(&mut state, index, record, Known::nothing(), source)? {
                state.forget(&event);
            }
            Ok(())
        })?;
        state.advance(revision);
        state.raise_compact_revision(revision);
        Ok((state, revision))
    }
}
