//! The status of a claim: which devices are allocated to it, what their drivers report, and which
//! objects it is reserved for.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field, escape_html};
use coracle_apimachinery::validation::conditions::validate_conditions;
use coracle_apimachinery::validation::immutable::immutable_as;
use coracle_apimachinery::validation::ip::Cidr;
use coracle_apimachinery::validation::node_selector::validate_node_selector;
use coracle_apimachinery::validation::volume_sources::validate_csi_driver_name;
use coracle_apimachinery::validation::{content, labels, member};
use serde_json::Value;

use super::devices;
use super::lists::{MAX_ENTRIES, refuse_duplicates, validate_list};
use super::names::{validate_pool_name, validate_share};

const MAX_RESERVATIONS: usize = 256;
const MAX_BINDING_CONDITIONS: usize = 4;
const MAX_CONDITIONS: usize = 8;
const MAX_DATA: usize = 10 * 1024;
const MAX_INTERFACE_NAME: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;
const MAX_ADDRESSES: usize = 16;
const SOURCES: [&str; 2] = ["FromClaim", "FromClass"];

/// Returns a device as it is printed, which also identifies it.
fn device_id(device: &Field<'_>) -> String {
    let part = |member| Value::from(device.get(member).str());
    let (driver, pool, name, share) = (part("driver"), part("pool"), part("device"), part("shareID"));
    escape_html(&format!(r#"{{"Driver":{driver},"Pool":{pool},"Device":{name},"ShareID":{share}}}"#))
}

fn allocated(status: &Field<'_>) -> HashSet<String> {
    status.walk("allocation.devices.results").items().map(|result| device_id(&result)).collect()
}

/// Removes what drivers reported about devices that are no longer allocated.
pub fn drop_deallocated(status: &mut Value, old: &Value) {
    let (kept, before) = (allocated(&Field::root(status)), allocated(&Field::root(old)));
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|device| {
        let id = device_id(&Field::root(device));
        kept.contains(&id) || !before.contains(&id)
    });
    if devices.is_empty()
        && let Some(status) = status.as_object_mut()
    {
        status.remove("devices");
    }
}

/// Validates a changed status. `spec` is that of the claim.
pub fn validate_status(
    spec: &Field<'_>,
    status: &Field<'_>,
    old: &Field<'_>,
    is_terminating: bool,
    errors: &mut Errors,
) {
    validate_reservations(status, old, is_terminating, errors);
    let known = allocated(status);
    let devices = status.get("devices");
    for device in devices.items() {
        validate_device_status(&device, &known, errors);
    }
    let mut seen = HashSet::new();
    for device in devices.items() {
        let id = device_id(&device);
        errors.push_if(seen.contains(&id), || device.duplicate().with_bad_value_text(id.clone()));
        seen.insert(id);
    }
    let (allocation, old_allocation) = (status.get("allocation"), old.get("allocation"));
    if allocation.exists() && old_allocation.exists() {
        immutable_as("resource.AllocationResult", &allocation, &old_allocation, errors);
    } else if allocation.exists() {
        validate_allocation(&allocation, &spec.walk("devices.requests"), errors);
    }
}

fn validate_reservations(status: &Field<'_>, old: &Field<'_>, is_terminating: bool, errors: &mut Errors) {
    let reserved = status.get("reservedFor");
    let fits = validate_list(&reserved, MAX_RESERVATIONS, errors, |consumer, errors| {
        member::all_required(consumer, &["resource", "name", "uid"], errors);
    });
    if fits {
        refuse_duplicates(&reserved, |consumer| consumer.get("uid").str(), errors);
    }
    if reserved.is_empty() {
        return;
    }
    if !status.get("allocation").exists() {
        return errors.push(reserved.forbidden("may not be specified when `allocated` is not set"));
    }
    let known = old.get("reservedFor");
    let known: HashSet<&Value> = known.items().filter_map(|known| known.value()).collect();
    let grows = reserved.items().filter_map(|consumer| consumer.value()).any(|one| !known.contains(one));
    errors.push_if(is_terminating && grows, || {
        reserved.forbidden(
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
        )
    });
}

fn validate_device_status(device: &Field<'_>, allocated: &HashSet<String>, errors: &mut Errors) {
    let (name, share) = (device.get("device"), device.get("shareID"));
    validate_csi_driver_name(&device.get("driver"), errors);
    validate_pool_name(&device.get("pool"), errors);
    errors.invalid_each(&name, content::dns1123_label(name.str()));
    if share.exists() {
        validate_share(&share, errors);
    }
    let id = device_id(device);
    errors.push_if(!allocated.contains(&id), || {
        device.invalid("must be an allocated device in the claim").with_bad_value_text(id)
    });
    let conditions = device.get("conditions");
    errors
        .push_if(conditions.len() > MAX_CONDITIONS, || conditions.too_many(conditions.len(), MAX_CONDITIONS));
    validate_conditions(&conditions, errors);
    let data = device.get("data");
    if data.exists() {
        devices::validate_object(&data, Some(MAX_DATA), errors);
    }
    validate_network(&device.get("networkData"), errors);
}

fn validate_network(network: &Field<'_>, errors: &mut Errors) {
    for (name, most) in [("interfaceName", MAX_INTERFACE_NAME), ("hardwareAddress", MAX_HARDWARE_ADDRESS)] {
        let text = network.get(name);
        errors.push_if(text.len() > most, || text.too_long(most));
    }
    let addresses = network.get("ips");
    if validate_list(&addresses, MAX_ADDRESSES, errors, validate_interface_address) {
        refuse_duplicates(&addresses, |address| address.str(), errors);
    }
}

/// Validates an address with the length of its network's prefix, in canonical form.
fn validate_interface_address(address: &Field<'_>, errors: &mut Errors) {
    let Some(cidr) = Cidr::parse(address.str()) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return errors.push(address.invalid(detail));
    };
    let canonical = cidr.to_string();
    errors.push_if(address.str() != canonical, || {
        address.invalid(format!("must be in canonical form ({canonical:?})"))
    });
}

fn validate_allocation(allocation: &Field<'_>, requests: &Field<'_>, errors: &mut Errors) {
    let devices = allocation.get("devices");
    validate_list(&devices.get("results"), MAX_ENTRIES, errors, |result, errors| {
        validate_result(result, requests, errors);
    });
    validate_list(&devices.get("config"), 2 * MAX_ENTRIES, errors, |config, errors| {
        member::required_one_of(&config.get("source"), &SOURCES, errors);
        devices::validate_references(&config.get("requests"), requests, errors);
        devices::validate_configuration(config, true, errors);
    });
    let selector = allocation.get("nodeSelector");
    if selector.exists() {
        validate_node_selector(&selector, false, errors);
    }
}

fn validate_result(result: &Field<'_>, requests: &Field<'_>, errors: &mut Errors) {
    let (name, share) = (result.get("device"), result.get("shareID"));
    devices::validate_reference(&result.get("request"), requests, errors);
    validate_csi_driver_name(&result.get("driver"), errors);
    validate_pool_name(&result.get("pool"), errors);
    errors.invalid_each(&name, content::dns1123_label(name.str()));
    validate_binding_conditions(result, errors);
    if share.exists() {
        validate_share(&share, errors);
    }
}

/// Validates the conditions under which a claim is bound to a device, and those under which that
/// failed.
pub fn validate_binding_conditions(owner: &Field<'_>, errors: &mut Errors) {
    let (binding, failure) = (owner.get("bindingConditions"), owner.get("bindingFailureConditions"));
    for list in [&binding, &failure] {
        validate_list(list, MAX_BINDING_CONDITIONS, errors, labels::validate_label_name);
    }
    refuse_duplicates(&binding, |condition| condition.str(), errors);
    refuse_duplicates(&failure, |condition| condition.str(), errors);
    let known: HashSet<&str> = binding.items().map(|condition| condition.str()).collect();
    for condition in failure.items() {
        errors.push_if(known.contains(condition.str()), || {
            condition.invalid("bindingFailureConditions must not overlap with bindingConditions")
        });
    }
    errors.push_if(binding.is_empty() && !failure.is_empty(), || {
        binding.invalid_or_null("bindingConditions are required to use bindingFailureConditions")
    });
    errors.push_if(failure.is_empty() && !binding.is_empty(), || {
        failure.invalid_or_null("bindingFailureConditions are required to use bindingConditions")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(status: Value, old: Value) -> Vec<String> {
        let spec = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}});
        let object = json!({"status": status});
        let mut errors = Errors::new();
        let status = Field::root(&object).get("status");
        validate_status(&Field::root(&spec), &status, &Field::root(&old), false, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_status_of_a_claim_is_validated() {
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "x"});
        let allocation = json!({"devices": {"results": [result]}});
        let device = json!({"driver": "d", "pool": "p", "device": "x"});
        for (status, old, want) in [
            (json!({"allocation": allocation, "devices": [device]}), json!({}), vec![]),
            (
                json!({"devices": [device, device]}),
                json!({}),
                vec![
                    r#"status.devices[0]: Invalid value: {"Driver":"d","Pool":"p","Device":"x","ShareID":""}: must be an allocated device in the claim"#,
                    r#"status.devices[1]: Invalid value: {"Driver":"d","Pool":"p","Device":"x","ShareID":""}: must be an allocated device in the claim"#,
                    r#"status.devices[1]: Duplicate value: {"Driver":"d","Pool":"p","Device":"x","ShareID":""}"#,
                ],
            ),
            (
                json!({"allocation": {"devices": {"config": [{"source": "x", "opaque": {"driver": "d", "parameters": {}}}]}}}),
                json!({}),
                vec![
                    r#"status.allocation.devices.config[0].source: Unsupported value: "x": supported values: "FromClaim", "FromClass""#,
                ],
            ),
            (
                json!({"allocation": {"devices": {"results": [{"request": "r/s", "driver": "d", "pool": "p", "device": "x"}]}}}),
                json!({}),
                vec![
                    r#"status.allocation.devices.results[0].request: Invalid value: "r/s": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
                ],
            ),
            (
                json!({"allocation": allocation, "devices": [{"driver": "d", "pool": "p", "device": "x", "networkData": {"ips": ["10.1.2.3", "10.01.2.3/24"]}}]}),
                json!({}),
                vec![
                    r#"status.devices[0].networkData.ips[0]: Invalid value: "10.1.2.3": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"#,
                    r#"status.devices[0].networkData.ips[1]: Invalid value: "10.01.2.3/24": must be in canonical form ("10.1.2.3/24")"#,
                ],
            ),
            (
                json!({"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "p"}]}),
                json!({"allocation": allocation}),
                vec!["status.reservedFor[0].uid: Required value"],
            ),
        ] {
            assert_eq!(found(status.clone(), old), want, "{status}");
        }
    }

    #[test]
    fn what_drivers_reported_about_deallocated_devices_is_dropped() {
        let device = |name: &str| json!({"driver": "d", "pool": "p", "device": name});
        let of = |names: &[&str]| {
            let results: Vec<Value> = names.iter().map(|name| device(name)).collect();
            json!({"devices": {"results": results}})
        };
        let old = json!({"allocation": of(&["a", "b"])});
        let mut status =
            json!({"allocation": of(&["b"]), "devices": [device("a"), device("b"), device("c")]});
        drop_deallocated(&mut status, &old);
        assert_eq!(status["devices"], json!([device("b"), device("c")]));
        let mut status = json!({"devices": [device("a")]});
        drop_deallocated(&mut status, &old);
        assert_eq!(status, json!({}));
    }

    #[test]
    fn binding_conditions_come_in_pairs_of_lists() {
        for (device, want) in [
            (json!({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]}), ""),
            (
                json!({"bindingConditions": ["a"]}),
                "d.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
            ),
            (
                json!({"bindingConditions": ["a"], "bindingFailureConditions": ["a"]}),
                "d.bindingFailureConditions[0]: Invalid value: \"a\": bindingFailureConditions must not overlap with bindingConditions",
            ),
        ] {
            let object = json!({"d": device});
            let mut errors = Errors::new();
            validate_binding_conditions(&Field::root(&object).get("d"), &mut errors);
            assert_eq!(if errors.is_empty() { String::new() } else { errors.summary() }, want, "{device}");
        }
    }
}
