//! Compares the strategies with recorded responses of kube-apiserver.
//!
//! A corpus is recorded by sending objects with `dryRun=All`. It has a `base` for each kind; a case
//! is a merge patch on it, and either the causes of the rejection or the accepted object, itself a
//! patch on the base's `want`. Uids are `UID`, names `n`. Empty objects and lists are not compared,
//! because the codec decides whether they are written.

use coracle_apimachinery::codec;
use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::schema::{StructId, schema};
use coracle_apimachinery::strategy::Behavior;
use coracle_apimachinery::strategy::defaulting::object_at;
use coracle_apimachinery::strategy::validate;
use coracle_cel::{Limits, Meter};
use serde_json::{Map, Value, json};

use super::behavior;
use super::recorded::{CONTEXT, causes, merged, set_type};

/// Runs every case of a corpus and reports all differences at once.
pub fn check(text: &str) {
    let corpus: Value = serde_json::from_str(text).expect("a corpus");
    let mut differences = String::new();
    let mut cases = 0;
    type Run = fn(&Value, &Value, &Kind<'_>) -> Value;
    for (list, run) in
        [("creates", create as Run), ("updates", update as Run), ("statuses", status_update as Run)]
    {
        for case in corpus[list].as_array().into_iter().flatten() {
            let kind = Kind::of(&corpus, case["kind"].as_str().expect("a kind"));
            let (got, want) = (run(case, &kind.base["object"], &kind), wanted(case, &kind.base["want"]));
            cases += 1;
            if got != want {
                differences.push_str(&format!(
                    "\n{list}, {}: {}\n   got {got}\n  want {want}",
                    kind.name, case["case"]
                ));
            }
        }
    }
    assert!(cases > 0 && differences.is_empty(), "{differences}");
}

struct Kind<'a> {
    name: &'a str,
    base: &'a Value,
    behavior: Behavior,
    shape: StructId,
    namespaced: bool,
}

impl<'a> Kind<'a> {
    fn of(corpus: &'a Value, name: &'a str) -> Kind<'a> {
        let base = &corpus["bases"][name];
        let text = |member: &str| base[member].as_str().expect("a string");
        Kind {
            name,
            base,
            behavior: behavior(text("group"), name),
            shape: schema().kind(text("group"), text("version"), name).expect("a kind of the schema"),
            namespaced: base["namespaced"] == json!(true),
        }
    }

    /// Decodes the object for the strategy.
    fn decoded(&self, object: &Value) -> Value {
        let mut object = codec::json::normalize(object, self.shape).expect("an object of its kind").value;
        set_type(&mut object, self.base["group"].as_str().unwrap_or_default(), self.name);
        self.behavior.strategy.default(&mut object);
        codec::zero::drop_empty_lists(&mut object, self.shape);
        object
    }
}

fn create(case: &Value, base: &Value, kind: &Kind<'_>) -> Value {
    let (object, errors) = created(case, "patch", base, kind);
    outcome(&object, &errors, kind.behavior.strategy.warnings(&Field::root(&object), None))
}

fn created(case: &Value, patch: &str, base: &Value, kind: &Kind<'_>) -> (Value, Errors) {
    let mut object = kind.decoded(&merged(base, &case[patch]));
    let metadata = object_at(&mut object, "metadata").expect("metadata");
    metadata.entry("name").or_insert(json!("n"));
    metadata.insert("uid".into(), json!("UID"));
    if kind.namespaced {
        metadata.insert("namespace".into(), json!("ns"));
    }
    if kind.behavior.generation {
        metadata.insert("generation".into(), json!(1));
    }
    kind.behavior.strategy.prepare_for_create(&mut object, &CONTEXT);
    let errors = validate::create(
        &object,
        &kind.behavior,
        kind.namespaced,
        &FeatureGates::DEFAULT,
        &Meter::new(Limits::REQUEST),
    );
    (object, errors)
}

fn update(case: &Value, base: &Value, kind: &Kind<'_>) -> Value {
    let strategy = &kind.behavior.strategy;
    let (mut old, _) = created(case, "old", base, kind);
    if let Some(status) = case.get("status") {
        old["status"] = status.clone();
    }
    let mut new = kind.decoded(&merged(&old, &case["patch"]));
    strategy.prepare_for_update(&mut new, &old, &CONTEXT);
    if kind.behavior.generation && strategy.is_new_generation(&new, &old) {
        new["metadata"]["generation"] = json!(2);
    }
    let errors = validate::update(
        &new,
        &old,
        &kind.behavior,
        kind.namespaced,
        &FeatureGates::DEFAULT,
        &Meter::new(Limits::REQUEST),
    );
    outcome(&new, &errors, strategy.warnings(&Field::root(&new), Some(&Field::root(&old))))
}

fn status_update(case: &Value, base: &Value, kind: &Kind<'_>) -> Value {
    let strategy = &kind.behavior.strategy;
    let (mut old, _) = created(case, "old", base, kind);
    old["status"] = case["status"].clone();
    let mut new = kind.decoded(&merged(&old, &case["patch"]));
    strategy.prepare_for_status_update(&mut new, &old, &CONTEXT);
    let errors =
        validate::status_update(&new, &old, &kind.behavior, kind.namespaced, &Meter::new(Limits::REQUEST));
    // An accepted status is stored without changes, so that there is nothing to compare.
    outcome(&json!({}), &errors, Vec::new())
}

fn wanted(case: &Value, base: &Value) -> Value {
    let warnings = case.get("warnings").cloned().unwrap_or(json!([]));
    match case.get("causes") {
        Some(causes) => json!({"causes": causes, "warnings": []}),
        None if case["want"].get("status").is_some() => {
            json!({"object": {}, "generation": null, "warnings": []})
        }
        None => {
            let object = pruned(merged(base, &case["want"]));
            json!({"object": object, "generation": case["generation"], "warnings": warnings})
        }
    }
}

fn outcome(object: &Value, errors: &Errors, warnings: Vec<String>) -> Value {
    if !errors.is_empty() {
        return json!({"causes": causes(errors), "warnings": []});
    }
    let mut object = object.clone();
    let generation = object["metadata"]["generation"].clone();
    let members = object.as_object_mut().expect("an object");
    members.retain(|name, _| !["apiVersion", "kind", "status"].contains(&name.as_str()));
    if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| ["labels", "annotations"].contains(&name.as_str()));
    }
    json!({"object": pruned(object), "generation": generation, "warnings": warnings})
}

/// Returns a value without empty values, at any depth.
fn pruned(value: Value) -> Value {
    let empty = |value: &Value| {
        value.is_null()
            || value.as_object().is_some_and(Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
    };
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (name, pruned(value)))
            .filter(|(_, value)| !empty(value))
            .collect(),
        Value::Array(items) => items.into_iter().map(pruned).collect(),
        scalar => scalar,
    }
}
