//! Rules of the kinds that run pods from a template: selectors, counts in a status, warnings about
//! names.

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::selector::LabelSelector;
use coracle_apimachinery::validation::labels::{SelectorOptions, validate_label_selector};
use coracle_apimachinery::validation::{content, numbers, printed};
use serde_json::Value;

use crate::pod_spec;

/// Validates a required selector that may not be empty. Returns whether it can select at all;
/// `noun` is the kind as the message names it.
pub fn validate_selector(selector: &Field<'_>, noun: &str, errors: &mut Errors) -> bool {
    if !selector.exists() {
        errors.push(selector.required(""));
        return true;
    }
    let known = errors.len();
    validate_label_selector(selector, SelectorOptions::default(), errors);
    let usable = errors.len() == known;
    refuse_empty_selector(selector, noun, errors);
    usable
}

/// Rejects a selector that is empty; `noun` is the kind as the message names it.
pub fn refuse_empty_selector(selector: &Field<'_>, noun: &str, errors: &mut Errors) {
    let empty = selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty();
    errors.push_if(selector.exists() && empty, || {
        printed::invalid(selector, "meta.LabelSelector", &format!("empty selector is invalid for {noun}"))
    });
}

/// Requires that a workload selects the pods it creates.
pub fn validate_selection(selector: &Field<'_>, template: &Field<'_>, errors: &mut Errors) {
    let labels = template.walk("metadata.labels");
    let selects = LabelSelector::from_object(selector.value())
        .is_some_and(|selector| selector.is_empty() || selector.matches_map(labels.value()));
    errors.push_if(!selects, || {
        let shown = labels.value().cloned().unwrap_or_default();
        labels.invalid_value(shown, "`selector` does not match template `labels`")
    });
}

/// Requires the restart policy Always, for pods that are replaced when they end. `kind` is the name
/// in the message.
pub fn validate_restart_policy_always(template: &Field<'_>, kind: &str, errors: &mut Errors) {
    let policy = template.walk("spec.restartPolicy");
    errors.push_if(policy.str() != "Always", || policy.not_supported(&["Always"]));
    let deadline = template.walk("spec.activeDeadlineSeconds");
    errors.push_if(deadline.exists(), || {
        deadline.forbidden(format!("activeDeadlineSeconds in {kind} is not Supported"))
    });
}

/// Returns the pod validation options for a new template, or for a changed one, whose former
/// version is `old`.
pub fn template_options(old: Option<&Field<'_>>) -> pod_spec::PodValidationOptions {
    old.map_or_else(
        pod_spec::PodValidationOptions::for_template,
        pod_spec::PodValidationOptions::for_template_update,
    )
}

/// Validates non-negative counts in a status.
pub fn validate_counts(status: &Field<'_>, names: &[&str], errors: &mut Errors) {
    for name in names {
        numbers::not_negative(&status.get(name), errors);
    }
}

/// Requires that a count does not exceed another one.
pub fn validate_part(status: &Field<'_>, part: &str, whole: &str, detail: &str, errors: &mut Errors) {
    let count = |name: &str| status.get(name).int().unwrap_or(0);
    errors.push_if(count(part) > count(whole), || status.get(part).invalid_value(count(part), detail));
}

/// Requires that the collision count does not decrease.
pub fn validate_collisions(status: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (new, old) = (status.get("collisionCount"), old.get("collisionCount"));
    errors.push_if(new.int() < old.int(), || {
        new.invalid_value(new.int().unwrap_or(0), "cannot be decremented")
    });
}

/// Warns about a name with dots: pods are named after their workload, and such a name makes invalid
/// host names.
pub fn name_warning(object: &Field<'_>) -> Option<String> {
    let found = content::dns1123_label(object.walk("metadata.name").str());
    (!found.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            found.join(" ")
        )
    })
}

/// Returns `true` if the update changes the desired state.
pub fn generation_changed(object: &Field<'_>, old: &Field<'_>) -> bool {
    let generation = |object: &Field<'_>| object.walk("metadata.generation").int();
    generation(object) != generation(old)
}

/// Returns the warnings for the template at `path`: on create, and on updates that change the
/// desired state.
pub fn template_warnings(object: &Field<'_>, old: Option<&Field<'_>>, path: &str) -> Vec<String> {
    match old {
        Some(old) if !generation_changed(object, old) => Vec::new(),
        _ => pod_spec::pod_template_warnings(&object.walk(path)),
    }
}

/// Drops from a template the fields whose feature gates are off.
pub fn prepare_template(object: &mut Value, old: Option<&Value>, pointer: &str, features: &FeatureGates) {
    if let Some(template) = object.pointer_mut(pointer) {
        pod_spec::prepare_pod_template(template, old.and_then(|old| old.pointer(pointer)), features);
    }
}
