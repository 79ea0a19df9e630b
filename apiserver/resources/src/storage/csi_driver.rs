//! CSIDriver. Its generation is counted from the first update, not from its creation.

use std::collections::HashSet;

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::immutable::immutable;
use coracle_apimachinery::validation::member;
use serde_json::{Value, json};

const FS_GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const LIFECYCLE_MODES: [&str; 2] = ["Persistent", "Ephemeral"];
const MIN_UPDATE_PERIOD: i64 = 10;
const TOKEN_WARNING: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";

/// The strategy of CSIDriver.
pub struct CsiDriverStrategy;

impl Strategy for CsiDriverStrategy {
    fn default(&self, driver: &mut Value) {
        let spec = &mut driver["spec"];
        for (member, value) in [
            ("attachRequired", json!(true)),
            ("podInfoOnMount", json!(false)),
            ("storageCapacity", json!(false)),
            ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
            ("requiresRepublish", json!(false)),
            ("seLinuxMount", json!(false)),
        ] {
            if spec[member].is_null() {
                spec[member] = value;
            }
        }
        if spec["volumeLifecycleModes"].as_array().is_none_or(Vec::is_empty) {
            spec["volumeLifecycleModes"] = json!(["Persistent"]);
        }
    }

    fn prepare_for_create(&self, driver: &mut Value, context: &Context<'_>) {
        drop_disabled(driver, None, context.features);
    }

    fn prepare_for_update(&self, driver: &mut Value, old: &Value, context: &Context<'_>) {
        drop_disabled(driver, Some(old), context.features);
        if driver["spec"] != old["spec"] {
            let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
            driver["metadata"]["generation"] = (generation + 1).into();
        }
    }

    fn validate(&self, driver: &Field<'_>, errors: &mut Errors) {
        validate_spec(&driver.get("spec"), errors);
    }

    fn validate_update(&self, driver: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let (spec, old) = (driver.get("spec"), old.get("spec"));
        validate_spec(&spec, errors);
        // kube-apiserver reports this name, which the field never had.
        let attach = spec.get("attachRequired").with_path(spec.path().child("attachedRequired"));
        immutable(&attach, &old.get("attachRequired"), errors);
        immutable(&spec.get("volumeLifecycleModes"), &old.get("volumeLifecycleModes"), errors);
    }

    fn warnings(&self, driver: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let requests = driver.walk("spec.tokenRequests");
        let changed = old.is_none_or(|old| old.walk("spec.tokenRequests").value() != requests.value());
        let warned =
            !requests.is_empty() && changed && !driver.walk("spec.serviceAccountTokenInSecrets").exists();
        if warned { vec![TOKEN_WARNING.to_owned()] } else { Vec::new() }
    }
}

/// Drops the field of the gate VolumeLimitScaling, unless the old driver has it.
fn drop_disabled(driver: &mut Value, old: Option<&Value>, features: &FeatureGates) {
    let in_use = old.and_then(|old| old.pointer("/spec/preventPodSchedulingIfMissing")).is_some();
    if !in_use
        && !features.is_enabled("VolumeLimitScaling")
        && let Some(spec) = driver.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("preventPodSchedulingIfMissing");
    }
}

fn validate_spec(spec: &Field<'_>, errors: &mut Errors) {
    member::one_of(&spec.get("fsGroupPolicy"), &FS_GROUP_POLICIES, errors);
    let requests = spec.get("tokenRequests");
    validate_token_requests(&requests, errors);
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items() {
        member::one_of(&mode.with_path(modes.path().clone()), &LIFECYCLE_MODES, errors);
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    errors.push_if(period.int().is_some_and(|seconds| seconds < MIN_UPDATE_PERIOD), || {
        period.invalid("must be greater than or equal to 10 seconds")
    });
    let in_secrets = spec.get("serviceAccountTokenInSecrets");
    errors.push_if(in_secrets.exists() && requests.is_empty(), || {
        in_secrets.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified")
    });
}

fn validate_token_requests(requests: &Field<'_>, errors: &mut Errors) {
    let mut audiences = HashSet::new();
    for request in requests.items() {
        let (audience, expiration) = (request.get("audience"), request.get("expirationSeconds"));
        if !audiences.insert(audience.str()) {
            errors.push(audience.duplicate());
            continue;
        }
        let seconds = expiration.int();
        errors.push_if(seconds.is_some_and(|seconds| seconds < 600), || {
            expiration.invalid("may not specify a duration less than 10 minutes")
        });
        errors.push_if(seconds.is_some_and(|seconds| seconds > 1 << 32), || {
            expiration.invalid("may not specify a duration larger than 2^32 seconds")
        });
    }
}
