//! Requests of devices: requests, selectors, constraints, configuration, tolerations.

use std::collections::HashSet;
use std::sync::LazyLock;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{Object, fill};
use coracle_apimachinery::validation::volume_sources::validate_csi_driver_name;
use coracle_apimachinery::validation::{content, labels};
use coracle_cel::{Env, environments};
use serde_json::{Value, json};

/// The maximum number of requests, constraints, configurations and selectors, each.
const MAX_ENTRIES: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const MAX_EXPRESSION: usize = 10 * 1024;
/// The estimated cost that a selector may have.
const MAX_COST: u64 = 1_000_000;
const MAX_PARAMETERS: usize = 10 * 1024;
const MAX_IDENTIFIER: usize = 32;
const ALLOCATION_MODES: [&str; 2] = ["All", "ExactCount"];
const TAINT_EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const TOLERATION_OPERATORS: [&str; 2] = ["Equal", "Exists"];

/// Defaults the requests of a claim's spec.
pub fn default_requests(spec: &mut Value) {
    let requests = spec.pointer_mut("/devices/requests").and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly").and_then(Value::as_object_mut) {
            default_request(exactly);
        }
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        alternatives.into_iter().flatten().filter_map(Value::as_object_mut).for_each(default_request);
    }
}

fn default_request(request: &mut Object) {
    fill(request, [("allocationMode", json!("ExactCount"))]);
    let none = request.get("count").and_then(Value::as_i64).unwrap_or(0) == 0;
    if request["allocationMode"] == "ExactCount" && none {
        request.insert("count".into(), json!(1));
    }
    let tolerations = request.get_mut("tolerations").and_then(Value::as_array_mut).into_iter().flatten();
    for toleration in tolerations.filter_map(Value::as_object_mut) {
        if toleration.get("operator").is_none_or(|operator| operator == "") {
            toleration.insert("operator".into(), "Equal".into());
        }
    }
}

/// Validates each entry of a list with at most `most` entries.
pub fn validate_list(
    list: &Field<'_>,
    most: usize,
    errors: &mut Errors,
    mut each: impl FnMut(&Field<'_>, &mut Errors),
) -> bool {
    if list.len() > most {
        errors.push(list.too_many(list.len(), most));
        return false;
    }
    for entry in list.items() {
        each(&entry, errors);
    }
    true
}

/// Reports entries with the same `key`.
pub fn refuse_duplicates<'a>(list: &Field<'a>, key: impl Fn(&Field<'a>) -> &'a str, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for entry in list.items() {
        let key = key(&entry);
        errors.push_if(!seen.insert(key), || entry.duplicate_value(key));
    }
}

/// Validates a claim's spec.
pub fn validate_claim_spec(spec: &Field<'_>, errors: &mut Errors) {
    let devices = spec.get("devices");
    let requests = devices.get("requests");
    if validate_list(&requests, MAX_ENTRIES, errors, validate_request) {
        refuse_duplicates(&requests, |request| request.get("name").str(), errors);
    }
    validate_list(&devices.get("constraints"), MAX_ENTRIES, errors, |constraint, errors| {
        validate_constraint(constraint, &requests, errors);
    });
    validate_list(&devices.get("config"), MAX_ENTRIES, errors, |config, errors| {
        validate_references(&config.get("requests"), &requests, errors);
        validate_configuration(config, errors);
    });
}

fn validate_request(request: &Field<'_>, errors: &mut Errors) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    validate_label(&request.get("name"), errors);
    let (exactly, alternatives) = (request.get("exactly"), request.get("firstAvailable"));
    match (exactly.exists(), !alternatives.is_empty()) {
        (false, false) => errors.push(request.required(ONE)),
        (true, true) => {
            errors.push(request.invalid_value(Value::Null, format!("{ONE}, but multiple fields are set")));
        }
        (true, false) => validate_one_request(&exactly, errors),
        (false, true) => {
            let fits = validate_list(&alternatives, MAX_ALTERNATIVES, errors, |request, errors| {
                validate_label(&request.get("name"), errors);
                validate_one_request(request, errors);
            });
            if fits {
                refuse_duplicates(&alternatives, |request| request.get("name").str(), errors);
            }
        }
    }
}

fn validate_label(name: &Field<'_>, errors: &mut Errors) {
    errors.invalid_each(name, content::dns1123_label(name.str()));
}

fn validate_one_request(request: &Field<'_>, errors: &mut Errors) {
    let class = request.get("deviceClassName");
    if class.is_empty() {
        errors.push(class.required(""));
    } else {
        errors.invalid_each(&class, content::dns1123_subdomain(class.str()));
    }
    validate_selectors(&request.get("selectors"), errors);
    let (mode, count) = (request.get("allocationMode"), request.get("count"));
    let number = count.int().unwrap_or(0);
    match mode.str() {
        "All" => errors
            .push_if(number != 0, || count.invalid("must not be specified when allocationMode is 'All'")),
        "ExactCount" => {
            errors.push_if(number <= 0, || count.invalid_value(number, "must be greater than zero"));
        }
        _ => errors.push(mode.not_supported(&ALLOCATION_MODES)),
    }
    for toleration in request.get("tolerations").items() {
        validate_toleration(&toleration, errors);
    }
}

/// Validates the CEL selectors of a request or a class.
pub fn validate_selectors(selectors: &Field<'_>, errors: &mut Errors) {
    validate_list(selectors, MAX_ENTRIES, errors, |selector, errors| {
        let cel = selector.get("cel");
        let expression = cel.get("expression");
        errors.push_if(!cel.exists(), || cel.required(""));
        if expression.len() > MAX_EXPRESSION {
            errors.push(expression.too_long(MAX_EXPRESSION));
        } else if cel.exists() {
            validate_expression(&expression, errors);
        }
    });
}

fn validate_expression(expression: &Field<'_>, errors: &mut Errors) {
    static ENV: LazyLock<Env> = LazyLock::new(environments::device);
    match environments::compile_selector(&ENV, expression.str()) {
        Err(detail) => errors.push(expression.invalid(detail)),
        Ok(program) => errors.push_if(program.max_cost() > MAX_COST, || {
            expression.forbidden("too complex, exceeds cost limit")
        }),
    }
}

fn validate_toleration(toleration: &Field<'_>, errors: &mut Errors) {
    let (key, operator, value) = (toleration.get("key"), toleration.get("operator"), toleration.get("value"));
    if !key.is_empty() {
        labels::validate_label_name(&key, errors);
    }
    match operator.str() {
        "Exists" => {
            errors.push_if(!value.is_empty(), || value.invalid("must be empty for operator `Exists`"))
        }
        "Equal" => errors.invalid_each(&value, content::label_value(value.str())),
        "" => errors.push(operator.required("")),
        _ => errors.push(operator.not_supported(&TOLERATION_OPERATORS)),
    }
    validate_effect(&toleration.get("effect"), errors);
}

fn validate_effect(effect: &Field<'_>, errors: &mut Errors) {
    errors.push_if(!effect.is_empty() && !TAINT_EFFECTS.contains(&effect.str()), || {
        effect.not_supported(&TAINT_EFFECTS)
    });
}

/// Validates a device taint.
pub fn validate_taint(taint: &Field<'_>, errors: &mut Errors) {
    let (value, effect) = (taint.get("value"), taint.get("effect"));
    labels::validate_label_name(&taint.get("key"), errors);
    errors.invalid_each(&value, content::label_value(value.str()));
    errors.push_if(effect.is_empty(), || effect.required(""));
    validate_effect(&effect, errors);
}

fn validate_constraint(constraint: &Field<'_>, requests: &Field<'_>, errors: &mut Errors) {
    validate_references(&constraint.get("requests"), requests, errors);
    let (same, distinct) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
    if same.exists() {
        validate_full_name(&same, errors);
    } else if distinct.exists() {
        validate_full_name(&distinct, errors);
    } else {
        errors.push(constraint.required(
            r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#,
        ));
    }
}

/// `request` or `request/alternative`, each naming one in the claim.
fn validate_references(names: &Field<'_>, requests: &Field<'_>, errors: &mut Errors) {
    const UNKNOWN: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let known: HashSet<String> = requests
        .items()
        .flat_map(|request| {
            let name = request.get("name").str();
            let alternatives = request.get("firstAvailable").items();
            let alternatives = alternatives.map(move |other| format!("{name}/{}", other.get("name").str()));
            std::iter::once(name.to_owned()).chain(alternatives)
        })
        .collect();
    let fits = validate_list(names, MAX_ENTRIES, errors, |name, errors| {
        let segments: Vec<&str> = name.str().split('/').collect();
        if segments.len() <= 2 {
            for segment in segments {
                for error in content::dns1123_label(segment) {
                    errors.push(name.invalid_value(segment, error));
                }
            }
        }
        errors.push_if(!known.contains(name.str()), || name.invalid(UNKNOWN));
    });
    if fits {
        refuse_duplicates(names, |name| name.str(), errors);
    }
}

/// The configuration that a driver gets for the devices it prepares.
pub fn validate_configuration(config: &Field<'_>, errors: &mut Errors) {
    let opaque = config.get("opaque");
    if !opaque.exists() {
        return errors.push(opaque.required(""));
    }
    validate_csi_driver_name(&opaque.get("driver"), errors);
    let parameters = opaque.get("parameters");
    match parameters.value() {
        None => errors.push(parameters.required("")),
        Some(value) if value.to_string().len() > MAX_PARAMETERS => {
            errors.push(parameters.too_long(MAX_PARAMETERS));
        }
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(parameters.invalid_value("<value omitted>", "must be a valid JSON object")),
    }
}

/// `name` or `domain/name`.
pub fn validate_qualified_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let id = match name.split_once('/') {
        None => name,
        Some((domain, id)) => {
            if domain.is_empty() {
                errors.push(field.invalid_value("", "the domain must not be empty"));
            } else {
                let domain = Value::from(domain);
                validate_csi_driver_name(&Field::at(Some(&domain), field.path().clone()), errors);
            }
            id
        }
    };
    if name.contains('/') && id.is_empty() {
        return errors.push(field.invalid_value("", "the name must not be empty"));
    }
    errors.push_if(id.len() > MAX_IDENTIFIER, || field.too_long(MAX_IDENTIFIER));
    for error in content::c_identifier(id) {
        errors.push(field.invalid_value(id, error));
    }
}

fn validate_full_name(name: &Field<'_>, errors: &mut Errors) {
    validate_qualified_name(name.str(), name, errors);
    errors.push_if(!name.str().contains('/'), || {
        name.invalid("a fully qualified name must be a domain and a name separated by a slash")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_that_do_not_compile_are_refused() {
        let refused = |expression: &str| {
            let selectors = json!([{"cel": {"expression": expression}}]);
            let mut errors = Errors::new();
            validate_selectors(&Field::root(&selectors), &mut errors);
            errors.iter().next().map(|error| error.detail.clone())
        };
        for expression in [
            "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'a100'",
            "cel.bind(a, device.attributes['gpu.example.com'], a.ecc && a.index > 2)",
            "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1Gi'))",
            "device.attributes['gpu.example.com'].ecc",
        ] {
            assert_eq!(refused(expression), None, "{expression}");
        }
        for (expression, want) in [
            ("device.driver", "must evaluate to bool or the unknown type, not string"),
            ("device.nope", "undefined field 'nope'"),
            ("size(device.driver) == 'a'", "found no matching overload"),
            (
                "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a == b && c == d))))",
                "too complex, exceeds cost limit",
            ),
        ] {
            let found = refused(expression).unwrap_or_default();
            assert!(found.contains(want), "{expression}: {found}");
        }
    }
}
