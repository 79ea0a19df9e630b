//! The constants of the format.

use crate::limits::MAX_STORED_BYTES;

pub(super) const MAGIC: &[u8] = b"coracle backup 1\n";

/// The beginning of all versions of the format.
pub(super) const MAGIC_PREFIX: &[u8] = b"coracle backup ";

pub(super) const HEADER: u8 = b'H';
pub(super) const OBJECT: u8 = b'O';
pub(super) const END: u8 = b'E';

/// The longest payload: the largest stored value, with a key of a size that no store has.
pub(super) const MAX_PAYLOAD: usize = MAX_STORED_BYTES + (1 << 20);
