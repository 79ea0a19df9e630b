//! Shared parts of the tests: a layout that does not change keys and values.

use bytes::Bytes;
use coracle_storage::{Key, Unreadable};
use coracle_storage_etcd::Layout;

/// `/test/BUCKET/NAME`, and the bytes of the store.
pub struct Plain;

impl Layout for Plain {
    fn prefix(&self) -> &str {
        "/test/"
    }

    fn name(&self, key: &Key) -> String {
        format!("/test/{}/{}", key.bucket(), key.name())
    }

    fn key(&self, name: &str) -> Option<Key> {
        let (bucket, name) = name.strip_prefix("/test/")?.split_once('/')?;
        (bucket != "coracle").then(|| Key::new(bucket, name))
    }

    fn encode(&self, _: &Key, stored: &Bytes) -> Bytes {
        stored.clone()
    }

    fn decode(&self, _: &Key, value: &Bytes) -> Result<Bytes, Unreadable> {
        Ok(value.clone())
    }
}
