//! What the store keeps beside an object's bytes, so that selecting needs no parsing: labels and selectable fields.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use coracle_storage::{Index, Indexed, Key, Unreadable};
use serde::Deserialize;
use serde_json::Value;

use super::selectable::{self, FieldSet};

/// Stands in stored bytes where the revision goes, between the quotes.
pub const STAMP_SITE: &str = "\"resourceVersion\":\"";

/// How stored objects are read.
#[derive(Default)]
pub struct ObjectIndex {
    /// The kinds, by bucket, that can be selected by more than name and namespace.
    fields: HashMap<String, FieldSet>,
}

impl ObjectIndex {
    pub fn new() -> ObjectIndex {
        ObjectIndex { fields: selectable::by_bucket() }
    }
}

/// What is known of an object without parsing it.
pub struct Meta {
    /// `key\0value\0` of every label: one allocation, and few labels to look through.
    labels: Box<str>,
    /// The kind's selectable fields, in the order of its set.
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

    fn index(&self, key: &Key, stored: &[u8]) -> Result<Indexed<Meta>, Unreadable> {
        let unreadable = |e: serde_json::Error| Unreadable(e.to_string());
        let head: Head<'_> = serde_json::from_slice(stored).map_err(unreadable)?;
        let stamp = (head.metadata.resource_version.as_ptr() as usize)
            .checked_sub(stored.as_ptr() as usize)
            .ok_or_else(|| Unreadable("no place for the revision".to_owned()))?;
        let mut labels = String::new();
        for (k, v) in head.metadata.labels.iter().flatten() {
            labels.extend([k.as_ref(), "\0", v.as_ref(), "\0"]);
        }
        let fields = match self.fields.get(&**key.bucket()) {
            None => Box::default(),
            Some(set) => {
                let object: Value = serde_json::from_slice(stored).map_err(unreadable)?;
                set.values(&object)
            }
        };
        let terminating = head.metadata.deletion_timestamp.is_some();
        Ok(Indexed { meta: Meta { labels: labels.into(), fields, terminating }, stamp })
    }
}
