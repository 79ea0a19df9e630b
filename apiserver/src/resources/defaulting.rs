//! Filling in what a client may leave out.

use serde_json::{Map, Value};

pub type Object = Map<String, Value>;

/// The object at a dotted path, made where it is missing; None where something else stands in the way.
pub fn object_at<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Object> {
    path.split('.').try_fold(value, |value, name| Some(member(value.as_object_mut()?, name)))?.as_object_mut()
}

/// The member, an empty object where it is missing.
pub fn member<'a>(object: &'a mut Object, name: &str) -> &'a mut Value {
    object.entry(name).or_insert_with(|| Value::Object(Map::new()))
}

/// Adds the members that are missing.
pub fn fill<const N: usize>(object: &mut Object, defaults: [(&str, Value); N]) {
    for (name, value) in defaults {
        object.entry(name).or_insert(value);
    }
}

/// Makes a member what it is elsewhere, missing included.
pub fn restore(object: &mut Object, old: Option<&Object>, name: &str) {
    match old.and_then(|old| old.get(name)) {
        Some(value) => object.insert(name.to_owned(), value.clone()),
        None => object.remove(name),
    };
}

/// Takes back what a request to `/status` says about metadata, for the kinds that let nothing of it through.
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
