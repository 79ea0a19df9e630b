//! Capacities of devices, and the rounding policies of requests for a part of one.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::resource_list::amount;
use coracle_quantity::Quantity;

const MAX_VALUES: usize = 10;

/// Validates a capacity; only one of a device that `is_shared` has a policy.
pub fn validate(capacity: &Field<'_>, is_shared: bool, errors: &mut Errors) {
    let policy = capacity.get("requestPolicy");
    if !policy.exists() {
        return;
    }
    if !is_shared {
        return errors.push(policy.forbidden("allowMultipleAllocations must be true"));
    }
    let (values, range, default) =
        (policy.get("validValues"), policy.get("validRange"), policy.get("default"));
    let most = amount(&capacity.get("value"));
    match (values.is_empty(), range.exists()) {
        (false, true) => errors.push(policy.forbidden(
            r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#,
        )),
        (true, false) => {}
        (false, false) if !default.exists() => {
            errors.push(default.required("required when validValues is defined"));
        }
        (false, false) => validate_values(&values, &default, most, errors),
        (true, true) if !default.exists() => {
            errors.push(default.required("required when validRange is defined"));
        }
        (true, true) => validate_range(&range, &default, most, errors),
    }
}

fn validate_values(values: &Field<'_>, default: &Field<'_>, most: Quantity, errors: &mut Errors) {
    for (one, next) in values.items().zip(values.items().skip(1)) {
        errors.push_if(amount(&one) > amount(&next), || {
            next.invalid("values must be sorted in ascending order")
        });
    }
    let mut is_default_valid = false;
    if values.len() > MAX_VALUES {
        errors.push(values.too_many(values.len(), MAX_VALUES));
    } else {
        let mut seen = HashSet::new();
        for value in values.items() {
            let quantity = amount(&value);
            errors.push_if(quantity > most, || {
                value.invalid(format!("option is larger than capacity value: {most}"))
            });
            is_default_valid |= quantity == amount(default);
        }
        for value in values.items() {
            let key = amount(&value).value();
            errors.push_if(!seen.insert(key), || value.duplicate_value(key.to_string()));
        }
    }
    errors.push_if(!is_default_valid, || {
        let detail = "default value is not valid according to the requestPolicy";
        values.invalid_value(default.str(), detail)
    });
}

fn validate_range(range: &Field<'_>, default: &Field<'_>, most: Quantity, errors: &mut Errors) {
    let (min, max, step) = (range.get("min"), range.get("max"), range.get("step"));
    if !min.exists() {
        return errors.push(min.required("required when validRange is defined"));
    }
    let (least, wanted) = (amount(&min), amount(default));
    errors.push_if(least > most, || min.invalid(format!("min is larger than capacity value: {most}")));
    errors.push_if(wanted < least, || {
        min.invalid_value(default.str(), format!("default is less than min: {least}"))
    });
    if max.exists() {
        let greatest = amount(&max);
        errors.push_if(least > greatest, || {
            max.invalid_value(min.str(), format!("min is larger than max: {greatest}"))
        });
        errors.push_if(greatest > most, || max.invalid(format!("max is larger than capacity value: {most}")));
        errors.push_if(wanted > greatest, || {
            max.invalid_value(default.str(), format!("default is more than max: {greatest}"))
        });
    }
    if step.exists() {
        let added = least.plus(&amount(&step));
        errors.push_if(added > most, || {
            step.invalid(format!("one step {added} is larger than capacity value: {most}"))
        });
        for value in [Some(default), Some(&max).filter(|max| max.exists())].into_iter().flatten() {
            validate_step(value, &min, &step, errors);
        }
    }
}

/// Requires that the value is a number of steps from the minimum. (With a step of 0 kube-apiserver
/// fails.)
fn validate_step(value: &Field<'_>, min: &Field<'_>, step: &Field<'_>, errors: &mut Errors) {
    let distance = amount(value).value().saturating_sub(amount(min).value());
    let fits = distance.checked_rem(amount(step).value()) == Some(0);
    errors.push_if(!fits, || {
        let detail = format!("value is not a multiple of a given step ({}) from ({})", step.str(), min.str());
        step.invalid_value(value.str(), detail)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn request_policies_are_validated() {
        for (policy, want) in [
            (json!({}), ""),
            (json!({"validValues": ["1", "2"], "default": "1"}), ""),
            (
                json!({"validValues": ["1"]}),
                "c.requestPolicy.default: Required value: required when validValues is defined",
            ),
            (
                json!({"validValues": ["2", "1"], "default": "3"}),
                "[c.requestPolicy.validValues[1]: Invalid value: \"1\": values must be sorted in ascending order, c.requestPolicy.validValues: Invalid value: \"3\": default value is not valid according to the requestPolicy]",
            ),
            (
                json!({"validValues": ["20"], "default": "20"}),
                "c.requestPolicy.validValues[0]: Invalid value: \"20\": option is larger than capacity value: 10",
            ),
            (json!({"validRange": {"min": "1", "max": "9", "step": "2"}, "default": "3"}), ""),
            (
                json!({"validRange": {"min": "1", "step": "2"}, "default": "4"}),
                "c.requestPolicy.validRange.step: Invalid value: \"4\": value is not a multiple of a given step (2) from (1)",
            ),
            (
                json!({"validRange": {}, "default": "4"}),
                "c.requestPolicy.validRange.min: Required value: required when validRange is defined",
            ),
        ] {
            let object = json!({"c": {"value": "10", "requestPolicy": policy}});
            let mut errors = Errors::new();
            validate(&Field::root(&object).get("c"), true, &mut errors);
            assert_eq!(if errors.is_empty() { String::new() } else { errors.summary() }, want, "{policy}");
        }
    }
}
