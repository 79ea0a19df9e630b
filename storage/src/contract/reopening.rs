//! The contract for a store that is opened again.

use super::prelude::*;

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

/// Checks that compaction of some entries of a transaction leaves the other entries in place.
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
