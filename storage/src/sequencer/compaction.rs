//! Compaction of the view and of the log: a little with every group of writes, so that no writer
//! waits long.

use std::time::Instant;

use super::{Sequencer, apply::forget, pending::Reply};
use crate::{Index, Revision};

/// Events that one publication forgets, besides as many as it adds: history shrinks steadily, and
/// no writer waits long.
const TRIM: usize = 64;

/// Batches of superseded entries that are deleted between two messages: more bytes than a group can
/// leave.
const COMPACTION_BATCHES: usize = 4;

impl<I: Index> Sequencer<I> {
    /// Forgets a little of what history no longer keeps, and shows readers the newest state.
    pub(super) fn publish(&mut self) {
        self.timeline.mark(Instant::now());
        if self.space.disk_is_full {
            // Deleted objects free space only when history forgets them.
            self.timeline.expire(self.state.revision());
        }
        let added = std::mem::take(&mut self.unpublished);
        let forgotten = self.trim_history(TRIM.saturating_add(added));
        let has_progress = std::mem::take(&mut self.has_progress);
        if forgotten || has_progress || !self.changed.is_empty() {
            self.shared.publish(self.state.clone(), self.changed.drain(..));
        }
    }

    /// Forgets so many events, and more where they have too many bytes: few large events can take
    /// the place of many small ones. A transaction is forgotten as a whole.
    pub(super) fn trim_history(&mut self, limit: usize) -> bool {
        let mut forgotten = 0;
        while (forgotten < limit
            || self.timeline.has_excess_bytes()
            || self.timeline.begins_with(self.compact_revision.revision()))
            && let Some(event) = self.timeline.pop_excess()
        {
            forget(&mut self.state, &mut self.superseded, &event);
            self.compact_revision.raise(event.revision);
            forgotten += 1;
        }
        if forgotten > 0 {
            self.shared.evict_rebuilt(&self.state);
        }
        forgotten > 0
    }

    /// Returns `true` if there are superseded entries whose compaction must not wait.
    pub(super) fn is_compaction_due(&self) -> bool {
        let is_due = self.superseded.is_due() && !self.compaction_failed && self.shared.health().is_ok();
        is_due || !self.compaction_replies.is_empty()
    }

    /// Compacts the log up to what the view has dropped from history: a little at a time, so that
    /// writers need not wait for it.
    pub(super) fn compact_log(&mut self) {
        for _ in 0..COMPACTION_BATCHES {
            if !self.is_compaction_due() {
                return;
            }
            let compacted = self.shared.health().and_then(|()| {
                let batch = self.superseded.batch();
                self.log.compact(self.compact_revision, &batch).map_err(|error| self.log_failed(error))?;
                self.superseded.remove_batch(batch.len());
                Ok(())
            });
            // For those who wait; otherwise a failure shows in the store's health.
            if compacted.is_err() || self.superseded.is_empty() {
                self.compaction_replies.drain(..).for_each(|reply| drop(reply.send(compacted.clone())));
            }
            if compacted.is_err() {
                self.compaction_failed = true;
                return;
            }
        }
    }

    /// Forgets history up to a revision. The reply is sent when the log has forgotten it, too.
    pub(super) fn compact(&mut self, up_to: Revision, reply: Reply<()>) {
        let up_to = up_to.min(self.state.revision());
        self.timeline.expire(up_to);
        self.trim_history(usize::MAX);
        self.compact_revision.raise(up_to);
        self.state.raise_compact_revision(up_to);
        self.shared.publish(self.state.clone(), self.changed.drain(..));
        // The log is compacted once at least: the compact revision itself must last, too.
        self.compaction_replies.push(reply);
    }
}
