//! The contract of every store, over whichever log. Each part of that contract is a function, run for each log at the
//! end, and by the crates of other logs.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation)]

mod history;
mod reopening;
mod shared;
mod transactions;
mod watches;

use std::{ops::Bound, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    Commit, CompactRevision, Compacted, Delete, Expect, Future, History, Key, Options, Put, Revision,
    RevisionError, Store, StoreError, Write,
    log::{Change, Conflict, Log, MemoryLog, Notifier, Outcome, Proposal, Record},
    testing::{Contested, Marked, TestLog, delete, key, overwrite, put, render_bucket, render_events},
};

pub use history::*;
pub use reopening::*;
pub use shared::*;
pub use transactions::*;
pub use watches::*;

fn bucket(name: &str) -> Arc<str> {
    name.into()
}

/// The events of a commit.
async fn commit(store: &Store<Marked>, writes: Vec<Write>) -> String {
    match store.commit(writes).await.unwrap() {
        Commit::Done(events) => render_events(&events),
        Commit::Conflict { index, .. } => panic!("write {index} is in conflict"),
    }
}

/// The events of a bucket after a revision.
fn after(store: &Store<Marked>, bucket_name: &str, asked: u64) -> String {
    render_events(&store.watch(&bucket(bucket_name), Revision(asked)).unwrap().try_next().unwrap())
}

/// What another writer proposes to create.
fn creation(name: &str) -> Proposal {
    Proposal { key: key(name), previous: None, change: Change::Put { created: None, stored: "@".into() } }
}

/// Small writes in two buckets, `things` and `others`, with revisions and effects that the parts of the contract know.
async fn write_a_little(store: &Store<Marked>) {
    put(store, &key("a"), "1").await;
    put(store, &key("b"), "2").await;
    put(store, &Key::new("others", "x"), "3").await;
    put(store, &key("b"), "4").await;
    delete(store, &key("a")).await;
    put(store, &key("a"), "6").await;
    put(store, &Key::new("others", "x"), "7").await;
}

/// The bucket `things` at each revision of [`write_a_little`].
const THINGS_AT: [&str; 8] =
    ["", "a=1@1", "a=1@1 b=2@2", "a=1@1 b=2@2", "a=1@1 b=4@4", "b=4@4", "a=6@6 b=4@4", "a=6@6 b=4@4"];

/// The events of that bucket after each revision.
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
