//! The results of kube-apiserver for these patches.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::patch::arbitrary;
use crate::schema::schema;

fn kind(group: &str, version: &str, kind: &str) -> StructId {
    schema().kind(group, version, kind).expect("a kind of the table")
}

fn pod(spec: Value) -> Value {
    json!({"spec": spec})
}

/// Patches a Pod's spec and returns the new one, or code and message of the error.
fn patched_spec(spec: Value, patch: Value) -> Result<Value, (u16, String)> {
    patched(pod(spec), pod(patch)).map(|object| object["spec"].clone())
}

fn patched(object: Value, patch: Value) -> Result<Value, (u16, String)> {
    apply(object, patch, kind("", "v1", "Pod"))
        .map(|patched| patched.object)
        .map_err(|error| (error.code(), error.to_string()))
}

/// Formats the containers of a list as `name:image`.
fn names(spec: &Value) -> String {
    let containers = spec["containers"].as_array().expect("containers");
    let name =
        |c: &Value| format!("{}:{}", c["name"].as_str().unwrap_or("-"), c["image"].as_str().unwrap_or("-"));
    containers.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn containers(names: &str) -> Value {
    let container = |name: &str| json!({"name": name, "image": "i"});
    names.chars().map(|c| container(&c.to_string())).collect::<Vec<_>>().into()
}

#[test]
fn lists_are_merged_by_key() {
    for (case, live, patch, want) in [
        ("changes one", "ab", json!([{"name": "b", "image": "n"}]), "a:i b:n"),
        ("new ones come first", "ab", json!([{"name": "c", "image": "n"}]), "c:n a:i b:i"),
        ("around a known one", "ab", json!([{"name": "b"}, {"name": "c", "image": "n"}]), "a:i b:i c:n"),
        (
            "the patch's order wins",
            "abx",
            json!([
                {"name": "x", "image": "1"}, {"name": "n", "image": "1"}, {"name": "a", "image": "1"},
                {"name": "m", "image": "1"},
            ]),
            "b:i x:1 n:1 a:1 m:1",
        ),
        ("one twice", "ab", json!([{"name": "z", "image": "n"}, {"name": "z", "image": "m"}]), "z:m a:i b:i"),
        ("delete", "abc", json!([{"name": "b", "$patch": "delete"}]), "a:i c:i"),
        ("delete what is not there", "ab", json!([{"name": "z", "$patch": "delete"}]), "a:i b:i"),
        ("replace all", "ab", json!([{"$patch": "replace"}, {"name": "c", "image": "n"}]), "c:n"),
        ("nothing", "ab", json!([]), "a:i b:i"),
    ] {
        let got = patched_spec(json!({"containers": containers(live)}), json!({"containers": patch}));
        assert_eq!(names(&got.expect(case)), want, "{case}");
    }
}

#[test]
fn set_element_order_orders_the_merged_list() {
    let item = |c: char| json!({"name": c.to_string()});
    for (case, live, order, patch, want) in [
        ("order alone", "abc", "cb", json!(null), "a:i c:i b:i"),
        ("a new one last", "abx", "ad", json!([{"name": "d", "image": "n"}]), "a:i d:n b:i x:i"),
        ("a new one first", "abx", "da", json!([{"name": "d", "image": "n"}]), "d:n a:i b:i x:i"),
        (
            "a new one in the place of a deleted one",
            "abx",
            "ad",
            json!([{"name": "d", "image": "n"}, {"name": "b", "$patch": "delete"}]),
            "a:i x:i d:n",
        ),
        (
            "two new ones, one deleted",
            "abx",
            "ade",
            json!([{"name": "d", "image": "n"}, {"name": "e", "image": "n"}, {"name": "b", "$patch": "delete"}]),
            "a:i x:i d:n e:n",
        ),
        (
            "an empty order",
            "abx",
            "",
            json!([{"name": "d", "image": "n"}, {"name": "e", "image": "n"}]),
            "a:i b:i x:i e:n d:n",
        ),
    ] {
        let order: Vec<Value> = order.chars().map(item).collect();
        let mut patch = json!({"$setElementOrder/containers": order, "containers": patch});
        if patch["containers"].is_null() {
            patch.as_object_mut().expect("an object").remove("containers");
        }
        let got = patched_spec(json!({"containers": containers(live)}), patch);
        assert_eq!(names(&got.expect(case)), want, "{case}");
    }
}

#[test]
fn primitive_lists_are_merged_by_value() {
    for (case, live, patch, want) in [
        ("new ones come first", json!(["a", "b"]), json!({"finalizers": ["c"]}), json!(["c", "a", "b"])),
        (
            "known ones lead",
            json!(["c", "a", "b"]),
            json!({"finalizers": ["b", "d"]}),
            json!(["c", "a", "b", "d"]),
        ),
        (
            "repetitions",
            json!(["a", "b"]),
            json!({"finalizers": ["a", "a", "n", "n"]}),
            json!(["a", "n", "b"]),
        ),
        (
            "delete",
            json!(["a", "b"]),
            json!({"$deleteFromPrimitiveList/finalizers": ["a", "z"]}),
            json!(["b"]),
        ),
        ("delete by null", json!(["a"]), json!({"$deleteFromPrimitiveList/finalizers": null}), json!(null)),
        (
            "delete by no list",
            json!(["a"]),
            json!({"$deleteFromPrimitiveList/finalizers": "a"}),
            json!(["a"]),
        ),
        (
            "delete and add",
            json!(["a", "b"]),
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["z"]}),
            json!(["z", "b"]),
        ),
        (
            "order",
            json!(["c", "b", "d"]),
            json!({"$setElementOrder/finalizers": ["d", "c", "b"]}),
            json!(["d", "c", "b"]),
        ),
        (
            "order with a new one",
            json!(["d", "c", "b"]),
            json!({"$setElementOrder/finalizers": ["b", "n", "c"], "finalizers": ["n"]}),
            json!(["d", "b", "n", "c"]),
        ),
        (
            "an empty order",
            json!(["a", "b"]),
            json!({"$setElementOrder/finalizers": [], "finalizers": ["p", "q"]}),
            json!(["a", "b", "q", "p"]),
        ),
    ] {
        let got = patched(json!({"metadata": {"finalizers": live}}), json!({"metadata": patch}));
        assert_eq!(got.expect(case)["metadata"]["finalizers"], want, "{case}");
    }
}

#[test]
fn maps_are_merged_by_directives() {
    for (case, live, patch, want) in [
        ("null removes", json!({"a": "1", "b": "2"}), json!({"a": null, "z": null}), json!({"b": "2"})),
        ("replace", json!({"a": "1"}), json!({"$patch": "replace", "b": "2"}), json!({"b": "2"})),
        ("replace what is not there", json!(null), json!({"$patch": "replace", "b": "2"}), json!(null)),
        ("delete", json!({"a": "1"}), json!({"$patch": "delete"}), json!({})),
        ("retain", json!({"a": "1"}), json!({"$retainKeys": ["b"], "b": "2"}), json!({"b": "2"})),
    ] {
        let live = if live.is_null() { json!({}) } else { json!({"nodeSelector": live}) };
        let got = patched_spec(live, json!({"nodeSelector": patch})).expect(case);
        assert_eq!(got["nodeSelector"], want, "{case}");
    }
    assert_eq!(patched(json!({"spec": {}}), json!({"$patch": "delete"})), Ok(json!({})));
    assert_eq!(
        patched(json!({"spec": {}}), json!({"$patch": "replace", "kind": "Pod"})),
        Ok(json!({"kind": "Pod"}))
    );
    assert_eq!(patched(json!({"spec": {}}), json!(null)), Ok(json!({"spec": {}})));
}

#[test]
fn new_members_lose_nulls_and_directives() {
    let item = json!({"name": "n", "args": null, "env": [{"$patch": "replace"}, {"name": "z"}]});
    let got = patched_spec(json!({"containers": containers("a")}), json!({"containers": [item.clone()]}));
    assert_eq!(got.expect("a new item")["containers"][0], item, "stays as it came");
    let got = patched_spec(json!({}), json!({"containers": [item]}));
    assert_eq!(got.expect("a new list")["containers"], json!([{"name": "n", "env": [{"name": "z"}]}]));
}

#[test]
fn other_lists_are_replaced() {
    let patch = json!({"tolerations": [{"$patch": "replace"}, {"key": "z"}]});
    let got = patched_spec(json!({"tolerations": [{"key": "k"}]}), patch.clone());
    assert_eq!(got, Ok(patch));
}

#[test]
fn invalid_patches_are_rejected() {
    let live =
        || json!({"containers": [{"name": "a"}], "nodeSelector": {"x": "1"}, "tolerations": [{"key": "k"}]});
    for (patch, code, want) in [
        (
            json!({"containers": [{"image": "x"}]}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "merge"}]}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "explode"}]}),
            500,
            "unknown patch type: explode in map: map[$patch:explode name:a]",
        ),
        (json!({"containers": [5]}), 500, "list element types are not identical: [[map[name:a]] [5]]"),
        (json!({"containers": [null]}), 500, "list element types are not identical: [[map[name:a]] [<nil>]]"),
        (
            json!({"nodeSelector": {"$patch": 5}}),
            500,
            "unknown patch type: %!s(int64=5) in map: map[$patch:5]",
        ),
        (
            json!({"nodeSelector": {"$patch": "merge", "b": "2"}}),
            500,
            "unknown patch type: merge in map: map[$patch:merge b:2]",
        ),
        (
            json!({"nodeSelector": {"$retainKeys": ["a"], "b": "2"}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (json!({"nodeSelector": {"$retainKeys": "b", "b": "2"}}), 400, "invalid patch format of retainKeys"),
        (json!({"$deleteFromPrimitiveListx": []}), 400, "invalid patch format of primitive list"),
        (json!({"$setElementOrderx": []}), 400, "invalid patch format of setElementOrder list"),
        (
            json!({"$setElementOrder/nope": []}),
            500,
            "unable to find api field in struct PodSpec for the json field \"nope\"",
        ),
        (
            json!({"$setElementOrder/containers": null}),
            500,
            "expected a []interface {}, but received a %!s(<nil>)",
        ),
        (
            json!({"$setElementOrder/containers": "x"}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "f", "image": "i"}]}),
            500,
            "The order in patch list:\n[map[image:i name:f]]\n doesn't match $setElementOrder list:\n[map[name:c]]\n",
        ),
        (
            json!({"$setElementOrder/containers": [{"image": "x"}]}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"$deleteFromPrimitiveList/tolerations": [{"key": "k"}]}),
            500,
            "cannot merge lists without merge key for struct",
        ),
        (
            json!({"nodeSelector": {"$setElementOrder/x": ["a"]}}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"nodeSelector": {"x": 5}}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[nodeSelector:map[x:5]]]\": cannot convert int64 to string",
        ),
        (
            json!({"nodeSelector": {"x": true, "y": [], "z": null}}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[nodeSelector:map[x:true y:[] z:<nil>]]]\": unrecognized type: string",
        ),
        (
            json!({"restartPolicy": 5}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[restartPolicy:5]]\": cannot convert int64 to v1.RestartPolicy",
        ),
        (
            json!({"priority": 1.5}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[priority:1.5]]\": cannot convert float64 to int32",
        ),
        (
            json!({"priority": "x"}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[priority:x]]\": unrecognized type: int32",
        ),
        (
            json!({"hostNetwork": 1}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[hostNetwork:1]]\": unrecognized type: bool",
        ),
        (
            json!({"containers": "x"}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[containers:x]]\": cannot restore slice from string",
        ),
        (
            json!({"nodeSelector": ["x"]}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[nodeSelector:[x]]]\": cannot restore map from slice",
        ),
        (
            json!({"affinity": 5}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[affinity:5]]\": cannot restore struct from: int64",
        ),
        (
            json!({"overhead": {"cpu": "zz"}}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[overhead:map[cpu:zz]]]\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ] {
        let text = patch.to_string();
        assert_eq!(patched_spec(live(), patch), Err((code, want.to_owned())), "{text}");
    }
    let array = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!(patched(json!({}), json!([])), Err((400, array.to_owned())));
}

#[test]
fn bytes_may_be_numbers() {
    let patched = |bytes: Value| {
        apply(json!({}), json!({"data": {"k": bytes}}), kind("", "v1", "Secret"))
            .map(|patched| patched.object["data"]["k"].clone())
            .map_err(|error| error.to_string())
    };
    for (bytes, want) in [
        (json!([]), ""),
        (json!([1, 2]), "AQI="),
        (json!([300, -1, 1.0]), "LP8B"),
        (json!([null]), "AA=="),
        (json!("AQI="), "AQI="),
    ] {
        assert_eq!(patched(bytes.clone()), Ok(json!(want)), "{bytes}");
    }
    for (bytes, want) in [
        (json!(["a"]), "[a]]]\": unrecognized type: uint8"),
        (json!([1.5]), "[1.5]]]\": cannot convert float64 to uint8"),
        (json!({}), "map[]]]\": cannot restore slice from map"),
    ] {
        let error = patched(bytes).expect_err(want);
        assert!(error.ends_with(want), "{error}");
    }
}

#[test]
fn numbers_are_converted_leniently() {
    for (given, want) in [(json!(1.0), 1), (json!(4294967297i64), 1), (json!(1e30), 0), (json!(u64::MAX), 0)]
    {
        assert_eq!(patched_spec(json!({}), json!({"priority": given})), Ok(json!({"priority": want})));
    }
    let patch = json!({"strategy": {"rollingUpdate": {"maxSurge": 1.5}}});
    let error =
        apply(json!({}), json!({"spec": patch}), kind("apps", "v1", "Deployment")).expect_err("no integer");
    assert_eq!(
        error.to_string(),
        " \"\" is invalid: patch: Invalid value: \"map[spec:map[strategy:map[rollingUpdate:map[maxSurge:1.5]]]]\": json: cannot unmarshal number 1.5 into Go value of type int32"
    );
}

#[test]
fn errors_show_the_unapplied_rest_of_the_patch() {
    let live = json!({"containers": [{"name": "a"}]});
    let patch = json!({
        "$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a", "image": "x"}], "priority": "x",
    });
    let (_, text) = patched_spec(live, patch).expect_err("a string is no priority");
    assert!(text.contains("\"map[spec:map[priority:x]]\""), "{text}");
}

proptest! {
    #[test]
    fn merging_an_object_with_itself_changes_nothing(names in "[a-f]{0,5}", labels in "[a-f]{0,3}") {
        let unique = |text: &str| text.chars().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<String>();
        let labels: Map<String, Value> = labels.chars().map(|c| (c.to_string(), json!("v"))).collect();
        let object = json!({
            "metadata": {"labels": labels, "finalizers": unique(&names).chars().map(String::from).collect::<Vec<_>>()},
            "spec": {"containers": containers(&unique(&names)), "tolerations": [{"key": names}]},
        });
        prop_assert_eq!(patched(object.clone(), object.clone()), Ok(object));
    }

    #[test]
    fn no_patch_panics(target in arbitrary::object(), patch in arbitrary::json()) {
        let _ = patched(target.clone(), patch.clone());
        let _ = patched(pod(target), pod(patch));
    }
}
