//! The index data that the store keeps for each object, so that selecting needs no parsing: labels
//! and selectable fields.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use coracle_storage::log::{Log, LogError};
use coracle_storage::{Index, Indexed, Key, Limits, Options, Revision, Store, Unreadable};
use serde::Deserialize;
use serde_json::Value;

use crate::codec::{json, protobuf};
use crate::registry::Author;
use crate::resource_info::{ResourceTable, SharedResourceTable};

/// The text in stored bytes after which the revision is inserted, between the quotes.
pub const STAMP_SITE: &str = "\"resourceVersion\":\"";

/// Reads stored objects for the index.
pub struct ObjectIndex {
    resources: Arc<SharedResourceTable>,
}

impl ObjectIndex {
    /// Creates an index that reads objects by their resources.
    pub fn new(resources: Arc<SharedResourceTable>) -> ObjectIndex {
        ObjectIndex { resources }
    }

    /// Returns the resources that are served at present.
    pub fn resources(&self) -> Arc<ResourceTable> {
        self.resources.load_full()
    }
}

/// Opens the store of a log's objects. Blocks until all are loaded.
///
/// # Errors
/// As of [`Store::open`].
pub fn open_store(
    log: Box<dyn Log>,
    resources: Arc<SharedResourceTable>,
    options: Options,
) -> Result<Store<ObjectIndex>, LogError> {
    Store::open(log, ObjectIndex::new(resources), options)
}

/// Opens the store of a record, of which the authors of changes are known.
///
/// # Errors
/// As of [`Store::open_with_authors`].
pub fn open_recorded_store(
    log: Box<dyn Log>,
    resources: Arc<SharedResourceTable>,
    options: Options,
    authors: &dyn Fn(Revision) -> Option<Author>,
) -> Result<Store<ObjectIndex>, LogError> {
    Store::open_with_authors(log, ObjectIndex::new(resources), options, authors)
}

/// Creates a store with the content of another one; see [`Store::fork`].
///
/// # Errors
/// As of [`Store::fork`].
pub fn fork_store(
    store: &Store<ObjectIndex>,
    resources: Arc<SharedResourceTable>,
    options: &Options,
) -> Result<Store<ObjectIndex>, LogError> {
    store.fork(ObjectIndex::new(resources), options)
}

/// The index data of an object.
pub struct Meta {
    /// `key\0value\0` of every label: one allocation, and a scan of few labels.
    labels: Box<str>,
    /// The values of the kind's selectable fields, in the order of its set. Empty for custom
    /// resources, whose selectable fields may change.
    fields: Box<[Box<str>]>,
    pub terminating: bool,
}

impl Meta {
    pub fn label(&self, key: &str) -> Option<&str> {
        let mut parts = self.labels.split('\0');
        while let (Some(k), Some(v)) = (parts.next(), parts.next()) {
            if k == key {
                return Some(v);
            }
        }
        None
    }

    pub fn field(&self, position: usize) -> Option<&str> {
        self.fields.get(position).map(|f| &**f)
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: MetadataHead<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataHead<'a> {
    #[serde(default, borrow)]
    labels: Option<HashMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(default, borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
    resource_version: &'a str,
}

impl Index for ObjectIndex {
    type Meta = Meta;
    type Frame = Bytes;
    type Author = Author;

    fn index(&self, key: &Key, stored: &[u8]) -> Result<Indexed<Meta>, Unreadable> {
        let unreadable = |e: serde_json::Error| Unreadable(e.to_string());
        let head: Head<'_> = serde_json::from_slice(stored).map_err(unreadable)?;
        let stamp = (head.metadata.resource_version.as_ptr() as usize)
            .checked_sub(stored.as_ptr() as usize)
            .ok_or_else(|| Unreadable("no place for the revision".to_owned()))?;
        let mut labels = String::new();
        for (k, v) in head.metadata.labels.iter().flatten() {
            // A Binding adds labels to its pod that are not validated. NUL is the separator; no
            // selector can contain it.
            if k.contains('\0') || v.contains('\0') {
                continue;
            }
            labels.extend([k.as_ref(), "\0", v.as_ref(), "\0"]);
        }
        let resources = self.resources.load();
        let selectable = resources
            .by_bucket(key.bucket())
            .filter(|info| !info.is_custom())
            .map(|info| &info.behavior.selectable_fields);
        let fields = match selectable.filter(|fields| !fields.is_metadata_alone()) {
            None => Box::default(),
            Some(fields) => {
                let object = json::parse_own_sparse(stored, fields.pointers());
                fields.values(&object.map_err(|e| Unreadable(e.to_string()))?)
            }
        };
        let terminating = head.metadata.deletion_timestamp.is_some();
        Ok(Indexed { meta: Meta { labels: labels.into(), fields, terminating }, stamp })
    }

    /// Returns the size of the object as protobuf, since kube-apiserver stores built-in kinds in
    /// that form and the limit applies to it. JSON is never shorter, so only values whose JSON
    /// exceeds the limit are encoded.
    fn request_bytes(&self, key: &Key, stored: &[u8]) -> usize {
        let name = key.bucket().len() + key.name().len();
        if name + stored.len() <= Limits::default().request_bytes {
            return name + stored.len();
        }
        let object: Option<Value> = json::parse_own(stored).ok();
        let encoded =
            object.and_then(|object| Some(protobuf::encode(&object, super::built_in_type(&object)?)));
        name + encoded.map_or(stored.len(), |encoded| encoded.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_with_nul_does_not_become_others() {
        let labels = serde_json::json!({"a\0app": "x", "b": "y\0app\0stolen", "c": "z"});
        let stored = serde_json::json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "", "labels": labels},
        });
        let stored = serde_json::to_vec(&stored).expect("JSON");
        let index = ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in()));
        let meta = index.index(&Key::new("pods", "ns/n"), &stored).expect("readable").meta;
        assert_eq!([meta.label("app"), meta.label("b"), meta.label("c")], [None, None, Some("z")]);
    }

    #[test]
    fn requests_are_measured_as_protobuf() {
        let mib = 1 << 20;
        for (case, api_version, text, unit, count, within) in [
            ("1 MiB of text", "v1", "x", 1, mib, true),
            ("1 MiB of line breaks, two bytes each in JSON", "v1", "\n", 1, mib, true),
            ("1 MiB of control characters, six bytes each in JSON", "v1", "\u{1}", 1, mib, true),
            ("1.6 million bytes of text", "v1", "x", 1, 1_600_000, false),
            ("0.8 million characters of two bytes", "v1", "ü", 2, 800_000, false),
            ("a kind that is not built in is stored as JSON", "example.com/v1", "\n", 2, mib, false),
        ] {
            let object = serde_json::json!({
                "kind": "ConfigMap", "apiVersion": api_version, "metadata": {"name": "n", "resourceVersion": ""},
                "data": {"k": text.repeat(count)},
            });
            let stored = serde_json::to_vec(&object).expect(case);
            let bytes = ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in()))
                .request_bytes(&Key::new("configmaps", "ns/n"), &stored);
            let least = unit * count;
            assert!((least..least + 200).contains(&bytes), "{case}: {bytes} bytes");
            assert_eq!(bytes <= Limits::default().request_bytes, within, "{case}: {bytes} bytes");
        }
    }
}
