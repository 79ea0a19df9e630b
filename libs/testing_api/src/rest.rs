//! The state of rest: no work is under way, and nobody has yet to handle an event.
//!
//! Work overlaps with what it causes ([`coracle_clock::Activity`]), and a watch has handled its
//! events when it asks for more ([`Store::unfollowed`](coracle_storage::Store::unfollowed)). So at
//! a moment at which there is neither, nothing is left to happen but by timers and clients.
#![expect(
    clippy::disallowed_methods,
    reason = "clients wait for a time of the machine, whatever the clock shows"
)]

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::Testing;

/// The longest time from one look to the next, where nothing notifies.
const INTERVAL: Duration = Duration::from_millis(1);

/// The treatment of due timers while the control plane comes to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueTimers {
    /// They are part of the work that is left, since they are about to fire.
    Awaited,
    /// They will be fired after this rest.
    Ignored,
}

impl Testing {
    /// Waits until the control plane is at rest and nothing was written for a time. Returns whether
    /// it has come to that.
    pub(crate) async fn rest(&self, quiet: Duration, timers: DueTimers, deadline: Instant) -> bool {
        let (activity, store) = (self.0.clock.activity(), &self.0.store);
        let _observation = activity.observe();
        loop {
            let mut idle = pin!(activity.idle());
            idle.as_mut().enable();
            let mut next_look = Instant::now() + INTERVAL;
            if self.is_at_rest(timers) {
                let left = quiet.saturating_sub(store.since_write());
                if left.is_zero() {
                    return true;
                }
                next_look = Instant::now() + left;
            }
            if Instant::now() >= deadline {
                return false;
            }
            tokio::select! {
                () = idle => {}
                () = store.followed() => {}
                () = sleep_until(next_look.min(deadline)) => {}
            }
        }
    }

    pub(crate) fn is_at_rest(&self, timers: DueTimers) -> bool {
        let activity = self.0.clock.activity();
        let begun = activity.begun();
        let is_due =
            || self.0.clock.timers().first_due(|_| true).is_some_and(|due| due <= self.0.clock.now());
        activity.is_idle()
            && !self.0.store.has_unfollowed()
            && !(timers == DueTimers::Awaited && is_due())
            && activity.begun() == begun
            && activity.is_idle()
    }
}
