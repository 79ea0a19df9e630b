//! Access to parts of objects that are not decoded.

use serde_json::{Map, Value};

use crate::field::quote;
use crate::validation::content;

/// Returns a member that is an object, creating it if it is missing; None if it has another type.
pub fn object_at<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    let member = value.as_object_mut()?.entry(name).or_insert_with(|| Map::new().into());
    member.is_object().then_some(member)
}

/// Returns a member that is a list, creating it if it is missing; None if it has another type.
pub fn list_at<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Vec<Value>> {
    value.as_object_mut()?.entry(name).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}

/// Returns the elements of a list; empty if it is not a list.
pub fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the string; `""` for other values.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// Returns the reason if kube-apiserver's own client refuses to request an object of that name;
/// then nothing is sent.
pub fn refused_name(name: &str) -> Option<String> {
    let found = content::path_segment(name);
    match found.as_slice() {
        _ if name.is_empty() => Some("resource name may not be empty".to_owned()),
        [] => None,
        found => Some(format!("invalid resource name {}: [{}]", quote(name), found.join(" "))),
    }
}

/// Returns the newest object that one of the annotations marks as the default; the first by name
/// among equally old ones.
pub fn newest_default(objects: Vec<Value>, annotations: &[&str]) -> Option<Value> {
    let is_default =
        |object: &Value| annotations.iter().any(|a| text(&object["metadata"]["annotations"][a]) == "true");
    let age = |object: &Value, field: &str| text(&object["metadata"][field]).to_owned();
    objects.into_iter().filter(is_default).min_by(|a, b| {
        age(b, "creationTimestamp")
            .cmp(&age(a, "creationTimestamp"))
            .then_with(|| age(a, "name").cmp(&age(b, "name")))
    })
}
