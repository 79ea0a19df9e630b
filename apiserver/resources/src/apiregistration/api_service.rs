//! APIService: the server of a group and version. One without a Service is served locally, and
//! always available.

use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::strategy::defaulting::{fill, keep_metadata};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::content;
use serde_json::{Value, json};

/// The strategy of APIService.
pub struct ApiServiceStrategy;

impl Strategy for ApiServiceStrategy {
    fn default(&self, object: &mut Value) {
        if let Some(service) = object.pointer_mut("/spec/service").and_then(Value::as_object_mut) {
            fill(service, [("port", json!(443))]);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        object["status"] = json!({});
        if object.pointer("/spec/service").is_none() {
            object["status"]["conditions"] = json!([{
                "type": "Available",
                "status": "True",
                "lastTransitionTime": context.now,
                "reason": "Local",
                "message": "Local APIServices are always available",
            }]);
        }
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let (spec, name) = (object.get("spec"), object.walk("metadata.name"));
        let (group, version) = (spec.get("group"), spec.get("version"));
        let wanted = format!("{}.{}", version.str(), group.str());
        for name in [object.walk("metadata.generateName"), name] {
            let misnamed = content::path_segment(name.str()).is_empty() && name.str() != wanted;
            errors.push_if(misnamed && !name.is_empty(), || {
                name.invalid(format!("must be `spec.version+\".\"+spec.group`: {}", quote(&wanted)))
            });
        }
        validate_group_version(&group, &version, errors);
        for (name, limit) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
            let priority = spec.get(name);
            let number = priority.int().unwrap_or(0);
            errors.push_if(!(1..=limit).contains(&number), || {
                priority.invalid_value(number, format!("must be positive and less than {limit}"))
            });
        }
        validate_backend(&spec, errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        for status in object.walk("status.conditions").items().map(|condition| condition.get("status")) {
            let known = ["True", "False", "Unknown"];
            errors.push_if(!known.contains(&status.str()), || status.not_supported(&known));
        }
    }
}

fn validate_group_version(group: &Field<'_>, version: &Field<'_>, errors: &mut Errors) {
    if group.is_empty() {
        errors.push_if(version.str() != "v1", || {
            group.required("only v1 may have an empty group and it better be legacy kube")
        });
    } else {
        errors.invalid_each(group, content::dns1123_subdomain(group.str()));
    }
    errors.invalid_each(version, content::dns1035_label(version.str()));
}

fn validate_backend(spec: &Field<'_>, errors: &mut Errors) {
    let (service, bundle) = (spec.get("service"), spec.get("caBundle"));
    let insecure = spec.get("insecureSkipTLSVerify");
    if !service.exists() {
        errors.push_if(!bundle.is_empty(), || {
            let bytes = bundle.len() / 4 * 3 - bundle.str().matches('=').count();
            bundle.invalid_value(format!("{bytes} bytes"), "local APIServices may not have a caBundle")
        });
        errors.push_if(insecure.bool(), || {
            insecure.invalid("local APIServices may not have insecureSkipTLSVerify")
        });
        return;
    }
    for member in [service.get("namespace"), service.get("name")] {
        errors.push_if(member.is_empty(), || member.required(""));
    }
    let port = service.get("port");
    let found = content::port_number(port.int().unwrap_or(0));
    errors.push_if(!found.is_empty(), || port.invalid(format!("port is not valid: {}", found.join(", "))));
    errors.push_if(insecure.bool() && !bundle.is_empty(), || {
        insecure.invalid("may not be true if caBundle is present")
    });
}
