//! The metadata of a body: checks that it agrees with its request, and drops the fields that a
//! client may not set.

use std::collections::HashSet;

use serde_json::Value;

use crate::object_meta::ObjectMeta;
use crate::registry::Target;
use crate::request::Warnings;
use crate::request::options::parse_revision;
use crate::{Error, Result};

/// Checks that the namespace of the body is that of the path, and sets it if it is missing.
pub fn fit_namespace(target: &Target, object: &mut Value) -> Result<()> {
    if !target.info.namespaced {
        object.set_meta("namespace", Value::Null);
        return Ok(());
    }
    match object.namespace() {
        "" => object.set_meta("namespace", target.namespace.as_str()),
        same if same == target.namespace => {}
        _ => {
            return Err(Error::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// Removes what only the system sets from a new object.
pub fn clear_system_fields(object: &mut Value) {
    for member in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]
    {
        object.set_meta(member, Value::Null);
    }
}

pub(in crate::registry) fn fit_name(target: &Target, object: &Value) -> Result<()> {
    let asked = &target.name;
    match object.name() {
        "" => Err(Error::bad_request(format!(
            "the name of the object ({asked} based on URL) was undeterminable: name must be provided"
        ))),
        same if same == asked => Ok(()),
        other => Err(Error::bad_request(format!(
            "the name of the object ({other}) does not match the name on the URL ({asked})"
        ))),
    }
}

/// Checks that a PUT does not refer to another object by another uid. The key in the message of a
/// dry run has no prefix.
pub fn same_uid(target: &Target, new: &Value, current: &Value, dry_run: bool) -> Result<()> {
    if new.uid().is_empty() || new.uid() == current.uid() {
        return Ok(());
    }
    let info = &target.info;
    let key = info.registry_key(&target.namespace, &target.name);
    let key = key.strip_prefix("/registry").filter(|_| dry_run).unwrap_or(&key);
    let detail = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {}, UID in object meta: {}",
        new.uid(),
        current.uid()
    );
    Err(Error::conflict(&info.group_resource, &target.name, detail))
}

/// Drops repeated owner references, which are equal in all members, with a warning.
pub(in crate::registry) fn dedup_owners(object: &mut Value, warnings: &Warnings) {
    dedup_owners_of(object, "", warnings);
}

/// Removes duplicate owners as [`dedup_owners`] does, from the result of mutating admission.
pub(super) fn dedup_admitted_owners(object: &mut Value, warnings: &Warnings) {
    dedup_owners_of(object, " after mutating admission happens", warnings);
}

fn dedup_owners_of(object: &mut Value, when: &str, warnings: &Warnings) {
    let metadata = object.get_mut("metadata");
    let Some(Value::Array(owners)) = metadata.and_then(|metadata| metadata.get_mut("ownerReferences")) else {
        return;
    };
    if owners.len() < 2 {
        return;
    }
    let mut seen: HashSet<String> = HashSet::new();
    let mut doubled: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let is_new = seen.insert(owner.to_string());
        if !is_new {
            doubled.push(owner.get("uid").and_then(Value::as_str).unwrap_or("").to_owned());
        }
        is_new
    });
    if !doubled.is_empty() {
        warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            doubled.join(", ")
        ));
    }
}

/// Returns the object's resourceVersion; 0 if it has none.
pub(in crate::registry) fn resource_version_of(object: &Value) -> Result<u64> {
    parse_revision(object.resource_version()).map_err(|e| Error::Unclassified(e.in_body()))
}
