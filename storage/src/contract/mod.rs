//! The contract of every store, for any log. Each part of the contract is a function. It runs for
//! each log listed at the end of this file, and in the crates of other logs.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation)]

mod forks;
mod history;
mod prelude;
mod reopening;
mod shared;
mod transactions;
mod watches;

pub use forks::*;
pub use history::*;
pub use reopening::*;
pub use shared::*;
pub use transactions::*;
pub use watches::*;

#[macro_export]
macro_rules! contract {
    ($logs:expr; $($test:ident)*) => {
        $(#[tokio::test] async fn $test() { $crate::contract::$test($logs).await })*
    };
}

/// Tests the part of the contract that concerns an open store.
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
            a_fork_has_the_state_and_the_history_of_its_store
            a_fork_and_its_store_go_separate_ways
            forks_are_bounded_in_history_each_by_itself
            many_forks_write_at_once
        }
    };
}

/// Tests the part of the contract that concerns a store that is opened again.
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
mod forked {
    contract_while_open!(crate::testing::Forked);
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
