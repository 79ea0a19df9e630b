//! The removal of the values of Secrets from all that the page shows.

use serde_json::Value;

/// The text that stands for a value.
const REDACTED: &str = "(redacted)";
const SECRETS: &str = "secrets";

/// Removes the values of a Secret, and those of its annotations: many tools keep copies of what
/// they applied in one of their own. Objects of other resources stay as they are.
///
/// - `resource`: the plural name with its group
pub fn redact(resource: &str, object: &mut Value) {
    if resource != SECRETS {
        return;
    }
    for member in ["/data", "/stringData", "/metadata/annotations"] {
        match object.pointer_mut(member) {
            Some(Value::Object(values)) => values.values_mut().for_each(|value| *value = REDACTED.into()),
            Some(value) => *value = REDACTED.into(),
            None => {}
        }
    }
}

/// Removes the values that a field of a Secret had, but for those of plain metadata. Fields of
/// other resources stay as they are.
///
/// - `resource`: the plural name with its group
/// - `path`: the path of the field, such as `.data.password`
pub fn redact_field<'a>(resource: &str, path: &str, values: impl IntoIterator<Item = &'a mut Option<Value>>) {
    if resource == SECRETS && !is_public(path) {
        values.into_iter().flatten().for_each(|value| *value = REDACTED.into());
    }
}

/// Returns `true` if the values of a field of a Secret are not secret.
fn is_public(path: &str) -> bool {
    let fields =
        [".metadata.labels", ".metadata.finalizers", ".metadata.ownerReferences", ".type", ".immutable"];
    let times = [".metadata.deletionTimestamp", ".metadata.deletionGracePeriodSeconds"];
    fields.into_iter().chain(times).any(|field| {
        path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}
