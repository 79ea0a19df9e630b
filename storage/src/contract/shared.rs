//! Several writers of one log.

use super::prelude::*;

/// Checks two stores over one log, like two servers over one cluster: each sees the writes of the
/// other, and neither overwrites them.
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
                if let PutOutcome::Stored(_) =
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
        DeleteOutcome::Deleted { .. }
    ));
}

/// Checks that each transaction is appended or rejected on its own, and that the log reports the
/// conflict.
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

/// Checks a write that another writer overtakes three times: it is checked and appended again each
/// time, and committed in the end.
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
    let CommitOutcome::Conflict { index, current } = store.commit(writes).await.unwrap() else {
        panic!("overwrote another's write")
    };
    assert_eq!((index, current.unwrap().revision), (1, Revision(1)));
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=@1");
}

/// Checks a key that is deleted and created again in the meantime: the conflict is over before it
/// is checked.
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

/// Checks that each transaction is seen whole, once and in order, with writes of others in between.
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

/// Checks that an entry that this store cannot read affects only its own key.
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
