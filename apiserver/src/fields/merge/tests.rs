use serde_json::json;

use super::*;
use crate::schema::schema;

#[test]
fn items_come_in_the_order_in_which_they_are_applied() {
    let set: TypeRef = schema().kind("", "v1", "ConfigMap").unwrap().into();
    for (live, applied, want) in [
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("abc", "b", "abc"),
        ("abc", "cb", "acb"),
        ("abc", "ca", "bca"),
        ("ab", "bc", "abc"),
        ("abcd", "dxa", "bcdxa"),
        ("ab", "xy", "abxy"),
        ("ab", "xb", "axb"),
        ("aab", "ba", "ba"),
    ] {
        let finalizers = |names: &str| {
            let names: Vec<String> = names.chars().map(String::from).collect();
            json!({"metadata": {"finalizers": names}})
        };
        let merged = merge(&finalizers(live), &finalizers(applied), &set);
        let names: String =
            items(merged.pointer("/metadata/finalizers")).iter().filter_map(Value::as_str).collect();
        assert_eq!(names, want, "{live} with {applied}");
    }
}

#[test]
fn empty_and_null_are_values_where_nothing_else_is() {
    let config_map: TypeRef = schema().kind("", "v1", "ConfigMap").unwrap().into();
    for (live, applied, want) in [
        (json!({"data": {"a": "1"}}), json!({"data": {}}), json!({"data": {"a": "1"}})),
        (json!({"data": {"a": "1"}}), json!({"data": null}), json!({"data": {"a": "1"}})),
        (json!({}), json!({"data": {}}), json!({"data": {}})),
        (json!({"data": {}}), json!({"data": null}), json!({"data": null})),
        (json!({"data": {"a": "1"}}), json!({"data": {"a": null}}), json!({"data": {"a": null}})),
    ] {
        assert_eq!(merge(&live, &applied, &config_map), want);
    }
}
