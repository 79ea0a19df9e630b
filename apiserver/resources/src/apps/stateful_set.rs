//! StatefulSet.
//!
//! The controller sets the host name, subdomain and claim volumes of its pods, so the template is
//! validated as the controller will use it. After creation only the fields in [`MUTABLE`] may
//! change.

use std::collections::HashSet;

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{Object, fill, member, object_at};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::labels::validate_labels;
use coracle_apimachinery::validation::metadata::validate_annotations;
use coracle_apimachinery::validation::{content, immutable, numbers, printed};
use serde_json::{Value, json};

use super::workload;
use crate::claim_spec::{ClaimOptions, claim_spec_warnings, validate_claim_spec};
use crate::core::persistent_volume_claim::default_claim;
use crate::pod_spec;

const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// The strategy of StatefulSet.
pub struct StatefulSetStrategy;

impl Strategy for StatefulSetStrategy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object_at(object, "spec") else { return };
        pod_spec::default_pod_template(member(spec, "template"));
        fill(
            spec,
            [
                ("podManagementPolicy", json!("OrderedReady")),
                ("replicas", json!(1)),
                ("revisionHistoryLimit", json!(10)),
            ],
        );
        default_update_strategy(spec);
        if let Some(policy) = member(spec, "persistentVolumeClaimRetentionPolicy").as_object_mut() {
            fill(policy, [("whenDeleted", json!("Retain")), ("whenScaled", json!("Retain"))]);
        }
        let templates = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
        for claim in templates.into_iter().flatten() {
            claim["apiVersion"] = "v1".into();
            claim["kind"] = "PersistentVolumeClaim".into();
            default_claim(claim);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        gate_max_unavailable(object, None, context.features);
        workload::prepare_template(object, None, "/spec/template", context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        gate_max_unavailable(object, Some(old), context.features);
        workload::prepare_template(object, Some(old), "/spec/template", context.features);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), &Tolerance::default(), errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let (spec, old) = (object.get("spec"), old.get("spec"));
        let mut tolerance = Tolerance {
            old_template: Some(old.get("template")),
            service_name: true,
            claim_templates: true,
            template: false,
        };
        let mut old_errors = Errors::new();
        validate_spec(&old, &tolerance, &mut old_errors);
        tolerance.template = !old_errors.is_empty();
        validate_spec(&spec, &tolerance, errors);
        errors.push_if(immutable_part(&spec) != immutable_part(&old), || {
            spec.forbidden("updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")
        });
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let status = object.get("status");
        workload::validate_counts(
            &status,
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            errors,
        );
        for part in ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"] {
            let detail = "cannot be greater than status.replicas";
            workload::validate_part(&status, part, "replicas", detail, errors);
        }
        let detail = "cannot be greater than status.readyReplicas";
        workload::validate_part(&status, "availableReplicas", "readyReplicas", detail, errors);
        workload::validate_collisions(&status, &old.get("status"), errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let mut warnings = workload::template_warnings(object, old, "spec.template");
        for claim in object.walk("spec.volumeClaimTemplates").items() {
            // kube-apiserver reports the warnings of an update under a misspelled path.
            let path = if old.is_none() { claim.path().clone() } else { claim.path().child("Spec") };
            warnings.extend(claim_spec_warnings(&claim.get("spec").with_path(path)));
        }
        if object.walk("spec.revisionHistoryLimit").int().is_some_and(|limit| limit < 0) {
            warnings.push(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                    .to_owned(),
            );
        }
        warnings
    }
}

fn default_update_strategy(spec: &mut Object) {
    let Some(strategy) = member(spec, "updateStrategy").as_object_mut() else { return };
    // An explicit type gets no default parameters.
    if !strategy.contains_key("type") {
        fill(strategy, [("type", json!("RollingUpdate")), ("rollingUpdate", json!({}))]);
    }
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut)
    {
        fill(rolling, [("partition", json!(0))]);
    }
}

/// Defaults `maxUnavailable` if the gate MaxUnavailableStatefulSet is on; otherwise drops the
/// field, unless the old set has it.
fn gate_max_unavailable(object: &mut Value, old: Option<&Value>, features: &FeatureGates) {
    const ROLLING_UPDATE: &str = "/spec/updateStrategy/rollingUpdate";
    let in_use = old.and_then(|old| old.pointer(ROLLING_UPDATE)?.get("maxUnavailable")).is_some();
    let is_enabled = features.is_enabled("MaxUnavailableStatefulSet");
    let is_rolling = object.pointer("/spec/updateStrategy/type").is_some_and(|kind| kind == "RollingUpdate");
    let Some(rolling) = object.pointer_mut(ROLLING_UPDATE).and_then(Value::as_object_mut) else { return };
    if is_enabled && is_rolling {
        fill(rolling, [("maxUnavailable", json!(1))]);
    } else if !is_enabled && !in_use {
        rolling.remove("maxUnavailable");
    }
}

/// The parts that are not validated, because they cannot change or were invalid before.
#[derive(Default)]
struct Tolerance<'a> {
    old_template: Option<Field<'a>>,
    service_name: bool,
    claim_templates: bool,
    template: bool,
}

fn validate_spec(spec: &Field<'_>, tolerance: &Tolerance<'_>, errors: &mut Errors) {
    let management = spec.get("podManagementPolicy");
    match management.str() {
        "" => errors.push(management.required("")),
        "OrderedReady" | "Parallel" => {}
        _ => errors.push(management.invalid("must be 'OrderedReady' or 'Parallel'")),
    }
    validate_update_strategy(&spec.get("updateStrategy"), errors);
    for when in ["whenDeleted", "whenScaled"] {
        let policy = spec.get("persistentVolumeClaimRetentionPolicy").get(when);
        errors.push_if(!["Retain", "Delete"].contains(&policy.str()), || {
            policy.not_supported(&["Retain", "Delete"])
        });
    }
    if !tolerance.claim_templates {
        for claim in spec.get("volumeClaimTemplates").items() {
            validate_claim_spec(&claim.get("spec"), ClaimOptions::default(), errors);
        }
    }
    numbers::not_negative(&spec.get("replicas"), errors);
    numbers::not_negative(&spec.get("minReadySeconds"), errors);
    numbers::not_negative(&spec.walk("ordinals.start"), errors);
    let service = spec.get("serviceName");
    if !tolerance.service_name && !service.is_empty() {
        errors.invalid_each(&service, content::dns1123_label(service.str()));
    }
    let selector = spec.get("selector");
    if workload::validate_selector(&selector, "statefulset", errors) {
        validate_template(spec, tolerance, errors);
    } else {
        errors.push(printed::invalid(&selector, "meta.LabelSelector", ""));
    }
    workload::validate_restart_policy_always(&spec.get("template"), "StatefulSet", errors);
}

fn validate_update_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").str() {
        "" => errors.push(strategy.required("")),
        "OnDelete" => errors.push_if(rolling.exists(), || {
            printed::invalid(
                &rolling,
                "apps.RollingUpdateStatefulSetStrategy",
                "only allowed for updateStrategy 'RollingUpdate'",
            )
        }),
        "RollingUpdate" => validate_rolling_update(&rolling, errors),
        _ => errors.push(printed::invalid(
            strategy,
            "apps.StatefulSetUpdateStrategy",
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
}

fn validate_rolling_update(rolling: &Field<'_>, errors: &mut Errors) {
    numbers::not_negative(&rolling.get("partition"), errors);
    let unavailable = rolling.get("maxUnavailable");
    if unavailable.exists() {
        numbers::int_or_percent(&unavailable, errors);
        let none = numbers::int_or_percent_value(&unavailable) == 0;
        errors.push_if(none, || unavailable.invalid("cannot be 0"));
        numbers::at_most_100_percent(&unavailable, errors);
    }
}

fn validate_template(spec: &Field<'_>, tolerance: &Tolerance<'_>, errors: &mut Errors) {
    let template = spec.get("template");
    workload::validate_selection(&spec.get("selector"), &template, errors);
    if !tolerance.template {
        let used = as_the_controller_uses_it(spec);
        let used = template.with_value(Some(&used));
        let options = workload::template_options(tolerance.old_template.as_ref());
        pod_spec::validate_pod_template(&used, &options, errors);
    }
    let metadata = template.get("metadata");
    validate_labels(&metadata.get("labels").with_path(template.path().child("labels")), errors);
    validate_annotations(
        &metadata.get("annotations").with_path(template.path().child("annotations")),
        errors,
    );
}

fn as_the_controller_uses_it(spec: &Field<'_>) -> Value {
    let mut template = spec.get("template").value().cloned().unwrap_or_default();
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    pod.remove("hostname");
    pod.remove("subdomain");
    let claims: Vec<&str> =
        spec.get("volumeClaimTemplates").items().map(|claim| claim.walk("metadata.name").str()).collect();
    if !claims.is_empty() {
        let given = pod.remove("volumes").unwrap_or_default();
        let mut volumes: Vec<Value> = Vec::new();
        let mut replaced = HashSet::new();
        for name in claims {
            if replaced.insert(name) {
                volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
            }
        }
        let named = |volume: &&Value| volume["name"].as_str().is_some_and(|name| replaced.contains(name));
        volumes.extend(given.as_array().into_iter().flatten().filter(|v| !named(v)).cloned());
        pod.insert("volumes".into(), volumes.into());
    }
    template
}

/// Returns the spec without its mutable fields.
fn immutable_part(spec: &Field<'_>) -> Object {
    let mut rest = spec.value().and_then(Value::as_object).cloned().unwrap_or_default();
    rest.retain(|name, value| !MUTABLE.contains(&name.as_str()) && !immutable::is_empty(value));
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_unavailable_follows_its_gate() {
        let set = |kind: &str, rolling: Value| json!({"spec": {"updateStrategy": {"type": kind, "rollingUpdate": rolling}}});
        let (none, two) = (json!({"partition": 0}), json!({"partition": 0, "maxUnavailable": 2}));
        let one = json!({"partition": 0, "maxUnavailable": 1});
        let gates = |is_on| FeatureGates::new([("MaxUnavailableStatefulSet", is_on)]).unwrap();
        for (is_on, old, kind, given, want) in [
            (false, None, "RollingUpdate", &two, &none),
            (false, Some(&none), "RollingUpdate", &two, &none),
            (false, Some(&two), "RollingUpdate", &one, &one),
            (false, None, "RollingUpdate", &none, &none),
            (true, None, "RollingUpdate", &two, &two),
            (true, Some(&none), "RollingUpdate", &two, &two),
            (true, None, "RollingUpdate", &none, &one),
            (true, None, "OnDelete", &none, &none),
        ] {
            let mut object = set(kind, given.clone());
            let old = old.map(|rolling| set(kind, rolling.clone()));
            gate_max_unavailable(&mut object, old.as_ref(), &gates(is_on));
            assert_eq!(object, set(kind, want.clone()), "{is_on} {kind} {given}");
        }
    }
}
