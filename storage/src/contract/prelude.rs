//! Imports and fixtures of all parts of the contract.

pub use std::{ops::Bound, sync::Arc, time::Duration};

pub use tokio::time::Instant;

pub use crate::{
    CommitOutcome, CompactRevision, Compacted, DeleteOutcome, Expect, Future, History, Key, Options,
    PutOutcome, Revision, RevisionError, Store, StoreError, Write,
    log::{Change, Conflict, Log, MemoryLog, Notifier, Outcome, Proposal, Record},
    testing::{Contested, Marked, TestLog, delete, key, overwrite, put, render_bucket, render_events},
};

pub fn bucket(name: &str) -> Arc<str> {
    name.into()
}

/// Commits writes and returns their events.
pub async fn commit(store: &Store<Marked>, writes: Vec<Write>) -> String {
    match store.commit(writes).await.unwrap() {
        CommitOutcome::Done(events) => render_events(&events),
        CommitOutcome::Conflict { index, .. } => panic!("write {index} is in conflict"),
    }
}

/// Returns the events of a bucket after a revision.
pub fn after(store: &Store<Marked>, bucket_name: &str, asked: u64) -> String {
    render_events(&store.watch(&bucket(bucket_name), Revision(asked)).unwrap().try_next().unwrap())
}

/// Returns the proposal of another writer to create an object.
pub fn creation(name: &str) -> Proposal {
    Proposal { key: key(name), previous: None, change: Change::Put { created: None, stored: "@".into() } }
}

/// Writes small values in two buckets, `things` and `others`. The parts of the contract know the
/// revisions and the resulting state.
pub async fn write_a_little(store: &Store<Marked>) {
    put(store, &key("a"), "1").await;
    put(store, &key("b"), "2").await;
    put(store, &Key::new("others", "x"), "3").await;
    put(store, &key("b"), "4").await;
    delete(store, &key("a")).await;
    put(store, &key("a"), "6").await;
    put(store, &Key::new("others", "x"), "7").await;
}

/// The bucket `things` at each revision of [`write_a_little`].
pub const THINGS_AT: [&str; 8] =
    ["", "a=1@1", "a=1@1 b=2@2", "a=1@1 b=2@2", "a=1@1 b=4@4", "b=4@4", "a=6@6 b=4@4", "a=6@6 b=4@4"];

/// The events of that bucket after each revision.
pub const THINGS_AFTER: [&str; 8] = [
    "+a=1@1 +b=2@2 ~b=4@4 -a=1@5 +a=6@6",
    "+b=2@2 ~b=4@4 -a=1@5 +a=6@6",
    "~b=4@4 -a=1@5 +a=6@6",
    "~b=4@4 -a=1@5 +a=6@6",
    "-a=1@5 +a=6@6",
    "+a=6@6",
    "",
    "",
];

/// Checks that lists and watches can start at every revision from the compact revision on, and at
/// none below it.
pub fn check_window(store: &Store<Marked>, compact_revision: u64) {
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
