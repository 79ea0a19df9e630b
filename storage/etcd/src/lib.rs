//! An etcd cluster as the log of a [`Store`](coracle_storage::Store): [`EtcdLog`]. Several stores,
//! in as many processes, may share one cluster.
//!
//! | file | owns |
//! | --- | --- |
//! | `log.rs` | [`EtcdLog`]: start, load, append, tail. **Start here.** |
//! | `txn.rs` | one transaction: its comparisons, its retries, what became of it when the response was lost |
//! | `watch.rs`, `tail.rs` | the one watch of the prefix, resumed whenever it ends; what it received and the store has not read |
//! | `linearizer.rs` | how far a reader must wait to see what others wrote |
//! | `compaction.rs`, `lease.rs` | the compaction of the cluster's history as kube-apiserver does it; leases of what expires |
//! | `layout.rs` | [`Layout`]: what the owner decides about keys and values |
//! | `client.rs`, `proto.rs` | the members and TLS; the messages |
//!
//! # Always true
//!
//! - The store's revisions are etcd's. A transaction is one `Txn`, so its changes have one
//!   revision.
//! - Each write compares the `mod_revision` of its key, so it never replaces what its store has not
//!   seen.
//! - A transaction is reported as committed only if etcd said so, or the watch has shown it.
//! - The watch starts at the revision after the last one that it has shown whole. If that is
//!   compacted, the log fails: the process has to load anew.
//! - Every request has a deadline, and so has every wait of the store's thread.
#![expect(clippy::disallowed_methods, reason = "deadlines and retries of calls to etcd")]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_sign_loss))]

mod client;
mod compaction;
mod error;
mod layout;
mod lease;
mod linearizer;
mod log;
mod proto;
mod tail;
#[cfg(feature = "testing")]
pub mod testing;
mod txn;
mod watch;

pub use client::Endpoints;
pub use compaction::Compaction;
pub use error::EtcdError;
pub use layout::Layout;
pub use log::EtcdLog;
