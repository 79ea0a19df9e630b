//! The interface through which the owner of a store interprets the stored bytes.

use crate::Key;

/// The owner's reader of stored values.
pub trait Index: Send + Sync + 'static {
    /// The metadata that readers need without parsing the bytes again.
    type Meta: Send + Sync + 'static;
    /// An event encoded for watchers (cheap to clone, such as `Bytes`); see
    /// [`Event::frame`](crate::Event::frame).
    type Frame: Clone + Send + Sync + 'static;
    /// The author of a write, kept in memory with its events; see
    /// [`Event::author`](crate::Event::author).
    type Author: Clone + Send + Sync + 'static;

    /// Reads one stored value: once per version, when it is written or loaded.
    ///
    /// # Errors
    /// A value that cannot be read is refused when written, and means a damaged store when loaded.
    fn index(&self, key: &Key, stored: &[u8]) -> Result<Indexed<Self::Meta>, Unreadable>;

    /// Returns the size in bytes of a request to store the value, which
    /// [`Limits::request_bytes`](crate::Limits) bounds. The default is the size of the value and of
    /// its key.
    fn request_bytes(&self, key: &Key, stored: &[u8]) -> usize {
        key.bucket().len() + key.name().len() + stored.len()
    }
}

/// The result of reading a stored value with an [`Index`].
#[derive(Clone, Debug)]
pub struct Indexed<M> {
    /// The metadata that readers need without parsing the bytes again.
    pub meta: M,
    /// The offset in the stored bytes at which the revision's decimal digits are inserted when the
    /// object is served, such as between the quotes of `"resourceVersion":""`. Stored bytes have no
    /// revision because a log may assign it only after the write.
    pub stamp: usize,
}

/// The error of an [`Index`] that cannot read a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// Reads a value and validates the offset that the index returned.
pub(crate) fn read<I: Index>(index: &I, key: &Key, stored: &[u8]) -> Result<Indexed<I::Meta>, Unreadable> {
    let indexed = index.index(key, stored)?;
    if indexed.stamp > stored.len() || u32::try_from(indexed.stamp).is_err() {
        return Err(Unreadable(format!("stamp at {} of {} bytes", indexed.stamp, stored.len())));
    }
    Ok(indexed)
}
