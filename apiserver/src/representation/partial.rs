//! PartialObjectMetadata as JSON, copied from the bytes of an object: nothing but its metadata is
//! looked at. Each watch of the garbage collector has every change of a kind in this form.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Form;
use crate::request::negotiate::{Format, MetaVersion, Transform};
use crate::resource_info::ResourceInfo;

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Form {
    /// Returns the version of PartialObjectMetadata of this form; None if it cannot be copied from
    /// stored bytes.
    pub(super) fn partial_copy(&self, info: &ResourceInfo) -> Option<MetaVersion> {
        let is_json = self.accept.format == Format::Json && !self.accept.pretty;
        let is_as_stored = info.shows_stored_bytes() && info.behavior.printer.hidden_annotation().is_none();
        match self.accept.transform {
            Transform::PartialObject(version) if is_json && is_as_stored => Some(version),
            _ => None,
        }
    }
}

/// Returns the metadata of an object; None if the bytes are not an object.
pub(super) fn copy(object: &[u8], version: MetaVersion) -> Option<Bytes> {
    let Head { metadata } = serde_json::from_slice(object).ok()?;
    let parts: [&[u8]; 5] = [
        b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"",
        version.api_version().as_bytes(),
        b"\",\"metadata\":",
        metadata.get().as_bytes(),
        b"}\n",
    ];
    Some(parts.concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::partial_metadata;
    use crate::render::table::Printer;
    use crate::schema::schema;
    use serde_json::{Value, json};

    #[test]
    fn a_copy_is_what_would_be_made() {
        let bytes = |object: &Value, id| super::super::encode(object, &id, Format::Json, false);
        let type_of = |name: &str| schema().named(name).unwrap().into();
        let pod = || type_of("io.k8s.api.core.v1.Pod");
        let partial = || type_of("io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata");
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
        for metadata in [
            json!({}),
            json!({"name": "\"web\"", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "7"}),
            json!({
                "name": "web", "namespace": "default", "uid": "u", "generation": 1, "labels": {"app": "web"},
                "ownerReferences": owner, "finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
            }),
        ] {
            let object = json!({
                "kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": []}, "status": {},
            });
            for version in [MetaVersion::V1, MetaVersion::V1beta1] {
                let made = bytes(&partial_metadata(&object, &Printer::default(), version), partial());
                let copied = copy(&bytes(&object, pod()), version);
                assert_eq!(copied.as_deref(), Some(made.as_ref()), "{metadata}");
            }
        }
        assert!(copy(b"{}", MetaVersion::V1).is_none());
    }
}
