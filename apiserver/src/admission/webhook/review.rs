//! The AdmissionReview that is sent to a webhook.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::configuration::ReviewVersion;
use crate::admission::generic::VersionedObjects;
use crate::admission::{AdmissionAttributes, Operation, OperationOptions};
use crate::request::options::{DeleteOptions, FieldValidation, Propagation, WriteOptions};

/// The document. The objects are written by their types, as every client gets them.
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
    put("options", options(attributes));
    head
}

/// The options as their type prints them; null for a connection.
pub fn options(attributes: &AdmissionAttributes<'_>) -> Value {
    match attributes.options {
        OperationOptions::Write(options) => {
            let kind = match attributes.operation {
                Operation::Create => "CreateOptions",
                _ => "UpdateOptions",
            };
            write_options(kind, options)
        }
        OperationOptions::Delete(options) => delete_options(options),
        OperationOptions::None => Value::Null,
    }
}

fn write_options(kind: &str, options: &WriteOptions) -> Value {
    let mut value = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if options.dry_run {
        value["dryRun"] = json!(["All"]);
    }
    if !options.field_manager.is_empty() {
        value["fieldManager"] = options.field_manager.as_str().into();
    }
    match options.field_validation {
        FieldValidation::Ignore => value["fieldValidation"] = "Ignore".into(),
        FieldValidation::Strict => value["fieldValidation"] = "Strict".into(),
        FieldValidation::Warn => {}
    }
    value
}

fn delete_options(options: &DeleteOptions) -> Value {
    let mut value = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
    if let Some(seconds) = options.grace_period_seconds {
        value["gracePeriodSeconds"] = seconds.into();
    }
    for (name, precondition) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
        if let Some(precondition) = precondition {
            value["preconditions"][name] = precondition.as_str().into();
        }
    }
    match options.propagation {
        _ if options.legacy_background => value["orphanDependents"] = false.into(),
        Some(Propagation::Foreground) => value["propagationPolicy"] = "Foreground".into(),
        Some(Propagation::Background) => value["propagationPolicy"] = "Background".into(),
        Some(Propagation::Orphan) => value["propagationPolicy"] = "Orphan".into(),
        None => {}
    }
    if options.dry_run {
        value["dryRun"] = json!(["All"]);
    }
    value
}
