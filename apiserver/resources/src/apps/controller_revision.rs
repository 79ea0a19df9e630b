//! ControllerRevision: a former state, stored by a controller. Its data never changes, its revision
//! may.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::{immutable, numbers};
use serde_json::Value;

/// The strategy of ControllerRevision.
pub struct ControllerRevisionStrategy;

impl Strategy for ControllerRevisionStrategy {
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        numbers::not_negative(&object.get("revision"), errors);
        let data = object.get("data");
        match data.value() {
            None => errors.push(data.required("data is mandatory")),
            Some(Value::Object(_)) => {}
            Some(_) => errors.push(data.required("data must be a valid JSON object")),
        }
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        numbers::not_negative(&object.get("revision"), errors);
        immutable::immutable(&object.get("data"), &old.get("data"), errors);
    }
}
