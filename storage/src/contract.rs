//! What every store promises, over whichever log: each test here is run for each log.

use crate::{
    Delete, Expect, Key, Options, Put, Revision, Store,
    log::{EphemeralLog, Log, MemoryLog},
    testing::Marked,
};

/// A place where a store can be opened, and opened again.
trait Place {
    fn log(&self) -> impl Log;

    fn open(&self) -> Store<Marked> {
        Store::open(self.log(), Marked, Options::default()).unwrap()
    }
}

impl Place for MemoryLog {
    fn log(&self) -> impl Log {
        self.share()
    }
}

/// Nothing is there when it is opened again; for promises that do not need it.
struct Nowhere;

impl Place for Nowhere {
    fn log(&self) -> impl Log {
        EphemeralLog::new()
    }
}

fn key(name: &str) -> Key {
    Key::new("things", name)
}

async fn put(store: &Store<Marked>, name: &str, text: &str) -> Revision {
    match store.put(key(name), Expect::Any, format!("{text}@")).await.unwrap() {
        Put::Stored(object) => object.revision,
        Put::Lost { .. } => panic!("{name} lost against nothing"),
    }
}

async fn delete(store: &Store<Marked>, name: &str) -> Revision {
    match store.delete(key(name), Expect::Any).await.unwrap() {
        Delete::Deleted { revision, .. } => revision,
        Delete::Lost { .. } => panic!("{name} is not there"),
    }
}

async fn reads_its_writes(place: impl Place) {
    let store = place.open();
    let first = put(&store, "a", "one").await;
    let read = store.get(&key("a")).unwrap();
    assert_eq!((&read.bytes[..], read.meta.as_str()), (&b"one@1"[..], "one"));
    assert_eq!((read.created, read.revision), (first, first));
    let second = put(&store, "a", "two").await;
    assert!(second > first);
    let read = store.get(&key("a")).unwrap();
    assert_eq!((&read.bytes[..], read.created, read.revision), (&b"two@2"[..], first, second));
    delete(&store, "a").await;
    assert!(store.get(&key("a")).is_none());
    let again = put(&store, "a", "three").await;
    assert_eq!(store.get(&key("a")).unwrap().created, again);
}

async fn losing_is_a_value(place: impl Place) {
    let store = place.open();
    type Case = (&'static str, &'static str, fn(Revision) -> Expect, bool, bool);
    let cases: [Case; 10] = [
        ("absent, and it is", "gone", |_| Expect::Absent, true, false),
        ("absent, but it is there", "here", |_| Expect::Absent, false, false),
        ("present, and it is", "here", |_| Expect::Present, true, true),
        ("present, but it is not", "gone", |_| Expect::Present, false, false),
        ("its revision", "here", Expect::Revision, true, true),
        ("an older revision", "here", |now| Expect::Revision(Revision(now.0 - 1)), false, false),
        ("a newer revision", "here", |now| Expect::Revision(now.next()), false, false),
        ("a revision of nothing", "gone", Expect::Revision, false, false),
        ("anything, and it is there", "here", |_| Expect::Any, true, true),
        ("anything, and nothing is", "gone", |_| Expect::Any, true, false),
    ];
    for (case, name, expect, may_put, may_delete) in cases {
        let now = put(&store, "here", "x").await;
        drop(store.delete(key("gone"), Expect::Any).await.unwrap());
        let current = store.get(&key(name)).map(|object| object.revision);
        match store.put(key(name), expect(now), "y@").await.unwrap() {
            Put::Stored(object) => assert!(may_put && object.revision > now, "{case}"),
            Put::Lost { current: found } => {
                assert!(!may_put, "{case}");
                assert_eq!(found.map(|object| object.revision), current, "{case}");
            }
        }
        let now = put(&store, "here", "x").await;
        drop(store.delete(key("gone"), Expect::Any).await.unwrap());
        let current = store.get(&key(name)).map(|object| object.revision);
        match store.delete(key(name), expect(now)).await.unwrap() {
            Delete::Deleted { last, revision } => {
                assert!(may_delete && revision > now, "{case}");
                assert_eq!(last.revision, now, "{case}");
            }
            Delete::Lost { current: found } => {
                assert!(!may_delete, "{case}");
                assert_eq!(found.map(|object| object.revision), current, "{case}");
            }
        }
    }
}

/// Runs each test of the contract over each log.
macro_rules! over_every_log {
    ($($test:ident),* $(,)?) => {
        mod ephemeral { $(#[tokio::test] async fn $test() { super::$test(super::Nowhere).await })* }
        mod memory { $(#[tokio::test] async fn $test() { super::$test(super::MemoryLog::new()).await })* }
    };
}

over_every_log!(reads_its_writes, losing_is_a_value);
