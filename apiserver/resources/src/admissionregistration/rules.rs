//! Rules: which requests a webhook or policy is for.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{Object, fill};
use coracle_apimachinery::validation::content;
use coracle_apimachinery::validation::labels::{SelectorOptions, validate_label_selector};
use serde_json::{Value, json};

/// The values of `failurePolicy`.
pub const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
/// The values of `matchPolicy`.
pub const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
/// The values of `reinvocationPolicy`.
pub const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// The operations whose objects can be mutated.
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// Validates an optional enum.
pub fn validate_enum(field: &Field<'_>, supported: &[&str], errors: &mut Errors) {
    errors.push_if(field.exists() && !supported.contains(&field.str()), || field.not_supported(supported));
}

/// Defaults the rules in a list.
pub fn default_rules(rules: Option<&mut Value>) {
    let rules = rules.and_then(Value::as_array_mut).into_iter().flatten();
    for rule in rules.filter_map(Value::as_object_mut) {
        fill(rule, [("scope", json!("*"))]);
    }
}

/// Defaults a `MatchResources`.
pub fn default_match_resources(resources: &mut Object) {
    fill(
        resources,
        [
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
        ],
    );
    for list in ["resourceRules", "excludeResourceRules"] {
        default_rules(resources.get_mut(list));
    }
}

/// Validates a `MatchResources`.
pub fn validate_match_resources(resources: &Field<'_>, errors: &mut Errors) {
    let policy = resources.get("matchPolicy");
    errors.push_if(!policy.exists(), || policy.required(""));
    validate_enum(&policy, &MATCH_POLICIES, errors);
    for selector in [resources.get("namespaceSelector"), resources.get("objectSelector")] {
        errors.push_if(!selector.exists(), || selector.required(""));
        validate_label_selector(&selector, SelectorOptions::default(), errors);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in resources.get(list).items() {
            validate_resource_names(&rule.get("resourceNames"), errors);
            validate_rule(&rule, errors);
        }
    }
}

/// Validates the operations of a mutating policy, which cannot match deletions.
pub fn validate_mutating_operations(resources: &Field<'_>, errors: &mut Errors) {
    let rules = resources.get("resourceRules");
    let reported = rules.path().child("operations");
    for operation in rules.items().flat_map(|rule| rule.get("operations").items()) {
        validate_enum(&operation.with_path(reported.clone()), &MUTATING_OPERATIONS, errors);
    }
}

fn validate_resource_names(names: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for name in names.items() {
        errors.invalid_each(&name, content::path_segment(name.str()));
        errors.push_if(!seen.insert(name.str()), || name.duplicate());
    }
}

/// Validates a rule.
pub fn validate_rule(rule: &Field<'_>, errors: &mut Errors) {
    let operations = rule.get("operations");
    refuse_none(&operations, errors);
    refuse_more_than_all(&operations, "operations", errors);
    for operation in operations.items() {
        validate_enum(&operation, &OPERATIONS, errors);
    }
    let (groups, versions) = (rule.get("apiGroups"), rule.get("apiVersions"));
    refuse_none(&groups, errors);
    refuse_more_than_all(&groups, "API groups", errors);
    refuse_none(&versions, errors);
    refuse_more_than_all(&versions, "API versions", errors);
    for version in versions.items() {
        errors.push_if(version.is_empty(), || version.required(""));
    }
    validate_resources(&rule.get("resources"), errors);
    validate_enum(&rule.get("scope"), &SCOPES, errors);
}

fn refuse_none(list: &Field<'_>, errors: &mut Errors) {
    errors.push_if(list.is_empty(), || list.required(""));
}

fn refuse_more_than_all(list: &Field<'_>, noun: &str, errors: &mut Errors) {
    let all = list.items().any(|item| item.str() == "*");
    errors.push_if(list.len() > 1 && all, || {
        list.invalid(format!("if '*' is present, must not specify other {noun}"))
    });
}

/// Validates resources such as `pods`, `pods/status`, `*`, `*/*`, `pods/*` and `*/scale`: an entry
/// may not repeat what another one covers.
fn validate_resources(resources: &Field<'_>, errors: &mut Errors) {
    refuse_none(resources, errors);
    let (mut with_all_parts, mut parts_of_all) = (HashSet::new(), HashSet::new());
    let mut whole = false;
    for resource in resources.items() {
        let text = resource.str();
        if text.is_empty() {
            errors.push(resource.required(""));
            continue;
        }
        let Some((name, part)) = text.split_once('/') else {
            whole = text != "*";
            continue;
        };
        for (is_redundant, covering) in [
            (with_all_parts.contains(name), format!("{name}/*")),
            (parts_of_all.contains(part), format!("*/{part}")),
        ] {
            errors.push_if(is_redundant, || {
                resource.invalid(format!("if '{covering}' is present, must not specify {text}"))
            });
        }
        if part == "*" {
            with_all_parts.insert(name);
        }
        if name == "*" {
            parts_of_all.insert(part);
        }
    }
    let has = |wanted: &str| resources.items().any(|resource| resource.str() == wanted);
    errors.push_if(resources.len() > 1 && has("*/*"), || {
        resources.invalid("if '*/*' is present, must not specify other resources")
    });
    errors.push_if(has("*") && whole, || {
        resources.invalid("if '*' is present, must not specify other resources without subresources")
    });
}
