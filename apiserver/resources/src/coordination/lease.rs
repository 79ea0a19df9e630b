//! Lease.

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::{Context, Strategy};
use serde_json::Value;

/// The strategy of Lease.
pub struct LeaseStrategy;

/// Members of coordinated leader election (CoordinatedLeaderElection).
const COORDINATED: [&str; 2] = ["strategy", "preferredHolder"];

impl Strategy for LeaseStrategy {
    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        drop_coordination(object, None, context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        drop_coordination(object, Some(old), context.features);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let spec = object.get("spec");
        let duration = spec.get("leaseDurationSeconds");
        errors.push_if(duration.int().is_some_and(|seconds| seconds <= 0), || {
            duration.invalid("must be greater than 0")
        });
        let transitions = spec.get("leaseTransitions");
        errors.push_if(transitions.int().is_some_and(|count| count < 0), || {
            transitions.invalid("must be greater than or equal to 0")
        });
    }
}

fn drop_coordination(object: &mut Value, old: Option<&Value>, features: &FeatureGates) {
    if features.is_enabled("CoordinatedLeaderElection") {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for name in COORDINATED {
        if old.and_then(|old| old.get("spec")?.get(name)).is_none() {
            spec.remove(name);
        }
    }
}
