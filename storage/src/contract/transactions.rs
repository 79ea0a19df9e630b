//! Transactions: what a commit does, what it finds, and what lists show.

use super::prelude::*;

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
                CommitOutcome::Done(events) => {
                    assert!(may, "{case}, deletes: {deletes}");
                    assert_eq!(events[0].before.as_ref().map(|object| object.revision), found, "{case}");
                    assert_eq!(store.revision(), now.next(), "{case}");
                }
                CommitOutcome::Conflict { index, current } => {
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
    let CommitOutcome::Conflict { index, current } = store.commit(writes(before.next())).await.unwrap()
    else {
        panic!("written in spite of a conflict")
    };
    assert_eq!((index, current.unwrap().revision), (2, before));
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=a@1 b=b@2");
    assert_eq!((store.revision(), store.snapshot().len("others")), (before, 0));

    let CommitOutcome::Done(events) = store.commit(writes(before)).await.unwrap() else {
        panic!("in conflict with nothing")
    };
    assert_eq!(render_events(&events), "+new=n@3 -a=a@3 ~b=c@3 +o=o@3");
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "b=c@3 new=n@3");

    let twice = vec![Write::put(key("t"), Expect::Any, "1@"), Write::put(key("t"), Expect::Any, "2@")];
    assert!(matches!(store.commit(twice).await, Err(StoreError::Twice { key: k }) if k == key("t")));
    assert!(matches!(store.commit(vec![]).await, Ok(CommitOutcome::Done(events)) if events.is_empty()));
    assert_eq!(store.revision(), Revision(3));
}

/// Checks that the events of a transaction are in the order of the writes, here and wherever the
/// transaction is read again.
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

pub async fn refuses_what_it_could_not_read_back(logs: impl TestLog) {
    let store = logs.open();
    let writes = vec![Write::put(key("a"), Expect::Any, "a@"), Write::put(key("b"), Expect::Any, "no mark")];
    assert!(
        matches!(store.commit(writes).await, Err(StoreError::Unreadable { key: k, .. }) if k == key("b"))
    );
    assert_eq!((store.revision(), store.snapshot().len("things")), (Revision::ZERO, 0));
    store.health().unwrap();
}

/// Checks many tasks that count in one object, each with the revision it read: no step is lost,
/// none is done twice.
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
                PutOutcome::Stored(object) => revisions.push(object.revision),
                PutOutcome::Conflict { current } => assert!(current.unwrap().revision > seen.revision),
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
