//! The errors of records.

use std::io;
use std::path::PathBuf;

/// A record that cannot be created or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path of a new record is taken, by a file or by a symbolic link.
    #[error(
        "{} exists, and a record never replaces a file: remove it, or choose another path",
        path.display()
    )]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The file of a new record cannot be created.
    #[error("cannot create the record {}", path.display())]
    Create {
        /// The path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The description of the run is larger than the header of a record may be.
    #[error(
        "the header of the record {} would have {length} bytes, and {limit} are allowed: shorten the \
         command line",
        path.display()
    )]
    HeaderTooLarge {
        /// The path.
        path: PathBuf,
        /// The length of the header.
        length: usize,
        /// The greatest length.
        limit: usize,
    },
    /// The limit of a new record leaves no place for entries.
    #[error("the record {} is limited to {limit} bytes: allow it {least} at least", path.display())]
    LimitTooSmall {
        /// The path.
        path: PathBuf,
        /// The limit.
        limit: u64,
        /// The least limit.
        least: u64,
    },
    /// The operating system failed to read the file.
    #[error("cannot read the record {}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The file is not a record.
    #[error("{} is not a record of Coracle: {reason}", path.display())]
    NotARecord {
        /// The path.
        path: PathBuf,
        /// The difference.
        reason: &'static str,
    },
    /// The format is newer than this program.
    #[error(
        "{} was written by a newer version of Coracle (format {found}; this one reads {known}): open \
         it with that version",
        path.display()
    )]
    Newer {
        /// The path.
        path: PathBuf,
        /// The format of the file.
        found: u32,
        /// The newest format that is read.
        known: u32,
    },
    /// The file is not as it was written, or never was a correct record.
    #[error(
        "{} is damaged at byte {at}: {reason}; to keep the entries before it, copy its first {at} bytes \
         (head -c {at} FILE > NEW)",
        path.display()
    )]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The offset of the damaged part. The file up to there is a record that ends early.
        at: u64,
        /// The damage.
        reason: &'static str,
    },
    /// The record is larger than the caller allows.
    #[error("the record {} has more than {limit} {unit}: open it with a greater limit", path.display())]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The limit.
        limit: u64,
        /// The unit of the limit.
        unit: &'static str,
    },
}
