//! The contract of every store, over whichever log. Each part of that contract is a function, run for each log at the
//! end, and by the crates of other logs.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::{ops::Bound, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    Commit, CompactRevision, Compacted, Delete, Expect, Future, History, Key, Options, Put, Revision,
    RevisionError, Store, StoreError, Write,
    log::{Change, Conflict, Log, MemoryLog, Notifier, Outcome, Proposal, Record},
    testing::{Contested, Marked, TestLog, delete, key, overwrite, put, render_bucket, render_events},
};

fn bucket(name: &str) -> Arc<str> {
    name.into()
}

pub async fn reads_its_writes(logs: impl TestLog) {
    let store = logs.open();
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

pub async fn a_conflict_is_a_value(logs: impl TestLog) {
    let store = logs.open();
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
                Commit::Conflict { index, current } => {
                    assert!(!may, "{case}, deletes: {deletes}");
                    assert_eq!((index, current.map(|object| object.revision)), (0, found), "{case}");
                    assert_eq!(store.revision(), now, "{case}");
                }
            }
        }
    }
}

pub async fn writes_all_or_nothing(logs: impl TestLog) {
    let store = logs.open();
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
    let Commit::Conflict { index, current } = store.commit(writes(before.next())).await.unwrap() else {
        panic!("written in spite of a conflict")
    };
    assert_eq!((index, current.unwrap().revision), (2, before));
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=a@1 b=b@2");
    assert_eq!((store.revision(), store.snapshot().len("others")), (before, 0));

    let Commit::Done(events) = store.commit(writes(before)).await.unwrap() else {
        panic!("in conflict with nothing")
    };
    assert_eq!(render_events(&events), "+new=n@3 -a=a@3 ~b=c@3 +o=o@3");
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "b=c@3 new=n@3");

    let twice = vec![Write::put(key("t"), Expect::Any, "1@"), Write::put(key("t"), Expect::Any, "2@")];
    assert!(matches!(store.commit(twice).await, Err(StoreError::Twice { key: k }) if k == key("t")));
    assert!(matches!(store.commit(vec![]).await, Ok(Commit::Done(events)) if events.is_empty()));
    assert_eq!(store.revision(), Revision(3));
}

async fn commit(store: &Store<Marked>, writes: Vec<Write>) -> String {
    match store.commit(writes).await.unwrap() {
        Commit::Done(events) => render_events(&events),
        Commit::Conflict { index, .. } => panic!("write {index} is in conflict"),
    }
}

fn after(store: &Store<Marked>, bucket_name: &str, asked: u64) -> String {
    render_events(&store.watch(&bucket(bucket_name), Revision(asked)).unwrap().try_next().unwrap())
}

/// In the order of the writes, here and wherever the transaction is read again.
pub async fn objects_of_a_transaction_share_its_revision(logs: impl TestLog) {
    let store = logs.open();
    let write = |name: &str, text: &str| Write::put(key(name), Expect::Any, format!("{text}@"));
    let other = Write::put(Key::new("others", "o"), Expect::Any, "1@");
    let first = commit(&store, vec![write("b", "1"), other, write("a", "1")]).await;
    assert_eq!(first, "+b=1@1 +o=1@1 +a=1@1");
    let second = vec![write("c", "2"), Write::delete(key("a"), Expect::Any), write("b", "2")];
    assert_eq!(commit(&store, second).await, "+c=2@2 -a=1@2 ~b=2@2");
    assert_eq!(store.revision(), Revision(2));
    assert_eq!(after(&store, "things", 0), "+b=1@1 +a=1@1 +c=2@2 -a=1@2 ~b=2@2");
    assert_eq!(after(&store, "things", 1), "+c=2@2 -a=1@2 ~b=2@2");
    assert_eq!((after(&store, "things", 2), after(&store, "others", 0)), ("".into(), "+o=1@1".into()));
    for (at, want) in [(0, ""), (1, "a=1@1 b=1@1"), (2, "b=2@2 c=2@2")] {
        assert_eq!(render_bucket(&store.snapshot_at("things", Revision(at)).unwrap()), want, "at {at}");
    }
    let b = store.get(&key("b")).unwrap();
    assert_eq!((b.created, b.revision), (Revision(1), Revision(2)));
}

pub async fn a_watch_never_splits_a_transaction(logs: impl TestLog) {
    let store = logs.open();
    let mut watcher = store.watch(&bucket("things"), Revision::ZERO).unwrap();
    let mut lengths = || {
        let read = || Some(watcher.try_next().unwrap().len()).filter(|length| *length > 0);
        std::iter::from_fn(read).collect::<Vec<_>>()
    };
    for n in 0..200 {
        put(&store, &key(&n.to_string()), "").await;
    }
    let puts = |count: usize, size: usize| {
        let put = |n: usize| Write::put(key(&n.to_string()), Expect::Any, "x".repeat(size) + "@");
        (0..count).map(put).collect::<Vec<_>>()
    };
    commit(&store, puts(300, 0)).await;
    put(&store, &key("a"), "").await;
    assert_eq!(lengths(), [500, 1], "more events than a batch has otherwise");
    commit(&store, puts(3, 100_000)).await;
    put(&store, &key("a"), "").await;
    assert_eq!(lengths(), [3, 1], "more bytes than a batch has otherwise");
}

pub async fn history_forgets_whole_transactions(logs: impl TestLog) {
    let history = History { events: 3, ..History::default() };
    let store = logs.open_with(Options { history, ..Options::default() });
    for n in 1..=3 {
        let writes = [("things", "a"), ("others", "x")]
            .map(|(bucket, name)| Write::put(Key::new(bucket, name), Expect::Any, format!("{n}@")));
        commit(&store, writes.into()).await;
    }
    for (name, want) in [("things", "~a=3@3"), ("others", "~x=3@3")] {
        assert_eq!(store.snapshot().compact_revision(name).revision(), Revision(2), "{name}");
        assert_eq!(after(&store, name, 2), want);
        assert!(store.watch(&bucket(name), Revision(1)).is_err(), "{name}");
    }
}

pub async fn a_log_reports_each_transaction(logs: impl TestLog) {
    let mut log = logs.log();
    let bounds = log.start(Notifier::new(|_| ())).unwrap();
    assert_eq!((bounds.compact_revision, bounds.newest), (CompactRevision::default(), Revision::ZERO));
    let batch = [vec![creation("b"), creation("a")], vec![creation("c")]];
    let mut outcomes = log.append(&batch).unwrap();
    let committed = [Revision(1), Revision(2)].map(Outcome::Committed);
    let is_reversed = outcomes[0] == committed[1];
    if is_reversed {
        outcomes.reverse();
    }
    assert_eq!(outcomes, committed);
    let read = |records: Vec<Record>| {
        let read = |record| match record {
            Record::Entry(entry) => format!("{}={}", entry.key.name(), entry.id),
            Record::Unreadable(entry) => panic!("{entry:?}"),
        };
        records.into_iter().map(read).collect::<Vec<_>>().join(" ")
    };
    let records = if is_reversed { "c=1.0 b=2.0 a=2.1" } else { "b=1.0 a=1.1 c=2.0" };
    assert_eq!(read(log.tail(Revision(2)).unwrap()), records);
    assert_eq!(read(log.tail(Revision(2)).unwrap()), "");
    Box::new(log).close().unwrap();
}

fn creation(name: &str) -> Proposal {
    Proposal { key: key(name), previous: None, change: Change::Put { created: None, stored: "@".into() } }
}

pub async fn refuses_what_it_could_not_read_back(logs: impl TestLog) {
    let store = logs.open();
    let writes = vec![Write::put(key("a"), Expect::Any, "a@"), Write::put(key("b"), Expect::Any, "no mark")];
    assert!(
        matches!(store.commit(writes).await, Err(StoreError::Unreadable { key: k, .. }) if k == key("b"))
    );
    assert_eq!((store.revision(), store.snapshot().len("things")), (Revision::ZERO, 0));
    store.health().unwrap();
}

/// Many tasks count in one object, each holding the revision it read: no step is lost, none is done twice.
pub async fn one_writer_at_a_time_wins(logs: impl TestLog) {
    const WRITERS: usize = 8;
    const STEPS: usize = 25;
    let store = logs.open();
    put(&store, &key("count"), "0").await;
    let count = |store: Store<Marked>| async move {
        let mut revisions = Vec::new();
        while revisions.len() < STEPS {
            let seen = store.get(&key("count")).unwrap();
            let next = seen.meta.parse::<usize>().unwrap() + 1;
            match store.put(key("count"), Expect::Revision(seen.revision), format!("{next}@")).await.unwrap()
            {
                Put::Stored(object) => revisions.push(object.revision),
                Put::Conflict { current } => assert!(current.unwrap().revision > seen.revision),
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

pub async fn lists_in_the_order_of_names(logs: impl TestLog) {
    let store = logs.open();
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
    for (name, prefix, want) in
        [("a/a", "a/", 1), ("a/z", "a/", 0), ("a/", "a/", 2), ("", "", bucket.len()), ("c/", "c/", 0)]
    {
        assert_eq!(bucket.count_after(name, prefix), want, "{name:?} {prefix:?}");
    }
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

pub async fn snapshots_stay_as_they_were(logs: impl TestLog) {
    let store = logs.open();
    put(&store, &key("a"), "a").await;
    let old = store.snapshot();
    put(&store, &key("a"), "b").await;
    put(&store, &key("c"), "c").await;
    delete(&store, &key("a")).await;
    assert_eq!((old.revision(), render_bucket(&old.bucket("things"))), (Revision(1), "a=a@1".into()));
    assert_eq!(old.get(&key("a")).unwrap().bytes, "a@1");
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "c=c@3");
}

/// Small writes in two buckets, `things` and `others`, with revisions and effects that the tests below know.
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

/// Every start from the compact revision on works, every one below is refused, for lists and for watches.
fn check_window(store: &Store<Marked>, compact_revision: u64) {
    for at in 0..8 {
        let asked = Revision(at);
        let listed = store.snapshot_at("things", asked).map(|snapshot| {
            assert_eq!(snapshot.revision(), asked);
            render_bucket(&snapshot)
        });
        let watched = store
            .watch(&bucket("things"), asked)
            .map(|mut watcher| render_events(&watcher.try_next().unwrap()));
        let compacted =
            Compacted { asked, compact_revision: CompactRevision::at(Revision(compact_revision)) };
        if at < compact_revision {
            assert_eq!(listed, Err(RevisionError::Compacted(compacted)));
            assert_eq!(watched, Err(compacted));
        } else {
            assert_eq!(
                listed.as_deref(),
                Ok(THINGS_AT[at as usize]),
                "at {at}, compacted at {compact_revision}"
            );
            assert_eq!(
                watched.as_deref(),
                Ok(THINGS_AFTER[at as usize]),
                "after {at}, compacted at {compact_revision}"
            );
        }
    }
    let newest = store.revision();
    let future = Future { asked: newest.next(), newest };
    assert_eq!(store.snapshot_at("things", newest.next()).map(|_| ()), Err(RevisionError::Future(future)));
    assert_eq!(store.snapshot_at("unused", newest.next()).map(|_| ()), Err(RevisionError::Future(future)));
}

pub async fn the_compact_revision_is_where_history_starts(logs: impl TestLog) {
    // At 5 is a deletion, at 7 the window is empty, and at 2 and 3 it makes a difference which bucket moved.
    let store = logs.open();
    write_a_little(&store).await;
    for compact_revision in 0..8 {
        store.compact(Revision(compact_revision)).await.unwrap();
        check_window(&store, compact_revision);
        for other in ["others", "unused"] {
            for (asked, admitted) in [
                (compact_revision.checked_sub(1), false),
                (Some(compact_revision), true),
                (Some(compact_revision + 1), true),
            ] {
                let Some(asked) = asked else { continue };
                let watched = store.watch(&bucket(other), Revision(asked));
                assert_eq!(
                    watched.is_ok(),
                    admitted,
                    "{other} after {asked}, compacted at {compact_revision}"
                );
            }
        }
    }
    store.compact(Revision(100)).await.unwrap();
    assert_eq!(
        store.snapshot().compact_revision("things").revision(),
        Revision(7),
        "there is no compact revision above the newest"
    );
}

pub async fn the_compact_revision_survives(logs: impl TestLog) {
    for compact_revision in 0..8 {
        let store = logs.open();
        if compact_revision == 0 {
            write_a_little(&store).await;
        }
        store.compact(Revision(compact_revision)).await.unwrap();
        store.close().await.unwrap();
        let store = logs.open();
        check_window(&store, compact_revision);
        assert!(store.watch(&bucket("unused"), Revision(compact_revision)).is_ok());
        assert_eq!(
            store.watch(&bucket("unused"), Revision(compact_revision.wrapping_sub(1))).is_ok(),
            compact_revision == 0
        );
        store.close().await.unwrap();
    }
}

/// Trimming by count: a bucket in which nothing was forgotten keeps its whole past.
pub async fn the_compact_revision_rises_with_what_a_bucket_forgets(logs: impl TestLog) {
    let history = History { events: 3, ..History::default() };
    let store = logs.open_with(Options { history, ..Options::default() });
    write_a_little(&store).await;
    check_window(&store, 4);
    assert_eq!(store.snapshot().compact_revision("others").revision(), Revision(3));
    assert_eq!(store.snapshot().compact_revision("unused").revision(), Revision::ZERO);
}

pub async fn history_is_bounded_in_bytes(logs: impl TestLog) {
    let history = History { bytes: 100_000, ..History::default() };
    let store = logs.open_with(Options { history, ..Options::default() });
    for n in 0..40 {
        put(&store, &key("large"), &format!("{n}{}", "x".repeat(10_000))).await;
    }
    let compact_revision = store.snapshot().compact_revision("things").revision();
    assert!(
        compact_revision >= Revision(30) && compact_revision <= Revision(35),
        "compacted at {compact_revision}"
    );
    assert!(store.snapshot_at("things", compact_revision).is_ok());
}

pub async fn watchers_see_every_event_once_in_order(logs: impl TestLog) {
    let store = logs.open();
    let mut early = store.watch(&bucket("things"), Revision::ZERO).unwrap();
    let mut ahead = store.watch(&bucket("things"), Revision(5)).unwrap();
    let reader = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < 5 {
            seen.extend(early.next().await.unwrap());
        }
        render_events(&seen)
    });
    write_a_little(&store).await;
    assert_eq!(reader.await.unwrap(), THINGS_AFTER[0]);
    assert_eq!(render_events(&ahead.next().await.unwrap()), THINGS_AFTER[5], "a start that was yet to come");

    let mut late = store.watch(&bucket("things"), Revision(2)).unwrap();
    assert_eq!(render_events(&late.next().await.unwrap()), THINGS_AFTER[2]);
    let waiting = tokio::spawn(async move { render_events(&late.next().await.unwrap()) });
    put(&store, &Key::new("others", "x"), "8").await;
    put(&store, &key("c"), "9").await;
    assert_eq!(waiting.await.unwrap(), "+c=9@9");
}

pub async fn a_crowd_of_watchers_misses_nothing(logs: impl TestLog) {
    const EVENTS: usize = 600;
    let store = logs.open();
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

pub async fn a_watcher_too_far_behind_is_refused(logs: impl TestLog) {
    let store = logs.open();
    let mut slow = store.watch(&bucket("things"), Revision::ZERO).unwrap();
    let mut idle = store.watch(&bucket("others"), Revision::ZERO).unwrap();
    put(&store, &key("a"), "1").await;
    put(&store, &key("a"), "2").await;
    assert_eq!(idle.progress(), Revision(2));
    store.compact(Revision(1)).await.unwrap();
    let compacted = Compacted { asked: Revision::ZERO, compact_revision: CompactRevision::at(Revision(1)) };
    assert_eq!(slow.next().await.map(drop), Err(compacted));
    assert_eq!(slow.next().await.map(drop), Err(compacted), "and so again");
    assert_eq!(slow.progress(), Revision::ZERO);
    store.compact(Revision(2)).await.unwrap();
    put(&store, &Key::new("others", "x"), "3").await;
    assert_eq!(
        render_events(&idle.next().await.unwrap()),
        "+x=3@3",
        "it had seen all there was below the compact revision"
    );
}

pub async fn progress_follows_the_store_once_all_is_read(logs: impl TestLog) {
    let store = logs.open();
    let mut watcher = store.watch(&bucket("things"), Revision::ZERO).unwrap();
    assert_eq!(watcher.progress(), Revision::ZERO);
    put(&store, &Key::new("others", "x"), "1").await;
    assert_eq!(watcher.progress(), Revision(1), "another bucket moved");
    put(&store, &key("a"), "2").await;
    put(&store, &Key::new("others", "x"), "3").await;
    assert_eq!(watcher.progress(), Revision(1), "an event waits to be read");
    assert_eq!(render_events(&watcher.next().await.unwrap()), "+a=2@2");
    assert_eq!(watcher.progress(), Revision(3));
    let mut ahead = store.watch(&bucket("things"), Revision(9)).unwrap();
    assert_eq!(ahead.progress(), Revision(9));
}

pub async fn waits_for_a_revision(logs: impl TestLog) {
    let store = logs.open();
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

pub async fn frames_are_made_once(logs: impl TestLog) {
    let store = logs.open();
    put(&store, &key("a"), "1").await;
    let read = || store.watch(&bucket("things"), Revision::ZERO).unwrap().try_next().unwrap().remove(0);
    assert_eq!(read().frame(|event| format!("{} first", event.revision)), "1 first");
    assert_eq!(read().frame(|_| "second".into()), "1 first");
    for n in 0..crate::history::CACHED_FRAMES {
        put(&store, &key("b"), &n.to_string()).await;
    }
    assert_eq!(read().frame(|_| "when no longer cached".into()), "when no longer cached");
    assert_eq!(read().frame(|_| "again".into()), "again", "an old event caches no frame");
}

pub async fn rebuilt_states_are_exact_under_load(logs: impl TestLog) {
    let store = logs.open();
    let name = |n: u64| key(&format!("n{:02}", n % 50));
    for n in 0..100 {
        put(&store, &name(n), &n.to_string()).await;
    }
    let want = render_bucket(&store.snapshot().bucket("things"));
    for n in 0..300 {
        match n % 3 {
            2 => drop(store.delete(name(n), Expect::Any).await.unwrap()),
            _ => drop(put(&store, &name(n * 7), "later").await),
        }
        assert_eq!(
            render_bucket(&store.snapshot_at("things", Revision(100)).unwrap()),
            want,
            "after {n} more writes"
        );
    }
    store.compact(Revision(101)).await.unwrap();
    assert!(store.snapshot_at("things", Revision(100)).is_err(), "what was rebuilt before is forgotten, too");
}

pub async fn a_closed_store_takes_no_writes(logs: impl TestLog) {
    let store = logs.open();
    put(&store, &key("a"), "1").await;
    store.close().await.unwrap();
    assert!(matches!(store.put(key("a"), Expect::Any, "2@").await, Err(StoreError::Closed)));
    assert!(matches!(store.close().await, Err(StoreError::Closed)));
    assert_eq!(store.get(&key("a")).unwrap().bytes, "1@1");
}

pub async fn everything_survives(logs: impl TestLog) {
    let store = logs.open();
    write_a_little(&store).await;
    store.close().await.unwrap();
    let store = logs.open();
    assert_eq!(store.revision(), Revision(7));
    check_window(&store, 0);
    let b = store.get(&key("b")).unwrap();
    assert_eq!((b.created, b.revision, b.meta.as_str()), (Revision(2), Revision(4), "4"));
    assert_eq!(put(&store, &key("c"), "8").await, Revision(8));
    store.close().await.unwrap();
}

pub async fn revisions_are_never_given_again(logs: impl TestLog) {
    let store = logs.open();
    put(&store, &key("a"), "1").await;
    let last = delete(&store, &key("a")).await;
    store.compact(last).await.unwrap();
    store.close().await.unwrap();
    let store = logs.open();
    assert_eq!(store.revision(), last, "though nothing is left in the log");
    assert_eq!(put(&store, &key("a"), "3").await, last.next());
    store.close().await.unwrap();
}

pub async fn what_history_drops_leaves_the_log(logs: impl TestLog) {
    let loaded = |open: &dyn Fn(Options) -> Store<Marked>| {
        let (report, reported) = std::sync::mpsc::channel();
        let progress: Box<dyn FnMut(u64) + Send> = Box::new(move |loaded| report.send(loaded).unwrap());
        let store = open(Options { progress: Some(progress), ..Options::default() });
        (store, reported.try_iter().last().unwrap())
    };
    let open = |options| logs.open_with(options);
    let history = History { events: 10, ..History::default() };
    let store = logs.open_with(Options { history, ..Options::default() });
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

/// What compaction deletes of a transaction takes nothing else along.
pub async fn transactions_survive(logs: impl TestLog) {
    let store = logs.open();
    let write = |name: &str, text: &str| Write::put(key(name), Expect::Any, format!("{text}@"));
    let large = "x".repeat(10_000);
    let other = Write::put(Key::new("others", "x"), Expect::Any, "1@");
    commit(&store, vec![write("b", &large), other, write("a", "1")]).await;
    put(&store, &key("a"), "2").await;
    commit(&store, vec![Write::delete(key("b"), Expect::Any), write("c", "3")]).await;
    let events = format!("+b={large}@1 +a=1@1 ~a=2@2 -b={large}@3 +c=3@3");
    store.close().await.unwrap();
    for (compact_revision, at_compact_revision) in
        [(0, String::new()), (2, format!("a=2@2 b={large}@1")), (3, "a=2@2 c=3@3".into())]
    {
        let store = logs.open();
        store.compact(Revision(compact_revision)).await.unwrap();
        store.close().await.unwrap();
        let store = logs.open();
        assert_eq!(store.revision(), Revision(3));
        if compact_revision == 0 {
            assert_eq!(after(&store, "things", 0), events);
        }
        assert_eq!(
            render_bucket(&store.snapshot_at("things", Revision(compact_revision)).unwrap()),
            at_compact_revision,
            "compacted at {compact_revision}"
        );
        assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=2@2 c=3@3");
        assert_eq!(render_bucket(&store.snapshot().bucket("others")), "x=1@1");
        store.close().await.unwrap();
    }
}

/// Two stores over one log, as two servers over one cluster: each sees the other's writes, and neither overwrites them.
pub async fn stores_share_a_log(logs: impl TestLog) {
    let (one, two) = (logs.open(), logs.open());
    let mut watcher = two.watch(&bucket("things"), Revision::ZERO).unwrap();
    let first = put(&one, &key("a"), "1").await;
    two.wait_for(first, Instant::now() + Duration::from_secs(30)).await.unwrap();
    assert_eq!(render_events(&watcher.next().await.unwrap()), "+a=1@1");
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

/// Each transaction is appended or not by itself, and the log reports what it found.
pub async fn a_conflict_stops_its_own_transaction_only(log: MemoryLog) {
    let (mut ours, mut theirs) = (log.share(), log.share());
    ours.start(Notifier::new(|_| ())).unwrap();
    assert_eq!(overwrite(&mut theirs, vec![creation("a"), creation("b")]), Revision(1));
    let late = Proposal { previous: Some(Revision(9)), ..creation("c") };
    let batch = [
        vec![creation("d")],
        vec![creation("e"), creation("b")],
        vec![late],
        vec![Proposal { previous: Some(Revision(1)), ..creation("a") }, creation("f")],
    ];
    let conflict = |index, found| Outcome::Conflict(Conflict { index, found, newest: Revision(2) });
    assert_eq!(
        ours.append(&batch).unwrap(),
        [
            Outcome::Committed(Revision(2)),
            conflict(1, Some(Revision(1))),
            conflict(0, None),
            Outcome::Committed(Revision(3)),
        ]
    );
    let names: Vec<_> = ours.tail(Revision(3)).unwrap().iter().map(name).collect();
    assert_eq!(names, ["a", "b", "d", "a", "f"], "nothing of the others, and all that another writer wrote");
}

fn name(record: &Record) -> String {
    match record {
        Record::Entry(entry) => entry.key.name().to_string(),
        Record::Unreadable(entry) => entry.key.name().to_string(),
    }
}

/// Another writer comes first three times: the write is checked and appended again, and done in the end.
pub async fn an_overtaken_write_is_checked_again(log: MemoryLog) {
    let mut attempts = 0;
    let contested = Contested::new(&log, move |foreign, batch| {
        attempts += 1;
        if attempts <= 3 {
            overwrite(foreign, vec![Proposal { key: batch[0][0].key.clone(), ..creation("a") }]);
            overwrite(foreign, vec![creation(&format!("x{attempts}")), creation(&format!("y{attempts}"))]);
        }
    });
    let store = contested.open();
    let writes =
        vec![Write::put(key("a"), Expect::Any, "ours@"), Write::put(key("b"), Expect::Absent, "ours@")];
    assert_eq!(commit(&store, writes).await, "~a=ours@7 +b=ours@7");
    assert_eq!(
        after(&store, "things", 0),
        "+a=@1 +x1=@2 +y1=@2 ~a=@3 +x2=@4 +y2=@4 ~a=@5 +x3=@6 +y3=@6 ~a=ours@7 +b=ours@7"
    );
}

pub async fn an_overtaken_expectation_is_a_conflict(log: MemoryLog) {
    let store = Contested::new(&log, |foreign, _| {
        overwrite(foreign, vec![creation("a")]);
    })
    .open();
    let writes = vec![Write::put(key("b"), Expect::Any, "@"), Write::put(key("a"), Expect::Absent, "@")];
    let Commit::Conflict { index, current } = store.commit(writes).await.unwrap() else {
        panic!("overwrote another's write")
    };
    assert_eq!((index, current.unwrap().revision), (1, Revision(1)));
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=@1");
}

/// A key is deleted and created again in the meantime: the conflict is over before it is looked at.
pub async fn a_conflict_may_be_over_when_it_is_seen(log: MemoryLog) {
    let mut is_first = true;
    let store = Contested::new(&log, move |foreign, _| {
        if std::mem::take(&mut is_first) {
            overwrite(foreign, vec![creation("a")]);
        }
    })
    .after_append(|foreign| {
        overwrite(foreign, vec![Proposal { change: Change::Delete, ..creation("a") }]);
    })
    .open();
    assert_eq!(commit(&store, vec![Write::put(key("a"), Expect::Absent, "ours@")]).await, "+a=ours@3");
    store.health().unwrap();
}

/// Whatever others write in between: each transaction is seen whole, once and in order.
pub async fn foreign_transactions_are_seen_whole(log: MemoryLog) {
    let store = Contested::new(&log, |foreign, _| {
        overwrite(foreign, vec![creation("x"), creation("y")]);
    })
    .open();
    let mut watcher = store.watch(&bucket("things"), Revision::ZERO).unwrap();
    let reader = tokio::spawn(async move {
        let mut seen = 0;
        while seen < 100 {
            let events = watcher.next().await.unwrap();
            for pair in events.chunks(2) {
                seen += 1;
                assert_eq!([pair[0].revision, pair[1].revision], [Revision(seen); 2]);
            }
        }
    });
    for n in 0..50 {
        let writes = ["a", "b"].map(|name| Write::put(key(name), Expect::Any, format!("{n}@")));
        commit(&store, writes.into()).await;
    }
    reader.await.unwrap();
}

/// An entry that this store cannot read costs its own key, and nothing else.
pub async fn unreadable_foreign_entries_are_quarantined(log: MemoryLog) {
    let quarantined = |store: &Store<Marked>| {
        let snapshot = store.snapshot();
        let keys: Vec<_> =
            snapshot.quarantined().map(|entry| format!("{}@{}", entry.key, entry.id.revision)).collect();
        (keys.join(" "), snapshot.quarantined_total())
    };
    let late = || Instant::now() + Duration::from_secs(30);
    let unreadable = |name: &str| {
        let change = Change::Put { created: None, stored: "no mark".into() };
        Proposal { key: key(name), previous: None, change }
    };
    let mut foreign = log.share();
    let contested = Contested::new(&log, |_, _| ());
    let store = contested.open();
    put(&store, &key("a"), "1").await;
    let mut watcher = store.watch(&bucket("things"), Revision(1)).unwrap();
    overwrite(&mut foreign, vec![unreadable("a"), creation("b"), unreadable("c")]);
    let newest = overwrite(&mut foreign, vec![creation("undecodable")]);
    store.wait_for(newest, late()).await.unwrap();
    assert_eq!(quarantined(&store), ("things/a@2 things/c@2 things/undecodable@3".into(), 3));
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=1@1 b=@2", "the last readable versions");
    assert_eq!(render_events(&watcher.next().await.unwrap()), "+b=@2");
    assert_eq!(watcher.progress(), newest);
    for name in ["a", "c", "undecodable"] {
        for write in [Write::put(key(name), Expect::Any, "2@"), Write::delete(key(name), Expect::Any)] {
            let error = store.commit(vec![Write::put(key("d"), Expect::Any, "@"), write]).await.map(drop);
            assert!(
                matches!(&error, Err(StoreError::Quarantined(entry)) if entry.key == key(name)),
                "{error:?}"
            );
        }
    }
    put(&store, &key("b"), "2").await;
    store.health().unwrap();

    let reopened = contested.open();
    assert_eq!(reopened.quarantined_total(), 3);
    assert_eq!(quarantined(&reopened), ("things/a@2 things/c@2 things/undecodable@3".into(), 3));
    assert_eq!(render_bucket(&reopened.snapshot().bucket("things")), "a=1@1 b=2@4");

    overwrite(&mut foreign, vec![creation("a")]);
    let newest = overwrite(&mut foreign, vec![Proposal { change: Change::Delete, ..creation("c") }]);
    for store in [&store, &reopened] {
        store.wait_for(newest, late()).await.unwrap();
        assert_eq!(quarantined(store), ("things/undecodable@3".into(), 3));
        assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=@5 b=2@4");
    }
    assert_eq!(render_events(&watcher.next().await.unwrap()), "~b=2@4 ~a=@5");
    put(&store, &key("a"), "6").await;
    put(&store, &key("c"), "7").await;
}

#[macro_export]
macro_rules! contract {
    ($logs:expr; $($test:ident)*) => {
        $(#[tokio::test] async fn $test() { $crate::contract::$test($logs).await })*
    };
}

/// What holds for as long as a store is open.
#[macro_export]
macro_rules! contract_while_open {
    ($logs:expr) => {
        $crate::contract! { $logs;
            reads_its_writes
            a_conflict_is_a_value
            writes_all_or_nothing
            objects_of_a_transaction_share_its_revision
            a_watch_never_splits_a_transaction
            history_forgets_whole_transactions
            a_log_reports_each_transaction
            refuses_what_it_could_not_read_back
            one_writer_at_a_time_wins
            lists_in_the_order_of_names
            snapshots_stay_as_they_were
            the_compact_revision_is_where_history_starts
            the_compact_revision_rises_with_what_a_bucket_forgets
            history_is_bounded_in_bytes
            watchers_see_every_event_once_in_order
            a_crowd_of_watchers_misses_nothing
            a_watcher_too_far_behind_is_refused
            progress_follows_the_store_once_all_is_read
            waits_for_a_revision
            frames_are_made_once
            rebuilt_states_are_exact_under_load
            a_closed_store_takes_no_writes
        }
    };
}

/// What holds when a store is opened again.
#[macro_export]
macro_rules! contract_on_reopen {
    ($logs:expr) => {
        $crate::contract! { $logs;
            everything_survives
            transactions_survive
            the_compact_revision_survives
            revisions_are_never_given_again
            what_history_drops_leaves_the_log
        }
    };
}

#[cfg(test)]
mod ephemeral {
    contract_while_open!(crate::testing::Ephemeral);
}

#[cfg(test)]
mod memory {
    contract_while_open!(crate::log::MemoryLog::new());
    contract_on_reopen!(crate::log::MemoryLog::new());
    contract! { crate::log::MemoryLog::new();
        stores_share_a_log
        a_conflict_stops_its_own_transaction_only
        an_overtaken_write_is_checked_again
        an_overtaken_expectation_is_a_conflict
        a_conflict_may_be_over_when_it_is_seen
        foreign_transactions_are_seen_whole
        unreadable_foreign_entries_are_quarantined
    }
}

#[cfg(test)]
mod sled {
    contract_while_open!(crate::testing::Disk::new());
    contract_on_reopen!(crate::testing::Disk::new());
}
