//! Records: the history of a control plane in one compact file.
//!
//! [`Recorder`] writes a record on a thread of its own, [`Record`] reads one, and [`redact`]
//! removes the values of Secrets and tokens before they are written. [`Entry`] is the unit of both.
//!
//! # Format, version 1
//!
//! ```text
//! "coracle record 1\n"
//! length of the header u32 | CRC-32 of the header u32 | header: JSON of a `Header`
//! blocks
//!
//! block:  head of 68 bytes | zstd data
//! head:   "BLCK" | flags u32 (1: the last block) | entries u32
//!         | length of the data u32 | length of the data once decompressed u32
//!         | least and greatest revision of the versions u64, u64 (all ones and 0 without versions)
//!         | least and greatest time: seconds i64, nanoseconds i32, each
//!         | CRC-32 of the data u32 | CRC-32 of the head before it u32
//! data:   entries
//!
//! entry:  length u64 | JSON of the entry | length of the payload + 1 u64, or 0 without one | payload
//! ```
//!
//! Numbers are big-endian; those of an entry are LEB128 varints. The payload is the object of a
//! version or the body of a request, byte for byte, so that consecutive versions of an object are
//! near each other in the window of zstd. Blocks are independent. The last block of a record that
//! was finished ends in [`Entry::End`].
//!
//! A reader ignores unknown members of JSON, so that a member may be added to an entry or to the
//! header, with a default, in the same version. Anything else takes a new version.
//!
//! # Map
//!
//! | file | owns |
//! | --- | --- |
//! | `entry.rs`, `header.rs` | the values of a record |
//! | `codec.rs`, `block.rs` | the bytes of an entry, and of the head of a block |
//! | `queue.rs` | the bounded queue between callers and the thread |
//! | `writer.rs` | blocks, written within the limits of a file |
//! | `recorder.rs` | [`Recorder`]: the thread, its options, its statistics |
//! | `record.rs`, `entries.rs` | [`Record`]: the index of a file, and the iterator over its entries |
//! | `redact.rs` | Secrets and tokens |
//!
//! # Always true
//!
//! - A file that exists is never written to. A new one is readable by its owner only.
//! - Recording never fails its caller. It delays one by [`Options::patience`] at most, and what it
//!   loses is counted in the record.
//! - A reader trusts nothing in a file: lengths are bounded before memory is allocated, and every
//!   byte is covered by a checksum. It holds one block at a time.
//! - Nothing here reads the clock of the control plane: times come with the entries.

#![warn(missing_docs)]
// A number that does not fit is an error, never another number.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_sign_loss))]

mod block;
mod codec;
mod entries;
mod entry;
mod error;
mod header;
mod queue;
mod record;
mod recorder;
pub mod redact;
mod writer;

pub use entries::Entries;
pub use entry::{
    Author, ClockStep, Entry, Fault, Fork, Gap, GapReason, Pass, PassOutcome, Request, StopReason, Version,
};
pub use error::Error;
pub use header::{ClockMode, Header, Run};
pub use record::{Damage, Limits, Record};
pub use recorder::{Options, Recorder, Statistics};
