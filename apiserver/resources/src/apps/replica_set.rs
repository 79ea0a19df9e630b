//! ReplicaSet.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{fill, member, object_at};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::{immutable, numbers};
use serde_json::{Value, json};

use super::{deployment, workload};
use crate::pod_spec;

/// The strategy of ReplicaSet.
pub struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object_at(object, "spec") else { return };
        pod_spec::default_pod_template(member(spec, "template"));
        fill(spec, [("replicas", json!(1))]);
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        workload::prepare_template(object, None, "/spec/template", context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        workload::prepare_template(object, Some(old), "/spec/template", context.features);
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

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        let status = object.get("status");
        workload::validate_counts(
            &status,
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            errors,
        );
        for part in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
            let detail = "cannot be greater than status.replicas";
            workload::validate_part(&status, part, "replicas", detail, errors);
        }
        let detail = "cannot be greater than readyReplicas";
        workload::validate_part(&status, "availableReplicas", "readyReplicas", detail, errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let name = if old.is_none() { workload::name_warning(object) } else { None };
        name.into_iter().chain(workload::template_warnings(object, old, "spec.template")).collect()
    }
}

fn validate_spec(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let spec = object.get("spec");
    numbers::not_negative(&spec.get("replicas"), errors);
    numbers::not_negative(&spec.get("minReadySeconds"), errors);
    let old_template = old.map(|old| old.walk("spec.template"));
    deployment::validate_selected_pods(&spec, &spec.get("template"), old_template.as_ref(), errors);
}
