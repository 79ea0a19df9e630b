//! The objects that differ between two control planes, or between two revisions of one, field by
//! field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coracle_apimachinery::Result;
use coracle_apiserver::registry::ObjectIndex;
use coracle_storage::{BucketSnapshot, Object, Revision, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::{expired, invalid};
use crate::why::parsed;

/// The maximum number of objects of an answer.
const MAX_OBJECTS: usize = 1000;
/// The maximum number of fields that are named of an object.
const MAX_FIELDS: usize = 100;
/// The bytes of objects that are compared field by field: an answer has not much more.
const MAX_BYTES: usize = 16 << 20;
/// The depth to which fields are compared one by one.
const MAX_DEPTH: usize = 32;
/// The members by which elements of lists are named.
const KEYS: [&str; 4] = ["name", "type", "uid", "key"];
/// The maximum number of elements of lists that are compared by their names.
const MAX_NAMED: usize = 1000;
/// Members of the metadata that follow from all others.
const LEFT_OUT: [&str; 2] = ["resourceVersion", "managedFields"];

/// The objects by which clients find and trust a server, which differ in each.
const OWN_OBJECTS: [(&str, &str, &str); 4] = [
    ("configmaps", "kube-system", "extension-apiserver-authentication"),
    ("services", "default", "kubernetes"),
    ("endpoints", "default", "kubernetes"),
    ("endpointslices.discovery.k8s.io", "default", "kubernetes"),
];

/// The answer of `GET diff`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    /// The objects that differ, by resource, namespace and name.
    pub objects: Vec<ObjectDiff>,
    /// Whether there are more objects than [`objects`](Self::objects) has, or more fields of one.
    pub is_truncated: bool,
}

/// An object that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDiff {
    /// The resource, such as `deployments.apps`.
    pub resource: String,
    /// The namespace; "" for an object without one.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The kind of the difference.
    pub change: ObjectChange,
    /// The fields that differ, at most 100; none where the object is only on one side.
    pub fields: Vec<FieldDiff>,
}

/// The kind of a difference, as seen from the first side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ObjectChange {
    /// Only the second side has it.
    Added,
    /// Only the first side has it.
    Removed,
    /// Both have it, with other fields.
    Changed,
    /// Both have an object of the name, which are not the same one.
    Replaced,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldDiff {
    /// The path, such as `.spec.containers[0].image`.
    pub path: String,
    /// The value on the first side; None if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The value on the second side; None if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

/// The objects of a store at one moment, by bucket.
struct Side(BTreeMap<Arc<str>, BucketSnapshot<ObjectIndex>>);

impl Side {
    /// Returns the newest objects.
    fn newest(store: &Store<ObjectIndex>) -> Side {
        let snapshot = store.snapshot();
        Side(snapshot.buckets().map(|(name, _)| (name.clone(), snapshot.bucket(name))).collect())
    }

    /// Returns the objects at a revision.
    ///
    /// # Errors
    /// 410 if history does not reach back so far, 422 for a revision in the future.
    fn at(store: &Store<ObjectIndex>, at: Revision) -> Result<Side> {
        if at > store.revision() {
            return Err(invalid("revision", &format!("{at} is later than {}", store.revision())));
        }
        let snapshot = store.snapshot();
        let names: Vec<Arc<str>> = snapshot.buckets().map(|(name, _)| name.clone()).collect();
        let at = |name: Arc<str>| {
            let bucket = store.snapshot_at(&name, at).map_err(|error| expired(&error.to_string()))?;
            Ok((name, bucket))
        };
        names.into_iter().map(at).collect::<Result<_>>().map(Side)
    }
}

/// Compares the newest objects of the stores of two control planes, without changes of the objects
/// by which clients find a control plane.
///
/// - `namespace`: the namespace of the objects; "" for all objects
pub fn of_stores(from: &Store<ObjectIndex>, to: &Store<ObjectIndex>, namespace: &str) -> Diff {
    let mut diff = compare(&Side::newest(from), &Side::newest(to), namespace);
    diff.objects.retain(|object| {
        let place = (&*object.resource, &*object.namespace, &*object.name);
        object.change != ObjectChange::Changed || !OWN_OBJECTS.contains(&place)
    });
    diff
}

/// Compares the objects of a store at two revisions.
///
/// - `namespace`: the namespace of the objects; "" for all objects
///
/// # Errors
/// 410 if history does not reach back so far, 422 for a revision in the future.
pub fn of_revisions(
    store: &Store<ObjectIndex>,
    from: Revision,
    to: Option<Revision>,
    namespace: &str,
) -> Result<Diff> {
    let later = to.map_or_else(|| Ok(Side::newest(store)), |to| Side::at(store, to))?;
    Ok(compare(&Side::at(store, from)?, &later, namespace))
}

fn compare(from: &Side, to: &Side, namespace: &str) -> Diff {
    let mut diff = Diff::default();
    let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    let mut left = MAX_BYTES;
    let buckets: BTreeSet<&Arc<str>> = from.0.keys().chain(to.0.keys()).collect();
    for bucket in buckets {
        let objects = |side: &Side| -> BTreeMap<Arc<str>, Arc<Object<ObjectIndex>>> {
            let objects = side.0.get(bucket).into_iter().flat_map(BucketSnapshot::iter);
            let objects = objects.filter(|object| object.key.name().starts_with(&prefix));
            objects.map(|object| (object.key.name().clone(), object.clone())).collect()
        };
        let (before, mut after) = (objects(from), objects(to));
        let mut differing = BTreeMap::new();
        for (name, old) in before {
            match after.remove(&name) {
                // A version that both have is one object in memory.
                Some(new) if Arc::ptr_eq(&old, &new) || old.bytes == new.bytes => {}
                new => drop(differing.insert(name, (Some(old), new))),
            }
        }
        differing.extend(after.into_iter().map(|(name, new)| (name, (None, Some(new)))));
        for (name, (old, new)) in differing {
            let cost =
                old.as_ref().zip(new.as_ref()).map_or(0, |(old, new)| old.bytes.len() + new.bytes.len());
            let rest = left.checked_sub(cost).filter(|_| diff.objects.len() < MAX_OBJECTS);
            let Some(rest) = rest else {
                diff.is_truncated = true;
                return diff;
            };
            left = rest;
            if let Some(object) = object_diff(bucket, &name, old.as_deref(), new.as_deref()) {
                diff.is_truncated |= object.fields.len() == MAX_FIELDS;
                diff.objects.push(object);
            }
        }
    }
    diff
}

/// Compares two states of one object; None if they differ only in ignored parts.
fn object_diff(
    bucket: &str,
    name: &str,
    old: Option<&Object<ObjectIndex>>,
    new: Option<&Object<ObjectIndex>>,
) -> Option<ObjectDiff> {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let mut fields = Vec::new();
    let change = match (old, new) {
        (None, _) => ObjectChange::Added,
        (_, None) => ObjectChange::Removed,
        (Some(old), Some(new)) => {
            let (old, new) = (read(old), read(new));
            fields = fields_of(bucket, &old, &new);
            if fields.is_empty() {
                return None;
            }
            match old["metadata"]["uid"] == new["metadata"]["uid"] {
                true => ObjectChange::Changed,
                false => ObjectChange::Replaced,
            }
        }
    };
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Some(ObjectDiff { resource: bucket.to_owned(), namespace, name, change, fields })
}

/// Returns the fields in which two objects differ, at most 100. The values of Secrets are redacted.
pub fn fields_of(bucket: &str, old: &Value, new: &Value) -> Vec<FieldDiff> {
    let mut fields = Vec::new();
    differences(old, new, &mut String::new(), MAX_DEPTH, &mut fields);
    for FieldDiff { path, from, to } in &mut fields {
        coracle_ui::redact_field(bucket, path, [from, to]);
    }
    fields
}

/// Parses an object without the metadata that follow from everything else.
pub fn read(object: &Object<ObjectIndex>) -> Value {
    let mut value = parsed(object);
    if let Some(metadata) = value["metadata"].as_object_mut() {
        LEFT_OUT.iter().for_each(|member| drop(metadata.remove(*member)));
    }
    value
}

fn differences(from: &Value, to: &Value, path: &mut String, depth: usize, fields: &mut Vec<FieldDiff>) {
    if from == to || fields.len() >= MAX_FIELDS {
        return;
    }
    let length = path.len();
    match (from, to) {
        (Value::Object(from), Value::Object(to)) if depth > 0 => {
            let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
            for name in names {
                let is_plain =
                    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
                match is_plain {
                    true => path.extend([".", name]),
                    false => path.push_str(&format!("[{}]", Value::from(name.as_str()))),
                }
                one_or_both(from.get(name), to.get(name), path, depth, fields);
                path.truncate(length);
            }
        }
        (Value::Array(from), Value::Array(to)) if depth > 0 => {
            if let Some(key) = key_of(from, to) {
                return keyed_differences(key, (from, to), path, depth, fields);
            }
            for index in 0..from.len().max(to.len()) {
                path.push_str(&format!("[{index}]"));
                one_or_both(from.get(index), to.get(index), path, depth, fields);
                path.truncate(length);
            }
        }
        _ => {
            let path = if path.is_empty() { ".".to_owned() } else { path.clone() };
            fields.push(FieldDiff { path, from: Some(from.clone()), to: Some(to.clone()) });
        }
    }
}

/// Returns the member that names the elements of two lists: the first of [`KEYS`] that all have,
/// with different texts.
fn key_of(from: &[Value], to: &[Value]) -> Option<&'static str> {
    let names = |list: &[Value], key: &str| {
        let texts: BTreeSet<&str> = list.iter().filter_map(|element| element[key].as_str()).collect();
        texts.len() == list.len()
    };
    if from.len().max(to.len()) > MAX_NAMED {
        return None;
    }
    KEYS.into_iter().find(|key| (!from.is_empty() || !to.is_empty()) && names(from, key) && names(to, key))
}

/// Compares the elements of two lists that have the same name, and the order of the names.
fn keyed_differences(
    key: &str,
    (from, to): (&[Value], &[Value]),
    path: &mut String,
    depth: usize,
    fields: &mut Vec<FieldDiff>,
) {
    let named = |list: &[Value]| -> Vec<(String, Value)> {
        let name = |element: &Value| element[key].as_str().unwrap_or_default().to_owned();
        list.iter().map(|element| (name(element), element.clone())).collect()
    };
    let (from, to) = (named(from), named(to));
    let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (from.iter().cloned().collect(), to.iter().cloned().collect());
    let length = path.len();
    let added = to.iter().filter(|(name, _)| !old.contains_key(name));
    for (name, _) in from.iter().chain(added) {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() && !b"[]\"".contains(&byte));
        match is_plain {
            true => path.push_str(&format!("[{name}]")),
            false => path.push_str(&format!("[{}]", Value::from(name.as_str()))),
        }
        one_or_both(old.get(name), new.get(name), path, depth, fields);
        path.truncate(length);
    }
    // The order of those that both have.
    let order = |list: &[(String, Value)], others: &BTreeMap<String, Value>| -> Vec<Value> {
        list.iter()
            .filter(|(name, _)| others.contains_key(name))
            .map(|(name, _)| Value::from(name.as_str()))
            .collect()
    };
    let (before, after) = (order(&from, &new), order(&to, &old));
    if before != after && fields.len() < MAX_FIELDS {
        let path = format!("{path}[*].{key}");
        fields.push(FieldDiff { path, from: Some(before.into()), to: Some(after.into()) });
    }
}

fn one_or_both(
    from: Option<&Value>,
    to: Option<&Value>,
    path: &mut String,
    depth: usize,
    fields: &mut Vec<FieldDiff>,
) {
    match (from, to) {
        (Some(from), Some(to)) => differences(from, to, path, depth - 1, fields),
        _ if fields.len() >= MAX_FIELDS => {}
        (from, to) => fields.push(FieldDiff { path: path.clone(), from: from.cloned(), to: to.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(from: &Value, to: &Value) -> Vec<String> {
        let mut fields = Vec::new();
        differences(from, to, &mut String::new(), MAX_DEPTH, &mut fields);
        let value = |value: Option<Value>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        fields
            .into_iter()
            .map(|field| format!("{} {} {}", field.path, value(field.from), value(field.to)))
            .collect()
    }

    #[test]
    fn fields_are_compared_one_by_one() {
        for (from, to, want) in [
            (json!({"a": 1}), json!({"a": 1}), vec![]),
            (
                json!({"c": [{"type": "A", "status": "False"}, {"type": "B"}, {"type": "D"}]}),
                json!({"c": [{"type": "B"}, {"type": "A", "status": "True"}, {"type": "C"}]}),
                vec![
                    r#".c[A].status "False" "True""#,
                    r#".c[D] {"type":"D"} -"#,
                    r#".c[C] - {"type":"C"}"#,
                    r#".c[*].type ["A","B"] ["B","A"]"#,
                ],
            ),
            (
                json!({"c": [{"name": "a"}, {"name": "a"}]}),
                json!({"c": [{"name": "b"}, {"name": "a"}]}),
                vec![r#".c[0].name "a" "b""#],
            ),
            (
                json!({"a": 1, "b": {"c": [1, 2]}}),
                json!({"a": 2, "b": {"c": [1]}}),
                vec![".a 1 2", ".b.c[1] 2 -"],
            ),
            (json!({}), json!({"x.y/z": {"d": true}}), vec![r#"["x.y/z"] - {"d":true}"#]),
            (json!({"a": [1]}), json!({"a": {"b": 1}}), vec![r#".a [1] {"b":1}"#]),
            (json!(1), json!(null), vec![". 1 null"]),
        ] {
            assert_eq!(shown(&from, &to), want, "{from} {to}");
        }
    }

    #[test]
    fn deep_and_many_fields_are_bounded() {
        let nested = |leaf: Value| (0..MAX_DEPTH + 10).fold(leaf, |value, _| json!({"a": value}));
        let fields = shown(&nested(json!(1)), &nested(json!(2)));
        assert_eq!(fields.len(), 1);
        assert_eq!(fields[0].split(' ').next().unwrap_or_default().len(), 2 * MAX_DEPTH);
        let many: serde_json::Map<String, Value> = (0..1000).map(|i| (format!("f{i}"), json!(i))).collect();
        assert_eq!(shown(&Value::Object(many), &json!({})).len(), MAX_FIELDS);
        assert_eq!(shown(&json!(vec![1; 1000]), &json!([])).len(), MAX_FIELDS);
    }
}
