//! The hash of a pod template, by which Deployments and DaemonSets name what they make of it.
//!
//! kube-controller-manager hashes a dump of the Go value: every field of every struct, in the order
//! of their declaration, with its type. So names continue when a cluster moves only if the dump is
//! the same, letter for letter. What has to be known of the types is in `template_hash/types.txt`,
//! which `libs/kinds/template_types` writes.
//!
//! Source: kube-controller-manager's `ComputeHash`, apimachinery's `dump.ForHash`.

mod quantity;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};

use crate::controller_revision::safe_encode;

/// Returns the hash of a template.
///
/// - `collisions`: how many names with a hash were taken so far; None is not the same as 0
pub fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut bytes = dump(template).into_bytes();
    if let Some(collisions) = collisions {
        bytes.extend(collisions.to_le_bytes());
        bytes.extend([0; 4]);
    }
    safe_encode(fnv_1a(&bytes))
}

fn fnv_1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(2_166_136_261, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(16_777_619))
}

fn dump(template: &PodTemplateSpec) -> String {
    const TYPE: &str = "v1.PodTemplateSpec";
    let mut text = format!("({TYPE})");
    types().write(TYPE, Some(&json!(template)), &mut text);
    text
}

struct Field {
    name: &'static str,
    /// None: the fields of this struct stand among those of the one around it.
    json: Option<&'static str>,
    r#type: &'static str,
}

enum Shape {
    Struct(Vec<Field>),
    /// A named scalar, with its kind.
    Scalar(&'static str),
    /// A named map, with the type of its values.
    Map(&'static str),
}

/// The named types, by their names in Go.
struct Types(HashMap<&'static str, Shape>);

fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| Types::parse(include_str!("types.txt")))
}

impl Types {
    fn parse(text: &'static str) -> Types {
        let mut types = HashMap::new();
        let mut last = None;
        for line in text.lines() {
            let words: Vec<&'static str> = line.split_whitespace().collect();
            match (words.as_slice(), line.starts_with(' ')) {
                (["struct", name], false) => {
                    types.insert(*name, Shape::Struct(Vec::new()));
                    last = Some(*name);
                }
                (["scalar", name, kind], false) => drop(types.insert(*name, Shape::Scalar(kind))),
                (["map", name, values], false) => drop(types.insert(*name, Shape::Map(values))),
                ([name, json, r#type], true) => {
                    let (name, r#type) = (*name, *r#type);
                    let json = Some(*json).filter(|json| *json != ".");
                    if let Some(Shape::Struct(fields)) = last.and_then(|last| types.get_mut(last)) {
                        fields.push(Field { name, json, r#type });
                    }
                }
                // A comment.
                _ => {}
            }
        }
        Types(types)
    }

    /// Writes a value without its type. None is the zero value.
    fn write(&self, r#type: &str, value: Option<&Value>, out: &mut String) {
        if let Some(target) = r#type.strip_prefix('*') {
            match value {
                Some(value) => self.write(target, Some(value), out),
                None => out.push_str("<nil>"),
            }
            return;
        }
        if let Some(element) = r#type.strip_prefix("[]") {
            return self.write_list(element, value, out);
        }
        if let Some(values) = r#type.strip_prefix("map[string]") {
            return self.write_map(values, value, out);
        }
        match (r#type, self.0.get(r#type)) {
            ("resource.Quantity", _) => {
                out.push_str(&quantity::dump(value.and_then(Value::as_str).unwrap_or("0")))
            }
            ("v1.Time", _) => {
                // Templates have no times.
                out.push_str("{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}");
            }
            ("intstr.IntOrString", _) => write_int_or_string(value, out),
            (_, Some(Shape::Struct(fields))) => self.write_struct(fields, value, out),
            (_, Some(Shape::Map(values))) => self.write_map(values, value, out),
            (_, Some(Shape::Scalar(kind))) => write_scalar(kind, value, out),
            (kind, None) => write_scalar(kind, value, out),
        }
    }

    fn write_struct(&self, fields: &[Field], value: Option<&Value>, out: &mut String) {
        out.push('{');
        for (index, field) in fields.iter().enumerate() {
            if index > 0 {
                out.push(' ');
            }
            push(out, format_args!("{}:({})", field.name, field.r#type));
            let value = match field.json {
                Some(json) => value.and_then(|value| value.get(json)),
                None => value,
            };
            self.write(field.r#type, value, out);
        }
        out.push('}');
    }

    /// Writes a list; an empty one is written as an absent one.
    fn write_list(&self, element: &str, value: Option<&Value>, out: &mut String) {
        let Some(items) = value.and_then(Value::as_array).filter(|items| !items.is_empty()) else {
            return out.push_str("<nil>");
        };
        out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push(' ');
            }
            self.write(element, Some(item), out);
        }
        out.push(']');
    }

    /// Writes a map, with sorted keys; an empty one is written as an absent one.
    fn write_map(&self, values: &str, value: Option<&Value>, out: &mut String) {
        let Some(entries) = value.and_then(Value::as_object).filter(|entries| !entries.is_empty()) else {
            return out.push_str("<nil>");
        };
        out.push_str("map[");
        for (index, (key, value)) in sorted(entries).into_iter().enumerate() {
            if index > 0 {
                out.push(' ');
            }
            push(out, format_args!("{key}:"));
            self.write(values, Some(value), out);
        }
        out.push(']');
    }
}

fn sorted(entries: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

fn write_scalar(kind: &str, value: Option<&Value>, out: &mut String) {
    match (kind, value) {
        (_, Some(Value::String(text))) => out.push_str(text),
        (_, Some(value @ (Value::Number(_) | Value::Bool(_)))) => push(out, format_args!("{value}")),
        ("string", _) => {}
        ("bool", _) => out.push_str("false"),
        _ => out.push('0'),
    }
}

fn write_int_or_string(value: Option<&Value>, out: &mut String) {
    let (kind, number, text) = match value {
        Some(Value::String(text)) => (1, 0, text.as_str()),
        Some(value) => (0, value.as_i64().unwrap_or(0), ""),
        None => (0, 0, ""),
    };
    push(out, format_args!("{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}"));
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_go() {
        let cases = include_str!("cases.jsonl");
        for line in cases.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let template: PodTemplateSpec = serde_json::from_value(case["template"].clone()).unwrap();
            assert_eq!(dump(&template), case["dump"].as_str().unwrap());
            let hashes = [None, Some(1)].map(|collisions| template_hash(&template, collisions));
            assert_eq!(json!(hashes), case["hashes"]);
        }
        assert!(cases.lines().count() > 3);
    }
}
