//! Environment variables, and the fields of a pod that containers can read (the downward API).

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::metadata::{self, NameRule};
use coracle_apimachinery::validation::{content, paths};
use serde_json::json;

/// Fields of a pod that a variable can have.
const IN_VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields of a pod that a file can have.
const IN_FILES: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// The fields supported by the downward API.
const SELECTABLE: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const CONTAINER_RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// The place in which a field is exposed, which determines the valid fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// An environment variable.
    InVariable,
    /// A file of a downward API volume.
    InFile,
}

/// Validates the environment variables of a container.
pub fn validate_env(variables: &Field<'_>, errors: &mut Errors) {
    for variable in variables.items() {
        if errors.is_full() {
            break;
        }
        let name = variable.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else {
            errors.invalid_each(&name, content::env_var_name(name.str()));
        }
        validate_value_from(&variable, errors);
    }
}

type SourceRule = fn(&Field<'_>, &mut Errors);

const VALUE_SOURCES: [(&str, SourceRule); 5] = [
    ("fieldRef", |source, errors| validate_field_ref(source, Shown::InVariable, errors)),
    ("resourceFieldRef", |source, errors| validate_resource_ref(source, Shown::InVariable, errors)),
    ("configMapKeyRef", validate_key_selector),
    ("secretKeyRef", validate_key_selector),
    ("fileKeyRef", validate_file_key),
];

fn validate_value_from(variable: &Field<'_>, errors: &mut Errors) {
    let from = variable.get("valueFrom");
    if !from.exists() {
        return;
    }
    let mut sources = 0;
    for (member, rule) in VALUE_SOURCES {
        let source = from.get(member);
        if source.exists() {
            sources += 1;
            rule(&source, errors);
        }
    }
    let error = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !variable.get("value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(from.invalid_value("", error));
}

fn validate_key_selector(selector: &Field<'_>, errors: &mut Errors) {
    let (name, key) = (selector.get("name"), selector.get("key"));
    errors.invalid_each(&name, content::dns1123_subdomain(name.str()));
    if key.is_empty() {
        errors.push(key.required(""));
    } else {
        errors.invalid_each(&key, content::config_map_key(key.str()));
    }
}

fn validate_file_key(selector: &Field<'_>, errors: &mut Errors) {
    let (key, volume, path) = (selector.get("key"), selector.get("volumeName"), selector.get("path"));
    for (field, rule) in [
        (key, content::env_var_name as fn(&str) -> Vec<String>),
        (volume, content::dns1123_label),
        (path, paths::no_backsteps),
    ] {
        if field.is_empty() {
            errors.push(field.required(""));
        } else {
            errors.invalid_each(&field, rule(field.str()));
        }
    }
}

/// Splits `metadata.labels['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

/// Validates a reference to a field of the pod.
pub fn validate_field_ref(selector: &Field<'_>, shown: Shown, errors: &mut Errors) {
    let (version, path) = (selector.get("apiVersion"), selector.get("fieldPath"));
    for field in [&version, &path] {
        if field.is_empty() {
            errors.push(field.required(""));
            return;
        }
    }
    let text = path.str();
    let unconvertible = match subscript(text) {
        _ if version.str() != "v1" => Some(format!("unsupported pod version: {}", version.str())),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {text}")),
        None if SELECTABLE.contains(&text) || text == "spec.host" => None,
        None => Some(format!("field label not supported: {text}")),
    };
    if let Some(reason) = unconvertible {
        errors.push(path.invalid(format!("error converting fieldPath: {reason}")));
        return;
    }
    match subscript(text) {
        Some((map, key)) => {
            let key = if map == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
            for message in content::qualified_name(&key) {
                errors.push(selector.invalid_value(key.as_str(), message));
            }
        }
        None => {
            let field = if text == "spec.host" { "spec.nodeName" } else { text };
            let known: &[&str] = if shown == Shown::InFile { &IN_FILES } else { &IN_VARIABLES };
            let field = json!(field);
            let read = Field::at(Some(&field), path.path().clone());
            errors.push_if(!known.contains(&read.str()), || read.not_supported(known));
        }
    }
}

/// Validates a reference to a resource of a container.
pub fn validate_resource_ref(selector: &Field<'_>, shown: Shown, errors: &mut Errors) {
    let (container, resource) = (selector.get("containerName"), selector.get("resource"));
    let name = resource.str();
    let huge_page =
        ["limits.hugepages-", "requests.hugepages-"].iter().any(|prefix| name.starts_with(prefix));
    if shown == Shown::InFile && container.is_empty() {
        errors.push(container.required(""));
    } else if name.is_empty() {
        errors.push(resource.required(""));
    } else if !CONTAINER_RESOURCES.contains(&name) && !huge_page {
        errors.push(resource.not_supported(&CONTAINER_RESOURCES));
    }
    validate_divisor(&selector.get("divisor"), name, huge_page, errors);
}

fn validate_divisor(divisor: &Field<'_>, resource: &str, huge_page: bool, errors: &mut Errors) {
    const BYTES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    if divisor.is_empty() || divisor.str() == "0" {
        return;
    }
    let (supported, what): (&[&str], _) = match resource {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "cpu"),
        "limits.memory" | "requests.memory" => (&BYTES, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (&BYTES, "local ephemeral storage"),
        _ if huge_page => (&BYTES, "hugepages"),
        _ => return,
    };
    let list = if what == "cpu" { "1m and 1".to_owned() } else { BYTES.join(", ") };
    // kube-apiserver prints the resource's name here, not the divisor.
    errors.push_if(!supported.contains(&divisor.str()), || {
        let detail = format!("only divisor's values {list} are supported with the {what} resource");
        divisor.invalid_value(resource, detail)
    });
}

/// Validates the sources of a container's `envFrom`.
pub fn validate_env_from(sources: &Field<'_>, errors: &mut Errors) {
    for source in sources.items() {
        let prefix = source.get("prefix");
        if !prefix.is_empty() {
            errors.invalid_each(&prefix, content::env_var_name(prefix.str()));
        }
        let mut given = 0;
        for member in ["configMapRef", "secretRef"] {
            let reference = source.get(member);
            if reference.exists() {
                given += 1;
                validate_env_source(&reference, errors);
            }
        }
        let error = match given {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(sources.invalid_value("", error));
    }
}

fn validate_env_source(reference: &Field<'_>, errors: &mut Errors) {
    let name = reference.get("name");
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        // kube-apiserver validates the name as a prefix.
        errors.invalid_each(&name, metadata::generate_name_errors(NameRule::Subdomain, name.str()));
    }
}
