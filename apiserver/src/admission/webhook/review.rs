//! The AdmissionReview that is sent to a webhook.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::configuration::ReviewVersion;
use crate::admission::AdmissionAttributes;
use crate::admission::generic::{VersionedObjects, operation_options};

/// Encodes the review. The objects are written by their types, as every client gets them.
pub fn request(
    version: ReviewVersion,
    uid: &str,
    attributes: &AdmissionAttributes<'_>,
    objects: &VersionedObjects,
) -> Bytes {
    let head = head(uid, attributes, objects);
    let mut bytes = Vec::with_capacity(4096);
    let api_version = version.api_version();
    bytes.extend_from_slice(
        format!(r#"{{"kind":"AdmissionReview","apiVersion":"{api_version}","request":"#).as_bytes(),
    );
    // The closing brace is left out: the objects follow.
    let mut head = Value::Object(head).to_string();
    head.pop();
    bytes.extend_from_slice(head.as_bytes());
    for (name, object) in [("object", &objects.object), ("oldObject", &objects.old_object)] {
        bytes.extend_from_slice(format!(r#","{name}":"#).as_bytes());
        match object {
            Some(object) => bytes.extend_from_slice(&objects.to_json(object)),
            None => bytes.extend_from_slice(b"null"),
        }
    }
    bytes.extend_from_slice(b"}}");
    bytes.into()
}

fn head(uid: &str, attributes: &AdmissionAttributes<'_>, objects: &VersionedObjects) -> Map<String, Value> {
    let kind = attributes.kind;
    let (info, subresource) = (&objects.info, attributes.subresource);
    let mut head = Map::new();
    let mut put = |name: &str, value: Value| {
        // Go leaves out empty texts.
        if value != "" {
            head.insert(name.to_owned(), value);
        }
    };
    put("uid", uid.into());
    put("kind", json!({"group": objects.group, "version": objects.version, "kind": objects.kind}));
    put("resource", json!({"group": info.group, "version": info.version, "resource": info.plural}));
    put("subResource", subresource.into());
    put("requestKind", json!({"group": kind.group, "version": kind.version, "kind": kind.kind}));
    put(
        "requestResource",
        json!({
            "group": attributes.resource.group, "version": attributes.version,
            "resource": attributes.resource.resource,
        }),
    );
    put("requestSubResource", subresource.into());
    put("name", attributes.name.into());
    put("namespace", attributes.request_namespace().into());
    put("operation", crate::admission::generic::operation_name(attributes.operation).into());
    put("userInfo", attributes.user.to_value());
    put("dryRun", attributes.options.dry_run().into());
    put("options", operation_options(attributes));
    head
}
