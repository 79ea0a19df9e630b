//! The metrics of a HorizontalPodAutoscaler.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::{content, resource_list};
use serde_json::{Value, json};

use super::references::{Versions, check_version, validate_reference};

/// The default utilization, in percent of the pods' requests.
pub const DEFAULT_UTILIZATION: i64 = 80;

/// Each source with its member, in the order in which they are checked.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

/// Builds the metric of version 1.
pub fn cpu_utilization(percent: impl Into<Value>) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent.into()}},
    })
}

/// Validates `spec.metrics`.
pub fn validate(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let metrics = spec.get("metrics");
    let versions = object_versions(old);
    for metric in metrics.items() {
        validate_metric(&metric, versions, errors);
    }
    let measures_elsewhere =
        metrics.items().any(|metric| ["Object", "External"].contains(&metric.get("type").str()));
    errors.push_if(spec.get("minReplicas").int() == Some(0) && !measures_elsewhere, || {
        metrics.forbidden(
            "must specify at least one Object or External metric to support scaling to zero replicas",
        )
    });
}

/// Returns the accepted versions of objects. An autoscaler that refers to an object with an invalid
/// version may keep it.
fn object_versions(old: Option<&Field<'_>>) -> Versions {
    let odd = |metric: Field<'_>| {
        let object = metric.get("object");
        metric.get("type").str() == "Object"
            && object.exists()
            && check_version(object.walk("describedObject.apiVersion").str(), Versions::Any).is_err()
    };
    let kept = old.is_some_and(|old| old.get("metrics").items().any(odd));
    if kept { Versions::Unchecked } else { Versions::Any }
}

fn validate_metric(metric: &Field<'_>, versions: Versions, errors: &mut Errors) {
    let kind = metric.get("type");
    let known = TYPES.contains(&kind.str());
    errors.push_if(kind.is_empty(), || kind.required("must specify a metric source type"));
    errors.push_if(!known, || kind.not_supported(&TYPES));
    let given: Vec<&(&str, &str)> =
        SOURCES.iter().filter(|(_, member)| metric.get(member).exists()).collect();
    if let Some((source, member)) = given.first() {
        validate_source(source, &metric.get(member), versions, errors);
    }
    let expected = SOURCES.iter().find(|(source, _)| *source == kind.str()).map(|(_, member)| *member);
    match expected {
        Some(member) => errors.push_if(!metric.get(member).exists(), || {
            metric.get(member).required("must populate information for the given metric source")
        }),
        None => errors.push(kind.not_supported(&TYPES)),
    }
    if given.len() != 1 {
        for (_, member) in given.iter().filter(|(_, member)| Some(*member) != expected) {
            errors.push(metric.get(member).forbidden("must populate the given metric source only"));
        }
    }
}

fn validate_source(kind: &str, source: &Field<'_>, versions: Versions, errors: &mut Errors) {
    match kind {
        "Object" => {
            validate_reference(&source.get("describedObject"), versions, errors);
            validate_identifier(&source.get("metric"), errors);
        }
        "External" | "Pods" => validate_identifier(&source.get("metric"), errors),
        "ContainerResource" => {
            validate_resource_name(&source.get("name"), true, errors);
            let container = source.get("container");
            if container.is_empty() {
                errors.push(container.required("must specify a container"));
            } else {
                errors.invalid_each(&container, content::dns1123_label(container.str()));
            }
        }
        _ => validate_resource_name(&source.get("name"), false, errors),
    }
    let target = source.get("target");
    validate_target(&target, errors);
    validate_measure(kind, &target, errors);
}

fn validate_resource_name(name: &Field<'_>, of_container: bool, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(name.required("must specify a resource name"));
    } else if of_container {
        resource_list::validate_container_name(name.str(), name, errors);
    }
}

fn validate_identifier(metric: &Field<'_>, errors: &mut Errors) {
    let name = metric.get("name");
    if name.is_empty() {
        errors.push(name.required("must specify a metric name"));
    } else {
        errors.invalid_each(&name, content::path_segment(name.str()));
    }
}

fn validate_target(target: &Field<'_>, errors: &mut Errors) {
    let kind = target.get("type");
    errors.push_if(kind.is_empty(), || kind.required("must specify a metric target type"));
    errors.push_if(!["Utilization", "Value", "AverageValue"].contains(&kind.str()), || {
        kind.invalid("must be either Utilization, Value, or AverageValue")
    });
    for quantity in [target.get("value"), target.get("averageValue")] {
        errors.push_if(quantity.exists() && !resource_list::amount(&quantity).is_positive(), || {
            quantity.invalid("must be positive")
        });
    }
    let utilization = target.get("averageUtilization");
    errors.push_if(utilization.int().is_some_and(|percent| percent < 1), || {
        utilization.invalid("must be greater than 0")
    });
}

/// Validates the measures that each source requires, and those that exclude each other.
fn validate_measure(kind: &str, target: &Field<'_>, errors: &mut Errors) {
    let (value, average) = (target.get("value"), target.get("averageValue"));
    let utilization = target.get("averageUtilization");
    let (has_value, has_average) = (value.exists(), average.exists());
    match kind {
        "Object" => errors.push_if(!has_value && !has_average, || {
            average.required("must set either a target value or averageValue")
        }),
        "External" => {
            errors.push_if(!has_value && !has_average, || {
                average.required("must set either a target value for metric or a per-pod target")
            });
            errors.push_if(has_value && has_average, || {
                value.forbidden("may not set both a target value for metric and a per-pod target")
            });
        }
        "Pods" => {
            errors.push_if(!has_average, || average.required("must specify a positive target averageValue"))
        }
        _ => {
            errors.push_if(!utilization.exists() && !has_average, || {
                utilization.required("must set either a target raw value or a target utilization")
            });
            errors.push_if(utilization.exists() && has_average, || {
                average.forbidden("may not set both a target raw value and a target utilization")
            });
        }
    }
}
