//! One version of an object, shared by its readers.

use bytes::Bytes;

use crate::{EntryId, Index, Indexed, Key, Revision};

/// One version of an object. Never changes; shared as `Arc<Object<I>>`.
pub struct Object<I: Index> {
    /// The key of the object.
    pub key: Key,
    /// The revision of the change that created the object.
    pub created: Revision,
    /// The revision of the change that made this version.
    pub revision: Revision,
    /// The exact bytes to serve: the stored bytes with `revision` stamped in.
    pub bytes: Bytes,
    /// The metadata that the [`Index`] read from the stored bytes.
    pub meta: I::Meta,
    /// The index of the change within its transaction that made this version.
    index: u32,
    stamp: u32,
}

/// The memory of an object in bytes, in addition to its stored bytes and its name.
const OVERHEAD: u64 = 256;

/// Returns the memory in bytes that an object with `bytes` stored bytes takes in the store.
pub(crate) fn cost(key: &Key, bytes: usize) -> u64 {
    u64::try_from(bytes + key.name().len()).unwrap_or(u64::MAX).saturating_add(OVERHEAD)
}

impl<I: Index> Object<I> {
    /// Creates an object. `indexed.stamp` is within `stored`, and fits in four bytes: see
    /// [`crate::index::read`].
    pub(crate) fn new(
        key: Key,
        created: Revision,
        EntryId { revision, index }: EntryId,
        stored: &[u8],
        indexed: Indexed<I::Meta>,
    ) -> Object<I> {
        let Indexed { meta, stamp } = indexed;
        let bytes = stamped(stored.split_at(stamp), revision);
        Object { key, created, revision, bytes, meta, index, stamp: u32::try_from(stamp).unwrap_or(u32::MAX) }
    }

    /// Returns the ID of the log entry with this version.
    pub(crate) fn entry_id(&self) -> EntryId {
        EntryId { revision: self.revision, index: self.index }
    }

    /// Returns the bytes to serve if this version is shown at another revision, such as that of its
    /// deletion.
    pub fn restamped(&self, revision: Revision) -> Bytes {
        stamped(self.stored(), revision)
    }

    /// Returns the memory in bytes that the object takes in the store: its bytes, its name, and its
    /// entries in the store's maps.
    pub fn cost(&self) -> u64 {
        cost(&self.key, self.bytes.len())
    }

    /// Returns whether these bytes equal the stored ones, so that writing them again would change
    /// nothing.
    pub fn is_stored_as(&self, stored: &[u8]) -> bool {
        let (head, tail) = self.stored();
        stored.len() == head.len() + tail.len() && stored.starts_with(head) && stored.ends_with(tail)
    }

    /// Returns a copy of the stored bytes, which have no revision.
    pub fn to_stored(&self) -> Bytes {
        let (head, tail) = self.stored();
        [head, tail].concat().into()
    }

    /// Returns the stored bytes without copying them: the parts before and after the stamped
    /// revision.
    pub(crate) fn stored(&self) -> (&[u8], &[u8]) {
        let (head, rest) = self.bytes.split_at(self.stamp as usize);
        (head, &rest[digits(self.revision)..])
    }
}

fn stamped((head, tail): (&[u8], &[u8]), revision: Revision) -> Bytes {
    let mut served = Vec::with_capacity(head.len() + digits(revision) + tail.len());
    served.extend_from_slice(head);
    served.extend_from_slice(revision.to_string().as_bytes());
    served.extend_from_slice(tail);
    served.into()
}

fn digits(revision: Revision) -> usize {
    usize::try_from(revision.0.checked_ilog10().unwrap_or(0)).map_or(usize::MAX, |log| log + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Marked;

    #[test]
    fn revision_is_stamped_and_restamped() {
        for (case, stored, revision, served, again) in [
            ("within", "a@b", 7, "a@7b", "a@1000b"),
            ("at the end", "ab@", 10, "ab@10", "ab@1000"),
            ("at the start", "@ab", 999, "@999ab", "@1000ab"),
            ("revision zero", "a@b", 0, "a@0b", "a@1000b"),
        ] {
            let key = Key::new("things", case);
            let indexed = crate::index::read(&Marked, &key, stored.as_bytes()).unwrap();
            let id = EntryId::first(Revision(revision));
            let object = Object::<Marked>::new(key, Revision(1), id, stored.as_bytes(), indexed);
            assert_eq!(object.bytes, served, "{case}");
            assert_eq!(object.restamped(Revision(1000)), again, "{case}");
            assert!(object.is_stored_as(stored.as_bytes()), "{case}");
            assert_eq!(object.to_stored(), stored, "{case}");
            for other in [served, "", "a@@b", "ab"] {
                assert!(!object.is_stored_as(other.as_bytes()), "{case}: {other}");
            }
        }
    }

    #[test]
    fn digits_are_counted_as_printed() {
        for n in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            assert_eq!(digits(Revision(n)), n.to_string().len(), "{n}");
        }
    }
}
