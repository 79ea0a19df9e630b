//! FieldsV1: the JSON form of sets of fields, whose elements have an order of their own.

use serde_json::{Map, Value};

use super::text::{write_string, write_untyped};
use crate::field::quote;

/// Writes a set of fields. Members come first, then items by their keys, where numbers count as
/// numbers.
pub fn write_fields_v1(value: &Value, out: &mut Vec<u8>) {
    let Value::Object(elements) = value else { return write_untyped(value, out) };
    let mut separator = b'{';
    let mut write = |(element, inner): (&String, &Value)| {
        out.push(separator);
        write_string(element, out);
        out.push(b':');
        write_fields_v1(inner, out);
        separator = b',';
    };
    if is_in_order(elements) {
        elements.iter().for_each(&mut write);
    } else {
        let mut sorted: Vec<_> = elements.iter().collect();
        sorted.sort_by_cached_key(|(element, _)| Element::of(element));
        sorted.into_iter().for_each(&mut write);
    }
    if separator == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

/// Returns `true` if the map's key order is already the element order, which holds with at most one
/// element that is not `f:`.
fn is_in_order(elements: &Map<String, Value>) -> bool {
    elements.keys().filter(|element| !element.starts_with("f:")).nth(1).is_none()
}

/// An element taken apart, in the order of structured-merge-diff: members, items by their keys, by
/// value, by index.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub enum Element<'t> {
    /// `f:name`, and `.`.
    Field(&'t str),
    /// `k:{"name":"a"}`
    Keys(Vec<(String, Key)>),
    /// `v:"a"`
    Value(Key),
    /// `i:0`
    Index(i64),
}

/// The value of a key or of a set's item, in sort order: integers by value, strings, booleans, then
/// everything else (floats included) by its JSON text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A whole number.
    Integer(i64),
    /// Text.
    Text(String),
    /// `true` or `false`.
    Bool(bool),
    /// Anything else, as JSON.
    Other(String),
}

impl Key {
    fn of(value: Value) -> Key {
        match value {
            Value::String(text) => Key::Text(text),
            Value::Bool(value) => Key::Bool(value),
            other => other.as_i64().map_or_else(|| Key::Other(other.to_string()), Key::Integer),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Integer(number) => write!(f, "{number}"),
            Key::Text(text) => f.write_str(&quote(text)),
            Key::Bool(value) => write!(f, "{value}"),
            Key::Other(text) => match serde_json::from_str(text) {
                Ok(value) => f.write_str(&printed(&value)),
                Err(_) => f.write_str(text),
            },
        }
    }
}

/// Returns a value as structured-merge-diff's `value.ToString` does: an object has no braces.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            members.iter().map(|(name, value)| format!("{name}={}", printed(value))).collect()
        }
        other => other.to_string(),
    }
}

impl Element<'_> {
    /// Takes apart an element as it is written.
    pub fn of(element: &str) -> Element<'_> {
        let (kind, content) = element.split_at_checked(2).unwrap_or(("", element));
        let json = || serde_json::from_str::<Value>(content).unwrap_or_default();
        match kind {
            "k:" => Element::Keys(match json() {
                Value::Object(keys) => keys.into_iter().map(|(name, value)| (name, Key::of(value))).collect(),
                _ => Vec::new(),
            }),
            "v:" => Element::Value(Key::of(json())),
            "i:" => Element::Index(content.parse().unwrap_or_default()),
            "f:" => Element::Field(content),
            _ => Element::Field(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_printed_as_by_structured_merge_diff() {
        for (value, want) in [
            (json!("a"), "\"a\""),
            (json!(7), "7"),
            (json!(null), "null"),
            (json!({}), ""),
            (json!({"a": 1, "b": ["c", true]}), "a=1b=[\"c\",true]"),
        ] {
            assert_eq!(Key::of(value.clone()).to_string(), want, "{value}");
        }
    }

    #[test]
    fn elements_have_an_order_of_their_own() {
        let fields = json!({
            "k:{\"port\":443}": {}, "k:{\"port\":80}": {"v:\"b\"": {}, "v:10": {}, "v:9": {}, "v:true": {}, ".": {}},
            "i:10": {}, "i:9": {}, "f:z": {}, "f:a": {"f:b": {}}, ".": {},
        });
        let mut text = Vec::new();
        write_fields_v1(&fields, &mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{".":{},"f:a":{"f:b":{}},"f:z":{},"k:{\"port\":80}":{".":{},"v:9":{},"v:10":{},"v:\"b\"":{},"v:true":{}},"k:{\"port\":443}":{},"i:9":{},"i:10":{}}"#
        );
        for other in [json!({}), json!(null), json!([1]), json!("x")] {
            let mut text = Vec::new();
            write_fields_v1(&other, &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), other.to_string());
        }
    }
}
