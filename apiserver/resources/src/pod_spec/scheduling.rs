//! Scheduling: node selectors, affinities, tolerations, topology spread, gates.

use std::collections::{BTreeMap, BTreeSet};

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::labels::{self, SelectorOptions};
use coracle_apimachinery::validation::{content, node_selector, printed};
use serde_json::{Value, json};

use super::options::PodValidationOptions;

/// The member of required affinity terms.
pub const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
/// The member of preferred affinity terms.
pub const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates `spec.affinity`.
pub fn validate_affinity(affinity: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    let node = affinity.get("nodeAffinity");
    if node.get(REQUIRED).exists() {
        let allow_invalid = options.allow_invalid_node_affinity_values;
        node_selector::validate_node_selector(&node.get(REQUIRED), allow_invalid, errors);
    }
    for term in node.get(PREFERRED).items() {
        validate_weight(&term, errors);
        node_selector::validate_term(&term.get("preference"), true, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(kind);
        for term in pods.get(REQUIRED).items() {
            validate_pod_affinity_term(&term, options, errors);
        }
        for term in pods.get(PREFERRED).items() {
            validate_weight(&term, errors);
            validate_pod_affinity_term(&term.get("podAffinityTerm"), options, errors);
        }
    }
}

fn validate_weight(term: &Field<'_>, errors: &mut Errors) {
    let weight = term.get("weight");
    let number = weight.int().unwrap_or(0);
    errors
        .push_if(!(1..=100).contains(&number), || weight.invalid_value(number, "must be in the range 1-100"));
}

fn validate_pod_affinity_term(term: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    validate_pod_affinity_selectors(term, options.allow_invalid_selector_values, errors);
    for namespace in term.get("namespaces").items() {
        let namespace = namespace.with_path(term.path().child("namespace"));
        errors.invalid_each(&namespace, content::dns1123_label(namespace.str()));
    }
    validate_label_keys(term, errors);
    let topology = term.get("topologyKey");
    errors.push_if(topology.is_empty(), || topology.required("can not be empty"));
    labels::validate_label_name(&topology, errors);
}

/// Validates the selectors of a pod affinity term.
pub fn validate_pod_affinity_selectors(term: &Field<'_>, allow_invalid_values: bool, errors: &mut Errors) {
    let options = SelectorOptions { allow_invalid_values, ..SelectorOptions::default() };
    for selector in ["labelSelector", "namespaceSelector"] {
        labels::validate_label_selector(&term.get(selector), options, errors);
    }
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys` of an affinity term or a spread constraint.
///
/// The pod's own values of these keys are added to the selector as requirements at its creation; so
/// a key may be in the selector once, but not twice.
pub fn validate_label_keys(owner: &Field<'_>, errors: &mut Errors) {
    let (matching, mismatching) = (owner.get("matchLabelKeys"), owner.get_if_declared("mismatchLabelKeys"));
    let selector = owner.get("labelSelector");
    for keys in [&matching, &mismatching] {
        if keys.is_empty() {
            continue;
        }
        if !selector.exists() {
            errors.push(keys.forbidden("must not be specified when labelSelector is not set"));
            continue;
        }
        for key in keys.items() {
            labels::validate_label_name(&key, errors);
        }
    }
    if selector.exists() {
        // The last one of duplicate keys counts.
        let positions: BTreeMap<&str, usize> =
            matching.items().enumerate().map(|(i, key)| (key.str(), i)).collect();
        let mut selected: BTreeSet<&str> =
            selector.get("matchLabels").entries().map(|(key, _)| key).collect();
        for requirement in selector.get("matchExpressions").items() {
            let key = requirement.get("key").str();
            if let Some(position) = positions.get(key).filter(|_| selected.contains(key)) {
                let key = requirement.get("key").with_path(owner.path().index(*position));
                errors.push(key.invalid("exists in both matchLabelKeys and labelSelector"));
            }
            selected.insert(key);
        }
    }
    let mismatched: BTreeSet<&str> = mismatching.items().map(|key| key.str()).collect();
    for key in matching.items() {
        errors.push_if(mismatched.contains(key.str()), || {
            key.invalid("exists in both matchLabelKeys and mismatchLabelKeys")
        });
    }
}

/// Validates `matchLabelKeys` in spread constraints by the rules from before keys were merged into
/// selectors.
fn validate_unmerged_label_keys(constraint: &Field<'_>, errors: &mut Errors) {
    let (keys, selector) = (constraint.get("matchLabelKeys"), constraint.get("labelSelector"));
    if keys.is_empty() {
        return;
    }
    errors.push_if(!selector.exists(), || {
        keys.forbidden("must not be specified when labelSelector is not set")
    });
    let labels = selector.get("matchLabels").entries().map(|(key, _)| key);
    let requirements = selector.get("matchExpressions").items().map(|r| r.get("key").str());
    let selected: BTreeSet<&str> = labels.chain(requirements).collect();
    for key in keys.items() {
        labels::validate_label_name(&key, errors);
        errors.push_if(selected.contains(key.str()), || {
            key.invalid("exists in both matchLabelKeys and labelSelector")
        });
    }
}

/// Validates `spec.tolerations`.
pub fn validate_tolerations(tolerations: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    for toleration in tolerations.items() {
        let (key, operator) = (toleration.get("key"), toleration.get("operator"));
        let (value, effect) = (toleration.get("value"), toleration.get("effect"));
        if !key.is_empty() {
            labels::validate_label_name(&key, errors);
        }
        errors.push_if(key.is_empty() && operator.str() != "Exists", || {
            operator.invalid(
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            )
        });
        errors.push_if(toleration.get("tolerationSeconds").exists() && effect.str() != "NoExecute", || {
            effect.invalid("effect must be 'NoExecute' when `tolerationSeconds` is set")
        });
        validate_operator(&operator, &value, options, errors);
        errors.push_if(!effect.is_empty() && !EFFECTS.contains(&effect.str()), || {
            effect.not_supported(&EFFECTS)
        });
    }
}

fn validate_operator(
    operator: &Field<'_>,
    value: &Field<'_>,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    // kube-apiserver reports errors in the value for the operator.
    let shown = operator.path();
    match operator.str() {
        "Equal" | "" => {
            let found = content::label_value(value.str());
            errors.push_if(!found.is_empty(), || value.with_path(shown.clone()).invalid(found.join(";")));
        }
        "Exists" => errors.push_if(!value.is_empty(), || {
            value.with_path(shown.clone()).invalid("value must be empty when `operator` is 'Exists'")
        }),
        "Lt" | "Gt" if options.allow_comparing_tolerations => {
            errors.push_if(value.str().parse::<i64>().is_err(), || {
                value.invalid("must be a valid decimal integer in canonical form")
            });
        }
        "Lt" | "Gt" => errors.push(operator.not_supported(&["Equal", "Exists", "Lt", "Gt"])),
        _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
    }
}

/// Validates the taints of a node.
pub fn validate_taints(taints: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        labels::validate_label_name(&key, errors);
        let found = content::label_value(value.str());
        errors.push_if(!found.is_empty(), || value.invalid(found.join(";")));
        if effect.is_empty() {
            errors.push(effect.required(""));
        } else {
            errors.push_if(!EFFECTS.contains(&effect.str()), || effect.not_supported(&EFFECTS));
        }
        if !seen.insert((key.str(), effect.str())) {
            let mut error = printed::duplicate(&taint, "core.Taint");
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
        }
    }
}

/// Validates `spec.topologySpreadConstraints`.
pub fn validate_spread<'a>(constraints: &Field<'a>, options: &PodValidationOptions, errors: &mut Errors) {
    const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
    const POLICIES: [&str; 2] = ["Honor", "Ignore"];
    let pair = |constraint: &Field<'a>| {
        (constraint.get("topologyKey").str(), constraint.get("whenUnsatisfiable").str())
    };
    let mut left: BTreeMap<_, usize> = BTreeMap::new();
    for constraint in constraints.items() {
        *left.entry(pair(&constraint)).or_default() += 1;
    }
    for constraint in constraints.items() {
        validate_positive(&constraint.get("maxSkew"), errors);
        let (topology, action) = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"));
        errors.push_if(topology.is_empty(), || topology.required("can not be empty"));
        errors.push_if(!ACTIONS.contains(&action.str()), || action.not_supported(&ACTIONS));
        let left = left.entry(pair(&constraint)).or_default();
        *left -= 1;
        // All but the last one of equal constraints are reported.
        errors.push_if(*left > 0, || {
            let pair = constraint.path().child("{topologyKey, whenUnsatisfiable}");
            constraint.with_path(pair).duplicate_value(format!("{{{}, {}}}", topology.str(), action.str()))
        });
        let domains = constraint.get("minDomains");
        if domains.exists() {
            validate_positive(&domains, errors);
            errors.push_if(action.str() != "DoNotSchedule", || {
                domains.invalid(format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.str()
                ))
            });
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let policy = constraint.get(policy);
            errors.push_if(policy.exists() && !POLICIES.contains(&policy.str()), || {
                policy.not_supported(&POLICIES)
            });
        }
        if options.allow_unmerged_label_keys {
            validate_unmerged_label_keys(&constraint, errors);
        } else {
            validate_label_keys(&constraint, errors);
        }
        if !options.allow_invalid_spread_selectors {
            let selector = constraint.get("labelSelector");
            labels::validate_label_selector(&selector, SelectorOptions::default(), errors);
        }
    }
}

fn validate_positive(number: &Field<'_>, errors: &mut Errors) {
    let value = number.int().unwrap_or(0);
    errors.push_if(value <= 0, || number.invalid_value(value, "must be greater than zero"));
}

/// Validates `spec.schedulingGates`: reported for the gate, not for its name.
pub fn validate_gates(gates: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for gate in gates.items() {
        let name = gate.get("name").str();
        for error in content::qualified_name(name) {
            errors.push(gate.invalid_value(name, error));
        }
        errors.push_if(!seen.insert(name), || gate.duplicate_value(name));
    }
}

/// Adds requirements with the pod's own labels to the selectors that request them by key.
pub fn merge_label_keys(pod: &mut Value) {
    let labels = pod.pointer("/metadata/labels").cloned().unwrap_or_default();
    let Some(spec) = pod.get_mut("spec") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(kind)) else {
            continue;
        };
        for (list, inner) in [(PREFERRED, Some("podAffinityTerm")), (REQUIRED, None)] {
            for term in pods.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let term = match inner {
                    Some(member) => term.get_mut(member),
                    None => Some(term),
                };
                if let Some(term) = term {
                    merge_into_selector(term, &labels);
                }
            }
        }
    }
    let constraints = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten() {
        merge_into_selector(constraint, &labels);
    }
}

fn merge_into_selector(owner: &mut Value, labels: &Value) {
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = owner.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        let Some(selector) = owner.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
        for key in keys.iter().filter_map(Value::as_str) {
            let Some(value) = labels.get(key) else { continue };
            let requirements = selector.entry("matchExpressions").or_insert_with(|| Value::Array(Vec::new()));
            if let Some(requirements) = requirements.as_array_mut() {
                requirements.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
}
