//! DaemonSet.
//!
//! The template generation was a field once; apps/v1 has an annotation for it, which only the
//! server writes.

use std::num::IntErrorKind;

use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::selector::LabelSelector;
use coracle_apimachinery::strategy::defaulting::{Object, fill, member, object_at};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::labels::{
    SelectorOptions, has_invalid_values, validate_label_selector,
};
use coracle_apimachinery::validation::{immutable, numbers, printed};
use serde_json::{Value, json};

use super::workload;
use crate::pod_spec;

/// The annotation with the generation of the template. kube-apiserver has it as an annotation in
/// the versioned form only.
pub const DEPRECATED_TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The strategy of DaemonSet.
pub struct DaemonSetStrategy;

impl Strategy for DaemonSetStrategy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object_at(object, "spec") else { return };
        pod_spec::default_pod_template(member(spec, "template"));
        fill(spec, [("revisionHistoryLimit", json!(10))]);
        default_update_strategy(spec);
        // The internal type has a number, which is always printed.
        if object["metadata"]["annotations"][DEPRECATED_TEMPLATE_GENERATION].is_null() {
            set_template_generation(object, 0);
        }
    }

    fn conversion_error(&self, object: &Value) -> Option<String> {
        let text = object["metadata"]["annotations"][DEPRECATED_TEMPLATE_GENERATION].as_str()?;
        let error = match text.parse::<i64>().err()?.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Some(format!("strconv.ParseInt: parsing {}: {error}", quote(text)))
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        set_template_generation(object, template_generation(object).max(1));
        workload::prepare_template(object, None, "/spec/template", context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        workload::prepare_template(object, Some(old), "/spec/template", context.features);
        let changed = object["spec"]["template"] != old["spec"]["template"];
        set_template_generation(object, template_generation(old) + i64::from(changed));
    }

    /// Keeps the old template generation: it counts as part of the spec, which an update of the
    /// status does not change.
    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        set_template_generation(object, template_generation(old));
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let (spec, old) = (object.get("spec"), old.get("spec"));
        let (selector, old_selector) = (spec.get("selector"), old.get("selector"));
        immutable::immutable_as("meta.LabelSelector", &selector, &old_selector, errors);
        validate_spec(&spec, Some(&old), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let status = object.get("status");
        workload::validate_counts(
            &status,
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            errors,
        );
        workload::validate_collisions(&status, &old.get("status"), errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let template = object.walk("spec.template");
        match old.map(|old| old.walk("spec.template")) {
            Some(old) if old.value() == template.value() => Vec::new(),
            _ => pod_spec::pod_template_warnings(&template),
        }
    }
}

fn template_generation(object: &Value) -> i64 {
    let annotation = object["metadata"]["annotations"][DEPRECATED_TEMPLATE_GENERATION].as_str();
    annotation.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = object_at(object, "metadata.annotations") {
        annotations.insert(DEPRECATED_TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

fn default_update_strategy(spec: &mut Object) {
    let Some(strategy) = member(spec, "updateStrategy").as_object_mut() else { return };
    fill(strategy, [("type", json!("RollingUpdate"))]);
    let unavailable = if strategy["type"] == "RollingUpdate" {
        fill(strategy, [("rollingUpdate", json!({}))]);
        1
    } else {
        0
    };
    // Parameters are numbers in the internal type, so those of another strategy are 0.
    if let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
        fill(rolling, [("maxUnavailable", json!(unavailable)), ("maxSurge", json!(0))]);
    }
}

fn validate_spec(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    let allow_invalid_values = old.is_some_and(|old| has_invalid_values(&old.get("selector")));
    let options = SelectorOptions { allow_invalid_values, ..SelectorOptions::default() };
    let known = errors.len();
    validate_label_selector(&selector, options, errors);
    let usable = !selector.exists() || LabelSelector::from_object(selector.value()).is_some();
    if usable && errors.len() == known {
        workload::validate_selection(&selector, &template, errors);
    }
    workload::refuse_empty_selector(&selector, "daemonset", errors);
    let old_template = old.map(|old| old.get("template"));
    pod_spec::validate_pod_template(&template, &workload::template_options(old_template.as_ref()), errors);
    workload::validate_restart_policy_always(&template, "DaemonSet", errors);
    numbers::not_negative(&spec.get("minReadySeconds"), errors);
    validate_update_strategy(&spec.get("updateStrategy"), errors);
    numbers::not_negative(&spec.get("revisionHistoryLimit"), errors);
}

fn validate_update_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    match strategy.get("type").str() {
        "OnDelete" => {}
        "RollingUpdate" => validate_rolling_update(&strategy.get("rollingUpdate"), errors),
        _ => errors.push(printed::not_supported(
            strategy,
            "apps.DaemonSetUpdateStrategy",
            &["RollingUpdate", "OnDelete"],
        )),
    }
}

fn validate_rolling_update(rolling: &Field<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    for field in [&unavailable, &surge] {
        numbers::int_or_percent(field, errors);
    }
    for field in [&unavailable, &surge] {
        numbers::at_most_100_percent(field, errors);
    }
    let given = |field: &Field<'_>| numbers::int_or_percent_value(field) != 0;
    match (given(&unavailable), given(&surge)) {
        (true, true) => errors.push(surge.invalid("may not be set when maxUnavailable is non-zero")),
        (false, false) => errors.push(unavailable.required("cannot be 0 when maxSurge is 0")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_generation_is_a_number() {
        let wrong = |text: &str, why: &str| Some(format!("strconv.ParseInt: parsing \"{text}\": {why}"));
        for (text, want) in [
            ("7", None),
            ("+7", None),
            ("", wrong("", "invalid syntax")),
            ("1.5", wrong("1.5", "invalid syntax")),
            ("99999999999999999999", wrong("99999999999999999999", "value out of range")),
        ] {
            let object = json!({"metadata": {"annotations": {DEPRECATED_TEMPLATE_GENERATION: text}}});
            assert_eq!(DaemonSetStrategy.conversion_error(&object), want, "{text:?}");
        }
        assert_eq!(DaemonSetStrategy.conversion_error(&json!({"metadata": {}})), None);
    }
}
