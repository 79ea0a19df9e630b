//! HorizontalPodAutoscaler, as autoscaling/v2.

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::strategy::defaulting::{Object, fill, object_at};
use coracle_apimachinery::validation::{numbers, resource_list};
use serde_json::{Value, json};

use super::references::{Versions, validate_reference};
use super::{convert, metrics};

const MAX_PERIOD_SECONDS: i64 = 1800;
const MAX_STABILIZATION_SECONDS: i64 = 3600;
const SELECT_POLICIES: [&str; 3] = ["Disabled", "Max", "Min"];
const POLICY_TYPES: [&str; 2] = ["Percent", "Pods"];

/// The strategy of HorizontalPodAutoscaler.
pub struct HorizontalPodAutoscalerStrategy;

impl Strategy for HorizontalPodAutoscalerStrategy {
    fn default(&self, object: &mut Value) {
        // An object of version 1 is converted afterwards, with its annotations.
        if object["apiVersion"] == convert::VERSION_2 {
            convert::drop_annotations(object);
        }
        let Some(spec) = object_at(object, "spec") else { return };
        fill(spec, [("minReplicas", json!(1))]);
        let none = |metrics: &Value| metrics.as_array().is_none_or(Vec::is_empty);
        if spec.get("metrics").is_none_or(none) {
            spec.insert("metrics".into(), json!([metrics::cpu_utilization(metrics::DEFAULT_UTILIZATION)]));
        }
        if let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) {
            default_behavior(behavior);
        }
    }

    /// Validates the minimum of replicas. Without the gate HPAScaleToZero there is always a
    /// replica; an autoscaler that already scales to zero may keep doing so.
    fn validate_gated(
        &self,
        object: &Field<'_>,
        old: Option<&Field<'_>>,
        features: &FeatureGates,
        errors: &mut Errors,
    ) {
        let least = |object: &Field<'_>| object.walk("spec.minReplicas").int();
        let may_be_zero = features.is_enabled("HPAScaleToZero") || old.and_then(least) == Some(0);
        let lower_bound = i64::from(!may_be_zero);
        errors.push_if(least(object).is_some_and(|least| least < lower_bound), || {
            object.walk("spec.minReplicas").invalid(format!("must be greater than or equal to {lower_bound}"))
        });
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), Some(&old.get("spec")), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        for name in ["currentReplicas", "desiredReplicas"] {
            numbers::not_negative(&object.get("status").get(name), errors);
        }
    }
}

/// Sets the default behavior: scaling up may double the pods or add four of them every 15 seconds;
/// scaling down may remove all of them.
fn default_behavior(behavior: &mut Object) {
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let max = json!("Max");
    let mut default = |direction: &str, defaults: [(&str, Value); 2]| {
        let rules = behavior.entry(direction).or_insert_with(|| json!({}));
        if let Some(rules) = rules.as_object_mut() {
            fill(rules, defaults);
        }
    };
    default("scaleUp", [("selectPolicy", max.clone()), ("policies", json!([pods, percent]))]);
    default("scaleDown", [("selectPolicy", max), ("policies", json!([percent]))]);
    if let Some(rules) = behavior.get_mut("scaleUp").and_then(Value::as_object_mut) {
        fill(rules, [("stabilizationWindowSeconds", json!(0))]);
    }
}

fn validate_spec(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    match most.int().unwrap_or(0) {
        0 => errors.push(most.required("must be set and greater than 0")),
        1.. => {}
        _ => errors.push(most.invalid("must be greater than or equal to 1")),
    }
    errors.push_if(least.exists() && most.int().unwrap_or(0) < least.int().unwrap_or(0), || {
        let shown = most.int().unwrap_or(0);
        most.invalid_value(shown, "must be greater than or equal to `minReplicas`")
    });
    let target = spec.get("scaleTargetRef");
    validate_reference(&target, target_versions(&target, old), errors);
    metrics::validate(spec, old, errors);
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.get("behavior").get(direction);
        if rules.exists() {
            validate_scaling_rules(&rules, errors);
        }
    }
}

fn target_versions(target: &Field<'_>, old: Option<&Field<'_>>) -> Versions {
    let unchanged = |old: &Field<'_>| {
        ["apiVersion", "kind"]
            .iter()
            .all(|name| old.get("scaleTargetRef").get(name).str() == target.get(name).str())
    };
    if old.is_some_and(unchanged) {
        Versions::Unchecked
    } else if target.get("kind").str() == "ReplicationController" {
        Versions::Any
    } else {
        Versions::OfGroup
    }
}

fn validate_scaling_rules(rules: &Field<'_>, errors: &mut Errors) {
    let window = rules.get("stabilizationWindowSeconds");
    errors.push_if(window.int().is_some_and(|seconds| seconds < 0), || {
        window.invalid("must be greater than or equal to zero")
    });
    at_most(MAX_STABILIZATION_SECONDS, &window, errors);
    let select = rules.get("selectPolicy");
    errors.push_if(select.exists() && !SELECT_POLICIES.contains(&select.str()), || {
        select.not_supported(&SELECT_POLICIES)
    });
    let policies = rules.get("policies");
    errors.push_if(policies.is_empty(), || policies.required("must specify at least one Policy"));
    for policy in policies.items() {
        validate_scaling_policy(&policy, errors);
    }
    let tolerance = rules.get("tolerance");
    if tolerance.exists() {
        resource_list::validate_not_negative(&tolerance, errors);
    }
}

fn validate_scaling_policy(policy: &Field<'_>, errors: &mut Errors) {
    let kind = policy.get("type");
    errors.push_if(!POLICY_TYPES.contains(&kind.str()), || kind.not_supported(&POLICY_TYPES));
    for name in ["value", "periodSeconds"] {
        let (member, number) = (policy.get(name), policy.get(name).int().unwrap_or(0));
        errors.push_if(number <= 0, || member.invalid_value(number, "must be greater than zero"));
    }
    at_most(MAX_PERIOD_SECONDS, &policy.get("periodSeconds"), errors);
}

fn at_most(limit: i64, field: &Field<'_>, errors: &mut Errors) {
    errors.push_if(field.int().is_some_and(|number| number > limit), || {
        field.invalid(format!("must be less than or equal to {limit}"))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_replicas_are_allowed_by_a_gate_or_if_they_were_before() {
        let of = |least: i64| json!({"spec": {"minReplicas": least}});
        let on = FeatureGates::new([("HPAScaleToZero", true)]).unwrap();
        for (features, old, least, want) in [
            (&FeatureGates::DEFAULT, None, 1, None),
            (&FeatureGates::DEFAULT, None, 0, Some("1")),
            (&FeatureGates::DEFAULT, Some(1), 0, Some("1")),
            (&FeatureGates::DEFAULT, Some(0), 0, None),
            (&on, None, 0, None),
            (&on, None, -1, Some("0")),
        ] {
            let (new, old) = (of(least), old.map(of));
            let old = old.as_ref().map(Field::root);
            let mut errors = Errors::new();
            let strategy = HorizontalPodAutoscalerStrategy;
            strategy.validate_gated(&Field::root(&new), old.as_ref(), features, &mut errors);
            let want = want.map(|bound| format!("must be greater than or equal to {bound}"));
            let text = format!("{errors:?}");
            assert_eq!(want.as_ref().is_some_and(|want| text.contains(want)), want.is_some(), "{text}");
            assert_eq!(errors.is_empty(), want.is_none(), "{text}");
        }
    }
}
