//! What the owner of a store teaches it about the bytes.

use crate::Key;

/// How the owner reads stored values.
pub trait Index: Send + Sync + 'static {
    /// What readers need of an object without reading its bytes again.
    type Meta: Send + Sync + 'static;
    /// An event encoded for watchers (cheap to clone, such as `Bytes`); see [`Event::frame`](crate::Event::frame).
    type Frame: Clone + Send + Sync + 'static;
    /// The author of a write, kept in memory with its events; see [`Event::author`](crate::Event::author).
    type Author: Clone + Send + Sync + 'static;

    /// Reads one stored value: once per version, when it is written or loaded.
    ///
    /// # Errors
    /// A value that cannot be read is refused when written, and means a damaged store when loaded.
    fn index(&self, key: &Key, stored: &[u8]) -> Result<Indexed<Self::Meta>, Unreadable>;

    /// How many bytes a request to store the value counts, which [`Limits::request_bytes`](crate::Limits) bounds: those
    /// of the value and of its key, unless the owner knows better.
    fn request_bytes(&self, key: &Key, stored: &[u8]) -> usize {
        key.bucket().len() + key.name().len() + stored.len()
    }
}

/// What an [`Index`] found in a stored value.
#[derive(Clone, Debug)]
pub struct Indexed<M> {
    /// What readers need without reading the bytes again.
    pub meta: M,
    /// The offset in the stored bytes at which the revision's decimal digits are to be inserted when served: just between
    /// the quotes of `"resourceVersion":""`, say. Stored bytes hold no revision, for a log may learn it only afterwards.
    pub stamp: usize,
}

/// Why an [`Index`] cannot read a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// Reads a value, and does not trust the offset found in it.
pub(crate) fn read<I: Index>(index: &I, key: &Key, stored: &[u8]) -> Result<Indexed<I::Meta>, Unreadable> {
    let indexed = index.index(key, stored)?;
    if indexed.stamp > stored.len() || u32::try_from(indexed.stamp).is_err() {
        return Err(Unreadable(format!("stamp at {} of {} bytes", indexed.stamp, stored.len())));
    }
    Ok(indexed)
}
