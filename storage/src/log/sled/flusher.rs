//! Flushing in the background, at most so long after a change.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use crate::log::{
    error::LogError,
    notifier::{Notification, Notifier},
};

/// A thread that flushes within an interval after a change was reported to it, and rests otherwise.
/// Stops when dropped.
pub(super) struct Flusher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    dirty: bool,
    stopped: bool,
}

impl Flusher {
    pub fn start(
        interval: Duration,
        notifier: Notifier,
        mut flush: impl FnMut() -> Result<(), LogError> + Send + 'static,
    ) -> std::io::Result<Flusher> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let run = move || {
            while theirs.wait(interval) {
                if let Err(error) = flush() {
                    // A full disk may have space again.
                    let is_over = !matches!(error, LogError::NoSpace { .. });
                    notifier.notify(Notification::Failed(error));
                    if is_over {
                        return;
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("coracle-flush".into()).spawn(run)?;
        Ok(Flusher { shared, thread: Some(thread) })
    }

    pub fn changed(&self) {
        let mut state = self.shared.state.lock();
        if !state.dirty {
            state.dirty = true;
            self.shared.wake.notify_one();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.wake.notify_one();
        // It cannot have panicked in a way that is not reported already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    /// Waits for a change, and then for the interval to pass. False once stopped.
    fn wait(&self, interval: Duration) -> bool {
        let idle = |state: &mut State| !state.dirty && !state.stopped;
        let mut state = self.state.lock();
        self.wake.wait_while(&mut state, idle);
        self.wake.wait_while_for(&mut state, |state| !state.stopped, interval);
        // A change during the flush needs another flush.
        state.dirty = false;
        !state.stopped
    }
}
