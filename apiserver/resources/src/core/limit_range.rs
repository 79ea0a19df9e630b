//! LimitRange.

use std::collections::{BTreeSet, HashSet};

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::{content, resource_list};
use coracle_quantity::Quantity;
use serde_json::{Value, json};

const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
const TYPES: [&str; 3] = ["Container", "PersistentVolumeClaim", "Pod"];

/// The strategy of LimitRange.
pub struct LimitRangeStrategy;

impl Strategy for LimitRangeStrategy {
    fn default(&self, range: &mut Value) {
        let limits = range.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
        for limit in limits.into_iter().flatten() {
            if limit["type"] == "Container" {
                default_from(limit, "default", "max");
                default_from(limit, "defaultRequest", "default");
                default_from(limit, "defaultRequest", "min");
            }
            for list in LISTS {
                resource_list::round_up(limit.get_mut(list));
            }
        }
    }

    fn prepare_for_create(&self, range: &mut Value, _: &Context<'_>) {
        let named = ["/metadata/name", "/metadata/generateName"]
            .map(|name| range.pointer(name))
            .map(|name| name.and_then(Value::as_str).is_some_and(|name| !name.is_empty()));
        if named == [false, false] {
            range["metadata"]["name"] = uuid::Uuid::new_v4().to_string().into();
        }
    }

    fn validate(&self, range: &Field<'_>, errors: &mut Errors) {
        let mut types = HashSet::new();
        for limit in range.walk("spec.limits").items() {
            let kind = limit.get("type");
            validate_type(&kind, errors);
            errors.push_if(!types.insert(kind.str()), || kind.duplicate());
            validate_lists(&limit, errors);
            validate_against_each_other(&limit, errors);
        }
    }
}

/// Copies the missing entries of a list from another one.
fn default_from(limit: &mut Value, list: &str, source: &str) {
    let Some(source) = limit.get(source).and_then(Value::as_object).cloned() else { return };
    if limit[list].is_null() {
        limit[list] = json!({});
    }
    if let Some(list) = limit.get_mut(list).and_then(Value::as_object_mut) {
        for (name, amount) in source {
            list.entry(name).or_insert(amount);
        }
    }
}

fn validate_type(kind: &Field<'_>, errors: &mut Errors) {
    let found = content::qualified_name(kind.str());
    let unknown = found.is_empty() && !kind.str().contains('/') && !TYPES.contains(&kind.str());
    errors.invalid_each(kind, found);
    errors.push_if(unknown, || kind.invalid("must be a standard limit type or fully qualified"));
}

/// Checks whether a kind may have a list. A whole pod has no defaults: its requests are those of
/// its containers.
fn may_have(kind: &str, list: &str) -> bool {
    kind != "Pod" || !list.starts_with("default")
}

fn validate_lists(limit: &Field<'_>, errors: &mut Errors) {
    let kind = limit.get("type").str();
    for list in LISTS {
        let amounts = limit.get(list);
        if !may_have(kind, list) {
            errors.push_if(!amounts.is_empty(), || {
                amounts.forbidden("may not be specified when `type` is 'Pod'")
            });
            continue;
        }
        if kind == "PersistentVolumeClaim" && list == "maxLimitRequestRatio" {
            validate_storage_limit(limit, errors);
        }
        for (name, amount) in amounts.entries() {
            if ["Pod", "Container"].contains(&kind) {
                resource_list::validate_container_name(name, &amount, errors);
            } else {
                resource_list::validate_name(name, &amount, errors);
            }
        }
    }
}

fn validate_storage_limit(limit: &Field<'_>, errors: &mut Errors) {
    let limited = ["min", "max"].iter().any(|list| limit.get(list).get("storage").exists());
    errors.push_if(!limited, || {
        limit
            .with_path(limit.path().child("limits"))
            .required("either minimum or maximum storage value is required, but neither was provided")
    });
}

/// Validates that minimum, default and maximum amounts are in that order.
fn validate_against_each_other(limit: &Field<'_>, errors: &mut Errors) {
    let kind = limit.get("type").str();
    let lists = LISTS.into_iter().filter(|list| may_have(kind, list)).map(|list| limit.get(list));
    let names: BTreeSet<&str> = lists.flat_map(|list| list.entries().map(|(name, _)| name)).collect();
    for name in names {
        let at = |list: &'static str| limit.get(list).entry(name);
        let amount = |list: &'static str| {
            let amount = at(list);
            (amount.exists() && may_have(kind, list)).then(|| resource_list::amount(&amount))
        };
        // Lower list, higher list, the reported list, which of both values is shown, and the words
        // of the message.
        for (less, more, list, shows_less, less_is, more_is) in [
            ("min", "max", "min", true, "min", "max"),
            ("min", "defaultRequest", "defaultRequest", false, "min", "default request"),
            ("defaultRequest", "max", "defaultRequest", true, "default request", "max"),
            ("defaultRequest", "default", "defaultRequest", true, "default request", "default limit"),
            ("min", "default", "default", true, "min", "default"),
            ("default", "max", "default", false, "default", "max"),
        ] {
            if let (Some(small), Some(big)) = (amount(less), amount(more)) {
                errors.push_if(small > big, || {
                    let shown = if shows_less { small } else { big };
                    at(list).invalid_value(
                        shown.to_string(),
                        format!("{less_is} value {small} is greater than {more_is} value {big}"),
                    )
                });
            }
        }
        if let Some(ratio) = amount("maxLimitRequestRatio") {
            let field = at("maxLimitRequestRatio");
            errors.push_if(ratio < Quantity::from_int(1), || {
                field.invalid(format!("ratio {ratio} is less than 1"))
            });
            if let (Some(min), Some(max)) = (amount("min"), amount("max")) {
                validate_ratio(&field, ratio, min, max, errors);
            }
        }
        if let (Some(default), Some(request)) = (amount("default"), amount("defaultRequest")) {
            errors.push_if(!resource_list::is_overcommit_allowed(name) && default != request, || {
                at("defaultRequest").invalid(format!(
                    "default value {default} must equal to defaultRequest value {request} in {name}"
                ))
            });
        }
    }
}

fn validate_ratio(field: &Field<'_>, ratio: Quantity, min: Quantity, max: Quantity, errors: &mut Errors) {
    const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;
    let exact = [ratio, min, max].iter().all(|quantity| quantity.value() < MAX_MILLI_VALUE);
    let number = |quantity: Quantity| match exact {
        true => quantity.milli_value() as f64 / 1000.0,
        false => quantity.value() as f64,
    };
    let bound = number(max) / number(min);
    errors.push_if(number(ratio) > bound, || {
        field.invalid(format!("ratio {ratio} is greater than max/min = {bound:.6}"))
    });
}
