//! ResourceSlice: the devices of a driver's pool.

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Errors, Field, Path, quote};
use coracle_apimachinery::selector::FieldSource::At;
use coracle_apimachinery::selector::{Refusal, SelectableFields};
use coracle_apimachinery::strategy::defaulting::fill;
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::immutable::{immutable, immutable_text};
use coracle_apimachinery::validation::node_selector::validate_node_selector;
use coracle_apimachinery::validation::volume_sources::validate_csi_driver_name;
use coracle_apimachinery::validation::{content, member, printed, resource_list};
use coracle_pod_resources::names::is_native;
use serde_json::{Value, json};

use super::allocation::validate_binding_conditions;
use super::capacity;
use super::devices::validate_taint;
use super::lists::{refuse_duplicates, validate_list};
use super::names::{
    MAX_SHOWN_COUNTER, MAX_SHOWN_QUALIFIED_NAME, validate_map, validate_pool_name, validate_qualified_name,
};

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
const MAX_ATTRIBUTE_VALUES: usize = 48;

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
        drop_disabled(object, None, context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        set_taint_times(object, context.now);
        drop_disabled(object, Some(old), context.features);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), Some(&old.get("spec")), errors);
    }

    fn warnings(&self, object: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        let driver = object.walk("spec.driver").str();
        let warning = (driver != driver.to_lowercase()).then(|| {
            let driver = quote(driver);
            format!("spec.driver: driver names should be lowercase; {driver} contains uppercase characters")
        });
        warning.into_iter().collect()
    }
}

/// Drops the fields of disabled features, unless the old slice has them already: lists of values
/// (DRAListTypeAttributes) and resources of nodes (DRANodeAllocatableResources).
fn drop_disabled(object: &mut Value, old: Option<&Value>, features: &FeatureGates) {
    const MAPPINGS: &str = "nodeAllocatableResourceMappings";
    let old = Field::at(old, Path::root()).walk("spec.devices");
    let lists = |(_, attribute): (&str, Field<'_>)| LISTS.iter().any(|list| attribute.get(list).exists());
    let keep_lists = features.is_enabled("DRAListTypeAttributes")
        || old.items().any(|device| device.get("attributes").entries().any(lists));
    let keep_mappings = features.is_enabled("DRANodeAllocatableResources")
        || old.items().any(|device| !device.get(MAPPINGS).is_empty());
    for device in devices(object).filter_map(Value::as_object_mut) {
        if !keep_mappings {
            device.remove(MAPPINGS);
        }
        let attributes = device.get_mut("attributes").filter(|_| !keep_lists);
        for attribute in
            attributes.and_then(Value::as_object_mut).into_iter().flat_map(|all| all.values_mut())
        {
            if let Some(attribute) = attribute.as_object_mut() {
                attribute.retain(|member, _| !LISTS.contains(&member.as_str()));
            }
        }
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
        for name in ["pool.name", "driver"] {
            immutable_text(&spec.walk(name), &old.walk(name), errors);
        }
        immutable(&spec.get("nodeName"), &old.get("nodeName"), errors);
    }
    validate_nodes(spec, errors);
    let (devices, counters) = (spec.get("devices"), spec.get("sharedCounters"));
    errors.push_if(devices.exists() && counters.exists(), || {
        spec.invalid_value("", "only one of `sharedCounters` or `devices` is allowed")
    });
    let elaborate = devices.items().any(|device| {
        let lists = |(_, attribute): (&str, Field<'_>)| LISTS.iter().any(|list| attribute.get(list).exists());
        !device.get("taints").is_empty()
            || !device.get("consumesCounters").is_empty()
            || device.get("attributes").entries().any(lists)
    });
    let most = if elaborate { MAX_ELABORATE_DEVICES } else { MAX_DEVICES };
    let per_device = spec.get("perDeviceNodeSelection").bool();
    let fits = validate_list(&devices, most, errors, |device, errors| {
        let name = device.get("name").str();
        let before = old.and_then(|old| old.get("devices").items().find(|one| one.get("name").str() == name));
        validate_device(device, before.as_ref(), per_device, errors);
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

/// Validates the nodes that can access the devices: exactly one of several fields.
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
        errors
            .push_if(terms.len() != 1, || terms.invalid_or_null("must have exactly one node selector term"));
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
    member::required_and(&name, content::dns1123_label, errors);
    if counters.is_empty() {
        errors.push(counters.required(""));
    } else if counters.len() > MAX_COUNTERS {
        errors.push(counters.too_many(counters.len(), MAX_COUNTERS));
    } else {
        validate_map(&counters, MAX_SHOWN_COUNTER, errors, validate_counter_name, |_, _| {});
    }
}

fn validate_counter_name(name: &str, counters: &Field<'_>, errors: &mut Errors) {
    errors.extend(content::dns1123_label(name).into_iter().map(|e| counters.invalid_value(name, e)));
}

fn validate_device(device: &Field<'_>, old: Option<&Field<'_>>, per_device: bool, errors: &mut Errors) {
    let (name, attributes, capacities) =
        (device.get("name"), device.get("attributes"), device.get("capacity"));
    errors.invalid_each(&name, content::dns1123_label(name.str()));
    let properties = attributes.len() + capacities.len();
    errors.push_if(properties > MAX_PROPERTIES, || {
        device.invalid_value(
            properties,
            format!("the total number of attributes and capacities must not exceed {MAX_PROPERTIES}"),
        )
    });
    let values = attributes.entries().map(|(_, attribute)| count_values(&attribute)).sum::<usize>();
    errors.push_if(values > MAX_ATTRIBUTE_VALUES, || {
        device.invalid_value(
            values,
            format!("the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}"),
        )
    });
    let shown = MAX_SHOWN_QUALIFIED_NAME;
    validate_map(&attributes, shown, errors, validate_qualified_name, validate_attribute);
    let is_shared = device.get("allowMultipleAllocations").bool();
    validate_map(&capacities, shown, errors, validate_qualified_name, |capacity, errors| {
        capacity::validate(capacity, is_shared, errors);
    });
    let taints = device.get("taints");
    if old.is_none_or(|old| old.get("taints").value() != taints.value()) {
        validate_list(&taints, MAX_TAINTS, errors, validate_taint);
    }
    let consumed = device.get("consumesCounters");
    let fits = validate_list(&consumed, MAX_CONSUMED_SETS, errors, |set, errors| {
        validate_counters(set, "counterSet", errors);
    });
    if fits {
        refuse_duplicates(&consumed, |set| set.get("counterSet").str(), errors);
    }
    validate_device_nodes(device, per_device, errors);
    validate_binding_conditions(device, errors);
    validate_mappings(&device.get("nodeAllocatableResourceMappings"), &capacities, errors);
}

/// Validates the nodes that can access a device, for slices in which each device has its own.
fn validate_device_nodes(device: &Field<'_>, per_device: bool, errors: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let (name, selector, all) = (device.get("nodeName"), device.get("nodeSelector"), device.get("allNodes"));
    if !per_device {
        errors.push_if(name.exists() || selector.exists() || all.exists(), || {
            device.invalid_value(Value::Null, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")
        });
        return;
    }
    let mut present: Vec<&str> = Vec::new();
    if !name.is_empty() {
        present.push("`nodeName`");
        errors.invalid_each(&name, content::dns1123_subdomain(name.str()));
    } else if name.exists() {
        errors.push(name.invalid("must not be empty"));
    }
    if selector.exists() {
        present.push("`nodeSelector`");
        validate_node_selector(&selector, false, errors);
    }
    if all.bool() {
        present.push("`allNodes`");
    } else if all.exists() {
        errors.push(all.invalid("must be either unset or set to true"));
    }
    match present.len() {
        0 => errors.push(device.required(ONE)),
        1 => {}
        _ => errors.push(device.invalid_value(format!("{{{}}}", present.join(", ")), ONE)),
    }
}

/// Validates the mapping of capacities of a device to allocatable resources of its node.
fn validate_mappings(mappings: &Field<'_>, capacities: &Field<'_>, errors: &mut Errors) {
    for (name, mapping) in mappings.entries() {
        errors.push_if(!is_native(name), || {
            mapping.invalid_value(name, "must be a node allocatable resource name")
        });
        let (multiplier, key) = (mapping.get("allocationMultiplier"), mapping.get("capacityKey"));
        if !multiplier.exists() && !key.exists() {
            let detail = "at least one of allocationMultiplier or capacityKey must be set";
            errors.push(mapping.invalid_value("", detail));
            continue;
        }
        errors.push_if(multiplier.exists() && !resource_list::amount(&multiplier).is_positive(), || {
            multiplier.invalid("must be positive")
        });
        if key.exists() && key.is_empty() {
            errors.push(key.invalid("capacityKey must not be an empty string"));
        } else if key.exists() {
            errors.push_if(!capacities.get(key.str()).exists(), || key.not_found());
        }
    }
}

/// The members of an attribute that hold a list.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Counts the values of an attribute: the items of its lists, or 1.
fn count_values(attribute: &Field<'_>) -> usize {
    let items: usize = LISTS.iter().map(|list| attribute.get(list).len()).sum();
    items.max(1)
}

fn validate_attribute(attribute: &Field<'_>, errors: &mut Errors) {
    const ONE: &str = "exactly one value must be specified";
    let bounded = |text: &Field<'_>, errors: &mut Errors| {
        errors.push_if(text.len() > MAX_VALUE, || text.too_long(MAX_VALUE));
    };
    let version = |text: &Field<'_>, errors: &mut Errors| {
        errors.push_if(!is_semantic_version(text.str()), || {
            text.invalid("must be a string compatible with semver.org spec 2.0.0")
        });
        bounded(text, errors);
    };
    bounded(&attribute.get("string"), errors);
    if attribute.get("version").exists() {
        version(&attribute.get("version"), errors);
    }
    for list in LISTS.map(|list| attribute.get(list)) {
        errors.push_if(list.exists() && list.is_empty(), || list.invalid("must not be empty if specified"));
    }
    attribute.get("strings").items().for_each(|text| bounded(&text, errors));
    attribute.get("versions").items().for_each(|text| version(&text, errors));
    match attribute.len() {
        0 => errors.push(attribute.invalid_value("", ONE)),
        1 => {}
        _ => errors.push(printed::invalid(attribute, "resource.DeviceAttribute", ONE)),
    }
}

/// Returns `true` if the text is a version by semver.org's specification 2.0.0.
fn is_semantic_version(text: &str) -> bool {
    let identifier = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let number = |part: &str| {
        part.bytes().all(|b| b.is_ascii_digit())
            && !part.is_empty()
            && (part == "0" || !part.starts_with('0'))
    };
    let prerelease_part =
        |part: &str| identifier(part) && (number(part) || part.bytes().any(|b| !b.is_ascii_digit()));
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, prerelease) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let core: Vec<&str> = core.split('.').collect();
    core.len() == 3
        && core.into_iter().all(number)
        && prerelease.is_none_or(|pre| pre.split('.').all(prerelease_part))
        && build.is_none_or(|build| build.split('.').all(|part| !part.is_empty() && identifier(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic() {
        for (text, valid) in [
            ("1.2.3", true),
            ("0.0.0-alpha.1+build.007", true),
            ("1.0.0--", true),
            ("1.2", false),
            ("01.2.3", false),
            ("1.2.3-", false),
            ("1.2.3-01", false),
            ("1.2.3+", false),
            ("1.2.3.4", false),
            ("v1.2.3", false),
            ("", false),
        ] {
            assert_eq!(is_semantic_version(text), valid, "{text}");
        }
    }
}
