//! Objects from a watch, decoded only as far as needed.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object of any kind as a watch sends it.
#[derive(Clone, Debug)]
pub struct Watched<C> {
    /// The content of the object other than its metadata.
    pub content: C,
    metadata: ObjectMeta,
}

/// A representation of an object's content.
pub trait Content: Clone + Debug {
    /// Whether only the metadata of objects is requested from the server.
    const IS_METADATA: bool;
}

impl Content for Box<RawValue> {
    const IS_METADATA: bool = false;
}

impl Content for () {
    const IS_METADATA: bool = true;
}

/// An object that is not decoded yet. Only its name and namespace are known, and its
/// resourceVersion, from which the watch resumes.
pub type RawObject = Watched<Box<RawValue>>;

/// The metadata required to identify, own and delete an object. Labels, annotations and
/// `managedFields`, which can be most of an object, are skipped.
pub type Identified = Watched<()>;

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawObject, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            resource_version: Option<String>,
            namespace: Option<String>,
            name: Option<String>,
        }
        let content = Box::<RawValue>::deserialize(deserializer)?;
        let Parts { metadata } =
            serde_json::from_str::<Parts<Metadata>>(content.get()).map_err(Error::custom)?;
        let Metadata { resource_version, namespace, name } = metadata;
        let metadata = ObjectMeta { resource_version, namespace, name, ..ObjectMeta::default() };
        Ok(Watched { content, metadata })
    }
}

impl<'de> Deserialize<'de> for Identified {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Identified, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            resource_version: Option<String>,
            namespace: Option<String>,
            name: Option<String>,
            uid: Option<String>,
            owner_references: Option<Vec<OwnerReference>>,
            finalizers: Option<Vec<String>>,
            deletion_timestamp: Option<Time>,
        }
        let Parts { metadata } = Parts::<Metadata>::deserialize(deserializer)?;
        let metadata = ObjectMeta {
            resource_version: metadata.resource_version,
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            owner_references: metadata.owner_references,
            finalizers: metadata.finalizers,
            deletion_timestamp: metadata.deletion_timestamp,
            ..ObjectMeta::default()
        };
        Ok(Watched { content: (), metadata })
    }
}

/// The part of an object that is decoded.
#[derive(Deserialize)]
struct Parts<M: Default> {
    #[serde(default)]
    metadata: M,
}

impl<C: Content> Resource for Watched<C> {
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

    fn metadata_api() -> bool {
        C::IS_METADATA
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
    use super::super::object::{decode, downcast};
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::core::WatchEvent;

    #[test]
    fn metadata_is_read_as_far_as_needed() {
        let text = r#"{
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"k": "v"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o"}], "finalizers": ["f/f"],
                "deletionTimestamp": "2026-01-02T03:04:05Z", "managedFields": [{"manager": "m"}]
            },
            "data": {"k": "v"}
        }"#;
        let read = serde_json::from_str::<Identified>(text).unwrap();
        let mut want: ObjectMeta = serde_json::from_value(
            serde_json::from_str::<serde_json::Value>(text).unwrap()["metadata"].take(),
        )
        .unwrap();
        want.labels = None;
        want.managed_fields = None;
        assert_eq!(read.meta(), &want);
        assert!(serde_json::from_str::<Identified>(r#"{"metadata":1}"#).is_err());
    }

    #[test]
    fn frames_are_read() {
        let frame =
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"},"data":{"k":"v"}}}"#;
        let WatchEvent::Added(raw) = serde_json::from_str::<WatchEvent<RawObject>>(frame).unwrap() else {
            panic!("not added");
        };
        assert_eq!(raw.meta().resource_version.as_deref(), Some("7"));
        let object = decode::<ConfigMap>(raw.content.get()).unwrap();
        assert_eq!(object.metadata().name.as_deref(), Some("a"));
        assert!(downcast::<Secret>(object.clone()).is_none());
        assert_eq!(downcast::<ConfigMap>(object).unwrap().data.as_ref().unwrap()["k"], "v");
        let wrong = r#"{"type":"ADDED","object":{"metadata":1}}"#;
        assert!(serde_json::from_str::<WatchEvent<RawObject>>(wrong).is_err());
        assert!(decode::<ConfigMap>(r#"{"metadata":{},"data":1}"#).is_err());
    }
}
