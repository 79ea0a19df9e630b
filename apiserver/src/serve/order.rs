//! Order: the events of a client's watches of different kinds reach it in the order of their
//! revisions.
//!
//! A client that sees an object through one watch expects to have seen what was written before it
//! through its others: the namespace before what is in it, the owner before what it owns. Its
//! watches are streams of their own, which wait for moments of their own to send several events
//! together. So each watch that has events takes a ticket with the revision of the first one, and
//! returns it when no watch of another kind has an earlier one; it sends no more than what comes
//! before the first one of these. Watches of the same kind do not wait for each other, even if they
//! select different objects: there may be thousands.
//!
//! No event waits longer than [`MAX_WAIT`] for others, and a ticket counts no longer than that: a
//! watch that the client does not read, or with objects that take long to convert, delays each of
//! the others once.
//!
//! Source: kube-apiserver promises no order across watches, but sends each event as soon as it
//! comes, which clients rely on.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use coracle_storage::Revision;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::registry::watch::Position;

/// The longest that an event waits for earlier ones of other watches.
const MAX_WAIT: Duration = Duration::from_millis(5);
/// The time after which a watch looks again whether another one, which has been woken, has an
/// earlier event for the client.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The maximum number of waiting watches of other kinds that are asked whether they have been
/// woken. With more of them the tickets alone count.
const MAX_ASKED: usize = 256;

/// The revision of the first event in a bucket after another revision.
type FirstEvent = dyn Fn(&str, Revision) -> Option<Revision> + Send + Sync;

/// The clients that watch.
pub struct Clients {
    first_event: Arc<FirstEvent>,
    identities: RandomState,
    /// The clients by a hash of their identity. Two clients with the same hash only wait for each
    /// other without need.
    by_identity: Mutex<HashMap<u64, Weak<Client>>>,
}

/// The watches of one client.
pub struct Client {
    first_event: Arc<FirstEvent>,
    watches: Mutex<Watches>,
    next_id: AtomicU64,
}

#[derive(Default)]
struct Watches {
    by_bucket: HashMap<Arc<str>, BucketWatches>,
}

/// The watches of a client in one bucket of objects.
#[derive(Default)]
struct BucketWatches {
    /// The number of watches.
    places: usize,
    /// The watches that have events to hand out, each by the revision of the first one.
    tickets: BTreeMap<(Revision, u64), Ticket>,
    /// The watches that wait for events.
    waiting: HashMap<u64, Position>,
}

struct Ticket {
    valid_until: Instant,
    /// Wakes the watch.
    first: Arc<Notify>,
}

/// The place of one watch among those of its client.
pub struct Place {
    client: Arc<Client>,
    id: u64,
    position: Position,
    /// The revision of its ticket.
    revision: Option<Revision>,
    /// Notified when the ticket may have become the first.
    first: Arc<Notify>,
}

/// The revisions whose events a watch may deliver now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryWindow {
    first: Revision,
    /// The earliest revision of another watch that has events.
    next: Option<Revision>,
}

/// The time at which a watch checks again whether it may deliver, if it is not woken before.
struct Wait {
    until: Instant,
    /// Whether the watch waits until another watch, which has been woken, takes its ticket.
    is_for_ticket: bool,
}

impl DeliveryWindow {
    /// Returns whether an event of a revision may be delivered. The first event always may.
    pub fn includes(&self, revision: Revision) -> bool {
        revision <= self.first || self.next.is_none_or(|next| revision < next)
    }
}

impl Clients {
    /// Creates the clients of a store.
    ///
    /// - `first_event`: the revision of the first event in a bucket after another revision.
    pub fn new(first_event: impl Fn(&str, Revision) -> Option<Revision> + Send + Sync + 'static) -> Clients {
        Clients {
            first_event: Arc::new(first_event),
            identities: RandomState::new(),
            by_identity: Mutex::default(),
        }
    }

    /// Returns the client that makes a request: one program of a user on a machine, with any number
    /// of connections.
    pub fn of_request(&self, user: &str, user_agent: &str, remote: IpAddr) -> Arc<Client> {
        let identity = self.identities.hash_one((user, user_agent, remote));
        let mut clients = self.by_identity.lock();
        if let Some(client) = clients.get(&identity).and_then(Weak::upgrade) {
            return client;
        }
        // There are never more than watches.
        clients.retain(|_, client| client.strong_count() > 0);
        let client = Arc::new(Client {
            first_event: self.first_event.clone(),
            watches: Mutex::default(),
            next_id: AtomicU64::new(0),
        });
        clients.insert(identity, Arc::downgrade(&client));
        client
    }
}

impl Client {
    /// Adds a place for one more watch.
    pub fn join(self: &Arc<Client>, position: Position) -> Place {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.lock().bucket_mut(&position.bucket).places += 1;
        Place { client: self.clone(), id, position, revision: None, first: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock()
    }
}

impl Place {
    /// Takes a ticket for an event of a revision, and gives the last one back: its events have
    /// reached the connection.
    pub fn enter(&mut self, revision: Revision) {
        let ticket = Ticket { valid_until: Instant::now() + MAX_WAIT, first: self.first.clone() };
        let last = self.revision.replace(revision);
        let mut watches = self.client.lock();
        let own = watches.bucket_mut(&self.position.bucket);
        own.waiting.remove(&self.id);
        // Inserted first, to avoid needless wakeups.
        own.tickets.insert((revision, self.id), ticket);
        if let Some(last) = last.filter(|last| *last != revision) {
            watches.remove(&self.position.bucket, (last, self.id));
        }
    }

    /// Gives the ticket back, since the watch waits for events.
    pub fn wait(&mut self) {
        let mut watches = self.client.lock();
        watches.bucket_mut(&self.position.bucket).waiting.insert(self.id, self.position.clone());
        if let Some(revision) = self.revision.take() {
            watches.remove(&self.position.bucket, (revision, self.id));
        }
    }

    /// Waits until no watch of another kind has an earlier event, or for [`MAX_WAIT`] since the
    /// ticket was taken, and returns the revisions that may be delivered then.
    pub async fn delivery_window(&mut self) -> DeliveryWindow {
        let mut has_yielded = false;
        loop {
            match self.look(Instant::now()) {
                Ok(window) => return window,
                // Most often the other one is about to run.
                Err(wait) if wait.is_for_ticket && !has_yielded => {
                    has_yielded = true;
                    yield_now().await;
                }
                Err(wait) => _ = timeout_at(wait.until, self.first.notified()).await,
            }
        }
    }

    fn look(&self, now: Instant) -> Result<DeliveryWindow, Wait> {
        let Some(first) = self.revision else {
            return Ok(DeliveryWindow { first: Revision::ZERO, next: None });
        };
        let mut watches = self.client.lock();
        // None if others have found it too old.
        let ticket = watches.bucket_mut(&self.position.bucket).tickets.get(&(first, self.id));
        let until = ticket.map_or(now, |ticket| ticket.valid_until);
        let mut next = None;
        for other in watches.others(&self.position.bucket) {
            while let Some((earliest, ticket)) = other.tickets.first_key_value()
                && earliest.0 < first
                && now < until
            {
                if now < ticket.valid_until {
                    return Err(Wait { until: until.min(ticket.valid_until), is_for_ticket: false });
                }
                other.tickets.pop_first();
            }
            // One transaction may have written to both buckets: then neither goes on before the
            // other.
            let mut later = other.tickets.range((Bound::Included((first, 0)), Bound::Unbounded));
            next = later.next().map(|((revision, _), _)| *revision).into_iter().chain(next).min();
        }
        let woken = self.first_of_woken(&mut watches);
        if woken.is_some_and(|woken| woken < first) && now < until {
            return Err(Wait { until: until.min(now + LOOK_AGAIN), is_for_ticket: true });
        }
        Ok(DeliveryWindow { first, next: next.into_iter().chain(woken).min() })
    }

    /// Returns the earliest event of the watches that were woken but have not handled it yet. Their
    /// clients may not have selected it.
    fn first_of_woken(&self, watches: &mut Watches) -> Option<Revision> {
        let others: Vec<&BucketWatches> =
            watches.others(&self.position.bucket).map(|other| &*other).collect();
        if others.iter().map(|other| other.waiting.len()).sum::<usize>() > MAX_ASKED {
            return None;
        }
        let first = |other: &BucketWatches| {
            let last = other.waiting.values().min_by_key(|position| position.seen())?;
            (self.client.first_event)(&last.bucket, last.seen())
        };
        others.into_iter().filter_map(first).min()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let bucket = &self.position.bucket;
        let mut watches = self.client.lock();
        watches.bucket_mut(bucket).waiting.remove(&self.id);
        if let Some(revision) = self.revision {
            watches.remove(bucket, (revision, self.id));
        }
        let own = watches.bucket_mut(bucket);
        own.places -= 1;
        if own.places == 0 {
            watches.by_bucket.remove(bucket);
        }
    }
}

impl Watches {
    fn bucket_mut(&mut self, bucket: &Arc<str>) -> &mut BucketWatches {
        self.by_bucket.entry_ref(bucket).or_default()
    }

    fn others(&mut self, bucket: &str) -> impl Iterator<Item = &mut BucketWatches> {
        self.by_bucket.iter_mut().filter(move |(name, _)| ***name != *bucket).map(|(_, other)| other)
    }

    /// Removes a ticket, and wakes those that it has kept waiting.
    fn remove(&mut self, bucket: &Arc<str>, key: (Revision, u64)) {
        let own = self.bucket_mut(bucket);
        own.tickets.remove(&key);
        let first = own.tickets.first_key_value().map(|((revision, _), _)| *revision);
        if first.is_some_and(|first| first <= key.0) {
            return;
        }
        let end = first.map_or(Bound::Unbounded, |first| Bound::Included((first, u64::MAX)));
        for other in self.others(bucket) {
            let kept = other.tickets.range((Bound::Excluded((key.0, u64::MAX)), end));
            kept.for_each(|(_, ticket)| ticket.first.notify_one());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Joins watches of buckets that have no events except those of their tickets.
    fn places_in<const N: usize>(buckets: [&str; N]) -> [Place; N] {
        let client = Clients::new(|_, _| None).of_request("alice", "kubectl", LOCAL);
        buckets.map(|bucket| client.join(Position::new(bucket.into(), Revision::ZERO)))
    }

    fn places<const N: usize>() -> [Place; N] {
        let names: [String; N] = std::array::from_fn(|at| at.to_string());
        places_in(names.each_ref().map(String::as_str))
    }

    /// Returns the last of some revisions that a watch may deliver now; None if it must wait.
    fn last_of(place: &mut Place, revisions: impl Iterator<Item = u64>) -> Option<u64> {
        let window = place.delivery_window().now_or_never()?;
        revisions.take_while(|revision| window.includes(Revision(*revision))).last()
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_several_watches_are_handed_out_in_order() {
        let [mut a, mut b, mut c] = places();
        a.enter(Revision(1));
        b.enter(Revision(3));
        c.enter(Revision(3));
        assert_eq!(last_of(&mut b, 3..9), None, "1 is first");
        assert_eq!(last_of(&mut a, 1..9), Some(2), "3 is another's");
        a.enter(Revision(5));
        assert_eq!(last_of(&mut a, 5..9), None, "3 is first");
        assert_eq!((last_of(&mut b, 3..9), last_of(&mut c, 3..9)), (Some(3), Some(3)), "both have it");
        b.wait();
        assert_eq!(last_of(&mut a, 5..9), None, "the other one has not");
        drop(c);
        assert_eq!(last_of(&mut a, 5..9), Some(8), "the client ended the other watch");
    }

    #[tokio::test(start_paused = true)]
    async fn watches_of_the_same_kind_do_not_wait_for_each_other() {
        let [mut a, mut b, mut c] = places_in(["pods", "pods", "jobs"]);
        a.enter(Revision(1));
        b.enter(Revision(3));
        c.enter(Revision(6));
        assert_eq!(last_of(&mut b, 3..9), Some(5), "6 is of another kind");
        assert_eq!(last_of(&mut a, 1..9), Some(5));
        assert_eq!(last_of(&mut c, 6..9), None);
        a.wait();
        drop(b);
        assert_eq!(last_of(&mut c, 6..9), Some(8));
        let client = c.client.clone();
        drop((a, c));
        assert!(client.lock().by_bucket.is_empty(), "nothing is left of them");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_watch_is_woken_when_it_is_first() {
        let second = Revision(2);
        for (then, next) in [
            (None, None),
            // One transaction has written to both.
            (Some(second), Some(second)),
            (Some(Revision(3)), Some(Revision(3))),
        ] {
            let [mut a, mut b] = places();
            a.enter(Revision(1));
            b.enter(second);
            let began = Instant::now();
            let waiting = tokio::spawn(async move { b.delivery_window().await });
            yield_now().await;
            match then {
                None => a.wait(),
                Some(revision) => a.enter(revision),
            }
            assert_eq!(waiting.await.ok(), Some(DeliveryWindow { first: second, next }));
            assert_eq!(began.elapsed(), Duration::ZERO, "{then:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_waits_for_watches_that_have_been_woken() {
        // A bucket has an event at each revision that is divided by its number.
        let clients = Clients::new(|bucket, after| {
            let every: u64 = bucket.parse().ok()?;
            Some(Revision((after.0 / every + 1) * every))
        });
        let client = clients.of_request("alice", "kubectl", LOCAL);
        let [twos, threes] = ["2", "3"].map(|bucket| Position::new(bucket.into(), Revision(5)));
        let (mut a, mut b) = (client.join(twos), client.join(threes.clone()));
        b.wait();
        a.enter(Revision(8));
        assert_eq!(last_of(&mut a, (8..20).step_by(2)), None, "6 is the other one's");
        b.enter(Revision(6));
        assert_eq!(last_of(&mut a, (8..20).step_by(2)), None);
        threes.advance(Revision(6));
        b.wait();
        assert_eq!(last_of(&mut a, (8..20).step_by(2)), Some(8), "9 is the other one's");
        // The other watch only needs to advance; whether its client selected the event does not
        // matter.
        a.enter(Revision(10));
        let began = Instant::now();
        let waiting = tokio::spawn(async move { a.delivery_window().await });
        yield_now().await;
        threes.advance(Revision(9));
        assert_eq!(
            waiting.await.ok(),
            Some(DeliveryWindow { first: Revision(10), next: Some(Revision(12)) })
        );
        assert!(began.elapsed() <= 2 * LOOK_AGAIN, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_nobody_reads_delays_each_other_once() {
        let [mut stalled, mut a, mut b] = places();
        stalled.enter(Revision(1));
        let passed = Duration::from_millis(2);
        tokio::time::advance(passed).await;
        for (place, revision, waited) in [(&mut a, 2, MAX_WAIT - passed), (&mut b, 3, Duration::ZERO)] {
            let began = Instant::now();
            place.enter(Revision(revision));
            place.delivery_window().await;
            assert_eq!(began.elapsed(), waited, "{revision}");
            place.wait();
        }
        // It goes on with what it holds.
        stalled.enter(Revision(2));
        a.enter(Revision(4));
        assert_eq!(last_of(&mut a, 4..9), None);
        assert_eq!(last_of(&mut stalled, 2..9), Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn no_event_waits_long_for_others_that_come_again_and_again() {
        let [mut a, mut b] = places();
        b.enter(Revision(100));
        let began = Instant::now();
        let mut waiting = std::pin::pin!(b.delivery_window());
        for revision in 0..100 {
            a.enter(Revision(revision));
            if (&mut waiting).now_or_never().is_some() {
                break;
            }
            tokio::time::advance(MAX_WAIT / 10).await;
        }
        assert_eq!(began.elapsed(), MAX_WAIT);
    }

    #[test]
    fn a_client_is_a_program_of_a_user_on_a_machine() {
        let clients = Clients::new(|_, _| None);
        let client = clients.of_request("alice", "kubectl", LOCAL);
        let others = [
            ("alice", "kubectl", IpAddr::from([10, 0, 0, 1])),
            ("bob", "kubectl", LOCAL),
            ("alice", "k9s", LOCAL),
        ];
        assert!(Arc::ptr_eq(&client, &clients.of_request("alice", "kubectl", LOCAL)));
        for (user, agent, remote) in others {
            assert!(
                !Arc::ptr_eq(&client, &clients.of_request(user, agent, remote)),
                "{user} {agent} {remote}"
            );
        }
        drop(client);
        clients.of_request("carol", "kubectl", LOCAL);
        assert_eq!(clients.by_identity.lock().len(), 1, "those that are gone are forgotten");
    }
}
