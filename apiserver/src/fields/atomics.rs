//! Validation that an applied configuration has no atomic lists, maps and structs, which would
//! replace whole values.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch`, `smd.go`.

use std::fmt::Write;

use serde_json::Value;

use super::shape::{FieldType, Position, Shape};
use crate::schema::TypeRef;

/// Returns the paths of the atomic lists, maps and structs in a configuration.
pub fn atomics(configuration: &Value, kind: &TypeRef) -> Vec<String> {
    let mut found = Vec::new();
    find(Position::whole(kind), configuration, &mut String::new(), &mut found);
    found
}

fn find(place: Position<'_>, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let shape = place.shape(None, Some(value));
    match value {
        Value::Object(members) => {
            if matches!(shape, Shape::Leaf) {
                found.push(path.clone());
                return;
            }
            for (name, value) in members {
                let inner = match &shape {
                    Shape::Struct(known) => known.field(name).map(FieldType::Member),
                    Shape::Map(entry) => Some(*entry),
                    Shape::Object(object) => Some(object.member(name)),
                    Shape::Leaf | Shape::Items { .. } => None,
                };
                if let Some(inner) = inner {
                    within(path, format_args!(".{name}"), |path| {
                        find(place.inner(inner), value, path, found)
                    });
                }
            }
        }
        Value::Array(items) => match shape {
            Shape::Items { item, .. } => {
                for (index, value) in items.iter().enumerate() {
                    within(path, format_args!("[{index}]"), |path| {
                        find(place.inner(item), value, path, found);
                    });
                }
            }
            _ => found.push(path.clone()),
        },
        _ => {}
    }
}

fn within(path: &mut String, element: std::fmt::Arguments<'_>, work: impl FnOnce(&mut String)) {
    let length = path.len();
    // Writing to a String does not fail.
    _ = path.write_fmt(element);
    work(path);
    path.truncate(length);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::schema;

    #[test]
    fn atomic_lists_maps_and_structs_are_found_by_their_paths() {
        let pod = TypeRef::Struct(schema().kind("", "v1", "Pod").expect("pods"));
        for (configuration, want) in [
            (json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["f"]}}), &[][..]),
            (json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}}), &[]),
            (
                json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "args": ["x"]}]}}),
                &[".spec.containers[1].args"],
            ),
            (json!({"spec": {"nodeSelector": {"a": "b"}}}), &[".spec.nodeSelector"]),
            (
                json!({"spec": {"containers": [{"name": "a", "env": [{"name": "e", "valueFrom": {"fieldRef": {"fieldPath": "p"}}}]}]}}),
                &[".spec.containers[0].env[0].valueFrom.fieldRef"],
            ),
        ] {
            assert_eq!(atomics(&configuration, &pod), want, "{configuration}");
        }
    }
}
