//! Deployment.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::ResetFields;
use coracle_apimachinery::strategy::defaulting::{Object, fill, member, object_at, restore};
use coracle_apimachinery::strategy::{Context, Strategy, desired_state};
use coracle_apimachinery::validation::{immutable, numbers, printed};
use serde_json::{Value, json};

use super::workload;
use crate::pod_spec;

/// The fields that an endpoint does not write.
pub const RESET_FIELDS: ResetFields =
    ResetFields { by_subresource: &[("status", &[&["f:spec"], &["f:metadata", "f:labels"]])] };

/// The strategy of Deployment.
pub struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object_at(object, "spec") else { return };
        pod_spec::default_pod_template(member(spec, "template"));
        fill(
            spec,
            [
                ("replicas", json!(1)),
                ("revisionHistoryLimit", json!(10)),
                ("progressDeadlineSeconds", json!(600)),
            ],
        );
        default_strategy(spec);
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        workload::prepare_template(object, None, "/spec/template", context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        workload::prepare_template(object, Some(old), "/spec/template", context.features);
    }

    /// Restores the labels. Unlike those of other workloads, the labels of a Deployment cannot be
    /// written with its status.
    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        if let Some(metadata) = object_at(object, "metadata") {
            restore(metadata, old["metadata"].as_object(), "labels");
        }
    }

    /// Compares the desired state and the annotations, which are copied to the ReplicaSets.
    fn is_new_generation(&self, object: &Value, old: &Value) -> bool {
        let annotations = |object: &Value| object["metadata"]["annotations"].clone();
        desired_state(object).ne(desired_state(old)) || annotations(object) != annotations(old)
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(object, None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_spec(object, Some(old), errors);
        immutable::immutable_as(
            "meta.LabelSelector",
            &object.walk("spec.selector"),
            &old.walk("spec.selector"),
            errors,
        );
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let status = object.get("status");
        workload::validate_counts(
            &status,
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            errors,
        );
        for part in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
            let detail = "cannot be greater than status.replicas";
            workload::validate_part(&status, part, "replicas", detail, errors);
        }
        let detail = "cannot be greater than readyReplicas";
        workload::validate_part(&status, "availableReplicas", "readyReplicas", detail, errors);
        workload::validate_collisions(&status, &old.get("status"), errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let name = if old.is_none() { workload::name_warning(object) } else { None };
        name.into_iter().chain(workload::template_warnings(object, old, "spec.template")).collect()
    }
}

fn default_strategy(spec: &mut Object) {
    let Some(strategy) = member(spec, "strategy").as_object_mut() else { return };
    fill(strategy, [("type", json!("RollingUpdate"))]);
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = member(strategy, "rollingUpdate").as_object_mut()
    {
        fill(rolling, [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
    }
}

fn validate_spec(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let (spec, template) = (object.get("spec"), object.walk("spec.template"));
    numbers::not_negative(&spec.get("replicas"), errors);
    let old_template = old.map(|old| old.walk("spec.template"));
    validate_selected_pods(&spec, &template, old_template.as_ref(), errors);
    validate_strategy(&spec.get("strategy"), errors);
    let ready = spec.get("minReadySeconds");
    numbers::not_negative(&ready, errors);
    numbers::not_negative(&spec.get("revisionHistoryLimit"), errors);
    let deadline = spec.get("progressDeadlineSeconds");
    numbers::not_negative(&deadline, errors);
    errors.push_if(deadline.int().is_some_and(|seconds| seconds <= ready.int().unwrap_or(0)), || {
        deadline.invalid("must be greater than minReadySeconds")
    });
}

/// Validates the selector and the template, on which a Deployment and its ReplicaSets must agree.
pub(super) fn validate_selected_pods(
    spec: &Field<'_>,
    template: &Field<'_>,
    old_template: Option<&Field<'_>>,
    errors: &mut Errors,
) {
    let selector = spec.get("selector");
    if workload::validate_selector(&selector, "deployment", errors) {
        workload::validate_selection(&selector, template, errors);
        pod_spec::validate_pod_template(template, &workload::template_options(old_template), errors);
        workload::validate_restart_policy_always(template, "ReplicaSet", errors);
    } else {
        errors.push(printed::invalid(&selector, "meta.LabelSelector", "invalid label selector"));
    }
}

fn validate_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").str() {
        "Recreate" => errors.push_if(rolling.exists(), || {
            rolling.forbidden("may not be specified when strategy `type` is 'Recreate'")
        }),
        "RollingUpdate" => validate_rolling_update(&rolling, errors),
        _ => errors.push(printed::not_supported(
            strategy,
            "apps.DeploymentStrategy",
            &["Recreate", "RollingUpdate"],
        )),
    }
}

fn validate_rolling_update(rolling: &Field<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    numbers::int_or_percent(&unavailable, errors);
    numbers::int_or_percent(&surge, errors);
    let stuck =
        numbers::int_or_percent_value(&unavailable) == 0 && numbers::int_or_percent_value(&surge) == 0;
    errors.push_if(stuck, || unavailable.invalid("may not be 0 when `maxSurge` is 0"));
    numbers::at_most_100_percent(&unavailable, errors);
}
