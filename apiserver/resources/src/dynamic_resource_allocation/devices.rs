//! Requests of devices: requests, constraints, configuration, tolerations.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{Object, fill};
use coracle_apimachinery::validation::volume_sources::validate_csi_driver_name;
use coracle_apimachinery::validation::{content, labels};
use serde_json::{Value, json};

use super::lists::{MAX_ENTRIES, refuse_duplicates, validate_list};
use super::names::validate_full_name;
use super::selectors::validate_selectors;

const MAX_ALTERNATIVES: usize = 8;
const MAX_PARAMETERS: usize = 10 * 1024;
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

/// Defaults the results of the allocation in a claim's status.
pub fn default_results(status: &mut Value) {
    let results = status.pointer_mut("/allocation/devices/results").and_then(Value::as_array_mut);
    results.into_iter().flatten().filter_map(Value::as_object_mut).for_each(default_tolerations);
}

fn default_request(request: &mut Object) {
    fill(request, [("allocationMode", json!("ExactCount"))]);
    let none = request.get("count").and_then(Value::as_i64).unwrap_or(0) == 0;
    if request["allocationMode"] == "ExactCount" && none {
        request.insert("count".into(), json!(1));
    }
    default_tolerations(request);
}

/// Defaults the tolerations of a request, or of what was allocated for it.
fn default_tolerations(request: &mut Object) {
    let tolerations = request.get_mut("tolerations").and_then(Value::as_array_mut).into_iter().flatten();
    for toleration in tolerations.filter_map(Value::as_object_mut) {
        if toleration.get("operator").is_none_or(|operator| operator == "") {
            toleration.insert("operator".into(), "Equal".into());
        }
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
        validate_configuration(config, true, errors);
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

/// Validates the names of requests.
pub fn validate_references(names: &Field<'_>, requests: &Field<'_>, errors: &mut Errors) {
    let fits = validate_list(names, MAX_ENTRIES, errors, |name, errors| {
        validate_reference(name, requests, errors);
    });
    if fits {
        refuse_duplicates(names, |name| name.str(), errors);
    }
}

/// Validates `request` or `request/alternative`, which names one of a claim's `requests`.
pub fn validate_reference(name: &Field<'_>, requests: &Field<'_>, errors: &mut Errors) {
    const UNKNOWN: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let (request, alternative) = match name.str().split_once('/') {
        Some((_, alternative)) if alternative.contains('/') => return errors.push(name.invalid(UNKNOWN)),
        Some((request, alternative)) => (request, Some(alternative)),
        None => (name.str(), None),
    };
    for segment in std::iter::once(request).chain(alternative) {
        for error in content::dns1123_label(segment) {
            errors.push(name.invalid_value(segment, error));
        }
    }
    // Of two requests with one name, the last counts.
    let known = requests.items().filter(|known| known.get("name").str() == request).last();
    let is_known = known.is_some_and(|known| match alternative {
        None => true,
        Some(name) => known.get("firstAvailable").items().any(|one| one.get("name").str() == name),
    });
    errors.push_if(!is_known, || name.invalid(UNKNOWN));
}

/// Validates the configuration that a driver gets for the devices it prepares. The size of a new
/// one is limited.
pub fn validate_configuration(config: &Field<'_>, is_new: bool, errors: &mut Errors) {
    let opaque = config.get("opaque");
    if !opaque.exists() {
        return errors.push(opaque.required(""));
    }
    validate_csi_driver_name(&opaque.get("driver"), errors);
    validate_object(&opaque.get("parameters"), is_new.then_some(MAX_PARAMETERS), errors);
}

/// Validates a member that is a JSON object of any form, of at most so many bytes.
pub fn validate_object(object: &Field<'_>, most: Option<usize>, errors: &mut Errors) {
    match object.value() {
        None => errors.push(object.required("")),
        Some(value) if most.is_some_and(|most| value.to_string().len() > most) => {
            errors.push(object.too_long(most.unwrap_or_default()));
        }
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(object.invalid_value("<value omitted>", "must be a valid JSON object")),
    }
}
