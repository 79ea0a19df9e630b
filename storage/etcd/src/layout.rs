//! What the owner of a store decides about keys and values in the cluster.

use std::time::Duration;

use bytes::Bytes;
use coracle_storage::{Key, Unreadable};

/// How a store's keys and values are laid out in a cluster.
pub trait Layout: Send + Sync + 'static {
    /// What all keys of the store start with, such as `/registry/`. Nothing else in the cluster is read.
    fn prefix(&self) -> &str;

    /// The name of a key in the cluster; it starts with the prefix.
    fn name(&self, key: &Key) -> String;

    /// The key that a name in the cluster stands for; None for what is not the store's.
    fn key(&self, name: &str) -> Option<Key>;

    /// The value to write for the bytes that the store keeps.
    fn encode(&self, key: &Key, stored: &Bytes) -> Bytes;

    /// The bytes that the store keeps of a value, whoever wrote it.
    ///
    /// # Errors
    /// A value that cannot be read is quarantined.
    fn decode(&self, key: &Key, value: &Bytes) -> Result<Bytes, Unreadable>;

    /// For how long after its last write the cluster keeps an object; None for as long as it is not deleted.
    fn time_to_live(&self, _: &Key) -> Option<Duration> {
        None
    }
}
