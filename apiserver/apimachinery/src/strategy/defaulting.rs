//! Defaulting: sets members that are missing.

use serde_json::{Map, Value};

/// The members of a JSON object.
pub type Object = Map<String, Value>;

/// Returns the object at a dotted path, creating it if it is missing; None if another value is in
/// its place.
pub fn object_at<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Object> {
    path.split('.').try_fold(value, |value, name| Some(member(value.as_object_mut()?, name)))?.as_object_mut()
}

/// Returns the member, creating an empty object if it is missing.
pub fn member<'a>(object: &'a mut Object, name: &str) -> &'a mut Value {
    object.entry(name).or_insert_with(|| Value::Object(Map::new()))
}

/// Adds the members that are missing.
pub fn fill<const N: usize>(object: &mut Object, defaults: [(&str, Value); N]) {
    for (name, value) in defaults {
        object.entry(name).or_insert(value);
    }
}

/// Sets a member to its old value, or removes it if the old object does not have it.
pub fn restore(object: &mut Object, old: Option<&Object>, name: &str) {
    match old.and_then(|old| old.get(name)) {
        Some(value) => object.insert(name.to_owned(), value.clone()),
        None => object.remove(name),
    };
}

/// Restores the metadata in an update of `/status`, for kinds that do not let any of it change.
pub fn keep_metadata(object: &mut Value, old: &Value) {
    const KEPT: [&str; 7] = [
        "deletionTimestamp",
        "generation",
        "selfLink",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ];
    if let Some(metadata) = object_at(object, "metadata") {
        for name in KEPT {
            restore(metadata, old["metadata"].as_object(), name);
        }
    }
}
