//! History: what snapshots keep, and what compaction forgets.

use super::prelude::*;

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

pub async fn the_compact_revision_is_where_history_starts(logs: impl TestLog) {
    // At 5 is a deletion, at 7 the window is empty, and at 2 and 3 it makes a difference which
    // bucket moved.
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

/// Checks trimming by count: a bucket of which nothing was trimmed keeps its whole history.
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
