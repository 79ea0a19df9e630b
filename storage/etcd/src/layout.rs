//! The layout of keys and values in the cluster, which the owner of a store decides.

use std::time::Duration;

use bytes::Bytes;
use coracle_storage::{Key, Unreadable};

/// The mapping between a store's keys and values and those in the cluster.
pub trait Layout: Send + Sync + 'static {
    /// Returns the prefix of all keys of the store, such as `/registry/`. The store reads nothing
    /// else in the cluster.
    fn prefix(&self) -> &str;

    /// Returns the name of a key in the cluster; it starts with the prefix.
    fn name(&self, key: &Key) -> String;

    /// Returns the key for a name in the cluster; None if the name is not one of the store's.
    fn key(&self, name: &str) -> Option<Key>;

    /// Returns the value to write to the cluster for the bytes in the store.
    fn encode(&self, key: &Key, stored: &Bytes) -> Bytes;

    /// Returns the bytes in the store for a value in the cluster, which any writer may have
    /// written.
    ///
    /// # Errors
    /// The value cannot be decoded. The store quarantines it.
    fn decode(&self, key: &Key, value: &Bytes) -> Result<Bytes, Unreadable>;

    /// Returns the time to live of an object in the cluster, counted from its last write; None if
    /// it does not expire.
    fn time_to_live(&self, _: &Key) -> Option<Duration> {
        None
    }
}
