//! The keys of objects.

use std::{fmt, sync::Arc};

/// A bucket (one resource's keyspace, such as `apps/deployments`) and a name in it (`ns/name` or
/// `name`).
///
/// Keys are cheap to clone. Within a bucket they are ordered by the bytes of the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    bucket: Arc<str>,
    name: Arc<str>,
}

impl Key {
    /// Creates a key of a bucket and a name, which are neither checked nor normalized.
    pub fn new(bucket: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Key {
        Key { bucket: bucket.into(), name: name.into() }
    }

    /// Returns the bucket, which is the keyspace of one resource.
    pub fn bucket(&self) -> &Arc<str> {
        &self.bucket
    }

    /// Returns the name within the bucket.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket, self.name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
