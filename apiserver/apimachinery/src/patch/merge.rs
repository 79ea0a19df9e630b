//! JSON merge patch, RFC 7386.
//!
//! One deviation, kube-apiserver's: a list that replaces an object keeps the nulls in its elements.

use serde_json::{Map, Value};

use super::{PatchType, drop_nulls};
use crate::go_value::cannot_unmarshal;
use crate::{Error, Result};

/// Merges `patch` into `target`.
///
/// # Errors
/// 400 if the document is not an object.
pub fn apply(mut target: Value, patch: Value) -> Result<Value> {
    match (&mut target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge(target, patch),
        (_, Value::Null) => return Err(Error::bad_request("Invalid JSON Patch")),
        (_, patch) => {
            let reason = cannot_unmarshal(&patch, "value of type map[string]interface {}");
            return Err(PatchType::Merge.malformed(&reason));
        }
    }
    Ok(target)
}

fn merge(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        match (target.get_mut(&key), value) {
            (_, Value::Null) => {
                target.remove(&key);
            }
            (Some(Value::Object(current)), Value::Object(value)) => merge(current, value),
            (Some(Value::Object(_)), value) => {
                target.insert(key, value);
            }
            (_, mut value) => {
                drop_nulls(&mut value);
                target.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::patch::arbitrary;

    #[test]
    fn members_are_merged_and_nulls_remove() {
        for (case, target, patch, want) in [
            (
                "adds and replaces",
                json!({"a": 1, "b": 2}),
                json!({"b": 3, "c": 4}),
                json!({"a": 1, "b": 3, "c": 4}),
            ),
            ("null removes", json!({"a": 1, "b": 2}), json!({"a": null, "z": null}), json!({"b": 2})),
            ("objects merge", json!({"a": {"b": 1}}), json!({"a": {"c": 2}}), json!({"a": {"b": 1, "c": 2}})),
            ("lists are replaced", json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (
                "an object replaces a scalar",
                json!({"a": 1}),
                json!({"a": {"b": null, "c": 1}}),
                json!({"a": {"c": 1}}),
            ),
            ("nulls of new values go", json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
            (
                "elements keep their place",
                json!({}),
                json!({"a": [null, {"b": null}]}),
                json!({"a": [null, {}]}),
            ),
            (
                "a list instead of an object",
                json!({"a": {}}),
                json!({"a": [{"b": null}]}),
                json!({"a": [{"b": null}]}),
            ),
        ] {
            assert_eq!(apply(target, patch).expect(case), want, "{case}");
        }
    }

    #[test]
    fn documents_that_are_no_object_are_rejected() {
        for (patch, want) in [
            (json!(null), "Invalid JSON Patch"),
            (
                json!([1]),
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (
                json!("x"),
                "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}",
            ),
        ] {
            let error = apply(json!({}), patch).expect_err(want);
            assert_eq!((error.code(), error.to_string().as_str()), (400, want));
        }
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(target in arbitrary::object(), patch in arbitrary::object()) {
            let mut once = apply(target, patch.clone()).expect("an object");
            let mut twice = apply(once.clone(), patch).expect("an object");
            drop_nulls(&mut once);
            drop_nulls(&mut twice);
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn an_object_without_nulls_merges_into_nothing_as_itself(mut object in arbitrary::object()) {
            drop_nulls(&mut object);
            prop_assert_eq!(&apply(json!({}), object.clone()).expect("an object"), &object);
            prop_assert_eq!(&apply(object.clone(), object.clone()).expect("an object"), &object);
        }

        #[test]
        fn no_document_panics(target in arbitrary::json(), patch in arbitrary::json()) {
            let _ = apply(target, patch);
        }
    }
}
