//! Updates of a Pod: which fields of a running pod may change.
//!
//! Start at [`validate`]; `resize` and `ephemeralcontainers` have rules of their own.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field, Path, quote};
use coracle_apimachinery::validation::content;
use coracle_apimachinery::validation::printed::{self, diff};
use coracle_quantity::Quantity;
use serde_json::{Value, json};

use super::members::set;
use crate::pod_spec::scheduling::REQUIRED;
use crate::pod_spec::{PodValidationOptions, annotations, scheduling};

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Returns `true` if two values are semantically equal: quantities are compared by amount, not by
/// text.
pub fn same(a: &Value, b: &Value) -> bool {
    same_under("", a, b)
}

fn same_under(owner: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let quantities = matches!(owner, "limits" | "requests" | "overhead");
            a.len() == b.len()
                && a.iter().all(|(member, value)| {
                    let owner = if quantities { "quantity" } else { member.as_str() };
                    b.get(member).is_some_and(|other| same_under(owner, value, other))
                })
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_under("", a, b))
        }
        (Value::String(a), Value::String(b)) if matches!(owner, "quantity" | "sizeLimit" | "divisor") => {
            a == b || matches!((a.parse::<Quantity>(), b.parse::<Quantity>()), (Ok(a), Ok(b)) if a == b)
        }
        _ => a == b,
    }
}

/// Validates a change of the spec.
pub fn validate(spec: &Field<'_>, old: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get(list);
        if containers.len() != old.get(list).len() {
            errors.push(containers.forbidden("pod updates may not add or remove containers"));
            return;
        }
        for image in containers.items().map(|container| container.get("image")) {
            errors.push_if(image.is_empty(), || image.required(""));
            errors.push_if(image.str().trim() != image.str(), || {
                image.invalid("must not have leading or trailing whitespace")
            });
        }
    }
    if !validate_deadline(&spec.get("activeDeadlineSeconds"), &old.get("activeDeadlineSeconds"), errors) {
        return;
    }
    validate_tolerations(&spec.get("tolerations"), &old.get("tolerations"), options, errors);
    validate_gates(&spec.get("schedulingGates"), &old.get("schedulingGates"), errors);
    let (Some(new), Some(before)) = (spec.value(), old.value()) else { return };
    if same(new, before) {
        return;
    }
    let mut munged = new.clone();
    restore_updatable(&mut munged, before);
    if !old.get("schedulingGates").is_empty() {
        validate_gated(spec, old, errors);
        restore_gated(&mut munged, before);
    }
    if !same(&munged, before) {
        let diff = diff("core.PodSpec", Some(before), Some(&munged));
        errors.push(
            spec.forbidden(format!("pod updates may not change fields other than {UPDATABLE}\n{diff}")),
        );
    }
}

/// Validates the deadline, which may be added or decreased. Returns whether to continue.
fn validate_deadline(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) -> bool {
    match (new.int(), old.int()) {
        (Some(seconds), before) => {
            let found = content::in_range(seconds, 0, i64::from(i32::MAX));
            let passed = found.is_empty();
            errors.invalid_each(new, found);
            let later = passed && before.is_some_and(|before| before < seconds);
            errors.push_if(later, || new.invalid("must be less than or equal to previous value"));
            passed && !later
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(new.invalid_value(Value::Null, detail));
            true
        }
        (None, None) => true,
    }
}

/// Validates tolerations, which may be added and may get other durations.
fn validate_tolerations(
    new: &Field<'_>,
    old: &Field<'_>,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    let what = |toleration: Field<'_>| {
        ["key", "operator", "value", "effect"].map(|member| toleration.get(member).str().to_owned())
    };
    let kept: HashSet<_> = new.items().map(what).collect();
    if old.items().all(|before| kept.contains(&what(before))) {
        scheduling::validate_tolerations(new, options, errors);
    } else {
        errors.push(new.forbidden("existing toleration can not be modified except its tolerationSeconds"));
    }
}

/// Validates scheduling gates, which may only be removed.
fn validate_gates(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let known: HashSet<&str> = old.items().map(|gate| gate.get("name").str()).collect();
    for name in new.items().map(|gate| gate.get("name")) {
        errors.push_if(!known.contains(name.str()), || {
            name.forbidden(format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.str()
            ))
        });
    }
}

/// Restores the mutable fields, so that only changes of immutable fields remain.
fn restore_updatable(spec: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let olds = old.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let news = spec.get_mut(list).and_then(Value::as_array_mut);
        for (container, old) in news.into_iter().flatten().zip(olds) {
            set(container, "image", old.get("image").cloned());
        }
    }
    for member in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        set(spec, member, old.get(member).cloned());
    }
    let grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(spec) == Some(1) {
        set(spec, "terminationGracePeriodSeconds", old.get("terminationGracePeriodSeconds").cloned());
    }
}

/// Validates the node selection of a gated pod, which may become narrower.
///
/// Source: KEP-3838.
fn validate_gated(spec: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (selector, old_selector) = (spec.get("nodeSelector"), old.get("nodeSelector"));
    let narrower = old_selector.entries().all(|(key, value)| selector.get(key).value() == value.value());
    errors.push_if(!narrower, || {
        let shown = selector.value().cloned().unwrap_or(Value::Null);
        selector.invalid_value(
            shown,
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        )
    });
    let (terms, old_terms) = (required_terms(spec), required_terms(old));
    if old_terms.is_empty() {
        return;
    }
    if terms.len() != old_terms.len() {
        let list = terms.items().map(|term| printed::internal("core.NodeSelectorTerm", term.value()));
        let list = list.collect::<Vec<_>>().join(",");
        let shown = if terms.exists() { format!("[{list}]") } else { "null".to_owned() };
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(terms.invalid(detail).with_bad_value_text(shown));
        return;
    }
    for (term, before) in terms.items().zip(old_terms.items()) {
        errors.push_if(!only_adds(&term, &before), || {
            let detail = "only additions are allowed (no mutations or deletions)";
            printed::invalid(&term, "core.NodeSelectorTerm", detail)
        });
    }
}

fn required_terms<'a>(spec: &Field<'a>) -> Field<'a> {
    spec.walk("affinity.nodeAffinity").get(REQUIRED).get("nodeSelectorTerms")
}

/// Checks that a term only gets more requirements. All requirements of a term must match, so more
/// of them are narrower; but an empty term matches nothing, and must stay empty.
fn only_adds(new: &Field<'_>, old: &Field<'_>) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|list| old.get(list).is_empty()) {
        return lists.iter().all(|list| new.get(list).is_empty());
    }
    lists.iter().all(|list| {
        let (new, old) = (new.get(list), old.get(list));
        new.len() >= old.len() && new.items().zip(old.items()).all(|(new, old)| new.value() == old.value())
    })
}

fn restore_gated(spec: &mut Value, old: &Value) {
    set(spec, "nodeSelector", old.get("nodeSelector").cloned());
    let before = old.get("affinity").and_then(|affinity| affinity.get("nodeAffinity")).cloned();
    let has_affinity = spec.get("affinity").is_some();
    match before {
        None if !has_affinity => {}
        Some(node) if !has_affinity => spec["affinity"] = json!({ "nodeAffinity": node }),
        before => set(&mut spec["affinity"], "nodeAffinity", before),
    }
    let emptied = spec.get("affinity").and_then(Value::as_object).is_some_and(|a| a.is_empty());
    if emptied && old.get("affinity").is_none() {
        set(spec, "affinity", None);
    }
}

/// Replaces all errors by one that forbids the change as a whole.
pub fn replace_with_forbidden(pod: &Field<'_>, detail: &str, errors: &mut Errors) {
    *errors = Errors::new();
    errors.push(pod.with_path(Path::root().key("")).forbidden(detail));
}

/// Validates ephemeral containers, which may be added, but not removed or changed.
pub fn validate_ephemeral_containers(pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if old.walk("metadata.annotations").get(annotations::MIRROR).exists() {
        replace_with_forbidden(pod, "static pods do not support ephemeral containers", errors);
        return;
    }
    let (new, old) = (pod.walk("spec.ephemeralContainers"), old.walk("spec.ephemeralContainers"));
    for before in old.items() {
        let name = before.get("name").str();
        let now = new.items().filter(|container| container.get("name").str() == name).last();
        match (now.as_ref().and_then(Field::value), before.value()) {
            (None, _) => errors.push(
                new.forbidden(format!("existing ephemeral containers {} may not be removed\n", quote(name))),
            ),
            (Some(now), Some(before)) if !same(now, before) => {
                let diff = diff("core.EphemeralContainer", Some(before), Some(now));
                errors.push(new.forbidden(format!(
                    "existing ephemeral containers {} may not be changed\n{diff}",
                    quote(name)
                )));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_by_amount() {
        for (a, b, want) in [
            (json!({"limits": {"memory": "1Gi"}}), json!({"limits": {"memory": "1073741824"}}), true),
            (json!({"limits": {"memory": "1Gi"}}), json!({"limits": {"memory": "1G"}}), false),
            (json!({"args": ["1Gi"]}), json!({"args": ["1073741824"]}), false),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
        ] {
            assert_eq!(same(&a, &b), want, "{a} {b}");
        }
    }

    #[test]
    fn ephemeral_containers_of_static_pods_are_refused_with_that_error_alone() {
        let pod = json!({"metadata": {"annotations": {annotations::MIRROR: "x"}}, "spec": {}});
        let field = Field::root(&pod);
        let mut errors = Errors::new();
        errors.push(field.get("spec").forbidden("another one"));
        validate_ephemeral_containers(&field, &field, &mut errors);
        assert_eq!(errors.summary(), "[]: Forbidden: static pods do not support ephemeral containers");
    }
}
