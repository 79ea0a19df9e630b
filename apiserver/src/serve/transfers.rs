//! Transfers: responses in progress, which are cut off if their clients do not read.
//!
//! A response that is not read keeps its content in memory: a list keeps a version of each of its
//! objects, a stream a chunk. The body of each response on a socket has a [`Transfer`] that records
//! when the last chunk was passed to the connection; the connection requests the next one when that
//! chunk has been sent. So the transfer is stalled if no request follows a chunk.
//! [`Transfers::sweep`], called periodically by the listener, cuts off transfers that are stalled
//! for too long or exceed their deadline, and, if the memory of all stalled ones is too much, those
//! that are stalled the longest.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// A client may take so long for one chunk.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that took so long for a chunk counts as standing still.
const STALLED: Duration = Duration::from_secs(1);
/// The largest amount of memory that all stalled responses may hold, in bytes.
pub const STALLED_BYTES: usize = 32 << 20;

tokio::task_local! {
    /// Ends the task that writes the response: a stream of HTTP/2, or a whole connection of
    /// HTTP/1.1.
    static CUT: Arc<Notify>;
}

/// Runs a task that writes responses until it is done, a transfer in it is cut off, or `cut` is
/// notified.
///
/// Returns the output of the task, or None if it was cut off.
pub async fn cuttable<F: Future>(cut: Arc<Notify>, work: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        () = cut.notified() => None,
        output = CUT.scope(cut.clone(), work) => Some(output),
    }
}

/// All transfers of a server.
#[derive(Default)]
pub struct Transfers {
    states: Mutex<States>,
}

#[derive(Default)]
struct States {
    next_id: u64,
    by_id: HashMap<u64, Arc<State>>,
}

/// The transfer of one response.
pub struct Transfer {
    transfers: Arc<Transfers>,
    id: u64,
    state: Arc<State>,
}

struct State {
    began: Instant,
    /// The latest time for its end; None for watches.
    deadline: Option<Instant>,
    /// The memory that the response may hold besides the chunk that was passed on, in bytes.
    held_bytes: AtomicUsize,
    /// The rest of a stream's chunk that no other response shares, in bytes.
    chunk: AtomicUsize,
    /// The time from the beginning until the last chunk was passed on, in milliseconds plus one; 0
    /// while the connection waits for the next chunk.
    chunk_sent_at: AtomicU64,
    cut: Arc<Notify>,
}

impl Transfers {
    /// Begins the transfer of a response, if the task that writes it can be cut off: see
    /// [`cuttable`].
    ///
    /// - `held_bytes`: the memory that the response may hold, in bytes.
    /// - `deadline`: the latest time for its end; None for watches.
    pub fn begin(self: &Arc<Transfers>, held_bytes: usize, deadline: Option<Instant>) -> Option<Transfer> {
        let cut = CUT.try_with(Arc::clone).ok()?;
        let state = Arc::new(State {
            began: Instant::now(),
            deadline,
            held_bytes: AtomicUsize::new(held_bytes),
            chunk: AtomicUsize::new(0),
            chunk_sent_at: AtomicU64::new(0),
            cut,
        });
        let mut states = self.lock();
        let id = states.next_id;
        states.next_id += 1;
        states.by_id.insert(id, state.clone());
        drop(states);
        Some(Transfer { transfers: self.clone(), id, state })
    }

    /// Cuts off stalled and overdue transfers. Returns their number.
    pub fn sweep(&self, now: Instant) -> usize {
        let mut stalled: Vec<(Duration, Arc<State>)> = Vec::new();
        let mut cut = 0;
        for state in self.lock().by_id.values() {
            let stalled_for = state.stalled_for(now);
            let overdue = state.deadline.is_some_and(|deadline| deadline < now);
            if overdue || stalled_for.is_some_and(|time| time >= STALL_TIMEOUT) {
                state.cut.notify_one();
                cut += 1;
            } else if let Some(time) = stalled_for.filter(|time| *time >= STALLED) {
                stalled.push((time, state.clone()));
            }
        }
        let mut bytes = stalled.iter().fold(0, |sum: usize, (_, state)| sum.saturating_add(state.held()));
        stalled.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        for (_, state) in stalled {
            if bytes <= STALLED_BYTES {
                break;
            }
            bytes = bytes.saturating_sub(state.held());
            state.cut.notify_one();
            cut += 1;
        }
        cut
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock()
    }
}

impl State {
    fn held(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed).saturating_add(self.chunk.load(Ordering::Relaxed))
    }

    /// Returns the time since a chunk was passed on that has not been sent yet; None if there is no
    /// such chunk.
    fn stalled_for(&self, now: Instant) -> Option<Duration> {
        match self.chunk_sent_at.load(Ordering::Relaxed) {
            0 => None,
            millis => {
                let chunk_sent_at = self.began + Duration::from_millis(millis - 1);
                Some(now.saturating_duration_since(chunk_sent_at))
            }
        }
    }
}

impl Transfer {
    /// Records that a chunk was passed to the connection.
    pub fn chunk_sent(&self, bytes: usize) {
        let millis = u64::try_from(self.state.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.state.chunk_sent_at.store(millis + 1, Ordering::Relaxed);
        let less = |held_bytes: usize| Some(held_bytes.saturating_sub(bytes));
        // There is always a new value, so this does not fail.
        let _ = self.state.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Records the remaining bytes of a chunk that only this response holds.
    pub fn holds_chunk(&self, bytes: usize) {
        self.state.chunk.store(bytes, Ordering::Relaxed);
    }

    /// Records that the connection waits for the next chunk.
    pub fn waits(&self) {
        self.state.chunk_sent_at.store(0, Ordering::Relaxed);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.transfers.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a sweep that takes place `after` later ends the task of a stalled transfer.
    async fn is_cut(
        transfers: &Arc<Transfers>,
        transfer: impl FnOnce() -> Option<Transfer>,
        after: Duration,
    ) -> bool {
        let transfers = transfers.clone();
        let ended = cuttable(Arc::default(), async move {
            let _transfer = transfer().expect("a task that can be cut off");
            transfers.sweep(Instant::now() + after);
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
        ended.await.is_none()
    }

    #[tokio::test]
    async fn transfers_that_stand_still_are_cut_off() {
        let transfers = Arc::new(Transfers::default());
        let begin = |held_bytes, deadline: Option<Duration>| {
            transfers.begin(held_bytes, deadline.map(|time| Instant::now() + time))
        };
        let handed = |held_bytes, deadline| {
            let transfer = begin(held_bytes, deadline)?;
            transfer.chunk_sent(1);
            Some(transfer)
        };
        let seconds = Duration::from_secs;
        assert!(!is_cut(&transfers, || handed(10, None), seconds(29)).await, "the client takes its time");
        assert!(is_cut(&transfers, || handed(10, None), seconds(31)).await, "the client does not read");
        assert!(!is_cut(&transfers, || begin(10, None), seconds(3600)).await, "nothing to read");
        assert!(is_cut(&transfers, || begin(10, Some(seconds(60))), seconds(61)).await, "overdue");
        assert!(!is_cut(&transfers, || begin(10, Some(seconds(60))), seconds(59)).await, "in time");
        assert!(!is_cut(&transfers, || handed(STALLED_BYTES, None), seconds(2)).await, "not too much");
        assert!(is_cut(&transfers, || handed(STALLED_BYTES + 2, None), seconds(2)).await, "holds too much");
        let with_chunk = |bytes| {
            let transfer = handed(10, None)?;
            transfer.holds_chunk(bytes);
            Some(transfer)
        };
        assert!(!is_cut(&transfers, || with_chunk(STALLED_BYTES - 10), seconds(2)).await, "a chunk");
        assert!(is_cut(&transfers, || with_chunk(STALLED_BYTES), seconds(2)).await, "a chunk too large");
        assert!(transfers.lock().by_id.is_empty());
        assert!(transfers.begin(1, None).is_none(), "in process");
    }
}
