//! Compares the strategies with the recorded responses of a real Kubernetes 1.36.2 server.
//!
//! `answers.jsonl` has a line for each kind's base object and a line for each case: `change` is a
//! merge patch over the base (or over `old`, itself a patch over the base, if the case is an
//! update), `causes` are those of the rejected dry run, `stored` is what the server added to an
//! accepted object. `…` ends a cause without its explaining expression.

use std::collections::HashMap;

use coracle_apimachinery::allocation::Allocators;
use coracle_apimachinery::error::Error;
use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::Field;
use coracle_apimachinery::strategy::Behavior;
use coracle_apimachinery::strategy::validate;
use coracle_apimachinery::validation::ip::Cidr;
use coracle_cel::{Limits, Meter};
use serde_json::{Map, Value, json};

use super::behavior;
use super::core::service::allocation::{addresses, allocate, held_node_ports};
use super::recorded::{CONTEXT, cases, causes, merged, set_type};

const NAMESPACE: &str = "kinds-corpus";

struct Case<'a> {
    line: &'a Value,
    behavior: Behavior,
    namespaced: bool,
    old: Option<Value>,
    object: Value,
}

impl Case<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.line["kind"], self.line["case"])
    }

    /// Runs the pipeline; returns the errors, or the object as it would be stored and the warnings.
    fn run(&self) -> Result<(Value, Vec<String>), Vec<String>> {
        let strategy = &self.behavior.strategy;
        let status = self.line["part"] == "status";
        let mut object = self.object.clone();
        strategy.default(&mut object);
        let (object, old) =
            (stored_form(self.line, object), self.old.clone().map(|o| stored_form(self.line, o)));
        let mut object = object;
        if self.line["kind"] == "Service" && !status {
            let range = Cidr::parse("10.0.0.0/24").expect("a block");
            let held = || old.iter().flat_map(addresses).collect();
            let mut allocators =
                Allocators::new(range, held, || old.iter().flat_map(held_node_ports).collect(), true);
            allocate(&mut object, old.as_ref(), &mut allocators, &mut |_| 0).map_err(
                |error| match error {
                    Error::Invalid { errors, .. } => causes(&errors),
                    error => vec![error.to_string()],
                },
            )?;
        }
        let meter = Meter::new(Limits::REQUEST);
        let errors = match &old {
            None => {
                object.as_object_mut().map(|members| members.remove("status"));
                strategy.prepare_for_create(&mut object, &CONTEXT);
                validate::create(&object, &self.behavior, self.namespaced, &FeatureGates::DEFAULT, &meter)
            }
            Some(old) if status => {
                strategy.prepare_for_status_update(&mut object, old, &CONTEXT);
                validate::status_update(&object, old, &self.behavior, self.namespaced, &meter)
            }
            Some(old) => {
                object["status"] = old.get("status").cloned().unwrap_or_default();
                strategy.prepare_for_update(&mut object, old, &CONTEXT);
                validate::update(
                    &object,
                    old,
                    &self.behavior,
                    self.namespaced,
                    &FeatureGates::DEFAULT,
                    &meter,
                )
            }
        };
        if !errors.is_empty() {
            return Err(causes(&errors));
        }
        let root = Field::root(&object);
        let warnings = match &old {
            Some(_) if status => strategy.status_warnings(&root),
            old => strategy.warnings(&root, old.as_ref().map(Field::root).as_ref()),
        };
        Ok((shown_form(self.line, object), warnings))
    }
}

fn is_new_event(line: &Value) -> bool {
    line["kind"] == "Event" && line["group"] == "events.k8s.io"
}

fn stored_form(line: &Value, object: Value) -> Value {
    if is_new_event(line) { super::core::event::to_core(object) } else { object }
}

fn shown_form(line: &Value, object: Value) -> Value {
    if is_new_event(line) { super::core::event::to_events(object) } else { object }
}

/// Returns a value without its zero values. The codec, not a strategy, decides whether they are
/// printed.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().map(|(name, value)| (name.clone(), pruned(value)));
            Value::Object(kept.filter(|(_, value)| !is_zero(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(pruned).collect(),
        other => other.clone(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Returns an object without the fields that differ by case and time, and without those that the
/// pipeline sets rather than the strategy.
fn comparable(object: &Value, behavior: &Behavior) -> Value {
    let mut object = pruned(object);
    for place in ["/status/lastPhaseTransitionTime", "/metadata/name", "/metadata/namespace"] {
        if let Some(value) = object.pointer_mut(place) {
            *value = Value::Null;
        }
    }
    for member in ["kind", "apiVersion"] {
        object.as_object_mut().map(|members| members.remove(member));
    }
    if behavior.generation {
        object["metadata"]["generation"] = Value::Null;
    }
    pruned(&object)
}

fn agrees(ours: &[String], theirs: &Value) -> bool {
    let theirs: Vec<&str> = theirs.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ours.len() == theirs.len()
        && ours.iter().zip(theirs).all(|(ours, theirs)| match theirs.strip_suffix('…') {
            Some(head) => ours.starts_with(head),
            None => ours == theirs,
        })
}

#[test]
fn strategies_match_the_real_servers_responses() {
    let lines = cases(include_str!("answers.jsonl"));
    let group = |line: &Value| line["group"].as_str().unwrap_or("").to_owned();
    let bases: HashMap<(String, String), &Value> = lines
        .iter()
        .filter_map(|line| Some(((line["base"].as_str()?.to_owned(), group(line)), line)))
        .collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in lines.iter().filter(|line| line.get("kind").is_some()) {
        count += 1;
        let kind = line["kind"].as_str().unwrap_or("");
        let named = bases.get(&(kind.to_owned(), group(line))).copied();
        let base = named.or_else(|| lines.iter().find(|l| l["base"] == kind)).expect("a base");
        let namespaced = base["namespaced"] == true;
        let mut start = base["object"].clone();
        set_type(&mut start, &group(base), kind);
        if namespaced {
            start["metadata"]["namespace"] = json!(NAMESPACE);
        }
        let old = line.get("old").map(|old| merged(&start, old));
        let object = merged(old.as_ref().unwrap_or(&start), line.get("change").unwrap_or(&json!({})));
        let behavior = behavior(&group(base), kind);
        let case = Case { line, behavior: behavior.clone(), namespaced, old, object };
        let result = case.run();
        let difference = match (&result, line.get("causes")) {
            (Err(ours), Some(theirs)) if agrees(ours, theirs) => continue,
            (Err(ours), theirs) => {
                format!("reported {ours:#?}\n instead of {:#?}", theirs.unwrap_or(&Value::Null))
            }
            (Ok(_), Some(theirs)) => format!("passed instead of {theirs:#}"),
            (Ok((stored, warnings)), None) => {
                let want = merged(&case.object, line.get("stored").unwrap_or(&json!({})));
                let (ours, want) = (comparable(stored, &behavior), comparable(&want, &behavior));
                if ours != want {
                    format!("stored {ours}\n instead of {want}")
                } else if !agrees(warnings, line.get("warnings").unwrap_or(&json!([]))) {
                    format!("warned {warnings:?} instead of {}", line["warnings"])
                } else {
                    continue;
                }
            }
        };
        wrong.push(format!("{}: {difference}", case.name()));
    }
    assert!(count > 400, "only {count} cases");
    assert!(wrong.is_empty(), "{} of {count} differ\n\n{}", wrong.len(), wrong.join("\n\n"));
}
