//! Scopes: which objects a quota matches.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::qos::qos_class;
use coracle_apiserver::admission::json::{items, text};
use serde_json::{Value, json};

use super::usage::Evaluator;

/// Returns `true` if an object is in all scopes of a quota.
pub(super) fn all_match(quota: &Value, evaluator: &Evaluator, object: &Value) -> bool {
    let spec = &quota["spec"];
    let plain = items(&spec["scopes"]).iter().map(|name| json!({"scopeName": name, "operator": "Exists"}));
    let selected = items(&spec["scopeSelector"]["matchExpressions"]).iter().cloned();
    plain.chain(selected).all(|scope| is_in(&scope, evaluator, object))
}

fn is_in(scope: &Value, evaluator: &Evaluator, object: &Value) -> bool {
    let spec = &object["spec"];
    let terminating = || spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    let best_effort = || qos_class(&Field::root(object).get("spec")) == "BestEffort";
    match (evaluator, text(&scope["scopeName"])) {
        (Evaluator::Pods, "Terminating") => terminating(),
        (Evaluator::Pods, "NotTerminating") => !terminating(),
        (Evaluator::Pods, "BestEffort") => best_effort(),
        (Evaluator::Pods, "NotBestEffort") => !best_effort(),
        (Evaluator::Pods, "PriorityClass") => selects(scope, &[text(&spec["priorityClassName"])]),
        (Evaluator::Pods, "CrossNamespacePodAffinity") => crosses_namespaces(&spec["affinity"]),
        (Evaluator::Claims, "VolumeAttributesClass") => selects(scope, &attributes_classes(object)),
        _ => false,
    }
}

/// Returns the VolumeAttributesClasses of a claim: desired, current and in transition.
fn attributes_classes(claim: &Value) -> [&str; 3] {
    let status = &claim["status"];
    [
        text(&claim["spec"]["volumeAttributesClassName"]),
        text(&status["currentVolumeAttributesClassName"]),
        text(&status["modifyVolumeStatus"]["targetVolumeAttributesClassName"]),
    ]
}

/// Returns `true` if a scope selects one of the names. `""` stands for no name; `DoesNotExist` and
/// `NotIn` select an object without any.
fn selects(scope: &Value, names: &[&str]) -> bool {
    let values = items(&scope["values"]);
    let listed = |name: &str| values.iter().any(|value| value == name);
    let mut present = names.iter().filter(|name| !name.is_empty()).peekable();
    let none = present.peek().is_none();
    match text(&scope["operator"]) {
        "Exists" => !none,
        "DoesNotExist" => none,
        "In" => present.any(|name| listed(name)),
        "NotIn" => none || present.any(|name| !listed(name)),
        _ => false,
    }
}

fn crosses_namespaces(affinity: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().map(|kind| &affinity[kind]).any(|affinity| {
        let required = items(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = items(&affinity["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        let mut terms = required.chain(preferred.map(|weighted| &weighted["podAffinityTerm"]));
        terms.any(|term| !items(&term["namespaces"]).is_empty() || !term["namespaceSelector"].is_null())
    })
}
