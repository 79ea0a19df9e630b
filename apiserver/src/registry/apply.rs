//! Server-side apply: creates an object from a configuration, or changes it by one.

use serde_json::Value;

use super::deletion::rfc3339;
use super::write::{Writing, dedup_owners, default_within_limits, fit_name, fit_namespace};
use super::{Caller, Outcome, Registry, Target};
use crate::admission::OperationOptions;
use crate::codec::json::Unchanged;
use crate::codec::{Decoded, json, structural, unstructured};
use crate::fields::apply::{self, ApplyTo};
use crate::fields::entry;
use crate::fields::manage::FieldManager;
use crate::fields::versions::Versions;
use crate::object_meta::ObjectMeta;
use crate::patch::Configuration;
use crate::request::options::WriteOptions;
use crate::resource_info::{Part, ResourceInfo};
use crate::schema::{StructId, TypeRef};
use crate::{Error, Result};

impl Registry {
    /// Handles a PATCH with a configuration (server-side apply).
    ///
    /// # Errors
    /// 400 and 500 for a configuration that does not fit the kind, 409 for fields that others own,
    /// and those of a create or of an update.
    pub async fn apply(
        &self,
        target: &Target,
        part: Part,
        configuration: &Configuration,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let info = &*target.info;
        let writing = Writing {
            target,
            part,
            caller,
            options: OperationOptions::Write(options),
            is_collection: false,
            projection: None,
            // The managers of fields are what apply is about.
            field_manager: None,
        };
        let make = |live: Value, versions: &Versions<'_>| -> Result<Value> {
            let applied = self.apply_to(versions, part, live, configuration, options)?;
            configuration.validate(options.field_validation, caller.warnings)?;
            Ok(applied)
        };
        let fit = |object: &mut Value| {
            fit_namespace(target, object)?;
            fit_name(target, object)?;
            dedup_owners(object, caller.warnings);
            Ok(())
        };
        let create = || {
            let empty = serde_json::json!({"kind": &*info.kind, "apiVersion": &info.api_version});
            let mut object = make(empty, &Versions::of(info))?;
            if !object.uid().is_empty() {
                let detail = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    object.uid()
                );
                return Err(Error::conflict(&info.group_resource, &target.name, detail));
            }
            fit(&mut object)?;
            Ok(object)
        };
        self.modify(writing, apply_creates(info, part).then_some(&create), |current, versions| {
            let mut object = make(info.from_internal(current.clone()), versions)?;
            fit(&mut object)?;
            Ok(info.to_internal(object))
        })
        .await
    }

    /// Applies a configuration to a live object, both in the version of the request, and returns
    /// the result.
    fn apply_to(
        &self,
        versions: &Versions<'_>,
        part: Part,
        mut live: Value,
        configuration: &Configuration,
        options: &WriteOptions,
    ) -> Result<Value> {
        let info = versions.info();
        let to = ApplyTo { type_ref: &info.type_ref, kind: &info.kind, versions: Some(versions) };
        let applier = FieldManager {
            manager: &options.field_manager,
            api_version: &info.api_version,
            subresource: part.name(),
            now: &rfc3339(self.now()),
        };
        let entries = entry::entries_of(&live);
        live.set_meta("managedFields", Value::Null);
        let force = options.force == Some(true);
        let applied = to.apply(&live, &entries, &configuration.object, applier, force)?;
        let mut object = match applied.changed {
            true => decode(info, applied.object, &live, &configuration.object)?,
            false => live,
        };
        object.set_meta("managedFields", entry::write(applied.entries));
        Ok(object)
    }
}

/// Returns `true` if an apply to an endpoint creates a missing object.
pub fn apply_creates(info: &ResourceInfo, part: Part) -> bool {
    part == Part::Main || info.creates_on_update(part)
}

/// Decodes the merged object as one of its kind, with defaults.
fn decode(info: &ResourceInfo, mut merged: Value, live: &Value, configuration: &Value) -> Result<Value> {
    let strategy = &info.behavior.strategy;
    let mut object = match &info.type_ref {
        TypeRef::Struct(id) => {
            let was = |path: &[&str]| path.iter().try_fold(live, |value, name| value.get(name));
            let unchanged = Unchanged::take(&mut merged, |path, value| was(path) == Some(value));
            let mut decoded = decode_struct(*id, merged, configuration)?;
            unchanged.restore(&mut decoded);
            decoded
        }
        // Unknown fields and nulls are validated, and not kept.
        TypeRef::Structural(_) => {
            let mut decoded = Decoded { value: merged, strict: Vec::new() };
            let coerced = structural::coerce_root(&mut decoded);
            coerced.map_err(|error| unconvertible(configuration, &error.to_string()))?;
            decoded.value
        }
    };
    default_within_limits(&**strategy, &mut object)?;
    match strategy.conversion_error(&object) {
        Some(error) => Err(unconvertible(configuration, &error)),
        None => Ok(object),
    }
}

/// Decodes the merged object as one of a built-in type.
pub(super) fn decode_struct(id: StructId, mut merged: Value, configuration: &Value) -> Result<Value> {
    let restored = unstructured::restore_object(&mut merged, id);
    let decoded = restored.and_then(|()| json::normalize(&merged, id).map_err(|error| error.to_string()));
    decoded.map(|decoded| decoded.value).map_err(|error| {
        let kind = apply::kind_of(configuration);
        let error = format!("unable to convert unstructured object to {kind}: {error}");
        unconvertible(configuration, &error)
    })
}

/// Returns the error for a merged object that cannot be converted to the configuration's version.
pub(super) fn unconvertible(configuration: &Value, error: &str) -> Error {
    let described = apply::describe(configuration);
    Error::Unclassified(format!("failed to convert new object ({described}) to proper version: {error}"))
}
