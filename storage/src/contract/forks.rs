//! Forks: what a store shares with those that begin with its state, and what it does not.

use super::prelude::*;

pub async fn a_fork_has_the_state_and_the_history_of_its_store(logs: impl TestLog) {
    for compact_revision in 0..8 {
        let store = logs.open();
        if store.revision() == Revision(0) {
            write_a_little(&store).await;
        }
        store.compact(Revision(compact_revision)).await.unwrap();
        check_window(&store.fork(Marked, &Options::default()).unwrap(), compact_revision);
        store.close().await.unwrap();
    }
}

pub async fn a_fork_and_its_store_go_separate_ways(logs: impl TestLog) {
    let store = logs.open();
    write_a_little(&store).await;
    let fork = store.fork(Marked, &Options::default()).unwrap();
    let (mut of_store, mut of_fork) = (
        store.watch(&bucket("things"), Revision(6)).unwrap(),
        fork.watch(&bucket("things"), Revision(6)).unwrap(),
    );
    put(&store, &key("b"), "of the store").await;
    assert_eq!(render_events(&of_store.next().await.unwrap()), "~b=of the store@8");
    delete(&fork, &key("b")).await;
    put(&fork, &key("c"), "of the fork").await;
    let mut seen = render_events(&of_fork.next().await.unwrap());
    if !seen.contains("+c") {
        seen = format!("{seen} {}", render_events(&of_fork.next().await.unwrap()));
    }
    assert_eq!(seen, "-b=4@8 +c=of the fork@9");
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=6@6 b=of the store@8");
    assert_eq!(render_bucket(&fork.snapshot().bucket("things")), "a=6@6 c=of the fork@9");
    assert_eq!(render_bucket(&fork.snapshot_at("things", Revision(5)).unwrap()), THINGS_AT[5]);
    assert!(of_store.try_next().unwrap().is_empty());

    // A fork of a fork, which outlives both.
    let second = fork.fork(Marked, &Options::default()).unwrap();
    fork.close().await.unwrap();
    store.close().await.unwrap();
    drop((fork, store, of_fork, of_store));
    put(&second, &key("a"), "later").await;
    assert_eq!(render_bucket(&second.snapshot().bucket("things")), "a=later@10 c=of the fork@9");
    assert_eq!(
        after(&second, "things", 6),
        "-b=4@8 +c=of the fork@9 ~a=later@10",
        "history goes back beyond both forks"
    );
}

pub async fn forks_are_bounded_in_history_each_by_itself(logs: impl TestLog) {
    let store = logs.open();
    write_a_little(&store).await;
    let few = Options { history: History { events: 2, ..History::default() }, ..Options::default() };
    let fork = store.fork(Marked, &few).unwrap();
    put(&fork, &key("z"), "1").await;
    put(&fork, &key("z"), "2").await;
    assert!(fork.watch(&bucket("things"), Revision(5)).is_err(), "the fork has forgotten it");
    assert_eq!(after(&fork, "things", 6), "+z=1@8 ~z=2@9");
    check_window(&store, 0);
}

pub async fn many_forks_write_at_once(logs: impl TestLog) {
    let store = logs.open();
    write_a_little(&store).await;
    let forks: Vec<_> = (0..50).map(|_| store.fork(Marked, &Options::default()).unwrap()).collect();
    let write = |(index, fork): (usize, Store<Marked>)| {
        tokio::spawn(async move {
            for round in 0..20 {
                put(&fork, &key("a"), &format!("{index} {round}")).await;
            }
            render_bucket(&fork.snapshot().bucket("things"))
        })
    };
    let writes: Vec<_> = forks.iter().cloned().enumerate().map(write).collect();
    for (index, written) in writes.into_iter().enumerate() {
        assert_eq!(written.await.unwrap(), format!("a={index} 19@27 b=4@4"));
    }
    assert_eq!(store.revision(), Revision(7));
}
