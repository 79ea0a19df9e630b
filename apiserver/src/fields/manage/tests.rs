use serde_json::json;

use super::*;
use crate::codec::json;
use crate::schema::schema;

const TIMES: [&str; 3] = ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"];

fn writer<'a>(manager: &'a str, subresource: &'a str, now: &'a str) -> FieldManager<'a> {
    FieldManager { manager, api_version: "v1", subresource, now }
}

/// Returns the entries after a write, as `manager fields` lines.
fn write(kind: &str, writer: FieldManager<'_>, live: Option<&Value>, new: &Value) -> (Value, Vec<String>) {
    let table = coracle_resources::built_in();
    let info = table.iter().find(|info| info.kind == kind).expect(kind);
    let entries = update(&Versions::of(info), writer, live, new).expect("built in");
    let lines = shown(&entries);
    let mut object = new.clone();
    object["metadata"]["managedFields"] = entries;
    (object, lines)
}

fn shown(entries: &Value) -> Vec<String> {
    let line = |entry: &Value| {
        let text = |member: &str| entry[member].as_str().unwrap_or("").to_owned();
        let subresource = entry.get("subresource").map(|s| format!("/{}", s.as_str().unwrap()));
        let second = text("time").chars().rev().nth(1).map_or(String::new(), |c| format!("@{c}"));
        format!("{}{}{second} {}", text("manager"), subresource.unwrap_or_default(), entry["fieldsV1"])
    };
    entries.as_array().into_iter().flatten().map(line).collect()
}

fn config(data: Value) -> Value {
    json!({"metadata": {"name": "a"}, "data": data})
}

#[test]
fn changing_a_field_takes_its_ownership() {
    let (first, lines) = write("ConfigMap", writer("one", "", TIMES[0]), None, &config(json!({"k": "v"})));
    assert_eq!(lines, [r#"one@1 {"f:data":{".":{},"f:k":{}}}"#]);
    let (second, lines) =
        write("ConfigMap", writer("two", "", TIMES[1]), Some(&first), &config(json!({"k": "w", "l": "x"})));
    assert_eq!(lines, [r#"one@1 {"f:data":{}}"#, r#"two@2 {"f:data":{"f:k":{},"f:l":{}}}"#]);
    let (_, lines) = write("ConfigMap", writer("two", "", TIMES[2]), Some(&second), &json!({"metadata": {}}));
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_write_that_changes_nothing_keeps_the_entries() {
    let (first, lines) = write("ConfigMap", writer("one", "", TIMES[0]), None, &config(json!({"k": "v"})));
    for new in [config(json!({"k": "v"})), first.clone()] {
        assert_eq!(write("ConfigMap", writer("two", "", TIMES[1]), Some(&first), &new).1, lines);
    }
}

#[test]
fn clients_may_write_managed_fields() {
    let (live, kept) = write("ConfigMap", writer("one", "", TIMES[0]), None, &config(json!({"k": "v"})));
    let entry = |operation: &str, fields: Value| json!({"manager": "x", "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    for (case, sent, want) in [
        ("an empty entry resets", json!([{}]), vec![]),
        (
            "entries replace",
            json!([entry("Apply", json!({"f:data": {"f:k": {}}}))]),
            vec![r#"x {"f:data":{"f:k":{}}}"#.to_owned()],
        ),
        ("entries that own nothing go", json!([entry("Update", json!({}))]), vec![]),
        ("malformed entries do not", json!([entry("Apply", json!({"data": {}}))]), kept.clone()),
        ("nor unknown operations", json!([entry("Delete", json!({}))]), kept.clone()),
        ("nor two empty ones", json!([{}, {}]), kept.clone()),
    ] {
        let mut new = config(json!({"k": "v"}));
        new["metadata"]["managedFields"] = sent.clone();
        assert_eq!(write("ConfigMap", writer("one", "", TIMES[1]), Some(&live), &new).1, want, "{case}");
        assert_eq!(
            write("ConfigMap", writer("one", "status", TIMES[1]), Some(&live), &new).1,
            kept,
            "{case}"
        );
    }
}

#[test]
fn an_object_without_managed_fields_stays_untracked() {
    let live = config(json!({"k": "v"}));
    assert_eq!(write("ConfigMap", writer("one", "", TIMES[1]), Some(&live), &config(json!({}))).1, [""; 0]);
}

#[test]
fn a_subresource_tracks_its_own_fields() {
    let pod = |phase: &str, node: &str| json!({"spec": {"nodeName": node}, "status": {"phase": phase}});
    let (live, lines) = write("Pod", writer("one", "", TIMES[0]), None, &pod("Pending", "n"));
    assert_eq!(lines, [r#"one@1 {"f:spec":{"f:nodeName":{}}}"#]);
    let (_, lines) = write("Pod", writer("one", "status", TIMES[1]), Some(&live), &pod("Running", "m"));
    assert_eq!(
        lines,
        [r#"one@1 {"f:spec":{"f:nodeName":{}}}"#, r#"one/status@2 {"f:status":{"f:phase":{}}}"#]
    );
}

#[test]
fn the_next_change_removes_entries_of_unknown_versions() {
    let (mut live, _) = write("ConfigMap", writer("one", "", TIMES[0]), None, &config(json!({"k": "v"})));
    live["metadata"]["managedFields"][0]["apiVersion"] = "v9".into();
    let (_, lines) = write("ConfigMap", writer("two", "", TIMES[1]), Some(&live), &config(json!({"k": "w"})));
    assert_eq!(lines, [r#"two@2 {"f:data":{"f:k":{}}}"#]);
}

#[test]
fn an_item_without_keys_leaves_an_object_without_managers() {
    let account = |secrets: Value| json!({"metadata": {"name": "a"}, "secrets": secrets});
    for (secrets, want) in [
        (json!([{"name": "s"}]), vec![r#"one@1 {"f:secrets":{".":{},"k:{\"name\":\"s\"}":{}}}"#]),
        (json!([{"name": "s"}, {"kind": "Secret"}]), vec![]),
    ] {
        assert_eq!(
            write("ServiceAccount", writer("one", "", TIMES[0]), None, &account(secrets.clone())).1,
            want,
            "{secrets}"
        );
    }
}

#[test]
fn an_empty_list_is_owned_where_none_is_printed_as_null() {
    for (limits, want) in [(json!([]), vec![r#"one@1 {"f:spec":{"f:limits":{}}}"#]), (json!(null), vec![])] {
        let object = json!({"metadata": {"name": "a"}, "spec": {"limits": limits}});
        let range = schema().kind("", "v1", "LimitRange").expect("a kind");
        let object = json::normalize(&object, range).expect("a LimitRange").value;
        assert_eq!(write("LimitRange", writer("one", "", TIMES[0]), None, &object).1, want, "{limits}");
    }
}

#[test]
fn at_most_ten_update_managers_are_kept() {
    let mut live = config(json!({}));
    let mut lines = Vec::new();
    for number in 0..13 {
        let mut new = live.clone();
        new["data"][format!("k{number:02}")] = "v".into();
        let now = format!("2026-01-01T00:00:{number:02}Z");
        let before = (number > 0).then_some(&live);
        (live, lines) = write("ConfigMap", writer(&format!("m{number:02}"), "", &now), before, &new);
    }
    assert_eq!(lines.len(), 10);
    assert_eq!(
        lines[0],
        r#"ancient-changes@3 {"f:data":{".":{},"f:k00":{},"f:k01":{},"f:k02":{},"f:k03":{}}}"#
    );
    assert_eq!(lines[1], r#"m04@4 {"f:data":{"f:k04":{}}}"#);
}

#[test]
fn scaling_transfers_the_ownership_of_replicas() {
    let fields = json!([{"manager": "one", "operation": "Update", "apiVersion": "v1", "time": TIMES[0],
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:x": {}}}}]);
    let live = json!({"metadata": {"managedFields": fields}, "spec": {"replicas": 2}});
    let writer = writer("hpa", "scale", TIMES[1]);
    for (replicas, want) in [
        (3, vec![r#"hpa/scale {"f:spec":{"f:replicas":{}}}"#, r#"one@1 {"f:spec":{"f:x":{}}}"#]),
        (0, vec![r#"one@1 {"f:spec":{"f:x":{}}}"#]),
    ] {
        assert_eq!(shown(&scale(writer, &live, replicas)), want, "{replicas}");
    }
}

#[test]
fn changed_timestamps_alone_are_ignored() {
    let object = |time: &str, value: &str| json!({"metadata": {"managedFields": [{"manager": "m", "time": time}]}, "data": {"k": value}});
    let old = object(TIMES[0], "v");
    for (new, want) in
        [(object(TIMES[1], "v"), object(TIMES[0], "v")), (object(TIMES[1], "w"), object(TIMES[1], "w"))]
    {
        let mut kept = new.clone();
        ignore_managed_fields_timestamps(&mut kept, &old);
        assert_eq!(kept, want);
    }
}

#[test]
fn the_manager_defaults_to_the_user_agent() {
    for (requested, agent, want) in [
        ("me", "curl/8", "me"),
        ("", "kubectl/v1.36.0 (linux/amd64)", "kubectl"),
        ("", "two words: x/1", "two words: x"),
        ("", "/nothing", "unknown"),
        ("", "", "unknown"),
    ] {
        assert_eq!(manager(requested, agent), want);
    }
    assert_eq!(manager("", &"é".repeat(100)).len(), 128);
}

#[test]
fn a_scale_that_changes_nothing_splits_an_owner_by_updates() {
    let entry = |manager: &str, operation: &str| {
        json!({
            "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "time": TIMES[0],
            "fieldsV1": {"f:spec": {"f:replicas": {}, "f:x": {}}},
        })
    };
    let live =
        |entries: Value| json!({"metadata": {"managedFields": entries}, "spec": {"replicas": 2, "x": 1}});
    let writer = writer("hpa", "scale", TIMES[1]);
    let applied = live(json!([entry("one", "Apply")]));
    assert_eq!(scale(writer, &applied, 2), applied["metadata"]["managedFields"]);
    let mut updated = live(json!([entry("one", "Update")]));
    let split = scale(writer, &updated, 2);
    assert_eq!(shown(&split), [r#"one {"f:spec":{"f:replicas":{}}}"#, r#"one@1 {"f:spec":{"f:x":{}}}"#]);
    // The first one does not count any more, and nobody owns the replicas.
    updated["metadata"]["managedFields"] = split.clone();
    assert_eq!(shown(&entry::write(entry::entries_of(&updated))), [r#"one@1 {"f:spec":{"f:x":{}}}"#]);
    assert_eq!(shown(&scale(writer, &updated, 3)), [r#"one@1 {"f:spec":{"f:x":{}}}"#]);
}
