//! The strategy of all custom resources, based on their structural schemas.
//!
//! Source: apiextensions-apiserver's `customresource` registry, `strategy.go` and
//! `status_strategy.go`.

use std::sync::{Arc, OnceLock};

use coracle_cel::Meter;
use serde_json::Value;

use super::{Context, ScalePaths, Strategy};
use crate::codec;
use crate::field::{Errors, Field, quote};
use crate::object_meta::ObjectMeta;
use crate::schema::StructuralSchema;
use crate::validation;
use crate::validation::rules::RuleSet;

/// The strategy of a custom resource in one version.
pub struct CustomResourceStrategy {
    /// The kind.
    pub kind: String,
    /// The group and version.
    pub api_version: String,
    /// The type.
    pub schema: Arc<StructuralSchema>,
    /// Whether the status has an endpoint of its own.
    pub has_status: bool,
    /// The paths of the replicas; None if there is no `/scale`.
    pub scale: Option<Arc<ScalePaths>>,
    /// The rules of the type, compiled when they are first evaluated.
    pub rules: OnceLock<RuleSet>,
}

impl Strategy for CustomResourceStrategy {
    fn default(&self, object: &mut Value) {
        self.default_within_limits(object);
    }

    fn default_within_limits(&self, object: &mut Value) -> bool {
        codec::structural::default(object, &self.schema)
    }

    /// Restores everything except the status, and of the metadata everything except the field
    /// managers.
    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        let managed_fields = object.meta("managedFields").cloned().unwrap_or(Value::Null);
        for member in ["apiVersion", "kind", "metadata"] {
            object[member] = old[member].clone();
        }
        object.set_meta("managedFields", managed_fields);
    }

    /// Returns whether the object has changed, except for metadata, and for the status if that has
    /// an endpoint of its own.
    fn is_new_generation(&self, object: &Value, old: &Value) -> bool {
        let counted = |object: &Value| {
            let mut object = object.clone();
            if let Some(members) = object.as_object_mut() {
                members.retain(|name, _| name != "metadata" && !(name == "status" && self.has_status));
            }
            object
        };
        counted(object) != counted(old)
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        if self.validate_kind(object, errors) {
            validation::structural::validate(object, &self.schema, errors);
            self.validate_scale(object, errors);
        }
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        if self.validate_kind(object, errors) {
            validation::structural::validate_update(object, old, &self.schema, errors);
            self.validate_scale(object, errors);
        }
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        if self.validate_kind(object, errors) {
            validation::structural::validate_status_update(object, old, &self.schema, errors);
            if let Some(paths) = &self.scale {
                paths.validate_status(object, errors);
            }
        }
    }

    fn is_kind(&self, object: &Field<'_>) -> bool {
        object.get("kind").str() == self.kind && object.get("apiVersion").str() == self.api_version
    }

    fn has_expressions(&self) -> bool {
        self.rules.get().is_none_or(|rules| !rules.is_empty())
    }

    fn validate_expressions(
        &self,
        object: &Field<'_>,
        old: Option<&Field<'_>>,
        meter: &Meter,
        errors: &mut Errors,
    ) {
        if !self.is_kind(object) {
            return;
        }
        // Compilation takes long; in the background no request waits for it.
        if self.rules.get().is_none() && meter.count_compilation().is_err() {
            return;
        }
        let rules = self.rules.get_or_init(|| RuleSet::read(&self.schema.document()));
        validation::rules::validate(object, old, self.schema.root(), rules, meter, errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        finalizer_warnings(object, old)
    }
}

impl CustomResourceStrategy {
    fn validate_kind(&self, object: &Field<'_>, errors: &mut Errors) -> bool {
        for (name, wanted) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            let member = object.get(name);
            errors.push_if(member.str() != wanted, || member.invalid(format!("must be {wanted}")));
        }
        self.is_kind(object)
    }

    fn validate_scale(&self, object: &Field<'_>, errors: &mut Errors) {
        if let Some(paths) = &self.scale {
            paths.validate_spec(object, errors);
            paths.validate_status(object, errors);
        }
    }
}

/// Returns warnings about new finalizers without a domain, which may collide with those of others.
fn finalizer_warnings(object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
    let known: Vec<&str> =
        old.map(|old| old.walk("metadata.finalizers").items().map(|f| f.str()).collect()).unwrap_or_default();
    let finalizers = object.walk("metadata.finalizers");
    let unqualified = finalizers.items().filter(|finalizer| {
        let name = finalizer.str();
        !name.contains('/') && !known.contains(&name) && !STANDARD_FINALIZERS.contains(&name)
    });
    unqualified
        .map(|finalizer| {
            let name = finalizer.str();
            format!(
                "metadata.finalizers: {}: prefer a domain-qualified finalizer name{} to avoid accidental conflicts with other finalizer writers",
                quote(name),
                if name.contains('.') { " including a path (/)" } else { "" }
            )
        })
        .collect()
}

/// The finalizers defined by the API itself.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
