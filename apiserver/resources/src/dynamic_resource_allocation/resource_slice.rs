//! ResourceSlice: the devices of a driver's pool. The `requestPolicy` of a capacity is not validated.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::selector::FieldSource::At;
use coracle_apimachinery::selector::{Refusal, SelectableFields};
use coracle_apimachinery::strategy::defaulting::fill;
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::content;
use coracle_apimachinery::validation::immutable::immutable;
use coracle_apimachinery::validation::node_selector::validate_node_selector;
use coracle_apimachinery::validation::volume_sources::validate_csi_driver_name;
use serde_json::{Value, json};

use super::devices::{refuse_duplicates, validate_list, validate_qualified_name, validate_taint};

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields =
    SelectableFields::of(&[("spec.nodeName", At("/spec/nodeName")), ("spec.driver", At("/spec/driver"))])
        .refusing(Refusal::NotSupportedForKind("resource.k8s.io/v1, Kind=ResourceSlice"))
        .cluster_scoped();

const MAX_DEVICES: usize = 128;
const MAX_ELABORATE_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMED_SETS: usize = 2;
const MAX_PROPERTIES: usize = 32;
const MAX_TAINTS: usize = 16;
const MAX_VALUE: usize = 64;
const MAX_POOL_NAME: usize = 253;

/// The strategy of ResourceSlice.
pub struct ResourceSliceStrategy;

impl Strategy for ResourceSliceStrategy {
    fn default(&self, object: &mut Value) {
        for device in devices(object) {
            let mappings = device.get_mut("nodeAllocatableResourceMappings").and_then(Value::as_object_mut);
            for mapping in mappings.into_iter().flat_map(|m| m.values_mut()).filter_map(Value::as_object_mut)
            {
                fill(mapping, [("allocationMultiplier", json!("1"))]);
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        set_taint_times(object, context.now);
    }

    fn prepare_for_update(&self, object: &mut Value, _: &Value, context: &Context<'_>) {
        set_taint_times(object, context.now);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), Some(&old.get("spec")), errors);
    }
}

fn devices(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object.pointer_mut("/spec/devices").and_then(Value::as_array_mut).into_iter().flatten()
}

fn set_taint_times(object: &mut Value, now: &str) {
    for device in devices(object) {
        let taints = device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten();
        for taint in taints.filter_map(Value::as_object_mut) {
            fill(taint, [("timeAdded", json!(now))]);
        }
    }
}

fn validate_spec(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    validate_csi_driver_name(&spec.get("driver"), errors);
    let pool = spec.get("pool");
    validate_pool_name(&pool.get("name"), errors);
    for (name, least, detail) in [
        ("resourceSliceCount", 1, "must be greater than zero"),
        ("generation", 0, "must be greater than or equal to zero"),
    ] {
        let number = pool.get(name).int().unwrap_or(0);
        errors.push_if(number < least, || pool.get(name).invalid_value(number, detail));
    }
    if let Some(old) = old {
        for name in ["pool.name", "driver", "nodeName"] {
            immutable(&spec.walk(name), &old.walk(name), errors);
        }
    }
    validate_nodes(spec, errors);
    let (devices, counters) = (spec.get("devices"), spec.get("sharedCounters"));
    errors.push_if(devices.exists() && counters.exists(), || {
        spec.invalid_value("", "only one of `sharedCounters` or `devices` is allowed")
    });
    let elaborate = devices
        .items()
        .any(|device| !device.get("taints").is_empty() || !device.get("consumesCounters").is_empty());
    let most = if elaborate { MAX_ELABORATE_DEVICES } else { MAX_DEVICES };
    let per_device = spec.get("perDeviceNodeSelection").bool();
    let fits = validate_list(&devices, most, errors, |device, errors| {
        validate_device(device, per_device, errors);
    });
    if fits {
        refuse_duplicates(&devices, |device| device.get("name").str(), errors);
    }
    if validate_list(&counters, MAX_COUNTER_SETS, errors, |set, errors| {
        validate_counters(set, "name", errors)
    }) {
        refuse_duplicates(&counters, |set| set.get("name").str(), errors);
    }
}

fn validate_pool_name(name: &Field<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.push(name.required(""));
    }
    errors.push_if(name.len() > MAX_POOL_NAME, || name.too_long(MAX_POOL_NAME));
    for part in name.str().split('/') {
        for error in content::dns1123_subdomain(part) {
            errors.push(name.invalid_value(part, error));
        }
    }
}

/// The nodes that can access the devices: exactly one of several fields.
fn validate_nodes(spec: &Field<'_>, errors: &mut Errors) {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut present: Vec<&str> = Vec::new();
    let (name, selector) = (spec.get("nodeName"), spec.get("nodeSelector"));
    if name.exists() {
        if name.is_empty() {
            errors.push(name.invalid("must be either unset or set to a non-empty string"));
        } else {
            present.push("`nodeName`");
            errors.invalid_each(&name, content::dns1123_subdomain(name.str()));
        }
    }
    if selector.exists() {
        present.push("`nodeSelector`");
        validate_node_selector(&selector, false, errors);
        let terms = selector.get("nodeSelectorTerms");
        errors.push_if(terms.len() != 1, || terms.invalid("must have exactly one node selector term"));
    }
    for (member, shown) in
        [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        let flag = spec.get(member);
        if flag.bool() {
            present.push(shown);
        } else {
            errors.push_if(flag.exists(), || flag.invalid("must be either unset or set to true"));
        }
    }
    match present.len() {
        0 => errors.push(spec.required(ONE)),
        1 => {}
        _ => errors.push(spec.invalid_value(
            format!("{{{}}}", present.join(", ")),
            format!("{ONE}, but multiple fields are set"),
        )),
    }
}

fn validate_counters(set: &Field<'_>, name: &str, errors: &mut Errors) {
    let (name, counters) = (set.get(name), set.get("counters"));
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        errors.invalid_each(&name, content::dns1123_label(name.str()));
    }
    let count = counters.entries().count();
    if count == 0 {
        errors.push(counters.required(""));
    } else if count > MAX_COUNTERS {
        errors.push(counters.too_many(count, MAX_COUNTERS));
    } else {
        for (key, _) in counters.entries() {
            for error in content::dns1123_label(key) {
                errors.push(counters.invalid_value(key, error));
            }
        }
    }
}

fn validate_device(device: &Field<'_>, per_device: bool, errors: &mut Errors) {
    let (name, attributes, capacity) = (device.get("name"), device.get("attributes"), device.get("capacity"));
    errors.invalid_each(&name, content::dns1123_label(name.str()));
    let properties = attributes.entries().count() + capacity.entries().count();
    errors.push_if(properties > MAX_PROPERTIES, || {
        device.invalid_value(
            properties,
            format!("the total number of attributes and capacities must not exceed {MAX_PROPERTIES}"),
        )
    });
    for (key, attribute) in attributes.entries() {
        validate_qualified_name(key, &attributes, errors);
        validate_attribute(&attribute, errors);
    }
    for (key, value) in capacity.entries() {
        validate_qualified_name(key, &capacity, errors);
        let policy = value.get("requestPolicy");
        let shared = device.get("allowMultipleAllocations").bool();
        errors.push_if(policy.exists() && !shared, || {
            policy.forbidden("allowMultipleAllocations must be true")
        });
    }
    validate_list(&device.get("taints"), MAX_TAINTS, errors, validate_taint);
    let consumed = device.get("consumesCounters");
    let fits = validate_list(&consumed, MAX_CONSUMED_SETS, errors, |set, errors| {
        validate_counters(set, "counterSet", errors);
    });
    if fits {
        refuse_duplicates(&consumed, |set| set.get("counterSet").str(), errors);
    }
    let placed = ["nodeName", "nodeSelector", "allNodes"].iter().any(|name| device.get(name).exists());
    errors.push_if(placed && !per_device, || {
        device.invalid_value(Value::Null, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")
    });
    errors.push_if(!placed && per_device, || {
        device.required("exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec")
    });
}

fn validate_attribute(attribute: &Field<'_>, errors: &mut Errors) {
    for text in [attribute.get("string"), attribute.get("version")] {
        errors.push_if(text.len() > MAX_VALUE, || text.too_long(MAX_VALUE));
    }
    let values = attribute.value().and_then(Value::as_object).map_or(0, serde_json::Map::len);
    errors.push_if(values == 0, || attribute.invalid_value("", "exactly one value must be specified"));
    errors.push_if(values > 1, || {
        coracle_apimachinery::validation::printed::invalid(
            attribute,
            "resource.DeviceAttribute",
            "exactly one value must be specified",
        )
    });
}
