//! Consumable capacity: devices that several claims share, each of which takes a part.
//!
//! Source: `consumable_capacity.go` of the structured allocator.

use std::collections::BTreeMap;

use coracle_quantity::Quantity;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, CapacityRequirements, Device, DeviceCapacity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// Amounts by the names of capacities.
pub(crate) type Capacity = BTreeMap<String, Quantity>;

/// Parses a quantity that the API server has validated.
pub(crate) fn parse(text: &Text) -> Quantity {
    text.0.parse().unwrap_or(Quantity::from_int(0))
}

/// Returns `true` if a device allows several allocations.
pub(crate) fn is_shareable(device: &Device) -> bool {
    device.allow_multiple_allocations == Some(true)
}

/// Returns `true` if a device has the capacity that a request asks for, beside the given amounts.
///
/// - `consumed`: the amounts that other claims have, and those of this search
pub(crate) fn has_capacity(
    device: &Device,
    requested: Option<&CapacityRequirements>,
    consumed: [Option<&Capacity>; 2],
) -> bool {
    let known = |name: &String| device.capacity.as_ref().is_some_and(|all| all.contains_key(name));
    if !requests(requested).all(|(name, _)| known(name)) {
        return false;
    }
    device.capacity.iter().flatten().all(|(name, capacity)| {
        let share = share_of(name, capacity, requested);
        let others = consumed.into_iter().flatten().filter_map(|consumed| consumed.get(name));
        !violates(&share, capacity.request_policy.as_ref())
            && others.fold(share, |sum, other| sum.plus(other)) <= parse(&capacity.value)
    })
}

/// Returns the capacity of a device that a request consumes.
pub(crate) fn share(device: &Device, requested: Option<&CapacityRequirements>) -> Capacity {
    let all = device.capacity.iter().flatten();
    all.map(|(name, capacity)| (name.clone(), share_of(name, capacity, requested))).collect()
}

fn requests(requested: Option<&CapacityRequirements>) -> impl Iterator<Item = (&String, &Text)> {
    requested.into_iter().flat_map(|requested| requested.requests.iter().flatten())
}

/// Returns the amount that a request consumes: the requested one, rounded up as the policy of the
/// device says, or the default.
fn share_of(name: &str, capacity: &DeviceCapacity, requested: Option<&CapacityRequirements>) -> Quantity {
    let policy = capacity.request_policy.as_ref();
    let requested = requests(requested).find(|(known, _)| *known == name).map(|(_, text)| parse(text));
    let Some(requested) = requested else {
        let default = policy.and_then(|policy| policy.default.as_ref());
        return parse(default.unwrap_or(&capacity.value));
    };
    let Some(policy) = policy else { return requested };
    if let Some(range) = &policy.valid_range {
        return round_up(requested, range);
    }
    let values = policy.valid_values.iter().flatten().map(parse);
    values.into_iter().find(|value| requested <= *value).unwrap_or(requested)
}

/// Rounds an amount up to the minimum of a range, or to the next of its steps from there.
fn round_up(requested: Quantity, range: &CapacityRequestPolicyRange) -> Quantity {
    let min = parse(&range.min);
    if requested < min {
        return min;
    }
    let Some(step) = range.step.as_ref().map(|step| parse(step).value()).filter(|step| *step > 0) else {
        return requested;
    };
    let above = requested.value().saturating_sub(min.value());
    let missing = if above % step == 0 { 0 } else { step - above % step };
    binary(requested.value().saturating_add(missing))
}

/// Converts a number to a quantity of the binary family.
fn binary(value: i64) -> Quantity {
    let family: Quantity = "1Ki".parse().unwrap_or(Quantity::from_int(0));
    family.plus(&Quantity::from_int(value)).minus(&family)
}

/// Returns `true` if an amount is none that the policy of a device permits.
fn violates(amount: &Quantity, policy: Option<&CapacityRequestPolicy>) -> bool {
    let Some(policy) = policy else { return false };
    if policy.default.as_ref().is_some_and(|default| parse(default) == *amount) {
        return false;
    }
    if let Some(range) = &policy.valid_range {
        let is_above = range.max.as_ref().is_some_and(|max| *amount > parse(max));
        let step = range.step.as_ref().map(|step| parse(step).value()).filter(|step| *step > 0);
        let above = amount.value().saturating_sub(parse(&range.min).value());
        return is_above || step.is_some_and(|step| above % step != 0);
    }
    let mut values = policy.valid_values.iter().flatten().map(parse).peekable();
    values.peek().is_some() && !values.any(|value| value == *amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn shares_follow_the_policy_of_the_device() {
        let range = json!({"default": "2Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "2Gi"}});
        let values = json!({"default": "1Gi", "validValues": ["1Gi", "4Gi"]});
        for (case, policy, requested, taken, want) in [
            ("all of it by default", Value::Null, None, None, Some("10Gi")),
            ("all of it is not left", Value::Null, None, Some("1"), None),
            ("as requested", Value::Null, Some("3Gi"), Some("7Gi"), Some("3Gi")),
            ("too much", Value::Null, Some("4Gi"), Some("7Gi"), None),
            ("the default of a policy", range.clone(), None, Some("8Gi"), Some("2Gi")),
            ("the minimum", range.clone(), Some("1"), None, Some("1Gi")),
            ("a step up", range.clone(), Some("4Gi"), None, Some("5Gi")),
            ("on a step", range.clone(), Some("3Gi"), None, Some("3Gi")),
            ("above the range", range, Some("9Gi"), None, None),
            ("the next value", values.clone(), Some("2Gi"), None, Some("4Gi")),
            ("above all values", values, Some("5Gi"), None, None),
        ] {
            let device: Device = serde_json::from_value(json!({
                "name": "d", "capacity": {"memory": {"value": "10Gi", "requestPolicy": policy}},
            }))
            .unwrap();
            let requested = requested
                .map(|amount| serde_json::from_value(json!({"requests": {"memory": amount}})).unwrap());
            let taken = taken.map(|amount| Capacity::from([("memory".to_owned(), amount.parse().unwrap())]));
            let fits = has_capacity(&device, requested.as_ref(), [taken.as_ref(), None]);
            let share = share(&device, requested.as_ref()).remove("memory").unwrap().to_string();
            assert_eq!(fits.then_some(share.as_str()), want, "{case}");
        }
    }

    #[test]
    fn an_unknown_capacity_fits_no_device() {
        let device: Device = serde_json::from_value(json!({"name": "d"})).unwrap();
        let requested = serde_json::from_value(json!({"requests": {"memory": "1"}})).unwrap();
        assert!(!has_capacity(&device, Some(&requested), [None, None]));
        assert!(has_capacity(&device, None, [None, None]));
    }
}
