//! Objects of a bucket that expire: each is deleted when it was not written for some time, as
//! Events are by kube-apiserver's `--event-ttl`.
//!
//! etcd attaches a lease to each write of an Event. Here a task looks over all objects from time to
//! time: the store's revisions say which of them were last written before a given time. Objects
//! written by an earlier process are dated by what the server stamped into them.
//!
//! Start at [`Registry::expire_objects`].

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use coracle_storage::{BucketSnapshot, CommitOutcome, Expect, Key, Revision, Write};
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;

use super::{ObjectIndex, Origin, Registry, Stored, parse};
use crate::object_meta::ObjectMeta;
use crate::request::info::Verb;
use crate::timers::EVENT_TTL;

/// The number of times that objects are looked over within their time to live: one may live so much
/// longer than it must.
const LOOKS: u32 = 32;

/// At least so often, whatever the time to live.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// At most so often.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The number of objects that are looked at before others get their turn.
const PAGE: usize = 1000;

/// The number of objects that are deleted concurrently: enough to share the store's group commits.
const MAX_CONCURRENT: usize = 64;

impl Registry {
    /// Deletes each object of a bucket that was not written for the duration `ttl`, until the
    /// future is dropped. Zero keeps objects for ever.
    pub fn expire_objects(self: Arc<Self>, bucket: &'static str, ttl: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if ttl.is_zero() {
                return;
            }
            let interval = (ttl / LOOKS).clamp(MIN_INTERVAL, MAX_INTERVAL);
            let clock = &self.clock;
            let mut ages =
                Ages::new(ttl, &self.store.snapshot().bucket(bucket), clock.now(), clock.monotonic());
            let mut looks = clock.interval(EVENT_TTL.after(interval), "");
            loop {
                let events = self.store.snapshot().bucket(bucket);
                ages.mark(clock.monotonic(), events.revision());
                let mut next = None;
                while let Some(page) = ages.expired(&events, &mut next, clock.monotonic()) {
                    stream::iter(page).for_each_concurrent(MAX_CONCURRENT, |key| self.expire(key)).await;
                    tokio::task::yield_now().await;
                }
                looks.tick().await;
            }
        })
    }

    /// Deletes an object, unless it was written again. What fails is tried again with the next
    /// look.
    async fn expire(&self, (key, revision): (Key, Revision)) {
        let deletion = Write::delete(key, Expect::Revision(revision));
        match self.commit(vec![deletion], Origin::server(Verb::Delete)).await {
            Ok(CommitOutcome::Done(_) | CommitOutcome::Conflict { .. }) => {}
            Err(error) => tracing::warn!(%error, "an expired object is not deleted"),
        }
    }
}

/// The times at which objects were last written.
struct Ages {
    ttl: Duration,
    /// Everything up to the revision was written by the time; the first mark is the newest that is
    /// older than the time to live, if any is.
    marks: VecDeque<(Duration, Revision)>,
    /// Up to here, objects were written by an earlier process.
    loaded_revision: Revision,
    /// The times at which those expire, by name. Empty as soon as all of them have.
    loaded: HashMap<Arc<str>, Duration>,
}

impl Ages {
    /// Records the ages of existing objects. `wall` and `now` are the same moment: objects are
    /// dated by the time, and age by [`Clock::monotonic`], which cannot be set.
    ///
    /// [`Clock::monotonic`]: coracle_clock::Clock::monotonic
    fn new(ttl: Duration, objects: &BucketSnapshot<ObjectIndex>, wall: Timestamp, now: Duration) -> Ages {
        let deadline = |object: &Arc<Stored>| {
            // An object that claims to be written in the future was written now, at the latest.
            let written = parse(object).ok().and_then(|object| last_write(&object));
            let age = written.map_or(Duration::ZERO, |written| {
                Duration::try_from(wall.duration_since(written)).unwrap_or_default()
            });
            (object.key.name().clone(), now + ttl.saturating_sub(age))
        };
        Ages {
            ttl,
            marks: VecDeque::new(),
            loaded_revision: objects.revision(),
            loaded: objects.iter().map(deadline).collect(),
        }
    }

    /// Remembers that a revision is as old as this.
    fn mark(&mut self, now: Duration, revision: Revision) {
        if self.marks.back().is_none_or(|(_, last)| *last < revision) {
            self.marks.push_back((now, revision));
        }
        while self.marks.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= self.ttl) {
            self.marks.pop_front();
        }
        if self.loaded.values().all(|deadline| *deadline <= now) {
            self.loaded = HashMap::new();
        }
    }

    /// Returns the expired objects among the next few, with their revisions; None after the last
    /// object.
    fn expired(
        &self,
        objects: &BucketSnapshot<ObjectIndex>,
        next: &mut Option<Arc<str>>,
        now: Duration,
    ) -> Option<Vec<(Key, Revision)>> {
        let from = next.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<_> = objects.range(from).take(PAGE).collect();
        *next = Some(page.last()?.key.name().clone());
        let horizon = match self.marks.front() {
            Some((at, revision)) if now.saturating_sub(*at) >= self.ttl => *revision,
            _ => Revision::ZERO,
        };
        let is_expired = |object: &Stored| {
            if object.revision <= self.loaded_revision {
                self.loaded.get(object.key.name()).is_none_or(|deadline| *deadline <= now)
            } else {
                object.revision <= horizon
            }
        };
        let expired = page.into_iter().filter(|object| is_expired(object));
        Some(expired.map(|object| (object.key.clone(), object.revision)).collect())
    }
}

/// Returns the newest of the times that the server records in an object when it writes it.
fn last_write(object: &Value) -> Option<Timestamp> {
    let created = object.meta("creationTimestamp");
    let managed = object.meta("managedFields").and_then(Value::as_array);
    let updated = managed.into_iter().flatten().map(|entry| entry.get("time"));
    let times = std::iter::once(created).chain(updated).flatten();
    times.filter_map(|time| time.as_str()?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use coracle_clock::{Clock, MockClock};
    use coracle_storage::Store;
    use coracle_storage::log::{EphemeralLog, MemoryLog};
    use serde_json::json;

    use super::*;
    use crate::access::authorize::Authorizer;
    use crate::registry::Config;
    use crate::resource_info::SharedResourceTable;

    const EVENTS: &str = "events";
    const HOUR: Duration = Duration::from_secs(3600);

    fn registry(store: &Store<ObjectIndex>, time: &str) -> (Arc<Registry>, MockClock) {
        let (clock, mock) = Clock::mock(time.parse().expect("a time"));
        let resources = SharedResourceTable::new(coracle_resources::built_in());
        let authorizer = Arc::new(Authorizer::always_allow());
        let registry = Registry::new(Config::new(store.clone(), resources, clock, authorizer));
        (Arc::new(registry), mock)
    }

    async fn write(store: &Store<ObjectIndex>, name: &str, created: &str, updated: Option<&str>) -> Revision {
        let managed: Vec<_> = updated.iter().map(|time| json!({"manager": "m", "time": time})).collect();
        let event = json!({
            "kind": "Event", "apiVersion": "v1",
            "metadata": {"name": name, "resourceVersion": "", "creationTimestamp": created, "managedFields": managed},
        });
        let key = Key::new(EVENTS, format!("default/{name}"));
        drop(store.put(key, Expect::Any, event.to_string()).await.expect("stored"));
        store.revision()
    }

    /// Waits for the deletions that are under way, in real time.
    async fn left(store: &Store<ObjectIndex>, want: &[&str], why: &str) {
        let began = std::time::Instant::now();
        while names(store) != want {
            assert!(began.elapsed() < Duration::from_secs(10), "{why}: {:?}", names(store));
            tokio::task::yield_now().await;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn names(store: &Store<ObjectIndex>) -> Vec<String> {
        let events = store.snapshot().bucket(EVENTS);
        events.iter().map(|event| event.key.name().trim_start_matches("default/").to_owned()).collect()
    }

    async fn pass(mock: &MockClock, time: Duration) {
        // In steps, since the tasks in between must have their turn; real ones, for the store has a
        // thread of its own.
        for _ in 0..60 {
            mock.advance(time / 60);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[tokio::test]
    async fn events_expire_an_hour_after_their_last_write() {
        let store = Store::open(
            Box::new(EphemeralLog::new()),
            ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
            Default::default(),
        )
        .expect("a store");
        let (registry, mock) = registry(&store, "2024-01-01T00:00:00Z");
        let expiring = tokio::spawn(registry.expire_objects(EVENTS, HOUR));
        pass(&mock, HOUR / 2).await;
        write(&store, "once", "2024-01-01T00:30:00Z", None).await;
        write(&store, "again", "2024-01-01T00:30:00Z", None).await;
        let mut watcher = store.watch(&EVENTS.into(), store.revision()).expect("a watch");
        pass(&mock, HOUR / 2).await;
        write(&store, "again", "2024-01-01T00:30:00Z", None).await;
        assert_eq!(names(&store), ["again", "once"], "both are younger than an hour");
        pass(&mock, HOUR / 2 + HOUR / 16).await;
        left(&store, &["again"], "a write renews").await;
        pass(&mock, HOUR / 2).await;
        left(&store, &[], "an hour later").await;
        let events = watcher.try_next().expect("history");
        let gone: Vec<_> = events.iter().filter(|event| event.after.is_none()).collect();
        assert_eq!(gone.len(), 2, "watchers see both deletions");
        expiring.abort();
    }

    #[tokio::test]
    async fn events_of_an_earlier_process_are_dated_by_the_servers_stamps() {
        let log = MemoryLog::new();
        let store = Store::open(
            Box::new(log.share()),
            ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
            Default::default(),
        )
        .expect("a store");
        for (name, created, updated) in [
            ("old", "2024-01-01T10:00:00Z", None),
            ("old-but-updated", "2024-01-01T10:00:00Z", Some("2024-01-01T11:50:00Z")),
            ("recent", "2024-01-01T11:30:00Z", None),
            ("in-the-future", "2034-01-01T10:00:00Z", None),
            ("undated", "", None),
        ] {
            write(&store, name, created, updated).await;
        }
        store.close().await.expect("closed");
        let store = Store::open(
            Box::new(log.share()),
            ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
            Default::default(),
        )
        .expect("a store");
        let (registry, mock) = registry(&store, "2024-01-01T12:00:00Z");
        let expiring = tokio::spawn(registry.expire_objects(EVENTS, HOUR));
        for (minutes, want) in [
            (1, vec!["in-the-future", "old-but-updated", "recent", "undated"]),
            (33, vec!["in-the-future", "old-but-updated", "undated"]),
            (20, vec!["in-the-future", "undated"]),
            (10, vec![]),
        ] {
            pass(&mock, Duration::from_secs(60 * minutes)).await;
            left(&store, &want, &format!("after {minutes} minutes more")).await;
        }
        expiring.abort();
    }

    #[tokio::test]
    async fn zero_keeps_events() {
        let store = Store::open(
            Box::new(EphemeralLog::new()),
            ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
            Default::default(),
        )
        .expect("a store");
        write(&store, "kept", "2024-01-01T00:00:00Z", None).await;
        registry(&store, "2034-01-01T00:00:00Z").0.expire_objects(EVENTS, Duration::ZERO).await;
        assert_eq!(names(&store), ["kept"]);
    }
}
