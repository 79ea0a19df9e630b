//! What every store promises, over whichever log. Each promise is a function that is run for each log at the end.

use std::{ops::Bound, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    Commit, Compacted, Delete, Expect, Floor, Future, History, Key, Options, Put, Revision, RevisionError,
    Store, StoreError, Write,
    testing::{Disk, Marked, Nowhere, Place, delete, key, put, shown, told},
};

fn bucket(name: &str) -> Arc<str> {
    name.into()
}

async fn reads_its_writes(place: impl Place) {
    let store = place.open();
    let first = put(&store, &key("a"), "one").await;
    let read = store.get(&key("a")).unwrap();
    assert_eq!((&read.bytes[..], read.meta.as_str()), (&b"one@1"[..], "one"));
    assert_eq!((read.created, read.revision), (first, first));
    let second = put(&store, &key("a"), "two").await;
    assert!(second > first);
    let read = store.get(&key("a")).unwrap();
    assert_eq!((&read.bytes[..], read.created, read.revision), (&b"two@2"[..], first, second));
    delete(&store, &key("a")).await;
    assert!(store.get(&key("a")).is_none());
    let again = put(&store, &key("a"), "three").await;
    assert_eq!(store.get(&key("a")).unwrap().created, again);
    assert_eq!(store.revision(), again);
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
        for (deletes, may) in [(false, may_put), (true, may_delete)] {
            drop(store.delete(key("gone"), Expect::Any).await.unwrap());
            let now = put(&store, &key("here"), "x").await;
            let found = store.get(&key(name)).map(|object| object.revision);
            let write = Write { key: key(name), expect: expect(now), value: (!deletes).then(|| "y@".into()) };
            match store.commit(vec![write]).await.unwrap() {
                Commit::Done(events) => {
                    assert!(may, "{case}, deletes: {deletes}");
                    assert_eq!(events[0].before.as_ref().map(|object| object.revision), found, "{case}");
                    assert_eq!(store.revision(), now.next(), "{case}");
                }
                Commit::Lost { index, current } => {
                    assert!(!may, "{case}, deletes: {deletes}");
                    assert_eq!((index, current.map(|object| object.revision)), (0, found), "{case}");
                    assert_eq!(store.revision(), now, "{case}");
                }
            }
        }
    }
}

async fn writes_all_or_nothing(place: impl Place) {
    let store = place.open();
    let other = Key::new("others", "o");
    put(&store, &key("a"), "a").await;
    let before = put(&store, &key("b"), "b").await;
    let writes = |held| {
        vec![
            Write::put(key("new"), Expect::Absent, "n@"),
            Write::delete(key("a"), Expect::Present),
            Write::put(key("b"), Expect::Revision(held), "c@"),
            Write::put(other.clone(), Expect::Any, "o@"),
        ]
    };
    let Commit::Lost { index, current } = store.commit(writes(before.next())).await.unwrap() else {
        panic!("written in spite of a lost expectation")
    };
    assert_eq!((index, current.unwrap().revision), (2, before));
    assert_eq!(shown(&store.snapshot().bucket("things")), "a=a@1 b=b@2");
    assert_eq!((store.revision(), store.snapshot().len("others")), (before, 0));

    let Commit::Done(events) = store.commit(writes(before)).await.unwrap() else {
        panic!("lost against nothing")
    };
    assert_eq!(told(&events), "+new=n@3 -a=a@4 ~b=c@5 +o=o@6");
    assert_eq!(shown(&store.snapshot().bucket("things")), "b=c@5 new=n@3");

    let twice = vec![Write::put(key("t"), Expect::Any, "1@"), Write::put(key("t"), Expect::Any, "2@")];
    assert!(matches!(store.commit(twice).await, Err(StoreError::Twice { key: k }) if k == key("t")));
    assert!(matches!(store.commit(vec![]).await, Ok(Commit::Done(events)) if events.is_empty()));
    assert_eq!(store.revision(), Revision(6));
}

async fn refuses_what_it_could_not_read_back(place: impl Place) {
    let store = place.open();
    let writes = vec![Write::put(key("a"), Expect::Any, "a@"), Write::put(key("b"), Expect::Any, "no mark")];
    assert!(
        matches!(store.commit(writes).await, Err(StoreError::Unreadable { key: k, .. }) if k == key("b"))
    );
    assert_eq!((store.revision(), store.snapshot().len("things")), (Revision::ZERO, 0));
    store.health().unwrap();
}

/// Many tasks count in one object, each holding the revision it read: no step is lost, none is done twice.
async fn one_writer_at_a_time_wins(place: impl Place) {
    const WRITERS: usize = 8;
    const STEPS: usize = 25;
    let store = place.open();
    put(&store, &key("count"), "0").await;
    let count = |store: Store<Marked>| async move {
        let mut revisions = Vec::new();
        while revisions.len() < STEPS {
            let seen = store.get(&key("count")).unwrap();
            let next = seen.meta.parse::<usize>().unwrap() + 1;
            match store.put(key("count"), Expect::Revision(seen.revision), format!("{next}@")).await.unwrap()
            {
                Put::Stored(object) => revisions.push(object.revision),
                Put::Lost { current } => assert!(current.unwrap().revision > seen.revision),
            }
        }
        revisions
    };
    let writers: Vec<_> = (0..WRITERS).map(|_| tokio::spawn(count(store.clone()))).collect();
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.extend(writer.await.unwrap());
    }
    assert_eq!(store.get(&key("count")).unwrap().meta, (WRITERS * STEPS).to_string());
    revisions.sort();
    revisions.dedup();
    assert_eq!(revisions.len(), WRITERS * STEPS);
}

async fn lists_in_the_order_of_names(place: impl Place) {
    let store = place.open();
    for name in ["b/x", "a/z", "ab/q", "a/a", "a", "a0"] {
        put(&store, &key(name), "").await;
    }
    let bucket = store.snapshot().bucket("things");
    let names = |objects: &mut dyn Iterator<Item = &Arc<crate::Object<Marked>>>| {
        objects.map(|object| object.key.name().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&mut bucket.iter()), "a a/a a/z a0 ab/q b/x");
    assert_eq!(names(&mut bucket.prefix("a/")), "a/a a/z");
    assert_eq!(names(&mut bucket.prefix("c/")), "");
    for (case, from, want) in [
        ("from a name on", Bound::Included("a/z"), "a/z a0 ab/q b/x"),
        ("after a name", Bound::Excluded("a/z"), "a0 ab/q b/x"),
        ("after a name that is gone", Bound::Excluded("a/m"), "a/z a0 ab/q b/x"),
        ("from the start", Bound::Unbounded, "a a/a a/z a0 ab/q b/x"),
        ("after the last", Bound::Excluded("b/x"), ""),
    ] {
        assert_eq!(names(&mut bucket.range(from)), want, "{case}");
    }
    assert_eq!(bucket.len(), 6);
    assert!(store.snapshot().bucket("nothing").is_empty());
    put(&store, &Key::new("earlier", "x"), "").await;
    let snapshot = store.snapshot();
    let buckets: Vec<_> = snapshot.buckets().map(|(name, count)| (&**name, count)).collect();
    assert_eq!(buckets, [("earlier", 1), ("things", 6)]);
}

async fn snapshots_stay_as_they_were(place: impl Place) {
    let store = place.open();
    put(&store, &key("a"), "a").await;
    let old = store.snapshot();
    put(&store, &key("a"), "b").await;
    put(&store, &key("c"), "c").await;
    delete(&store, &key("a")).await;
    assert_eq!((old.revision(), shown(&old.bucket("things"))), (Revision(1), "a=a@1".into()));
    assert_eq!(old.get(&key("a")).unwrap().bytes, "a@1");
    assert_eq!(shown(&store.snapshot().bucket("things")), "c=c@3");
}

/// Small writes in two buckets, `things` and `others`, whose revisions and effects the tests below know.
async fn write_a_little(store: &Store<Marked>) {
    put(store, &key("a"), "1").await;
    put(store, &key("b"), "2").await;
    put(store, &Key::new("others", "x"), "3").await;
    put(store, &key("b"), "4").await;
    delete(store, &key("a")).await;
    put(store, &key("a"), "6").await;
    put(store, &Key::new("others", "x"), "7").await;
}

const THINGS_AT: [&str; 8] =
    ["", "a=1@1", "a=1@1 b=2@2", "a=1@1 b=2@2", "a=1@1 b=4@4", "b=4@4", "a=6@6 b=4@4", "a=6@6 b=4@4"];

const THINGS_AFTER: [&str; 8] = [
    "+a=1@1 +b=2@2 ~b=4@4 -a=1@5 +a=6@6",
    "+b=2@2 ~b=4@4 -a=1@5 +a=6@6",
    "~b=4@4 -a=1@5 +a=6@6",
    "~b=4@4 -a=1@5 +a=6@6",
    "-a=1@5 +a=6@6",
    "+a=6@6",
    "",
    "",
];

/// Every start from the floor on works, every one below is refused, for lists and for watches.
fn check_window(store: &Store<Marked>, floor: u64) {
    for at in 0..8 {
        let asked = Revision(at);
        let listed = store.snapshot_at("things", asked).map(|snapshot| {
            assert_eq!(snapshot.revision(), asked);
            shown(&snapshot)
        });
        let watched =
            store.watch(&bucket("things"), asked).map(|mut watcher| told(&watcher.try_next().unwrap()));
        let compacted = Compacted { asked, floor: Floor::at(Revision(floor)) };
        if at < floor {
            assert_eq!(listed, Err(RevisionError::Compacted(compacted)));
            assert_eq!(watched, Err(compacted));
        } else {
            assert_eq!(listed.as_deref(), Ok(THINGS_AT[at as usize]), "at {at}, floor {floor}");
            assert_eq!(watched.as_deref(), Ok(THINGS_AFTER[at as usize]), "after {at}, floor {floor}");
        }
    }
    let newest = store.revision();
    let future = Future { asked: newest.next(), newest };
    assert_eq!(store.snapshot_at("things", newest.next()).map(|_| ()), Err(RevisionError::Future(future)));
    assert_eq!(store.snapshot_at("unused", newest.next()).map(|_| ()), Err(RevisionError::Future(future)));
}

async fn floor_is_where_history_starts(place: impl Place) {
    // At 5 is a deletion, at 7 the window is empty, and at 2 and 3 it makes a difference which bucket moved.
    let store = place.open();
    write_a_little(&store).await;
    for floor in 0..8 {
        store.compact(Revision(floor)).await.unwrap();
        check_window(&store, floor);
        for other in ["others", "unused"] {
            for (asked, admitted) in
                [(floor.checked_sub(1), false), (Some(floor), true), (Some(floor + 1), true)]
            {
                let Some(asked) = asked else { continue };
                let watched = store.watch(&bucket(other), Revision(asked));
                assert_eq!(watched.is_ok(), admitted, "{other} after {asked}, floor {floor}");
            }
        }
    }
    store.compact(Revision(100)).await.unwrap();
    assert_eq!(
        store.snapshot().floor("things").revision(),
        Revision(7),
        "there is no floor above the newest"
    );
}

async fn floor_survives(place: impl Place) {
    for floor in 0..8 {
        let store = place.open();
        if floor == 0 {
            write_a_little(&store).await;
        }
        store.compact(Revision(floor)).await.unwrap();
        store.close().await.unwrap();
        let store = place.open();
        check_window(&store, floor);
        assert!(store.watch(&bucket("unused"), Revision(floor)).is_ok());
        assert_eq!(store.watch(&bucket("unused"), Revision(floor.wrapping_sub(1))).is_ok(), floor == 0);
        store.close().await.unwrap();
    }
}

/// Trimming by count: a bucket in which nothing was forgotten keeps its whole past.
async fn floor_rises_with_what_a_bucket_forgets(place: impl Place) {
    let history = History { events: 3, ..History::default() };
    let store = place.open_with(Options { history, ..Options::default() });
    write_a_little(&store).await;
    check_window(&store, 4);
    assert_eq!(store.snapshot().floor("others").revision(), Revision(3));
    assert_eq!(store.snapshot().floor("unused").revision(), Revision::ZERO);
}

async fn history_is_bounded_in_bytes(place: impl Place) {
    let history = History { bytes: 100_000, ..History::default() };
    let store = place.open_with(Options { history, ..Options::default() });
    for n in 0..40 {
        put(&store, &key("large"), &format!("{n}{}", "x".repeat(10_000))).await;
    }
    let floor = store.snapshot().floor("things").revision();
    assert!(floor >= Revision(30) && floor <= Revision(35), "floor {floor}");
    assert!(store.snapshot_at("things", floor).is_ok());
}

async fn watchers_see_every_event_once_in_order(place: impl Place) {
    let store = place.open();
    let mut early = store.watch(&bucket("things"), Revision::ZERO).unwrap();
    let mut ahead = store.watch(&bucket("things"), Revision(5)).unwrap();
    let reader = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < 5 {
            seen.extend(early.next().await.unwrap());
        }
        told(&seen)
    });
    write_a_little(&store).await;
    assert_eq!(reader.await.unwrap(), THINGS_AFTER[0]);
    assert_eq!(told(&ahead.next().await.unwrap()), THINGS_AFTER[5], "a start that was yet to come");

    let mut late = store.watch(&bucket("things"), Revision(2)).unwrap();
    assert_eq!(told(&late.next().await.unwrap()), THINGS_AFTER[2]);
    let waiting = tokio::spawn(async move { told(&late.next().await.unwrap()) });
    put(&store, &Key::new("others", "x"), "8").await;
    put(&store, &key("c"), "9").await;
    assert_eq!(waiting.await.unwrap(), "+c=9@9");
}

async fn a_crowd_of_watchers_misses_nothing(place: impl Place) {
    const EVENTS: usize = 600;
    let store = place.open();
    let watchers: Vec<_> = (0..50)
        .map(|_| {
            let mut watcher = store.watch(&bucket("things"), Revision::ZERO).unwrap();
            tokio::spawn(async move {
                let mut revisions = Vec::new();
                while revisions.len() < EVENTS {
                    revisions.extend(watcher.next().await.unwrap().iter().map(|event| event.revision));
                }
                revisions
            })
        })
        .collect();
    for n in 0..EVENTS {
        put(&store, &key(&format!("n{}", n % 7)), "").await;
    }
    let want: Vec<_> = (1..=EVENTS as u64).map(Revision).collect();
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), want);
    }
}

async fn a_watcher_too_far_behind_is_told(place: impl Place) {
    let store = place.open();
    let mut slow = store.watch(&bucket("things"), Revision::ZERO).unwrap();
    let mut idle = store.watch(&bucket("others"), Revision::ZERO).unwrap();
    put(&store, &key("a"), "1").await;
    put(&store, &key("a"), "2").await;
    assert_eq!(idle.progress(), Revision(2));
    store.compact(Revision(1)).await.unwrap();
    let compacted = Compacted { asked: Revision::ZERO, floor: Floor::at(Revision(1)) };
    assert_eq!(slow.next().await.map(drop), Err(compacted));
    assert_eq!(slow.next().await.map(drop), Err(compacted), "and told again");
    assert_eq!(slow.progress(), Revision::ZERO);
    store.compact(Revision(2)).await.unwrap();
    put(&store, &Key::new("others", "x"), "3").await;
    assert_eq!(told(&idle.next().await.unwrap()), "+x=3@3", "it had seen all there was below the floor");
}

async fn progress_follows_the_store_once_all_is_read(place: impl Place) {
    let store = place.open();
    let mut watcher = store.watch(&bucket("things"), Revision::ZERO).unwrap();
    assert_eq!(watcher.progress(), Revision::ZERO);
    put(&store, &Key::new("others", "x"), "1").await;
    assert_eq!(watcher.progress(), Revision(1), "another bucket moved");
    put(&store, &key("a"), "2").await;
    put(&store, &Key::new("others", "x"), "3").await;
    assert_eq!(watcher.progress(), Revision(1), "an event waits to be read");
    assert_eq!(told(&watcher.next().await.unwrap()), "+a=2@2");
    assert_eq!(watcher.progress(), Revision(3));
    let mut ahead = store.watch(&bucket("things"), Revision(9)).unwrap();
    assert_eq!(ahead.progress(), Revision(9));
}

async fn waits_for_a_revision(place: impl Place) {
    let store = place.open();
    let soon = || Instant::now() + Duration::from_millis(5);
    let late = || Instant::now() + Duration::from_secs(30);
    store.wait_for(Revision::ZERO, soon()).await.unwrap();
    let future = Future { asked: Revision(2), newest: Revision::ZERO };
    assert_eq!(store.wait_for(Revision(2), soon()).await, Err(future));
    let waiter = store.clone();
    let waiting = tokio::spawn(async move { waiter.wait_for(Revision(2), late()).await });
    put(&store, &key("a"), "1").await;
    put(&store, &key("a"), "2").await;
    waiting.await.unwrap().unwrap();
    store.wait_for(Revision(1), soon()).await.unwrap();
}

async fn frames_are_made_once(place: impl Place) {
    let store = place.open();
    put(&store, &key("a"), "1").await;
    let read = || store.watch(&bucket("things"), Revision::ZERO).unwrap().try_next().unwrap().remove(0);
    assert_eq!(read().frame(|event| format!("{} first", event.revision)), "1 first");
    assert_eq!(read().frame(|_| "second".into()), "1 first");
    for n in 0..crate::history::WARM_EVENTS {
        put(&store, &key("b"), &n.to_string()).await;
    }
    assert_eq!(read().frame(|_| "after it has cooled".into()), "after it has cooled");
    assert_eq!(read().frame(|_| "again".into()), "again", "a cold event keeps no frame");
}

async fn rebuilt_states_are_exact_under_load(place: impl Place) {
    let store = place.open();
    let name = |n: u64| key(&format!("n{:02}", n % 50));
    for n in 0..100 {
        put(&store, &name(n), &n.to_string()).await;
    }
    let want = shown(&store.snapshot().bucket("things"));
    for n in 0..300 {
        match n % 3 {
            2 => drop(store.delete(name(n), Expect::Any).await.unwrap()),
            _ => drop(put(&store, &name(n * 7), "later").await),
        }
        assert_eq!(
            shown(&store.snapshot_at("things", Revision(100)).unwrap()),
            want,
            "after {n} more writes"
        );
    }
    store.compact(Revision(101)).await.unwrap();
    assert!(store.snapshot_at("things", Revision(100)).is_err(), "what was rebuilt before is forgotten, too");
}

async fn a_closed_store_takes_no_writes(place: impl Place) {
    let store = place.open();
    put(&store, &key("a"), "1").await;
    store.close().await.unwrap();
    assert!(matches!(store.put(key("a"), Expect::Any, "2@").await, Err(StoreError::Closed)));
    assert!(matches!(store.close().await, Err(StoreError::Closed)));
    assert_eq!(store.get(&key("a")).unwrap().bytes, "1@1");
}

async fn everything_survives(place: impl Place) {
    let store = place.open();
    write_a_little(&store).await;
    store.close().await.unwrap();
    let store = place.open();
    assert_eq!(store.revision(), Revision(7));
    check_window(&store, 0);
    let b = store.get(&key("b")).unwrap();
    assert_eq!((b.created, b.revision, b.meta.as_str()), (Revision(2), Revision(4), "4"));
    assert_eq!(put(&store, &key("c"), "8").await, Revision(8));
    store.close().await.unwrap();
}

async fn revisions_are_never_given_again(place: impl Place) {
    let store = place.open();
    put(&store, &key("a"), "1").await;
    let last = delete(&store, &key("a")).await;
    store.compact(last).await.unwrap();
    store.close().await.unwrap();
    let store = place.open();
    assert_eq!(store.revision(), last, "though nothing is left in the log");
    assert_eq!(put(&store, &key("a"), "3").await, last.next());
    store.close().await.unwrap();
}

async fn what_history_drops_leaves_the_log(place: impl Place) {
    let loaded = |place: &dyn Fn(Options) -> Store<Marked>| {
        let (tell, told) = std::sync::mpsc::channel();
        let progress: Box<dyn FnMut(u64) + Send> = Box::new(move |loaded| tell.send(loaded).unwrap());
        let store = place(Options { progress: Some(progress), ..Options::default() });
        (store, told.try_iter().last().unwrap())
    };
    let open = |options| place.open_with(options);
    let history = History { events: 10, ..History::default() };
    let store = place.open_with(Options { history, ..Options::default() });
    for n in 0..2000 {
        put(&store, &key(&format!("n{}", n % 5)), "").await;
    }
    store.close().await.unwrap();
    let (store, versions) = loaded(&open);
    assert!(versions < 500, "{versions} versions of 5 objects are left");
    store.compact(store.revision()).await.unwrap();
    store.close().await.unwrap();
    let (store, versions) = loaded(&open);
    assert_eq!((versions, store.snapshot().len("things")), (5, 5));
    store.close().await.unwrap();
}

/// Two stores over one log, as two servers over one cluster: each sees the other's writes, and neither overwrites them.
async fn stores_share_a_log(place: impl Place) {
    let (one, two) = (place.open(), place.open());
    let mut watcher = two.watch(&bucket("things"), Revision::ZERO).unwrap();
    let first = put(&one, &key("a"), "1").await;
    two.wait_for(first, Instant::now() + Duration::from_secs(30)).await.unwrap();
    assert_eq!(told(&watcher.next().await.unwrap()), "+a=1@1");
    let count = |store: Store<Marked>| async move {
        for _ in 0..50 {
            loop {
                let seen = store.get(&key("a")).unwrap();
                let next = format!("{}@", seen.meta.parse::<u64>().unwrap() + 1);
                if let Put::Stored(_) =
                    store.put(key("a"), Expect::Revision(seen.revision), next).await.unwrap()
                {
                    break;
                }
            }
        }
    };
    let counting = [tokio::spawn(count(one.clone())), tokio::spawn(count(two.clone()))];
    for counter in counting {
        counter.await.unwrap();
    }
    for store in [&one, &two] {
        store.wait_for(Revision(101), Instant::now() + Duration::from_secs(30)).await.unwrap();
        assert_eq!(store.get(&key("a")).unwrap().bytes, "101@101");
    }
    let mut seen = 1;
    while seen < 101 {
        for event in watcher.next().await.unwrap() {
            seen += 1;
            assert_eq!(event.revision, Revision(seen));
        }
    }
    assert!(matches!(
        one.delete(key("a"), Expect::Revision(Revision(101))).await.unwrap(),
        Delete::Deleted { .. }
    ));
}

macro_rules! promise {
    ($place:expr; $($test:ident)*) => {
        $(#[tokio::test] async fn $test() { super::$test($place).await })*
    };
}

/// What holds for as long as a store is open.
macro_rules! promise_while_open {
    ($place:expr) => {
        promise! { $place;
            reads_its_writes
            losing_is_a_value
            writes_all_or_nothing
            refuses_what_it_could_not_read_back
            one_writer_at_a_time_wins
            lists_in_the_order_of_names
            snapshots_stay_as_they_were
            floor_is_where_history_starts
            floor_rises_with_what_a_bucket_forgets
            history_is_bounded_in_bytes
            watchers_see_every_event_once_in_order
            a_crowd_of_watchers_misses_nothing
            a_watcher_too_far_behind_is_told
            progress_follows_the_store_once_all_is_read
            waits_for_a_revision
            frames_are_made_once
            rebuilt_states_are_exact_under_load
            a_closed_store_takes_no_writes
        }
    };
}

/// What holds when a store is opened again.
macro_rules! promise_again {
    ($place:expr) => {
        promise! { $place;
            everything_survives
            floor_survives
            revisions_are_never_given_again
            what_history_drops_leaves_the_log
        }
    };
}

mod ephemeral {
    promise_while_open!(super::Nowhere);
}

mod memory {
    promise_while_open!(crate::log::MemoryLog::new());
    promise_again!(crate::log::MemoryLog::new());
    promise!(crate::log::MemoryLog::new(); stores_share_a_log);
}

mod sled {
    promise_while_open!(super::Disk::new());
    promise_again!(super::Disk::new());
}
