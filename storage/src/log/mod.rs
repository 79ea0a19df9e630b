//! The log: where changes are durable. It orders them, keeps them, and reports what was committed.
//!
//! Everything above the trait [`Log`] is the same for every log, and assumes nothing about who else
//! writes: several stores may share a log ([`MemoryLog`], an etcd cluster). So a write becomes
//! visible only when the log's *tail* has it.

mod ephemeral;
mod error;
mod fixed;
mod interface;
mod location;
mod memory;
mod notifier;
mod outcome;
mod sled;
mod transaction;

pub use ephemeral::EphemeralLog;
pub use error::LogError;
pub use fixed::FixedLog;
pub use interface::{Linearizer, Log, LogBounds};
pub use location::Location;
pub use memory::MemoryLog;
pub use notifier::{Notification, Notifier};
pub use outcome::{Conflict, Outcome, Rejected, Unknown};
pub use sled::{CheckReport, Durability, SledLog, lock_store};
pub use transaction::{Change, Entry, Proposal, Record, Transaction, UnreadableEntry};
