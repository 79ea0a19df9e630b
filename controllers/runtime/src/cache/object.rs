//! Objects of which the type is erased, and how they are read from a watch.
//!
//! The compiler makes each generic function's code once for each type. For the watches and indexes
//! of all kinds that would be megabytes, and most of it resident; so those work on erased objects,
//! and only reading and downcasting are done for each type.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;

use super::times;

/// An object of a kind that a controller can have a cache of.
pub trait Cached:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Cached for K {}

/// An object of some kind.
pub trait Object: Any + Send + Sync {
    /// Returns the metadata of the object.
    fn metadata(&self) -> &ObjectMeta;
}

impl<K: Cached> Object for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// Converts an object to one of any kind, without the fields that no controller uses.
pub(super) fn erase<K: Cached>(mut object: K) -> Arc<dyn Object> {
    object.meta_mut().managed_fields = None;
    Arc::new(object)
}

/// Converts an object to its type; None if it has another one.
pub(super) fn downcast<K: Cached>(object: Arc<dyn Object>) -> Option<Arc<K>> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().ok()
}

/// Reads an object of one kind.
pub type Decode = fn(&str) -> serde_json::Result<Arc<dyn Object>>;

/// Decodes an object of a kind; see [`Decode`].
pub fn decode<K: Cached>(text: &str) -> serde_json::Result<Arc<dyn Object>> {
    serde_json::from_str(text).map(erase::<K>).or_else(|error| match times::clamped(text) {
        Some(text) => serde_json::from_str(&text).map(erase::<K>),
        None => Err(error),
    })
}
