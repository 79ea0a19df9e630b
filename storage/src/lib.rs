//! An ordered, revisioned object store with watch. Knows bytes, keys and revisions; no Kubernetes,
//! no HTTP.
//!
//! ```text
//!             propose                 append (grouped)                publish
//!   writers ───────────► sequencer ───────────────────► Log ───────────► View ──► readers: immutable snapshots
//!                        checks what a write expects,   (sled, memory)    │
//!                        one group at a time                              └────► watchers: shared events, in order
//! ```
//!
//! # Map
//!
//! | file | owns |
//! | --- | --- |
//! | `store.rs` | [`Store`]: open, read, write, watch, close. **Start here.** |
//! | `transaction.rs` | [`Write`], [`CommitOutcome`]: what is asked of a store, and what became of it |
//! | `sequencer/` | the one thread that writes: group, check, append, publish, reply, compact; forks share one |
//! | `shared.rs` | the published state, and who is woken when it changes |
//! | `view.rs` | [`Snapshot`], [`BucketSnapshot`]: what readers see, and how a change is applied to or undone from it |
//! | `watch.rs` | [`Watcher`]: a cursor that pulls events |
//! | `history.rs` | [`History`]: how much of the past is kept, and what is compacted next |
//! | `compaction.rs` | what the log may delete, in batches |
//! | `limits.rs` | [`Limits`]: how large a write, and how large the store may be |
//! | `space.rs` | which writes are taken when the store is full |
//! | `object.rs`, `event.rs`, `key.rs`, `revision.rs` | [`Object`], [`Event`], [`Key`], [`Revision`] |
//! | `index.rs` | [`Index`]: what the owner of a store reads out of the bytes, once per version |
//! | `backup/` | all objects of one revision as a file, and back |
//! | `log/` | [`Log`](log::Log): where changes are durable; sled, memory, ephemeral |
//!
//! # A write, step by step
//!
//! 1. [`Store::commit`] (of which `put` and `delete` are the short forms) has the [`Index`] read
//!    the new bytes, on the writer's own task: bytes it cannot read are refused before anyone else
//!    is concerned.
//! 2. The write goes to the sequencer's mailbox. The sequencer takes all that wait there (a lone
//!    write does not wait).
//! 3. Each write's expectations are checked against the newest state; a conflict is reported at
//!    once.
//! 4. The others are appended to the [`Log`](log::Log) as one batch of transactions. The log
//!    reports the outcome of each: committed at a revision that all its objects share, in conflict
//!    with another writer, or rejected. In `sync` durability what is committed is on disk now.
//! 5. What the log's tail has is applied to the view: revision stamped into the bytes, event made
//!    from before and after. The transactions in conflict return to step 3, to be checked against
//!    what the other writer wrote.
//! 6. The new state is published through one atomic pointer; then watchers are woken; then the
//!    writers get their results, so that they read their own writes.
//! 7. History beyond its limits is dropped, a few events for each one added; superseded entries are
//!    deleted from the log in batches.
//!
//! # Always true
//!
//! - Revisions strictly increase and are never given twice, not even across crashes.
//! - A snapshot is one revision of everything; no reader waits for a writer, no writer for a
//!   reader.
//! - Within a bucket a watcher sees each change after its start exactly once, in order, or gets
//!   [`Compacted`].
//! - No lock is held across I/O; the disk is touched by the store's own threads only.
//! - Only the log decides what happened: the view applies its tail, be it ours or another writer's.
//! - All objects of a transaction have one revision. Readers and watchers see all of a revision or
//!   nothing of it.
//! - Another writer's entry that cannot be read is quarantined: its key keeps the last readable
//!   version and takes no writes, and [`Snapshot::quarantined`] has it. In a log without other
//!   writers it means damage.
//! - When the disk fails the store stops taking writes, reports it in [`Store::health`], and
//!   continues to serve reads.
#![expect(clippy::disallowed_methods, reason = "compaction, retries and deadlines protect the store")]
#![warn(missing_docs)]
// A number that does not fit is an error, never another number.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_sign_loss))]

pub mod backup;
mod compaction;
#[cfg(any(test, feature = "contract"))]
#[doc(hidden)]
pub mod contract;
mod error;
mod event;
mod followers;
mod history;
mod index;
mod key;
mod limits;
pub mod log;
mod object;
mod options;
mod revision;
mod sequencer;
mod shared;
mod space;
mod store;
#[cfg(any(test, feature = "contract"))]
#[doc(hidden)]
pub mod testing;
mod transaction;
mod view;
mod watch;

pub use error::{Future, LinearizeError, RevisionError, StoreError};
pub use event::Event;
pub use followers::{Unfollowed, WatcherName};
pub use history::History;
pub use index::{Index, Indexed, Unreadable};
pub use key::Key;
pub use limits::Limits;
pub use object::Object;
pub use options::Options;
pub use revision::{CompactRevision, Compacted, EntryId, Revision};
pub use sequencer::Observer;
pub use store::Store;
pub use transaction::{CommitOutcome, DeleteOutcome, Expect, PutOutcome, Write};
pub use view::{BucketSnapshot, Snapshot};
pub use watch::Watcher;
