//! Backup: all live objects of a store at one revision, as one file.
//!
//! The file knows keys, revisions and stored bytes, and nothing of the log that they come from: it
//! can be restored into any [`Log`](crate::log::Log).
//!
//! # Format, version 1
//!
//! ```text
//! "coracle backup 1\n"
//! frame of kind 'H': revision u64 | objects u64
//! frames of kind 'O', one for each object: created u64 | revision u64 | bucket: u32 length, bytes
//!                                          | name: u32 length, bytes | stored bytes
//! frame of kind 'E': objects u64 | checksum u32
//!
//! frame: kind u8 | length of the payload u32 | payload | checksum u32
//! ```
//! Numbers are big-endian. The checksum at the end of a frame is the CRC-32 of the frame before it;
//! that in the last frame is the CRC-32 of the whole file before that frame. Nothing follows the
//! last frame. Stored bytes hold no revision, as in the store: see
//! [`Indexed::stamp`](crate::Indexed::stamp). Objects are in the order in which they were created.
//! The number in the first line is that of the version; a reader refuses versions it does not know.
//!
//! - [`Chunks`] writes the file of a [`Snapshot`](crate::Snapshot), piece by piece.
//! - [`Reader`] reads it and trusts nothing in it; [`verify`] reads all of it.
//! - [`restore`] appends its objects to an empty log, which may be of another kind.

mod format;
mod read;
mod restore;
#[cfg(test)]
mod tests;
mod write;

pub use read::{BackupError, BackupObject, Reader, Summary, verify};
pub use restore::{Monotonicity, RestoreError, restore};
pub use write::Chunks;
