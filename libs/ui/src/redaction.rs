//! The removal of the values of Secrets from all that the page shows.

use serde_json::Value;

/// The text that stands for a value.
const REDACTED: &str = "(redacted)";
const SECRETS: &str = "secrets";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Removes the values of a Secret. Objects of other resources stay as they are.
///
/// - `resource`: the plural name with its group
pub fn redact(resource: &str, object: &mut Value) {
    if resource != SECRETS {
        return;
    }
    for member in ["data", "stringData"] {
        match object.get_mut(member) {
            Some(Value::Object(values)) => values.values_mut().for_each(|value| *value = REDACTED.into()),
            Some(value) => *value = REDACTED.into(),
            None => {}
        }
    }
    if let Some(value) = object.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED))
    {
        *value = REDACTED.into();
    }
}

/// Removes the values of Secrets from the entries of a log: from each field of one, but for plain metadata.
pub fn redact_log(log: &mut Value) {
    let entries = log.get_mut("entries").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter(|entry| entry["resource"] == SECRETS) {
        let fields = entry.get_mut("fields").and_then(Value::as_array_mut);
        for field in fields.into_iter().flatten() {
            if field["path"].as_str().is_some_and(is_public) {
                continue;
            }
            for side in ["from", "to"] {
                if let Some(value) = field.get_mut(side) {
                    *value = REDACTED.into();
                }
            }
        }
    }
}

/// Whether the values of a field of a Secret are no secret.
fn is_public(path: &str) -> bool {
    let fields =
        [".metadata.labels", ".metadata.finalizers", ".metadata.ownerReferences", ".type", ".immutable"];
    let times = [".metadata.deletionTimestamp", ".metadata.deletionGracePeriodSeconds"];
    fields.into_iter().chain(times).any(|field| {
        path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}
