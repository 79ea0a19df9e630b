//! Watches: every event once and in order, and waiting for a revision.

use super::prelude::*;

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
