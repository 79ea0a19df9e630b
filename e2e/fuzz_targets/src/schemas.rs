//! CustomResourceDefinitions: what a schema accepts stays accepted, and is served as it is.

use coracle_apimachinery::codec::body::{self, Expected, Format};
use coracle_apimachinery::codec::{Decoded, structural};
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::schema::StructuralSchema;
use coracle_apimachinery::validation::rules::{self, RuleSet};
use coracle_apimachinery::validation::{custom_resource_schema, structural as validation};

use coracle_cel::{Limits, Meter};

use crate::{document, parts};

/// Tests a schema and an object. A schema that validates can be served; pruning and defaulting an
/// object twice changes nothing, and its validation has the same result each time.
pub fn crd_schema(data: &[u8]) -> bool {
    let Some([schema, object]) = parts(data) else { return false };
    let Some(document) = document(schema) else { return false };
    let mut errors = Errors::new();
    custom_resource_schema::validate(&Field::root(&document), true, &mut errors);
    if !errors.is_empty() {
        // Schemas from before a rule are still served. An invalid one must be refused without a
        // panic.
        drop(StructuralSchema::read(document));
        return false;
    }
    let rules = RuleSet::read(&document);
    let schema = StructuralSchema::read(document).expect("a schema that validates");
    let expected = Expected { group: "example.com", version: "v1", kind: "Widget" };
    let Ok(decoded) = body::decode_custom(Format::Json, object, expected, &schema) else { return true };
    let mut value = decoded.value;
    if value["kind"] != "Widget" {
        // An object of another kind is refused after it is decoded, whatever is in it.
        return true;
    }
    assert!(structural::is_pruned(&value, schema.root(), true), "something is left to prune of {value}");
    if !structural::default(&mut value, &schema) {
        return true;
    }
    let mut again = value.clone();
    structural::default(&mut again, &schema);
    assert_eq!(again, value, "defaulted once more");
    let conformed = structural::conform(Decoded { value: value.clone(), strict: Vec::new() }, &schema);
    let conformed = conformed.unwrap_or_else(|error| panic!("{error} with its defaults: {value}"));
    // Defaults may have nulls that are no values.
    let mut stored = value.clone();
    structural::prune_stored(&mut stored, &schema);
    assert_eq!(conformed.value, stored, "decoded once more");

    let object = Field::root(&value);
    let validate = || {
        let mut errors = Errors::new();
        validation::validate(&object, &schema, &mut errors);
        rules::validate(&object, None, schema.root(), &rules, &Meter::new(Limits::REQUEST), &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let errors = validate();
    assert_eq!(validate(), errors, "validated once more");
    // The types of objects inside of objects are required of every version, as upstream requires
    // them.
    if !schema.document().to_string().contains("x-kubernetes-embedded-resource") {
        let mut errors = Errors::new();
        validation::validate_update(&object, &object, &schema, &mut errors);
        assert!(errors.is_empty(), "an update without a change is refused: {}", errors.summary());
    }
    true
}
