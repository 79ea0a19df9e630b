use proptest::prelude::*;
use serde_json::json;

use super::super::entry;
use super::*;
use crate::resource_info::ResourceInfo;
use crate::schema::{StructuralSchema, schema};

const NOW: &str = "2026-01-01T00:00:01Z";

/// An object that is applied to, again and again.
struct Applying {
    type_ref: TypeRef,
    kind: &'static str,
    live: Value,
    entries: Vec<Entry>,
}

impl Applying {
    fn config_map() -> Applying {
        Applying::of(schema().kind("", "v1", "ConfigMap").unwrap().into(), "ConfigMap")
    }

    fn custom() -> Applying {
        let widget = StructuralSchema::read(json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "ports": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": {"type": "object", "properties": {
                        "port": {"type": "integer"},
                        "protocol": {"type": "string", "default": "TCP"},
                        "name": {"type": "string"},
                    }},
                },
                "whole": {"type": "array", "items": {"type": "integer"}},
                "one": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
                "loose": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        }}}));
        Applying::of(TypeRef::Structural(widget.unwrap().into()), "Widget")
    }

    fn of(type_ref: TypeRef, kind: &'static str) -> Applying {
        Applying { type_ref, kind, live: json!({"kind": kind, "apiVersion": "v1"}), entries: Vec::new() }
    }

    fn to(&self) -> ApplyTo<'_> {
        ApplyTo { type_ref: &self.type_ref, kind: self.kind, versions: None }
    }

    fn try_apply(&self, manager: &str, fields: &Value, force: bool) -> Result<Applied> {
        let applier = FieldManager { manager, api_version: "v1", subresource: "", now: NOW };
        self.to().apply(&self.live, &self.entries, &self.configuration(fields), applier, force)
    }

    fn configuration(&self, fields: &Value) -> Value {
        let mut configuration = json!({"kind": self.kind, "apiVersion": "v1", "metadata": {"name": "a"}});
        let members = fields.as_object().into_iter().flatten();
        configuration.as_object_mut().unwrap().extend(members.map(|(k, v)| (k.clone(), v.clone())));
        configuration
    }

    /// Applies a configuration, and keeps the resulting object.
    fn apply(&mut self, manager: &str, fields: Value) -> &mut Applying {
        self.apply_with(manager, &fields, false).unwrap();
        self
    }

    fn apply_with(&mut self, manager: &str, fields: &Value, force: bool) -> Result<()> {
        let applied = self.try_apply(manager, fields, force)?;
        self.live = without_nulls(applied.object);
        self.entries = applied.entries;
        Ok(())
    }

    /// Writes as a client does that does not apply.
    fn update(&mut self, manager: &str, fields: Value) -> &mut Applying {
        let new = self.configuration(&fields);
        let comparison = walk::compare(Some(&self.live), &new, &self.type_ref);
        let writer = FieldManager { manager, api_version: "v1", subresource: "", now: NOW };
        manage::remove_fields(&mut self.entries, |_| Some(&comparison));
        let mut written = comparison.written;
        manage::ignore(&mut written, &[]);
        manage::add_fields(&mut self.entries, writer, written);
        self.live = new;
        self
    }

    fn fields(&self, member: &str) -> &Value {
        &self.live[member]
    }

    /// Returns `manager fields` of each entry, by operation and name.
    fn owners(&self) -> Vec<String> {
        let mut owners: Vec<String> = self
            .entries
            .iter()
            .map(|entry| format!("{} {}", entry.manager, entry.fields.clone().into_value()))
            .collect();
        owners.sort();
        owners
    }
}

/// Removes nulls, as decoding does.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(|member| *member = without_nulls(member.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_nulls(item.take())),
        _ => {}
    }
    value
}

#[test]
fn a_field_no_longer_applied_is_removed_unless_another_manager_owns_it() {
    let mut object = Applying::config_map();
    object
        .apply("one", json!({"data": {"a": "1", "b": "2"}}))
        .apply("two", json!({"data": {"b": "2", "c": "3"}}));
    assert_eq!(
        object.owners(),
        [r#"one {"f:data":{"f:a":{},"f:b":{}}}"#, r#"two {"f:data":{"f:b":{},"f:c":{}}}"#]
    );
    object.apply("one", json!({}));
    assert_eq!(object.fields("data"), &json!({"b": "2", "c": "3"}));
    assert_eq!(object.owners(), [r#"two {"f:data":{"f:b":{},"f:c":{}}}"#]);
    object.apply("two", json!({}));
    assert_eq!(object.fields("data"), &Value::Null);
    assert!(object.entries.is_empty());
}

#[test]
fn changing_what_another_manager_owns_is_a_conflict() {
    let mut object = Applying::config_map();
    object.apply("one", json!({"data": {"a": "1"}})).update("editor", json!({"data": {"a": "1", "b": "2"}}));
    let wanted = json!({"data": {"a": "x", "b": "y"}});
    let error = object.apply_with("two", &wanted, false).unwrap_err();
    assert_eq!(error.code(), 409);
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"editor\" using v1:\n- .data.b\nconflicts with \"one\":\n- .data.a"
    );
    // Its own fields and equal values do not conflict.
    object.apply("one", json!({"data": {"a": "2"}})).apply("two", json!({"data": {"a": "2"}}));
    object.apply_with("two", &wanted, true).unwrap();
    assert_eq!(object.fields("data"), &json!({"a": "x", "b": "y"}));
    assert_eq!(object.owners(), [r#"two {"f:data":{"f:a":{},"f:b":{}}}"#]);
}

#[test]
fn a_null_is_a_value_that_conflicts_with_another() {
    let mut object = Applying::config_map();
    object.update("editor", json!({"immutable": true, "data": {"a": "1"}}));
    for (fields, want) in [
        (json!({"immutable": null}), ".immutable"),
        (json!({"data": {"a": null}}), ".data.a"),
        // A null parent removes the fields of this manager only, so this changes nothing that
        // others own.
        (json!({"data": null}), ""),
    ] {
        match object.apply_with("one", &fields, false) {
            Ok(()) => assert_eq!(want, "", "{fields}"),
            Err(error) => {
                let text = format!("Apply failed with 1 conflict: conflict with \"editor\" using v1: {want}");
                assert_eq!(error.to_string(), text);
            }
        }
    }
}

#[test]
fn the_first_apply_tracks_what_is_there() {
    let mut object = Applying::config_map();
    object.live["data"] = json!({"a": "1", "b": "2"});
    object.apply("one", json!({"data": {"a": "1"}}));
    let owners = object.owners();
    assert_eq!(
        owners,
        [r#"before-first-apply {"f:data":{".":{},"f:a":{},"f:b":{}}}"#, r#"one {"f:data":{"f:a":{}}}"#]
    );
    let error = object.apply_with("one", &json!({"data": {"a": "2"}}), false).unwrap_err();
    let text = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a";
    assert_eq!(error.to_string(), text);
}

#[test]
fn lists_of_custom_resources_are_merged_by_their_types() {
    let mut object = Applying::custom();
    object
        .apply("one", json!({"spec": {
            "tags": ["x", "y"], "ports": [{"port": 443, "name": "s"}, {"port": 80}], "whole": [1, 2],
            "one": {"a": 1}, "loose": {"deep": {"er": 1}},
        }}))
        .apply("two", json!({"spec": {"tags": ["z", "y"], "ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "p"}]}}));
    assert_eq!(
        object.fields("spec"),
        &json!({
            "tags": ["x", "z", "y"],
            "ports": [{"port": 443, "name": "s"}, {"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "p"}],
            "whole": [1, 2], "one": {"a": 1}, "loose": {"deep": {"er": 1}},
        })
    );
    for (case, fields, want) in [
        ("a list that is one value", json!({"whole": [1, 2, 3]}), ".spec.whole"),
        ("a map that is one value", json!({"one": {"a": 1, "b": 2}}), ".spec.one"),
        (
            "an item, found by a default",
            json!({"ports": [{"port": 443, "name": "t"}]}),
            ".spec.ports[port=443,protocol=\"TCP\"].name",
        ),
        ("what has no type", json!({"loose": {"deep": {"er": 2}}}), ".spec.loose.deep.er"),
    ] {
        let error = object.apply_with("three", &json!({"spec": fields}), false).unwrap_err().to_string();
        assert_eq!(error, format!("Apply failed with 1 conflict: conflict with \"one\": {want}"), "{case}");
    }
    object.apply("one", json!({}));
    assert_eq!(
        object.fields("spec"),
        &json!({"tags": ["z", "y"], "ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "p"}]})
    );
}

#[test]
fn paths_are_in_the_order_of_numbers() {
    let mut object = Applying::custom();
    let ports = |name: &str| json!({"spec": {"ports": [{"port": 443, "name": name}, {"port": 80, "name": name}, {"port": 9, "name": name}]}});
    object.apply("one", ports("a"));
    let error = object.apply_with("two", &ports("b"), false).unwrap_err().to_string();
    let paths: Vec<&str> = error.lines().skip(1).collect();
    assert_eq!(paths, [9, 80, 443].map(|port| format!("- .spec.ports[port={port},protocol=\"TCP\"].name")));
}

#[test]
fn configurations_that_do_not_fit_are_refused() {
    let object = Applying::custom();
    for (fields, code, want) in [
        (json!({"kind": "Gadget"}), 400, "invalid object type: /v1, Kind=Gadget"),
        (json!({"apiVersion": "a/b"}), 400, "invalid object type: a/b, Kind=Widget"),
        (json!({"apiVersion": "a/b/c"}), 400, "invalid object type: /, Kind=Widget"),
        (json!({"metadata": {"name": "a", "managedFields": []}}), 400, "metadata.managedFields must be nil"),
        (json!({"spec": {"x": 1}}), 500, ".spec.x: field not declared in schema"),
        (json!({"spec": {"tags": ["a", "a"]}}), 500, ".spec.tags: duplicate entries for key [=\"a\"]"),
        (
            json!({"spec": {"tags": [{}]}}),
            500,
            ".spec.tags: element 0: associative list without keys has an element that's a map type",
        ),
        (
            json!({"spec": {"ports": [{"port": "x"}]}}),
            500,
            ".spec.ports[port=\"x\",protocol=\"TCP\"].port: expected numeric (int or float), got string",
        ),
        (
            json!({"spec": {"labels": {"a": 5, "b": true}}}),
            500,
            "errors:\n  .spec.labels.a: expected string, got &value.valueUnstructured{Value:5}\n  .spec.labels.b: expected string, got &value.valueUnstructured{Value:true}",
        ),
        (json!({"spec": {"labels": "x"}}), 500, ".spec.labels: expected map, got &{x}"),
        (json!({"spec": {"tags": {"a": [1, "b"]}}}), 500, ".spec.tags: expected list, got &{map[a:[1 b]]}"),
    ] {
        let error = object.try_apply("one", &fields, true).err().expect(want);
        let text = error.to_string();
        let prefix = "failed to create typed patch object (/a; /v1, Kind=Widget): ";
        assert_eq!((error.code(), text.strip_prefix(prefix).unwrap_or(&text)), (code, want));
    }
}

#[test]
fn kubectl_takes_over_what_it_applied_by_itself() {
    let last = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1","b":"1"}}"#;
    let mut object = Applying::config_map();
    let annotations =
        json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last}, "name": "a"});
    object
        .update("kubectl-client-side-apply", json!({"metadata": annotations, "data": {"a": "1", "b": "1"}}));
    object.update("editor", json!({"metadata": annotations, "data": {"a": "1", "b": "2"}}));
    let changed = json!({"data": {"a": "x", "b": "x"}});
    assert_eq!(
        object.try_apply("somebody", &changed, false).err().expect("conflicts").to_string().lines().count(),
        4
    );
    let error = object.try_apply("kubectl", &changed, false).err().expect("a conflict").to_string();
    assert_eq!(error, "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.b");
    object.apply("kubectl", json!({"data": {"a": "x"}}));
    assert_eq!(object.fields("data"), &json!({"a": "x", "b": "2"}));
    let annotation =
        &object.live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let want = "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"x\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n";
    assert_eq!(annotation, want);
}

#[test]
fn an_apply_that_changes_nothing_has_no_time() {
    let mut object = Applying::config_map();
    object.apply("one", json!({"data": {"a": "1"}})).apply("two", json!({"data": {"a": "1"}}));
    let times: Vec<&str> = object.entries.iter().map(|entry| entry.time.as_str()).collect();
    assert_eq!(times, [NOW, ""]);
}

#[test]
fn a_null_where_go_prints_null_changes_nothing() {
    for (group, kind, configuration, changes) in [
        ("discovery.k8s.io", "EndpointSlice", json!({"ports": null}), false),
        ("", "Event", json!({"lastTimestamp": null, "eventTime": null}), false),
        ("", "ConfigMap", json!({"data": null}), true),
    ] {
        let mut object = Applying::of(schema().kind(group, "v1", kind).unwrap().into(), kind);
        object.apply("one", json!({}));
        let applied = object.try_apply("two", &configuration, false).unwrap();
        assert_eq!(applied.changed, changes, "{configuration}");
        let two = applied.entries.iter().find(|entry| entry.manager == "two").unwrap();
        assert_eq!(two.time.is_empty(), !changes, "{configuration}");
    }
}

#[test]
fn managed_sets_follow_their_objects_to_other_versions() {
    let table = coracle_resources::built_in();
    let v2 = table.find("autoscaling", "v2", "horizontalpodautoscalers").unwrap();
    let v1 = table.find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
    let apply = |info: &ResourceInfo, live: &Value, entries: &[Entry], spec: Value, manager: &str| {
        let versions = Versions::of(info);
        let to = ApplyTo { type_ref: &info.type_ref, kind: &info.kind, versions: Some(&versions) };
        let configuration = json!({"kind": &*info.kind, "apiVersion": &info.api_version, "metadata": {"name": "a"}, "spec": spec});
        let applier = FieldManager { manager, api_version: &info.api_version, subresource: "", now: NOW };
        to.apply(live, entries, &configuration, applier, false)
    };
    let empty = |info: &ResourceInfo| json!({"kind": &*info.kind, "apiVersion": &info.api_version});
    let target = json!({"kind": "Deployment", "name": "web"});
    let first = apply(
        v2,
        &empty(v2),
        &[],
        json!({"maxReplicas": 3, "minReplicas": 2, "scaleTargetRef": target}),
        "one",
    )
    .unwrap();
    // In the other version the same manager drops a field and changes another.
    let live = v2.convert_locally(&first.object, &v1.api_version).unwrap();
    let second =
        apply(v1, &live, &first.entries, json!({"maxReplicas": 4, "scaleTargetRef": target}), "one").unwrap();
    let spec = without_nulls(second.object.clone())["spec"].clone();
    assert_eq!(
        (&spec["maxReplicas"], spec.get("minReplicas"), &spec["scaleTargetRef"]),
        (&json!(4), None, &target)
    );
    assert_eq!(second.entries.len(), 1);
    assert_eq!(second.entries[0].api_version, "autoscaling/v1");
    // And another manager conflicts with it across versions.
    let live = v1.convert_locally(&second.object, &v2.api_version).unwrap();
    let error =
        apply(v2, &live, &second.entries, json!({"maxReplicas": 5}), "two").err().expect("a conflict");
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"one\": .spec.maxReplicas");
}

/// Generates configurations of a custom resource that fit its type. Empty values count differently
/// in different cases.
fn specs() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(&["a", "b", "c"][..]);
    let number = || 0..3i64;
    let labels = prop::collection::btree_map(name(), name(), 0..3);
    let tags = prop::sample::subsequence(&["x", "y", "z"][..], 0..=3).prop_shuffle();
    let ports = prop::collection::btree_map(
        (number(), prop::option::of(prop::sample::select(&["UDP", "SCTP"][..]))),
        prop::option::of(name()),
        0..4,
    );
    let whole = prop::collection::vec(number(), 0..3);
    let loose =
        prop::collection::btree_map(name(), prop::collection::btree_map(name(), number(), 0..2), 0..3);
    (
        prop::option::of(labels),
        prop::option::of(tags),
        prop::option::of(ports),
        prop::option::of(whole),
        prop::option::of(number()),
        prop::option::of(loose),
    )
        .prop_map(|(labels, tags, ports, whole, one, loose)| {
            let ports = ports.map(|ports| -> Vec<Value> {
                let port = |((port, protocol), name): ((i64, Option<&str>), Option<&str>)| {
                    without_nulls(json!({"port": port, "protocol": protocol, "name": name}))
                };
                ports.into_iter().map(port).collect()
            });
            let one = one.map(|a| json!({"a": a}));
            without_empty(json!({"spec": without_nulls(json!({
                "labels": labels, "tags": tags, "ports": ports, "whole": whole, "one": one, "loose": loose,
            }))}))
        })
}

fn without_empty(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.values_mut().for_each(|member| *member = without_empty(member.take()));
        members.retain(|_, member| !member.as_array().is_some_and(Vec::is_empty));
        members.retain(|_, member| !member.as_object().is_some_and(serde_json::Map::is_empty));
    }
    value
}

/// Sorts lists, because their order depends on who applied last.
fn sorted(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => members.values_mut().for_each(|member| *member = sorted(member.take())),
        Value::Array(items) => items.sort_by_key(Value::to_string),
        _ => {}
    }
    value
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(before in specs(), fields in specs()) {
        let mut object = Applying::custom();
        object.apply("other", before);
        object.apply_with("one", &fields, true).unwrap();
        let again = object.try_apply("one", &fields, false).unwrap();
        prop_assert!(!again.changed, "{} became {}", object.live, again.object);
        let mut entries = object.entries.clone();
        entries.sort_by(Entry::order);
        let mut again = again.entries;
        again.sort_by(Entry::order);
        prop_assert_eq!(entries, again);
    }

    #[test]
    fn what_is_removed_again_is_owned_by_nobody(fields in specs()) {
        let mut object = Applying::custom();
        object.apply("one", fields).apply("one", json!({}));
        prop_assert!(object.entries.is_empty());
        prop_assert_eq!(sorted(object.live), json!({"kind": "Widget", "apiVersion": "v1", "metadata": {"name": "a"}}));
    }

    #[test]
    fn managers_that_agree_may_come_in_any_order(one in specs(), two in specs()) {
        let (mut first, mut second) = (Applying::custom(), Applying::custom());
        first.apply("one", one.clone());
        if first.apply_with("two", &two, false).is_err() {
            return Ok(());
        }
        second.apply("two", two);
        prop_assert!(second.apply_with("one", &one, false).is_ok());
        prop_assert_eq!(first.owners(), second.owners());
        prop_assert_eq!(sorted(first.live), sorted(second.live));
    }

    #[test]
    fn a_manager_takes_nothing_of_what_others_own(one in specs(), two in specs(), next in specs()) {
        let mut object = Applying::custom();
        object.apply("one", one);
        if object.apply_with("two", &two, false).is_err() {
            return Ok(());
        }
        let had = entry_of(&object, "one");
        if object.apply_with("two", &next, false).is_err() {
            return Ok(());
        }
        prop_assert_eq!(had, entry_of(&object, "one"));
        let there = walk::fields(&object.live, &object.type_ref);
        for entry in &object.entries {
            let mut missing = entry.fields.clone();
            missing.difference_with(&there);
            prop_assert!(missing.is_empty(), "{:?} are gone", missing.paths());
        }
    }

    #[test]
    fn nothing_that_is_applied_panics(
        live in crate::testing::arbitrary::object(), fields in crate::testing::arbitrary::object(), owned in crate::testing::arbitrary::object(),
    ) {
        for mut object in [Applying::custom(), Applying::config_map()] {
            object.live["spec"] = live.clone();
            let fields_v1 = json!({"f:spec": owned});
            let sent = json!([{"manager": "one", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields_v1}]);
            object.entries = entry::read(&sent).unwrap_or_default();
            let _ = object.apply_with("one", &fields, true);
            let _ = object.apply_with("two", &json!({"spec": fields}), false);
        }
    }
}

fn entry_of(object: &Applying, manager: &str) -> Option<FieldPathSet> {
    object.entries.iter().find(|entry| entry.manager == manager).map(|entry| entry.fields.clone())
}
