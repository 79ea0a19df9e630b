//! Objects of a watch, read only as far as needed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::indexer::revision;

/// An object as it is read from a watch.
pub trait Followed: Send {
    /// Whether only the metadata of objects is requested from the server.
    const IS_METADATA: bool;

    /// Returns the resourceVersion of the object, from which the watch resumes; 0 if it has none.
    fn revision(&self) -> u64;
}

/// The metadata required to identify, own and delete an object. Labels, annotations and
/// `managedFields`, which can be most of an object, are skipped.
#[derive(Clone, Debug)]
pub struct Identified(ObjectMeta);

impl Identified {
    /// Reads an object.
    ///
    /// # Errors
    /// Its metadata is invalid.
    pub fn read(object: &RawValue) -> serde_json::Result<Identified> {
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
        #[derive(Deserialize)]
        struct Parts {
            #[serde(default)]
            metadata: Metadata,
        }
        let Parts { metadata } = serde_json::from_str(object.get())?;
        Ok(Identified(ObjectMeta {
            resource_version: metadata.resource_version,
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            owner_references: metadata.owner_references,
            finalizers: metadata.finalizers,
            deletion_timestamp: metadata.deletion_timestamp,
            ..ObjectMeta::default()
        }))
    }

    /// Returns the metadata.
    pub fn meta(&self) -> &ObjectMeta {
        &self.0
    }
}

impl Followed for Identified {
    const IS_METADATA: bool = true;

    fn revision(&self) -> u64 {
        revision(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::{decode, downcast};
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

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
        let read = Identified::read(&raw(text)).unwrap();
        let mut want: ObjectMeta = serde_json::from_value(
            serde_json::from_str::<serde_json::Value>(text).unwrap()["metadata"].take(),
        )
        .unwrap();
        want.labels = None;
        want.managed_fields = None;
        assert_eq!((read.meta(), read.revision()), (&want, 7));
        assert!(Identified::read(&raw(r#"{"metadata":1}"#)).is_err());
    }

    #[test]
    fn objects_are_decoded() {
        let object =
            decode::<ConfigMap>(r#"{"metadata":{"name":"a","resourceVersion":"7"},"data":{"k":"v"}}"#);
        let object = object.unwrap();
        assert_eq!(object.metadata().name.as_deref(), Some("a"));
        assert!(downcast::<Secret>(object.clone()).is_none());
        assert_eq!(downcast::<ConfigMap>(object).unwrap().data.as_ref().unwrap()["k"], "v");
        assert!(decode::<ConfigMap>(r#"{"metadata":{},"data":1}"#).is_err());
    }
}
