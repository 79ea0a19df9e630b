//! kube-apiserver's layout of the names and values of objects, for a store that both may share.
//!
//! `PREFIX/RESOURCE/[NAMESPACE/]NAME` for built-in resources, some with a former name
//! ([`ResourceInfo::registry_path`]); `PREFIX/GROUP/RESOURCE/[NAMESPACE/]NAME` for custom ones. A
//! value is the object in its storage version, without a resourceVersion: JSON, as written by this
//! server, or protobuf, as written by kube-apiserver.
//!
//! Source: "Operating etcd clusters for Kubernetes"; `k8s.io/kubernetes/pkg/registry/*/*/storage`.

mod revision;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use coracle_storage::{Key, Unreadable};
use serde_json::Value;

use self::revision::Order;
use super::built_in_type;
use super::write::stored_bytes;
use crate::codec::{json, protobuf};
use crate::object_meta::ObjectMeta;
use crate::resource_info::{Conversion, ResourceInfo, SharedResourceTable};
use crate::schema::TypeRef;

/// The bucket for kube-apiserver's ranges, such as that of node ports.
pub const RANGES: &str = "ranges";

/// The names and values of stored objects in a store that kube-apiserver may share.
pub struct RegistryLayout {
    /// The prefix of all names, with a slash at its end.
    prefix: String,
    resources: Arc<SharedResourceTable>,
    /// The paths of built-in resources, by bucket.
    paths: HashMap<Arc<str>, String>,
    /// The buckets of these places.
    buckets: HashMap<String, Arc<str>>,
}

impl RegistryLayout {
    /// Creates the layout below a prefix (`--etcd-prefix`). The table must already have the
    /// built-in resources; custom resources may be added later.
    pub fn new(prefix: &str, resources: Arc<SharedResourceTable>) -> RegistryLayout {
        let built_in: Vec<(Arc<str>, String)> = {
            let table = resources.load();
            let stored = table.iter().filter(|info| !info.is_custom());
            stored.map(|info| (info.storage.bucket.clone(), info.registry_path())).collect()
        };
        let ranges = (RANGES.into(), RANGES.to_owned());
        let paths: HashMap<_, _> = built_in.into_iter().chain([ranges]).collect();
        let buckets = paths.iter().map(|(bucket, path)| (path.clone(), bucket.clone())).collect();
        let prefix = match prefix.trim_matches('/') {
            "" => "/".to_owned(),
            prefix => format!("/{prefix}/"),
        };
        RegistryLayout { prefix, resources, paths, buckets }
    }

    /// Returns the prefix of all names.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the name of a key.
    pub fn name(&self, key: &Key) -> String {
        let (bucket, name) = (key.bucket(), key.name());
        match (self.paths.get(bucket), bucket.split_once('.')) {
            (Some(path), _) => format!("{}{path}/{name}", self.prefix),
            (None, Some((plural, group))) => format!("{}{group}/{plural}/{name}", self.prefix),
            // Custom resources always have a group.
            (None, None) => format!("{}{bucket}/{name}", self.prefix),
        }
    }

    /// Returns the key for a name; None if the name is not that of an object.
    pub fn key(&self, name: &str) -> Option<Key> {
        let below = name.strip_prefix(&self.prefix)?;
        let (first, rest) = below.split_once('/')?;
        if let Some(bucket) = self.buckets.get(first) {
            return object_key(bucket.clone(), rest);
        }
        let (second, rest) = rest.split_once('/')?;
        if let Some(bucket) =
            below.get(..first.len() + 1 + second.len()).and_then(|path| self.buckets.get(path))
        {
            return object_key(bucket.clone(), rest);
        }
        // Groups of custom resources have a dot, unlike anything else at this position.
        let is_custom = first.contains('.') && !second.is_empty();
        if is_custom { object_key(format!("{second}.{first}").into(), rest) } else { None }
    }

    /// Returns the value for stored bytes: the same bytes without the empty resourceVersion.
    pub fn encode(&self, stored: &Bytes) -> Bytes {
        revision::remove(stored).map_or_else(|| stored.clone(), Bytes::from)
    }

    /// Returns the bytes to store for a value.
    ///
    /// # Errors
    /// The value is neither JSON nor protobuf, nested too deep, or of an unknown type or version.
    pub fn decode(&self, key: &Key, value: &Bytes) -> Result<Bytes, Unreadable> {
        if value.starts_with(protobuf::MAGIC) {
            return self.store(key, decode_protobuf(value)?);
        }
        if !value.starts_with(b"{") {
            return Err(Unreadable("neither JSON nor protobuf; it may be encrypted".to_owned()));
        }
        // The bytes are copied, so that the content is not validated later.
        json::check_stored(value).map_err(|error| Unreadable(error.to_string()))?;
        let built_in = self.built_in(key);
        let is_current = match &built_in {
            Some(info) => {
                info.storage.type_prefix.as_ref().is_some_and(|prefix| value.starts_with(prefix.as_bytes()))
            }
            None => true,
        };
        let order = if built_in.is_some() { Order::Declared } else { Order::Sorted };
        match is_current.then(|| revision::insert(value, order)).flatten() {
            Some(stored) => Ok(stored),
            None => {
                let object = json::parse_own(value).map_err(|error| Unreadable(error.to_string()))?;
                self.store(key, object)
            }
        }
    }

    /// Returns the bytes to store for an object in any version.
    fn store(&self, key: &Key, mut object: Value) -> Result<Bytes, Unreadable> {
        let Some(info) = self.built_in(key) else { return Ok(untyped_bytes(key, object)) };
        if object["apiVersion"] != *info.storage.api_version {
            let Conversion::Local(convert) = &info.conversion else {
                return Err(Unreadable(format!("no conversion from {}", object["apiVersion"])));
            };
            // Only known versions are accepted.
            built_in_type(&object).ok_or_else(|| unknown(&object))?;
            object = convert(&info.group_kind, &info.storage.api_version, object);
        }
        Ok(stored_bytes(&info, object))
    }

    fn built_in(&self, key: &Key) -> Option<Arc<ResourceInfo>> {
        self.resources.load().by_bucket(key.bucket()).filter(|info| !info.is_custom()).cloned()
    }
}

/// Returns the key of an object; None if the name is not `NAME` or `NAMESPACE/NAME`.
fn object_key(bucket: Arc<str>, name: &str) -> Option<Key> {
    let is_name = name.split('/').all(|part| !part.is_empty()) && name.split('/').count() <= 2;
    is_name.then(|| Key::new(bucket, name))
}

fn decode_protobuf(value: &[u8]) -> Result<Value, Unreadable> {
    let unreadable = |error: crate::codec::DecodeError| Unreadable(error.to_string());
    let envelope = protobuf::open(value).map_err(unreadable)?;
    let mut object = serde_json::json!({"apiVersion": envelope.meta.api_version, "kind": envelope.meta.kind});
    let id = built_in_type(&object).ok_or_else(|| unknown(&object))?;
    let decoded = envelope.decode(id).map_err(unreadable)?;
    if let (Some(members), Value::Object(decoded)) = (object.as_object_mut(), decoded) {
        members.extend(decoded);
    }
    Ok(object)
}

fn unknown(object: &Value) -> Unreadable {
    Unreadable(format!("{} of version {} is not known", object["kind"], object["apiVersion"]))
}

/// Returns the bytes of an object without a resource in the table: an allocated range, which has a
/// type, or a custom resource.
fn untyped_bytes(key: &Key, mut object: Value) -> Bytes {
    object.set_meta("resourceVersion", "");
    let mut bytes = Vec::new();
    match built_in_type(&object).filter(|_| **key.bucket() == *RANGES) {
        Some(id) => {
            json::write(&object, &TypeRef::Struct(id), &mut bytes);
            // Empty members are omitted.
            revision::insert(&bytes.into(), Order::Declared).unwrap_or_default()
        }
        None => {
            json::write_untyped(&object, &mut bytes);
            bytes.push(b'\n');
            bytes.into()
        }
    }
}

#[cfg(test)]
mod tests;
