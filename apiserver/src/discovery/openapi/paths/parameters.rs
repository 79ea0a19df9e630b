//! The parameters of operations: those of paths, and the members of the option types in queries.

use serde_json::{Value, json};

use crate::schema::{Type, schema};

/// The descriptions of options that need more than their name.
const TEXTS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "Whether a watch may get BOOKMARK events, which report its progress."),
    ("command", "The command to execute and its arguments. No shell is involved."),
    ("container", "The name of the container; the only one of the pod by default."),
    ("continue", "The token of the last page, which requests the next page of the list."),
    ("dryRun", "`All`: process the request completely, but do not store the result."),
    ("fieldManager", "The name of the actor that makes the change; at most 128 printable characters."),
    ("fieldSelector", "Selects objects by their fields; all of them by default."),
    (
        "fieldValidation",
        "The treatment of unknown and duplicate fields: `Ignore`, `Warn` (the default) or `Strict`.",
    ),
    ("follow", "Whether to continue with the lines that are written later; false by default."),
    ("force", "Whether an apply takes over fields that others manage."),
    ("gracePeriodSeconds", "The seconds that the object has to terminate; 0 deletes it immediately."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "Whether to delete an object that cannot be read from the store, without finalizers and preconditions.",
    ),
    (
        "insecureSkipTLSVerifyBackend",
        "Whether to read the log from a kubelet with a serving certificate that is not verified.",
    ),
    ("labelSelector", "Selects objects by their labels; all of them by default."),
    ("limit", "The maximum number of objects on a page."),
    ("limitBytes", "The number of bytes after which the log ends."),
    ("orphanDependents", "Deprecated: use propagationPolicy. Whether dependents are kept."),
    ("path", "The path of the request to the target, with its query."),
    ("ports", "The ports to forward; required for WebSockets."),
    (
        "pretty",
        "Whether the response is indented; by default it is for browsers, curl and Wget, and not for others.",
    ),
    ("previous", "Whether to read the log of the previous, terminated container; false by default."),
    ("propagationPolicy", "The treatment of dependents: `Orphan`, `Background` or `Foreground`."),
    (
        "resourceVersion",
        "The version that the response must be from or newer than, or after which a watch begins.",
    ),
    ("resourceVersionMatch", "The meaning of resourceVersion for a list: `Exact` or `NotOlderThan`."),
    ("sendInitialEvents", "Whether a watch begins with ADDED events of the existing objects."),
    (
        "shardSelector",
        "Selects objects by ranges of the hash of a field, such as `shardRange(object.metadata.uid, '0x0', '0x8')`.",
    ),
    ("sinceSeconds", "The age in seconds of the first line of the log."),
    ("sinceTime", "The time of the first line of the log."),
    ("stderr", "Whether to redirect the standard error of the container."),
    ("stdin", "Whether to redirect the standard input of the container; false by default."),
    ("stdout", "Whether to redirect the standard output of the container."),
    ("stream", "The stream to read from the log: `All` (the default), `Stdout` or `Stderr`."),
    ("tailLines", "The number of lines from the end of the log; all by default."),
    ("timeoutSeconds", "The duration in seconds after which a list or watch ends."),
    ("timestamps", "Whether each line of the log begins with its time in RFC 3339; false by default."),
    ("tty", "Whether the command has a terminal; false by default."),
    ("watch", "Whether to respond with a stream of changes instead of a list."),
];

/// Returns the members of an options type that a query can have: scalars, and lists of them.
pub(super) fn in_query(group: &str, version: &str, options: &str, skipped: &[&str]) -> Vec<Value> {
    let Some(id) = schema().kind(group, version, options) else { return Vec::new() };
    let members = schema().get(id).members().iter();
    members
        .filter(|field| !["kind", "apiVersion"].contains(&field.name) && !skipped.contains(&field.name))
        .filter_map(|field| Some(query(field.name, scalar(&field.ty)?)))
        .collect()
}

fn scalar(ty: &Type) -> Option<&'static str> {
    match ty {
        Type::String => Some("string"),
        Type::Bool => Some("boolean"),
        Type::Int32 | Type::Int64 => Some("integer"),
        Type::List(item) => scalar(item),
        _ => None,
    }
}

fn query(name: &str, ty: &str) -> Value {
    let mut parameter = json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}});
    if let Some((_, text)) = TEXTS.iter().find(|(known, _)| *known == name) {
        parameter["description"] = (*text).into();
    }
    parameter
}

pub(super) fn pretty() -> Value {
    query("pretty", "string")
}

/// Returns the parameters in braces of a path. `kind` is the kind of the object that the path
/// names.
pub(super) fn in_path(path: &str, kind: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name));
    names
        .map(|name| {
            let description = match name {
                "name" => format!("name of the {kind}"),
                "namespace" => "name of the namespace of the object".to_owned(),
                _ => "path to the resource".to_owned(),
            };
            let schema = json!({"type": "string", "uniqueItems": true});
            json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema})
        })
        .collect()
}

pub(super) fn sort(parameters: &mut [Value]) {
    let key = |parameter: &Value| {
        let text = |member: &str| parameter[member].as_str().unwrap_or_default().to_owned();
        (text("name"), text("in"))
    };
    parameters.sort_by_key(key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_description() {
        let core = ["NodeProxyOptions", "PodAttachOptions", "PodExecOptions", "PodLogOptions"];
        let more = ["PodPortForwardOptions", "PodProxyOptions", "ServiceProxyOptions"];
        let meta =
            ["CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions"];
        for options in core.into_iter().chain(more).chain(meta) {
            for parameter in in_query("", "v1", options, &[]) {
                assert!(parameter["description"].is_string(), "{options}: {parameter}");
            }
        }
        let names: Vec<Value> = in_query("", "v1", "ListOptions", &[])
            .into_iter()
            .map(|mut query| query["name"].take())
            .collect();
        assert!(names.contains(&json!("shardSelector")), "{names:?}");
    }
}
