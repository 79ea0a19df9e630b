//! Custom resources: one strategy for all of them, which works from their structural schemas.
//!
//! Source: apiextensions-apiserver's `customresource` registry, `strategy.go` and `status_strategy.go`.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Context, Strategy};
use crate::codec;
use crate::field::{Errors, Field};
use crate::object_meta::ObjectMeta;
use crate::schema::StructuralSchema;
use crate::validation;
use crate::validation::rules::RuleSet;

/// The strategy of a custom resource in one version.
pub struct CustomResourceStrategy {
    /// The kind.
    pub kind: String,
    /// The type.
    pub schema: Arc<StructuralSchema>,
    /// Whether the status has an endpoint of its own.
    pub has_status: bool,
    /// The rules of the type, compiled when they are first evaluated.
    pub rules: OnceLock<RuleSet>,
}

impl CustomResourceStrategy {
    fn validate_all(&self, object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
        let kind = object.get("kind");
        errors.push_if(kind.str() != self.kind, || kind.invalid(format!("must be {}", self.kind)));
        validation::structural::validate(object, &self.schema, errors);
        let rules = self.rules.get_or_init(|| RuleSet::read(self.schema.document()));
        validation::rules::validate(object, old, rules, errors);
    }
}

impl Strategy for CustomResourceStrategy {
    fn default(&self, object: &mut Value) {
        codec::structural::default(object, &self.schema);
    }

    /// An update of the status changes nothing else, and of metadata only who manages the fields.
    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        let managed_fields = object.meta("managedFields").cloned().unwrap_or(Value::Null);
        object["metadata"] = old["metadata"].clone();
        object.set_meta("managedFields", managed_fields);
    }

    /// All but metadata counts, and the status only where it has no endpoint of its own.
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
        self.validate_all(object, None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate_all(object, Some(old), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate_all(object, Some(old), errors);
    }
}
