//! Commands of kubectl that change what is explained.

use serde_json::{Value, json};

use crate::context::Target;
use crate::text::texts;

/// Returns the arguments of kubectl for an object, such as `pods web-0 -n shop`.
pub fn object(resource: &str, namespace: &str, name: &str) -> String {
    format!("{} {}", shell(resource), named(namespace, name))
}

/// Returns the arguments of kubectl for a name and a namespace, such as `web-0 -n shop`.
pub fn named(namespace: &str, name: &str) -> String {
    match namespace {
        "" => shell(name),
        _ => format!("{} -n {}", shell(name), shell(namespace)),
    }
}

/// Returns the command that runs a verb on an object.
pub fn command(verb: &str, resource: &str, namespace: &str, name: &str) -> String {
    format!("kubectl {verb} {}", object(resource, namespace, name))
}

/// Returns the command that deletes an object.
pub fn delete(resource: &str, namespace: &str, name: &str) -> String {
    command("delete", resource, namespace, name)
}

/// Returns the command that deletes several objects of a resource.
pub fn delete_all(resource: &str, namespace: &str, names: &[&str]) -> String {
    let (last, first) = names.split_last().map_or(("", [].as_slice()), |(last, first)| (*last, first));
    let first: Vec<String> = first.iter().map(|name| format!("{} ", shell(name))).collect();
    format!("kubectl delete {} {}{}", shell(resource), first.concat(), named(namespace, last))
}

/// Returns the command that applies a merge patch to an object.
pub fn merge(resource: &str, namespace: &str, name: &str, patch: &Value) -> String {
    let patch = shell(&patch.to_string());
    format!("kubectl patch {} --type=merge -p {patch}", object(resource, namespace, name))
}

/// Returns the command that removes a finalizer. It fails if the list of finalizers has changed
/// since.
pub fn remove_finalizer(target: Target, finalizer: &str) -> String {
    let Target { resource, namespace, name, object: value } = target;
    let mut finalizers = texts(&value["metadata"]["finalizers"]);
    let index = finalizers.position(|other| other == finalizer).unwrap_or_default();
    let path = format!("/metadata/finalizers/{index}");
    let patch = json!([{"op": "test", "path": path, "value": finalizer}, {"op": "remove", "path": path}]);
    format!(
        "kubectl patch {} --type=json -p {}",
        self::object(resource, namespace, name),
        shell(&patch.to_string())
    )
}

/// Returns the command that removes one finalizer from the spec of a namespace. The others, such as
/// `kubernetes`, stay.
pub fn finalize(name: &str, finalizer: &str) -> String {
    let path = format!("/api/v1/namespaces/{name}/finalize");
    let filter = format!(".spec.finalizers -= {}", json!([finalizer]));
    format!(
        "kubectl get namespace {} -o json | jq {} | kubectl replace --raw {} -f -",
        shell(name),
        shell(&filter),
        shell(&path)
    )
}

/// Quotes an argument for a shell if it has to be.
fn shell(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}
