//! Any JSON, for the random tests of patches and of server-side apply.

use proptest::prelude::*;
use serde_json::{Map, Value};

/// Generates any JSON, with many of the words that have a meaning in patches.
pub fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::from),
        ]
    })
}

pub fn object() -> impl Strategy<Value = Value> {
    members(json()).prop_map(Value::from)
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((word(), value), 0..4).prop_map(Map::from_iter)
}

pub fn word() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "a",
        "b",
        "name",
        "spec",
        "template",
        "containers",
        "metadata",
        "finalizers",
        "labels",
        "$patch",
        "delete",
        "replace",
        "merge",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
    ];
    prop_oneof![4 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => "[a-z/~]{0,3}"]
}
