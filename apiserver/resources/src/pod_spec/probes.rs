//! Probes and lifecycle hooks of containers.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::{content, numbers};
use serde_json::Value;

/// Validates the three probes of a container.
pub fn validate_probes(container: &Field<'_>, errors: &mut Errors) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(kind);
        if !probe.exists() {
            continue;
        }
        validate_probe(&probe, errors);
        if kind == "readinessProbe" {
            let grace = probe.get("terminationGracePeriodSeconds");
            errors.push_if(grace.exists(), || grace.invalid("must not be set for readinessProbes"));
        } else {
            let threshold = probe.get("successThreshold");
            let count = threshold.int().unwrap_or(0);
            errors.push_if(count != 1, || threshold.invalid_value(count, "must be 1"));
        }
    }
}

fn validate_probe(probe: &Field<'_>, errors: &mut Errors) {
    validate_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], None, errors);
    for member in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        numbers::not_negative(&probe.get(member), errors);
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    errors.push_if(grace.int().is_some_and(|n| n <= 0), || grace.invalid("must be greater than 0"));
}

/// Validates the hooks of a container; `grace` is the pod's termination grace period.
pub fn validate_lifecycle(container: &Field<'_>, grace: Option<i64>, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        let hook = container.get("lifecycle").get(hook);
        if hook.exists() {
            validate_handler(&hook, &["exec", "httpGet", "tcpSocket", "sleep"], grace, errors);
        }
    }
}

/// Validates that the handler has exactly one of the actions that are valid for it.
fn validate_handler(handler: &Field<'_>, actions: &[&str], grace: Option<i64>, errors: &mut Errors) {
    let mut found = false;
    for name in actions {
        let action = handler.get(name);
        if !action.exists() {
            continue;
        }
        if found {
            errors.push(action.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match *name {
            "exec" => {
                let command = action.get("command");
                errors.push_if(command.is_empty(), || command.required(""));
            }
            "httpGet" => validate_http_get(&action, errors),
            "sleep" => validate_sleep(&action, grace, errors),
            _ => validate_port(&action.get("port"), errors),
        }
    }
    errors.push_if(!found, || handler.required("must specify a handler type"));
}

fn validate_http_get(action: &Field<'_>, errors: &mut Errors) {
    const SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];
    let (path, scheme) = (action.get("path"), action.get("scheme"));
    errors.push_if(path.is_empty(), || path.required(""));
    validate_port(&action.get("port"), errors);
    errors.push_if(!SCHEMES.contains(&scheme.str()), || scheme.not_supported(&SCHEMES));
    let headers = action.get("httpHeaders");
    for header in headers.items() {
        let name = header.get("name").with_path(headers.path().clone());
        errors.invalid_each(&name, content::http_header_name(name.str()));
    }
}

/// Validates a port number, or the name of a port.
fn validate_port(port: &Field<'_>, errors: &mut Errors) {
    match port.value() {
        Some(Value::String(name)) => errors.invalid_each(port, content::port_name(name)),
        _ => {
            let number = port.int().unwrap_or(0);
            for error in content::port_number(number) {
                errors.push(port.invalid_value(number, error));
            }
        }
    }
}

fn validate_sleep(action: &Field<'_>, grace: Option<i64>, errors: &mut Errors) {
    let seconds = action.get("seconds").int().unwrap_or(0);
    let Some(grace) = grace else { return };
    errors.push_if(seconds < 0 || seconds > grace, || {
        action.invalid_value(
            seconds,
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        )
    });
}
