//! The limits of a store.

/// The limits on stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of bytes that one write may store under its key, as
    /// [`Index::request_bytes`](crate::Index::request_bytes) counts them. The default is that of
    /// etcd's `--max-request-bytes`: 1.5 MiB.
    pub request_bytes: usize,
    /// The largest total size of all live objects in bytes, as computed by
    /// [`Object::cost`](crate::Object::cost). The default is that of etcd's
    /// `--quota-backend-bytes`: 2 GiB.
    pub store_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { request_bytes: 3 << 19, store_bytes: 2 << 30 }
    }
}

/// No stored value is larger, however its owner counts the bytes of a request. Every log can hold
/// this much.
pub(crate) const MAX_STORED_BYTES: usize = 32 << 20;
