//! Defaults have the type and satisfy the rules of their values, and say nothing that is not
//! specified.
//!
//! Source: apiextensions-apiserver, `schema/defaulting/validation.go`.

use std::time::Duration;

use coracle_cel::{Limits, Meter};
use serde_json::{Value, json};

use crate::codec::structural::is_pruned;
use crate::field::{Errors, Field};
use crate::schema::structural::DefaultValue;
use crate::schema::{Structural, StructuralSchema};
use crate::validation::rules::{self, RuleSet};
use crate::validation::structural;

/// The work that the rules of all defaults of a schema may cause: whoever writes a definition waits
/// for it.
const LIMITS: Limits = Limits { steps: 5_000_000, bytes: 16 << 20, time: Duration::from_secs(1) };

/// Validates the defaults in a schema, which is read as `structural`. Those of the values of maps
/// are not looked at.
pub(super) fn validate(schema: &Field<'_>, structural: &StructuralSchema, errors: &mut Errors) {
    if structural.has_defaults() {
        let mut defaults = Defaults { meter: Meter::new(LIMITS), errors };
        defaults.validate_inside(schema, structural.root(), &Place::Object);
    }
}

/// The position of a schema.
enum Place {
    /// The root, whose values have metadata.
    Object,
    /// In the metadata of an object: the schema of that object, and the way from there.
    Metadata(Vec<Step>),
    Other,
}

#[derive(Clone)]
enum Step {
    Member(String),
    Item,
}

impl Place {
    /// Returns the place of a schema one step below.
    fn below(&self, structural: &Structural, step: Step) -> Place {
        match (self, &step) {
            (Place::Metadata(way), _) if !structural.embedded_resource => {
                let mut way = way.clone();
                way.push(step);
                Place::Metadata(way)
            }
            (_, Step::Member(name))
                if structural.embedded_resource && matches!(&**name, "metadata" | "apiVersion" | "kind") =>
            {
                Place::Metadata(vec![step])
            }
            _ => Place::Other,
        }
    }
}

struct Defaults<'e> {
    meter: Meter,
    errors: &'e mut Errors,
}

impl Defaults<'_> {
    fn validate_inside(&mut self, schema: &Field<'_>, structural: &Structural, place: &Place) {
        if self.errors.is_full() {
            return;
        }
        if let Some(default) = &structural.default {
            self.validate_default(schema, structural, default, place);
        }
        if let Some(items) = &structural.items {
            self.validate_inside(&schema.get("items"), items, &place.below(structural, Step::Item));
        }
        let properties = schema.get("properties");
        for (name, property) in &structural.properties {
            let place = place.below(structural, Step::Member(name.clone()));
            self.validate_inside(&properties.entry(name), property, &place);
        }
    }

    fn validate_default(
        &mut self,
        schema: &Field<'_>,
        structural: &Structural,
        default: &DefaultValue,
        place: &Place,
    ) {
        let field = schema.get("default");
        let is_object = matches!(place, Place::Object) || structural.embedded_resource;
        match place {
            Place::Metadata(way) if !is_object => {
                let found = structural::object_errors(&surrounding(&default.value, way));
                if !found.is_empty() {
                    let detail = format!("must result in valid metadata: {}", found.summary());
                    return self.errors.push(field.invalid(detail));
                }
            }
            _ if !is_pruned(&default.value, structural, is_object) => {
                self.errors.push(field.invalid("must not have unknown fields"));
            }
            _ => {}
        }
        let mut found = Errors::new();
        structural::validate_value(&default.value, structural, is_object, field.path(), &mut found);
        if found.is_empty()
            && let Some(schema) = schema.value()
        {
            let rules = RuleSet::of_value(schema, is_object);
            rules::validate(&field, None, structural, &rules, &self.meter, &mut found);
            // Rules about changes hold for the default as what it was before, too.
            if found.is_empty() {
                rules::validate(&field, Some(&field), structural, &rules, &self.meter, &mut found);
            }
        }
        self.errors.extend(found);
    }
}

/// Returns an object with a value at the end of a way.
fn surrounding(value: &Value, way: &[Step]) -> Value {
    let inside = way.iter().rev().fold(value.clone(), |value, step| match step {
        Step::Member(name) => json!({ name: value }),
        Step::Item => json!([value]),
    });
    let mut object = json!({"apiVersion": "validation/v1", "kind": "Validation"});
    if let (Value::Object(members), Value::Object(inside)) = (&mut object, inside) {
        members.extend(inside);
    }
    object
}
