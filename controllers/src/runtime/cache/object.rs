//! Objects of which the type is erased, and how they are read from a watch.
//!
//! The compiler makes each generic function's code once for each type. For the watches and indexes of all kinds that would be
//! megabytes, and most of it resident; so those work on erased objects, and only reading and downcasting are done for each type.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Cached;

/// An object of some kind.
pub trait Object: Any + Send + Sync {
    /// Its metadata.
    fn metadata(&self) -> &ObjectMeta;
}

impl<K: Cached> Object for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// The object of a kind as one of any kind, without what no controller reasons about.
pub(super) fn erase<K: Cached>(mut object: K) -> Arc<dyn Object> {
    object.meta_mut().managed_fields = None;
    Arc::new(object)
}

/// None if the object is of another type.
pub(super) fn downcast<K: Cached>(object: Arc<dyn Object>) -> Option<Arc<K>> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().ok()
}

/// Reads an object of one kind.
pub type Decode = fn(&str) -> serde_json::Result<Arc<dyn Object>>;

/// [`Decode`] for a kind.
pub fn decode<K: Cached>(text: &str) -> serde_json::Result<Arc<dyn Object>> {
    serde_json::from_str(text).map(erase::<K>)
}

/// An object as a watch sends it.
#[derive(Clone, Debug)]
pub(super) struct RawObject {
    pub text: Box<RawValue>,
    /// Holds the resourceVersion only, at which a watch goes on.
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawObject, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            resource_version: Option<String>,
        }
        #[derive(Deserialize)]
        struct Versioned {
            #[serde(default)]
            metadata: Metadata,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let Versioned { metadata } = serde_json::from_str(text.get()).map_err(Error::custom)?;
        let metadata = ObjectMeta { resource_version: metadata.resource_version, ..ObjectMeta::default() };
        Ok(RawObject { text, metadata })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::core::WatchEvent;

    #[test]
    fn frames_are_read() {
        let frame =
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"},"data":{"k":"v"}}}"#;
        let WatchEvent::Added(raw) = serde_json::from_str::<WatchEvent<RawObject>>(frame).unwrap() else {
            panic!("not added");
        };
        assert_eq!(raw.meta().resource_version.as_deref(), Some("7"));
        let object = decode::<ConfigMap>(raw.text.get()).unwrap();
        assert_eq!(object.metadata().name.as_deref(), Some("a"));
        assert!(downcast::<Secret>(object.clone()).is_none());
        assert_eq!(downcast::<ConfigMap>(object).unwrap().data.as_ref().unwrap()["k"], "v");
        let wrong = r#"{"type":"ADDED","object":{"metadata":1}}"#;
        assert!(serde_json::from_str::<WatchEvent<RawObject>>(wrong).is_err());
        assert!(decode::<ConfigMap>(r#"{"metadata":{},"data":1}"#).is_err());
    }
}
