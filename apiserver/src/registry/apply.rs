//! Server-side apply: creates an object from a configuration, or changes it by one.

use serde_json::Value;

use super::deletion::rfc3339;
use super::write::{Writing, check_defaults, dedup_owners, default_within_limits, fit_name, fit_namespace};
use super::{Caller, Outcome, Registry, Target};
use crate::admission::OperationOptions;
use crate::codec::{Decoded, json, structural, unstructured};
use crate::fields::apply::{self, ApplyTo};
use crate::fields::entry;
use crate::fields::manage::FieldManager;
use crate::object_meta::ObjectMeta;
use crate::patch::Configuration;
use crate::request::options::WriteOptions;
use crate::resource_info::{Part, ResourceInfo};
use crate::schema::{StructId, TypeRef};
use crate::{Error, Result};

impl Registry {
    /// PATCH with a configuration.
    ///
    /// # Errors
    /// 400 and 500 for a configuration that does not fit the kind, 409 for fields that others own, and those of a create or of
    /// an update.
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
        let make = |live: Value| -> Result<Value> {
            let applied = self.apply_to(info, part, live, configuration, options)?;
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
            let mut object = make(serde_json::json!({"kind": &*info.kind, "apiVersion": &info.api_version}))?;
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
        self.modify(writing, (part == Part::Main).then_some(&create), |current| {
            let mut object = make(info.from_internal(current.clone()))?;
            fit(&mut object)?;
            Ok(info.to_internal(object))
        })
        .await
    }

    /// The object that an apply makes of a live one, both in the version of the request.
    fn apply_to(
        &self,
        info: &ResourceInfo,
        part: Part,
        mut live: Value,
        configuration: &Configuration,
        options: &WriteOptions,
    ) -> Result<Value> {
        let to = ApplyTo {
            type_ref: &info.type_ref,
            kind: &info.kind,
            reset_fields: info.behaviour.reset_fields.of(part.name(), info.has_status()),
            info: Some(info),
        };
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
            true => decode(info, applied.object, &configuration.object)?,
            false => live,
        };
        object.set_meta("managedFields", entry::write(applied.entries));
        Ok(object)
    }
}

/// The merged object as one of its kind, with defaults.
fn decode(info: &ResourceInfo, merged: Value, configuration: &Value) -> Result<Value> {
    let strategy = &info.behaviour.strategy;
    let object = match &info.type_ref {
        TypeRef::Struct(id) => {
            let mut object = decode_struct(*id, merged, configuration)?;
            default_within_limits(&**strategy, &mut object)?;
            object
        }
        TypeRef::Structural(schema) => {
            let conformed = structural::conform(Decoded { value: merged, strict: Vec::new() }, schema);
            let mut object =
                conformed.map_err(|error| unconvertible(configuration, &error.to_string()))?.value;
            check_defaults(structural::fill_defaults(&mut object, schema), &object)?;
            object
        }
    };
    match strategy.conversion_error(&object) {
        Some(error) => Err(unconvertible(configuration, &error)),
        None => Ok(object),
    }
}

/// What an apply has merged, as an object of a built-in type.
pub(super) fn decode_struct(id: StructId, mut merged: Value, configuration: &Value) -> Result<Value> {
    let restored = unstructured::restore_object(&mut merged, id);
    let decoded = restored.and_then(|()| json::normalize(&merged, id).map_err(|error| error.to_string()));
    decoded.map(|decoded| decoded.value).map_err(|error| {
        let kind = apply::kind_of(configuration);
        let error = format!("unable to convert unstructured object to {kind}: {error}");
        unconvertible(configuration, &error)
    })
}

/// The error about a merged object that cannot be what the configuration says it is.
pub(super) fn unconvertible(configuration: &Value, error: &str) -> Error {
    let described = apply::describe(configuration);
    Error::Unclassified(format!("failed to convert new object ({described}) to proper version: {error}"))
}
