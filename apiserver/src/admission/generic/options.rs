//! The options of a request, as webhooks and expressions get them.

use serde_json::{Value, json};

use crate::admission::{AdmissionAttributes, Operation, OperationOptions};
use crate::request::options::{DeleteOptions, FieldValidation, Propagation, WriteOptions};

/// Returns the options as their type prints them; null for a connection.
pub fn operation_options(attributes: &AdmissionAttributes<'_>) -> Value {
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
