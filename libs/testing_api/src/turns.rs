//! The giving of turns where the clock is manual.
#![expect(clippy::disallowed_methods, reason = "turns and pauses last for a time of the machine")]

use std::pin::pin;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_storage::{Index, Store};
use futures::poll;
use tokio::time::{Instant, sleep_until};

/// The longest time from one look to the next, where nothing notifies.
const INTERVAL: Duration = Duration::from_millis(1);

/// The time after which a turn is not waited for any longer: whoever has it may wait for a webhook,
/// or for another key.
const MAX_TURN: Duration = Duration::from_millis(500);

/// The time after a request of a client in which another one may follow: what it writes in one go
/// is there before anybody works on it.
const MOMENT: Duration = Duration::from_millis(3);

/// The longest wait for the end of requests that follow each other as fast.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The requests of clients, as far as they have been looked at.
struct Requests {
    seen: u64,
    /// The time at which there was another one than before.
    changed: Instant,
    /// The time since which they have followed each other fast.
    since: Instant,
}

impl Requests {
    /// Records the number of requests so far. Returns `true` if another one may follow soon.
    fn go_on(&mut self, seen: u64, now: Instant) -> bool {
        let is_over = now >= self.changed + MOMENT;
        if seen != self.seen {
            let since = if is_over { now } else { self.since };
            *self = Requests { seen, changed: now, since };
            return now < since + MAX_WAIT;
        }
        !is_over && now < self.since + MAX_WAIT
    }
}

/// Gives turns to the keys of all queues until the future is dropped. A key has its turn when all
/// that the turn before has caused has come to an end.
pub async fn give_turns<I: Index>(clock: Clock, store: Store<I>) {
    let Some(turns) = clock.turns() else { return };
    let activity = clock.activity();
    let _observation = activity.observe();
    let mut given = Instant::now();
    let mut wanted_since = None;
    let mut requests = Requests { seen: activity.requests(), changed: given, since: given };
    loop {
        let mut idle = pin!(activity.idle());
        idle.as_mut().enable();
        let mut taken = pin!(turns.taken());
        taken.as_mut().enable();
        let mut followed = pin!(store.followed());
        // So that it is waited for from now on.
        if poll!(&mut followed).is_ready() {
            continue;
        }
        let now = Instant::now();
        let may_follow = requests.go_on(activity.requests(), now);
        let is_wanted = turns.are_wanted();
        let since = *wanted_since.get_or_insert(now);
        // A shorter wait continues, for others that are enqueued at the same time.
        let is_overdue = now >= given.max(since) + MAX_TURN;
        if !is_wanted {
            wanted_since = None;
        } else if !may_follow && (is_overdue || is_quiet(&clock, &store)) {
            turns.give(activity);
            given = now;
            continue;
        }
        tokio::select! {
            () = idle => {}
            () = taken => {}
            () = followed => {}
            () = sleep_until(now + INTERVAL), if is_wanted => {}
        }
    }
}

fn is_quiet<I: Index>(clock: &Clock, store: &Store<I>) -> bool {
    let quiet = clock.activity().quiet();
    // A queue that has not seen the end of a hold yet enters its due keys in a moment.
    let is_due = |now| !clock.timers().due_of_sources(now).is_empty();
    quiet.is_some()
        && !store.has_unfollowed_own()
        && !clock.now_of_sources().is_some_and(is_due)
        && clock.activity().quiet() == quiet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_waited_for_while_they_follow_each_other() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut requests = Requests { seen: 0, changed: start, since: start };
        assert!(!requests.go_on(0, at(50)), "there was none");
        assert!(requests.go_on(2, at(51)) && requests.go_on(2, at(53)) && !requests.go_on(2, at(54)));
        assert!((55..155).all(|now| requests.go_on(now, at(now))), "each a millisecond after the other");
        assert!(!requests.go_on(155, at(155)) && !requests.go_on(200, at(156)), "for too long");
        assert!(!requests.go_on(200, at(160)) && requests.go_on(201, at(161)), "after a pause");
    }
}
