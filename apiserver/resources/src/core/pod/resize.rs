//! `pods/resize`: changes the requests and limits of running containers.
//!
//! Source: KEP-1287 (in place resize), KEP-5419 (of pod-level resources).

use coracle_apimachinery::field::{Errors, Field};
use serde_json::{Map, Value};

use super::members::{keep_metadata, set};
use super::status;
use super::update::{self, same};
use crate::pod_spec::{ContainerType, annotations, is_sidecar, qos_class};

const TYPES: [ContainerType; 2] = [ContainerType::App, ContainerType::Init];

/// Keeps only resources and resize policies of the request; keeps everything if the containers
/// differ, so that validation can report it.
pub fn prepare(pod: &mut Value, old: &Value) {
    let count = |pod: &Value, list: &str| pod["spec"].get(list).and_then(Value::as_array).map_or(0, Vec::len);
    if TYPES.map(ContainerType::list).iter().any(|list| count(pod, list) != count(old, list)) {
        return;
    }
    keep_metadata(pod, old);
    let wanted = std::mem::replace(&mut pod["spec"], old["spec"].clone());
    set(&mut pod["spec"], "resources", wanted.get("resources").cloned());
    for list in TYPES.map(ContainerType::list) {
        let Some(wanted) = wanted.get(list) else { continue };
        let resized = resize_containers(wanted, &old["spec"][list]);
        pod["spec"][list] = resized;
    }
}

fn resize_containers(wanted: &Value, old: &Value) -> Value {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let mut resized = items(old);
    for (container, wanted_container) in resized.iter_mut().zip(items(wanted)) {
        if container.get("name") != wanted_container.get("name") {
            return wanted.clone();
        }
        for member in ["resources", "resizePolicy"] {
            set(container, member, wanted_container.get(member).cloned());
        }
    }
    Value::Array(resized)
}

/// Validates a resize, beyond the rules of the whole pod.
pub fn validate(pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (spec, old_spec) = (pod.get("spec"), old.get("spec"));
    let unsupported = if old.walk("metadata.annotations").get(annotations::MIRROR).exists() {
        Some("static pods cannot be resized")
    } else if old_spec.walk("os.name").str() == "windows" {
        Some("windows pods cannot be resized")
    } else {
        None
    };
    if let Some(detail) = unsupported {
        update::replace_with_forbidden(pod, detail, errors);
        return;
    }
    errors.push_if(status::qos_class(old) != qos_class(&spec), || {
        let class = pod.walk("status.qosClass");
        spec.invalid_value(class.str(), "Pod QOS Class may not change as a result of resizing")
    });
    errors.push_if(!is_supported(old), || spec.forbidden("Pod running on node without support for resize"));
    let mut munged = spec.value().cloned().unwrap_or_default();
    let before = old_spec.value().cloned().unwrap_or_default();
    validate_pod_level(&spec, &old_spec, &mut munged, &before, errors);
    if !validate_same_containers(&spec, &old_spec, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (container, old) in spec.get(list).items().zip(old_spec.get(list).items()) {
            validate_nothing_removed(&container.get("resources"), &old.get("resources"), "", errors);
        }
    }
    for container_type in TYPES {
        let list = container_type.list();
        let olds = before.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        let news = munged.get_mut(list).and_then(Value::as_array_mut);
        let pairs = news.into_iter().flatten().zip(&olds);
        for ((container, old), field) in pairs.zip(spec.get(list).items()) {
            let changed = !same(container, old);
            if let Some(resources) = container.get_mut("resources") {
                restore_cpu_and_memory(resources, old.get("resources"));
                // kube-apiserver drops claims here, so that a container with claims cannot be
                // resized.
                set(resources, "claims", None);
            }
            match container_type {
                ContainerType::App => errors.push_if(!same(container, old), || {
                    spec.forbidden("only cpu and memory resources are mutable")
                }),
                _ => validate_init_container(container, old, changed, &field, errors),
            }
        }
    }
    errors.push_if(errors.is_empty() && !same(&munged, &before), || {
        spec.forbidden("only cpu and memory resources are mutable")
    });
}

fn validate_init_container(
    container: &Value,
    old: &Value,
    changed: bool,
    field: &Field<'_>,
    errors: &mut Errors,
) {
    errors.push_if(!same(container, old), || {
        field.forbidden("only cpu and memory resources for init or sidecar containers are mutable")
    });
    let container = field.with_value(Some(container));
    if changed && !is_sidecar(&container) {
        for policy in container.get("resizePolicy").items() {
            errors.push_if(policy.get("restartPolicy").str() == "RestartContainer", || {
                field.forbidden(
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
                )
            });
        }
    }
}

/// Checks whether resizing is supported: a node that supports it reports the resources of running
/// containers.
fn is_supported(pod: &Field<'_>) -> bool {
    let statuses = pod.walk("status.containerStatuses");
    let running = statuses.items().find(|status| status.walk("state.running").exists());
    running.is_none_or(|status| status.get("resources").exists())
}

fn validate_pod_level(
    spec: &Field<'_>,
    old: &Field<'_>,
    munged: &mut Value,
    before: &Value,
    errors: &mut Errors,
) {
    let (new, old) = (spec.get("resources"), old.get("resources"));
    let is_set =
        |resources: &Field<'_>| !resources.get("requests").is_empty() || !resources.get("limits").is_empty();
    if !is_set(&new) && !is_set(&old) {
        return;
    }
    if old.exists() && !new.exists() {
        errors.push(new.forbidden("pod-level resources cannot be removed"));
        return;
    }
    if old.exists() {
        validate_nothing_removed(&new, &old, "pod-level ", errors);
    }
    if let Some(resources) = munged.get_mut("resources") {
        restore_cpu_and_memory(resources, before.get("resources"));
    }
    if before.get("resources").is_none() && munged["resources"].as_object().is_some_and(Map::is_empty) {
        set(munged, "resources", None);
    }
    let unchanged = same(&munged["resources"], before.get("resources").unwrap_or(&Value::Null));
    errors.push_if(!unchanged, || spec.forbidden("only cpu and memory resources are mutable at pod-level"));
}

/// Validates that the containers are the same and in the same order, and returns whether they are.
fn validate_same_containers(spec: &Field<'_>, old: &Field<'_>, errors: &mut Errors) -> bool {
    let before = errors.len();
    for list in TYPES.map(ContainerType::list) {
        let (new, old) = (spec.get(list), old.get(list));
        if new.len() != old.len() {
            errors.push(new.forbidden(format!("{list} may not be added or removed on resize")));
            continue;
        }
        for (name, old) in new.items().zip(old.items()).map(|(n, o)| (n.get("name"), o.get("name"))) {
            errors.push_if(name.str() != old.str(), || {
                name.forbidden(format!("{list} may not be renamed or reordered on resize"))
            });
        }
    }
    errors.len() == before
}

fn validate_nothing_removed(new: &Field<'_>, old: &Field<'_>, level: &str, errors: &mut Errors) {
    for list in ["requests", "limits"] {
        let (new, old) = (new.get(list), old.get(list));
        errors.push_if(old.entries().any(|(name, _)| !new.get(name).exists()), || {
            new.forbidden(format!("{level}resource {list} cannot be removed"))
        });
    }
}

/// Restores the resources that a resize may change.
fn restore_cpu_and_memory(resources: &mut Value, old: Option<&Value>) {
    let Some(resources) = resources.as_object_mut() else { return };
    for list in ["limits", "requests"] {
        let old = old.and_then(|old| old.get(list)).and_then(Value::as_object);
        let mut quantities = match resources.remove(list) {
            Some(Value::Object(quantities)) => quantities,
            _ => Map::new(),
        };
        for name in ["cpu", "memory"] {
            quantities.remove(name);
            if let Some(quantity) = old.and_then(|old| old.get(name)) {
                quantities.insert(name.to_owned(), quantity.clone());
            }
        }
        if !quantities.is_empty() {
            resources.insert(list.to_owned(), Value::Object(quantities));
        }
    }
}
