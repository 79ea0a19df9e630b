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

/// The time after which a turn is not waited for any longer: whoever has it may wait for a webhook, or for another key.
const LONGEST_TURN: Duration = Duration::from_millis(100);

/// The time after a request of a client in which another one may follow: what it writes in one go is there before anybody works on it.
const MOMENT: Duration = Duration::from_millis(3);

/// The longest wait for the end of a client's requests.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The requests of clients, as far as they have been looked at.
struct Requests {
    seen: u64,
    /// The time at which there was another one than before.
    changed: Instant,
}

/// Gives turns to the keys of all queues until the future is dropped. A key has its turn when all that the turn before has caused has
/// come to an end.
pub async fn give_turns<I: Index>(clock: Clock, store: Store<I>) {
    let Some(turns) = clock.turns() else { return };
    let activity = clock.activity();
    let _observation = activity.observe();
    let mut given = Instant::now();
    let mut wanted_since = None;
    let mut requests = Requests { seen: activity.requests(), changed: given };
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
        if requests.seen != activity.requests() {
            requests = Requests { seen: activity.requests(), changed: now };
        }
        let is_wanted = turns.are_wanted();
        let since = *wanted_since.get_or_insert(now);
        let has_time = now < requests.changed + MOMENT && now < since + LONGEST_WAIT;
        if !is_wanted {
            wanted_since = None;
        } else if !has_time && (is_quiet(&clock, &store) || now >= given + LONGEST_TURN) {
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
    quiet.is_some() && !store.has_unfollowed_here() && clock.activity().quiet() == quiet
}
