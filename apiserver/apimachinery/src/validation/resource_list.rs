//! Resource lists: the names of resources and their amounts (`cpu: 100m`).
//!
//! Source: the Kubernetes documentation, "Resource Management"; the texts are those of
//! kube-apiserver.

use coracle_pod_resources::ResourceList;
use coracle_pod_resources::names::{self, COMPUTE};
use coracle_quantity::Quantity;
use serde_json::Value;

use super::content;
use crate::field::{Errors, Field};

pub use coracle_pod_resources::names::{HUGE_PAGES, is_huge_pages, is_native};

/// Countable objects: their amounts are whole numbers.
const OBJECTS: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Parses a list of quantities by resource name.
pub fn read(list: &Field<'_>) -> ResourceList {
    list.entries().filter_map(|(name, value)| Some((name.to_owned(), value.str().parse().ok()?))).collect()
}

/// Checks for a vendor's resource, such as `example.com/gpu`.
pub fn is_extended(name: &str) -> bool {
    let in_quota = format!("requests.{name}");
    names::is_extended(name) && content::qualified_name(&in_quota).is_empty()
}

/// Returns `true` if the limit of the resource may exceed its request.
pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

/// Returns `true` if the resource is one that quotas know.
pub fn is_standard_in_quota(name: &str) -> bool {
    let part = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits."));
    COMPUTE.contains(&part.unwrap_or(name))
        || name == "requests.storage"
        || OBJECTS.contains(&name)
        || is_quota_huge_pages(name)
}

/// Returns `true` if the resource is measured in whole numbers.
fn is_counted(name: &str) -> bool {
    OBJECTS.contains(&name) || is_extended(name)
}

/// Validates the name of a resource; errors are reported at `field`. Returns whether it is valid.
pub fn validate_name(name: &str, field: &Field<'_>, errors: &mut Errors) -> bool {
    let mistakes = content::qualified_name(name);
    let unknown =
        mistakes.is_empty() && !name.contains('/') && !(name == "storage" || is_standard_in_quota(name));
    let passed = mistakes.is_empty() && !unknown;
    errors.extend(mistakes.into_iter().map(|e| field.invalid_value(name, e)));
    errors.push_if(unknown, || {
        field.invalid_value(name, "must be a standard resource type or fully qualified")
    });
    passed
}

/// Validates the name of a resource that containers request.
pub fn validate_container_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    validate_name(name, field, errors);
    if !name.contains('/') {
        errors.push_if(!COMPUTE.contains(&name) && !is_huge_pages(name), || {
            field.invalid_value(name, "must be a standard resource for containers")
        });
    } else if !is_native(name) {
        errors.push_if(!is_extended(name), || {
            field.invalid_value(name, "doesn't follow extended resource name standard")
        });
    }
}

/// Validates the name of a resource that quotas limit.
pub fn validate_quota_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    validate_name(name, field, errors);
    errors.push_if(!name.contains('/') && !is_standard_in_quota(name), || {
        field.invalid_value(name, "must be a standard resource for quota")
    });
}

/// Returns the quantity in a field; 0 if it is absent.
pub fn amount(field: &Field<'_>) -> Quantity {
    field.str().parse().unwrap_or(Quantity::from_int(0))
}

/// Validates an amount of the resource `name`: not negative, and whole if the resource is counted.
pub fn validate_amount(name: &str, field: &Field<'_>, errors: &mut Errors) {
    validate_not_negative(field, errors);
    errors.push_if(is_counted(name) && amount(field).milli_value() % 1000 != 0, || {
        field.invalid("must be an integer")
    });
}

/// Rejects a negative amount.
pub fn validate_not_negative(field: &Field<'_>, errors: &mut Errors) {
    errors.push_if(amount(field).is_negative(), || field.invalid("must be greater than or equal to 0"));
}

/// Rejects an amount that is not positive.
pub fn validate_positive(field: &Field<'_>, errors: &mut Errors) {
    errors.push_if(!amount(field).is_positive(), || field.invalid("must be greater than zero"));
}

/// Validates a capacity by the oldest rule, which prints the amount as a plain number.
pub fn validate_capacity(field: &Field<'_>, errors: &mut Errors) {
    let value = amount(field).value();
    errors.push_if(value < 0, || field.invalid_value(value, "must be a valid resource quantity"));
}

/// Rounds amounts up that are finer than thousandths, as defaulting does.
pub fn round_up(list: Option<&mut Value>) {
    for value in list.and_then(Value::as_object_mut).into_iter().flat_map(|list| list.values_mut()) {
        let Some(quantity) = value.as_str().and_then(|text| text.parse::<Quantity>().ok()) else { continue };
        let rounded = quantity.rounded_up_to_milli();
        // What needs no rounding keeps its text, such as `+1`.
        if rounded != quantity {
            *value = rounded.to_string().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_rounded_up_and_others_keep_their_text() {
        let mut list = json!({"a": "1", "b": "+1", "c": "1u", "d": "1500m", "e": "1.5u"});
        round_up(Some(&mut list));
        assert_eq!(list, json!({"a": "1", "b": "+1", "c": "1m", "d": "1500m", "e": "1m"}));
    }

    #[test]
    fn resource_names_are_classified() {
        for (name, in_containers, in_quotas) in [
            ("cpu", true, true),
            ("hugepages-2Mi", true, true),
            ("requests.hugepages-2Mi", false, true),
            ("limits.cpu", false, true),
            ("limits.storage", false, false),
            ("storage", false, false),
            ("requests.storage", false, true),
            ("services.nodeports", false, true),
            ("example.com/gpu", true, true),
            ("kubernetes.io/batteries", true, true),
            ("bananas", false, false),
            ("a b", false, false),
        ] {
            let object = json!({"x": "1"});
            let field = Field::root(&object).get("x");
            let passes = |rule: fn(&str, &Field<'_>, &mut Errors)| {
                let mut errors = Errors::new();
                rule(name, &field, &mut errors);
                errors.is_empty()
            };
            assert_eq!(
                (passes(validate_container_name), passes(validate_quota_name)),
                (in_containers, in_quotas),
                "{name}"
            );
        }
    }

    #[test]
    fn amounts_are_validated() {
        for (name, text, want) in [
            ("cpu", "100m", vec![]),
            ("cpu", "-1", vec!["x: Invalid value: \"-1\": must be greater than or equal to 0"]),
            ("pods", "1500m", vec!["x: Invalid value: \"1500m\": must be an integer"]),
            ("example.com/gpu", "500m", vec!["x: Invalid value: \"500m\": must be an integer"]),
        ] {
            let object = json!({"x": text});
            let mut errors = Errors::new();
            validate_amount(name, &Field::root(&object).get("x"), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
        }
        let mut list = json!({"cpu": "100u", "memory": "1Gi"});
        round_up(Some(&mut list));
        assert_eq!(list, json!({"cpu": "1m", "memory": "1Gi"}));
    }
}
