//! The bounded queue between the callers of a recorder and its thread.
//!
//! The lock is held for a push or a swap of two vectors, never while anything is written.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::codec::MAX_ENTRY;
use crate::{Entry, Gap, GapReason};

/// The bytes for which the thread is woken before its time.
const WAKE_BYTES: usize = 64 << 10;

/// A queue of entries that is bounded by their bytes.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Wakes the thread.
    filled: Condvar,
    /// Wakes callers that wait for space.
    drained: Condvar,
    /// Wakes callers that wait for a flush.
    flushed: Condvar,
    max_bytes: usize,
    patience: Duration,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// The sum of the sizes of `entries`.
    bytes: usize,
    /// The entries that are missing after `entries`.
    gap: Option<Gap>,
    /// True from the first entry that found no space to the next one that does. No caller waits.
    is_overrun: bool,
    /// True while the thread waits for anything at all.
    is_idle: bool,
    /// True while a caller waits for space.
    is_pressed: bool,
    /// True once entries are no longer taken.
    is_closed: bool,
    is_finishing: bool,
    /// Whether the owner has finished the record; `false` if the thread has ended by itself.
    is_finished: bool,
    /// The entries that were refused.
    dropped: u64,
    flushes_wanted: u64,
    flushes_done: u64,
}

/// The thread's reason to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wake {
    /// Everything is to be written, and the thread to end.
    pub is_finishing: bool,
    /// The number of the flush that callers wait for; 0 if there is none.
    pub flush: u64,
}

impl State {
    /// Returns `true` if an entry fits. An entry of any size fits into an empty queue.
    fn fits(&self, size: usize, max_bytes: usize) -> bool {
        self.entries.is_empty() || self.bytes.saturating_add(size) <= max_bytes
    }

    fn push(&mut self, entry: Entry, size: usize) {
        self.entries.extend(self.gap.take().map(Entry::Gap));
        self.entries.push(entry);
        self.bytes += size;
    }

    fn drop_entry(&mut self, entry: &Entry, reason: GapReason) {
        self.dropped += 1;
        let time = entry.time();
        let gap = self.gap.get_or_insert(Gap { reason, entries: 0, from: time, to: time });
        gap.entries += 1;
        gap.from = gap.from.or(time);
        gap.to = time.or(gap.to);
    }

    fn wants_flush(&self) -> bool {
        self.flushes_wanted > self.flushes_done
    }
}

impl Queue {
    /// Creates a queue without entries.
    ///
    /// - `max_bytes`: the bound; one entry may be larger if nothing else waits
    /// - `patience`: the longest wait of a caller for space
    pub fn new(max_bytes: usize, patience: Duration) -> Queue {
        Queue {
            state: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
            flushed: Condvar::new(),
            max_bytes,
            patience,
        }
    }

    /// Adds an entry. If there is no space in time, it becomes a part of a gap.
    pub fn push(&self, entry: Entry) {
        let size = entry.size();
        let mut state = self.state.lock();
        if state.is_closed {
            // Entries after the end are not a part of the record.
            state.dropped += u64::from(!state.is_finished);
            return;
        }
        if size > MAX_ENTRY {
            return state.drop_entry(&entry, GapReason::TooLarge);
        }
        if !state.fits(size, self.max_bytes) && !state.is_overrun {
            self.wait_for_space(&mut state, size);
        }
        if state.is_closed {
            // Entries after the end are not a part of the record.
            state.dropped += u64::from(!state.is_finished);
            return;
        }
        state.is_overrun = !state.fits(size, self.max_bytes);
        if state.is_overrun {
            return state.drop_entry(&entry, GapReason::QueueFull);
        }
        let before = state.bytes;
        state.push(entry, size);
        if state.is_idle || (before < self.wake_bytes() && state.bytes >= self.wake_bytes()) {
            state.is_idle = false;
            self.filled.notify_one();
        }
    }

    fn wait_for_space(&self, state: &mut MutexGuard<'_, State>, size: usize) {
        let is_full = |state: &mut State| {
            // Taking the entries clears it, and others may have filled the queue since.
            state.is_pressed = true;
            !state.fits(size, self.max_bytes) && !state.is_closed
        };
        state.is_pressed = true;
        self.filled.notify_one();
        self.drained.wait_while_for(state, is_full, self.patience);
    }

    /// Swaps the queue's entries with an empty batch.
    ///
    /// Without a deadline it waits for the first entry, otherwise for so many that a block gets
    /// fuller, or the deadline. A flush and the end are never waited for.
    pub fn take(&self, batch: &mut Vec<Entry>, deadline: Option<Instant>) -> Wake {
        let mut state = self.state.lock();
        match deadline {
            None => {
                state.is_idle = true;
                let is_quiet = |state: &mut State| {
                    let is_empty = state.entries.is_empty() && state.gap.is_none();
                    is_empty && !state.is_finishing && !state.wants_flush()
                };
                self.filled.wait_while(&mut state, is_quiet);
                state.is_idle = false;
            }
            Some(deadline) => {
                let is_small = |state: &mut State| {
                    let is_small = state.bytes < self.wake_bytes() && !state.is_pressed;
                    is_small && !state.is_finishing && !state.wants_flush()
                };
                self.filled.wait_while_until(&mut state, is_small, deadline);
            }
        }
        std::mem::swap(batch, &mut state.entries);
        batch.extend(state.gap.take().map(Entry::Gap));
        state.bytes = 0;
        state.is_pressed = false;
        state.is_overrun = false;
        self.drained.notify_all();
        let flush = if state.wants_flush() { state.flushes_wanted } else { 0 };
        Wake { is_finishing: state.is_finishing, flush }
    }

    /// Waits until the thread has written everything that was pushed before.
    pub fn flush(&self) {
        let mut state = self.state.lock();
        if state.is_finishing {
            return;
        }
        state.flushes_wanted += 1;
        let wanted = state.flushes_wanted;
        self.filled.notify_one();
        self.flushed.wait_while(&mut state, |state| state.flushes_done < wanted);
    }

    /// Reports a flush that [`Wake`] asked for.
    pub fn report_flush(&self, number: u64) {
        let mut state = self.state.lock();
        state.flushes_done = state.flushes_done.max(number);
        self.flushed.notify_all();
    }

    /// Refuses entries from now on.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.drained.notify_all();
    }

    /// Refuses entries from now on, and asks the thread to end.
    pub fn finish(&self) {
        self.state.lock().is_finished = true;
        self.end();
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.is_finishing = true;
        self.filled.notify_one();
        self.drained.notify_all();
    }

    /// Lets nobody wait for a thread that has ended.
    pub fn report_end(&self) {
        self.end();
        self.report_flush(u64::MAX);
    }

    /// Returns the number of entries that were refused.
    pub fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    fn wake_bytes(&self) -> usize {
        WAKE_BYTES.min(self.max_bytes / 2)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
