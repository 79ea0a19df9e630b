//! `real.jsonl` contains recorded responses of a real v1.36 server: the columns of every kind
//! (name, type, format, priority, length of the description), and objects with their cells (without
//! the fields that no cell depends on).

use coracle_apimachinery::render::table::{IncludeObject, Item, Printer, TableOptions, table, table_of_one};
use coracle_apimachinery::render::*;
use coracle_apimachinery::request::negotiate::MetaVersion;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::behavior;
use crate::recorded::{cases, set_type};

fn of_kind(group: &str, kind: &str) -> Printer {
    behavior(group, kind).printer
}

fn records() -> Vec<Value> {
    cases(include_str!("real.jsonl"))
}

fn printer(record: &Value) -> Printer {
    of_kind(record["group"].as_str().expect("a group"), record["kind"].as_str().expect("a kind"))
}

fn time(text: &Value) -> Timestamp {
    text.as_str().and_then(|text| text.parse().ok()).expect("a time")
}

fn options(include_object: IncludeObject, now: Timestamp) -> TableOptions {
    TableOptions { version: MetaVersion::V1, include_object, no_headers: false, now }
}

#[test]
fn cells_match_the_real_servers() {
    let mut seen = 0;
    for record in records().iter().filter(|record| record.get("cells").is_some()) {
        let mut object = record["object"].clone();
        set_type(
            &mut object,
            record["group"].as_str().unwrap_or_default(),
            record["kind"].as_str().expect("a kind"),
        );
        let table = table_of_one(
            &printer(record),
            Item::of(&object),
            &options(IncludeObject::None, time(&record["now"])),
        );
        let row = &table["rows"][0];
        assert_eq!(row["cells"], record["cells"], "{record}");
        assert_eq!(row.get("conditions"), record.get("conditions"), "{record}");
        seen += 1;
    }
    assert!(seen > 100);
}

#[test]
fn columns_match_the_real_servers() {
    for record in records().iter().filter(|record| record.get("columns").is_some()) {
        let definitions = printer(record).definitions();
        let short = |d: &Value| {
            let length = d["description"].as_str().expect("a description").len();
            json!([d["name"], d["type"], d["format"], d["priority"], length])
        };
        let short: Vec<Value> = definitions.iter().map(short).collect();
        assert_eq!(Value::from(short), record["columns"], "{} {}", record["group"], record["kind"]);
    }
}

#[test]
fn rows_include_the_requested_object() {
    let now = Timestamp::UNIX_EPOCH;
    let object = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"},
        "metadata": {"name": "a", "resourceVersion": "7", "labels": {"x": "y"}},
    });
    let partial = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a", "resourceVersion": "7", "labels": {"x": "y"}},
    });
    let printer = of_kind("", "ConfigMap");
    for (include, want) in [
        (IncludeObject::None, Value::Null),
        (IncludeObject::Metadata, partial.clone()),
        (IncludeObject::Object, object.clone()),
    ] {
        let table = table_of_one(&printer, Item::of(&object), &options(include, now));
        assert_eq!(table["rows"][0]["object"], want);
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    }
    let v1beta1 = TableOptions { version: MetaVersion::V1beta1, ..options(IncludeObject::Metadata, now) };
    let table = table_of_one(&printer, Item::of(&object), &v1beta1);
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(table["rows"][0]["object"]["apiVersion"], "meta.k8s.io/v1beta1");
    let list = partial_metadata_list([&object], json!({"resourceVersion": "9"}), &printer, MetaVersion::V1);
    assert_eq!(list["items"], json!([partial]));
    assert_eq!(list["metadata"], json!({"resourceVersion": "9"}));
}

#[test]
fn spec_members_kept_in_annotations_are_not_metadata() {
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    for (kind, annotations, want) in [
        ("DaemonSet", json!({GENERATION: "1", "a": "b"}), json!({"a": "b"})),
        ("DaemonSet", json!({GENERATION: "1"}), Value::Null),
        ("Deployment", json!({GENERATION: "1"}), json!({GENERATION: "1"})),
    ] {
        let object = json!({"kind": kind, "metadata": {"annotations": annotations}});
        let partial = partial_metadata(&object, &of_kind("apps", kind), MetaVersion::V1);
        assert_eq!(partial["metadata"]["annotations"], want, "{kind} {annotations}");
    }
}

#[test]
fn tables_without_rows_or_headers() {
    let options = options(IncludeObject::None, Timestamp::UNIX_EPOCH);
    for (group, kind, rows) in [("", "ConfigMap", json!([])), ("", "LimitRange", json!(null))] {
        let table = table(&of_kind(group, kind), vec![], json!({"resourceVersion": "3"}), &options);
        assert_eq!(table["rows"], rows, "{kind}");
        assert_eq!(table["metadata"], json!({"resourceVersion": "3"}));
    }
    let custom = table(&Printer::of_custom_resource(None), vec![], json!({}), &options);
    assert_eq!(custom["rows"], json!([]));
    let without = TableOptions { no_headers: true, ..options };
    let table = table(&of_kind("", "ConfigMap"), vec![], json!({}), &without);
    assert_eq!(table["columnDefinitions"], Value::Null);
}

#[test]
fn flow_schemas_are_sorted_by_matching_order() {
    let schema = |name: &str, precedence: i64| json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence}});
    let schemas = [schema("c", 500), schema("b", 9), schema("a", 500)];
    let printer = of_kind("flowcontrol.apiserver.k8s.io", "FlowSchema");
    let items = schemas.iter().map(Item::of).collect();
    let table = table(&printer, items, json!({}), &options(IncludeObject::None, Timestamp::UNIX_EPOCH));
    let names: Vec<&Value> =
        table["rows"].as_array().expect("rows").iter().map(|row| &row["cells"][0]).collect();
    assert_eq!(names, ["b", "a", "c"]);
}

#[test]
fn include_object_is_parsed() {
    assert_eq!(IncludeObject::parse("").ok(), Some(IncludeObject::Metadata));
    let error = IncludeObject::parse("Nope").expect_err("no such form");
    assert_eq!(
        error.to_string(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Nope\": must be 'Metadata', 'Object', 'None', or empty"
    );
}
