//! The log on disk: a sled tree.
//!
//! ```text
//! log/<revision><index><part>   the changes (see `rows.rs`), written once, deleted when they are of no more use
//! meta/floor                    the compact revision when something was last forgotten
//! meta/reserved                 no revision above it was given out, unless it was on disk before its writer got the result
//! ```
//! Nothing points at the newest version of an object: loading reads all rows in order anyway, and a
//! second key a change would halve the speed.
//!
//! sled's batches are not used. A batch keeps an I/O buffer open, and if a page that it has changed
//! is evicted and needed again before the batch is complete, sled waits for that buffer for ever.
//! Rows in order, each with a flag for whether more follow in it, serve as well and are faster.
//!
//! Always true here:
//! - sled recovers a prefix of what was written: what is lost in a crash are the newest rows, if
//!   they were not flushed.
//! - The transactions above the compact revision are whole, and their revisions were written
//!   without a gap; a hole is damage.
//! - Up to where the log is on disk is remembered outside of it (`state.rs`): a log that ends below
//!   that is damaged.
//! - The compact revision is written before what is below it is deleted, and a version is deleted
//!   before the deletion that ended it.
//! - What sled has not flushed is in the journal too (`journal.rs`), unless durability is
//!   [`Durability::None`]: a killed process loses nothing.
//! - After a write that failed because the disk was full sled takes no more writes. Its files are
//!   opened again, and what sled had not written yet is written again: it is kept until it is on
//!   disk (`unsynced.rs`).
//! - Where results do not wait for the disk, a range of revisions is reserved on disk beforehand.
//!   After a crash that may have lost some (of the machine, or without a journal) the store
//!   continues above that range, and its compact revision with it: no watch may resume from a
//!   revision with a change that is lost.

mod check;
mod directory;
mod durability;
mod entry;
mod failure;
mod flusher;
mod journal;
mod load;
mod log;
mod private;
mod recovery;
mod reserve;
mod rows;
mod shrink;
mod state;
#[cfg(test)]
mod tests;
mod tree;
mod unsynced;

pub use check::CheckReport;
pub use directory::lock_store;
pub use durability::Durability;
pub use log::SledLog;
