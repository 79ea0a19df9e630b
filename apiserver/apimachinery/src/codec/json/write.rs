//! Write: JSON text as Go prints it.
//!
//! Members of structs are in Go's order, those of maps and untyped objects are sorted. Zero values
//! that Go prints are added, those it omits are dropped, and so are unknown members. A value that
//! does not match its type is written as it is: this never fails.

use serde_json::{Map, Value};

use super::fields_v1::write_fields_v1;
use super::text::{write_list, write_map, write_untyped};
use crate::codec::zero;
use crate::schema::{FieldSchema, StructId, Type, TypeRef, schema};

/// Writes an object. The members of a custom resource are sorted.
pub fn write(value: &Value, type_ref: &TypeRef, out: &mut Vec<u8>) {
    match type_ref {
        TypeRef::Struct(id) => write_object(value, *id, out),
        TypeRef::Structural(_) => write_untyped(value, out),
    }
}

/// Writes an object of a struct of the table.
pub fn write_object(value: &Value, id: StructId, out: &mut Vec<u8>) {
    write_type(value, &Type::Struct(id), out);
}

/// Writes a value of any type, such as a part of an object in a message.
pub fn write_type(value: &Value, ty: &Type, out: &mut Vec<u8>) {
    match (ty, value) {
        (Type::Struct(id), Value::Object(members)) => write_struct(members, *id, out),
        (Type::List(item) | Type::ListMessage(item), Value::Array(items)) => {
            write_list(items, out, |value, out| write_type(value, item, out));
        }
        (Type::Map(entry), Value::Object(entries)) => {
            write_map(entries, out, |value, out| write_type(value, entry, out));
        }
        (Type::SchemaOrBool | Type::SchemaOrArray | Type::SchemaOrStrings, Value::Object(members)) => {
            write_struct(members, zero::json_schema(), out);
        }
        (Type::SchemaOrArray, Value::Array(items)) => {
            write_list(items, out, |value, out| write_object(value, zero::json_schema(), out));
        }
        (Type::FieldsV1, value) => write_fields_v1(value, out),
        _ => write_untyped(value, out),
    }
}

fn write_struct(members: &Map<String, Value>, id: StructId, out: &mut Vec<u8>) {
    let known = schema().get(id);
    let mut values: Vec<Option<&Value>> = vec![None; known.members().len()];
    // Both are sorted by name.
    let mut present = members.iter().peekable();
    for (position, field) in known.members_by_name() {
        while present.next_if(|(name, _)| name.as_str() < field.name).is_some() {}
        values[position] = present.next_if(|(name, _)| *name == field.name).map(|(_, value)| value);
    }
    let mut separator = b'{';
    for (field, value) in known.members().iter().zip(values) {
        if !is_written(field, value) {
            continue;
        }
        out.extend_from_slice(&[separator, b'"']);
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b"\":");
        match value {
            Some(value) if !value.is_null() => write_type(value, &field.ty, out),
            _ if field.pointer => out.extend_from_slice(b"null"),
            _ => write_type(&zero::of(&field.ty), &field.ty, out),
        }
        separator = b',';
    }
    if separator == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

fn is_written(field: &FieldSchema, value: Option<&Value>) -> bool {
    field.keep || value.is_some_and(|value| !zero::is_omitted(field, value))
}

/// Indents compact text by two spaces a level.
pub fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 3 / 2);
    let mut depth = 0;
    let mut rest = compact.iter().copied().peekable();
    let line = |depth: usize, out: &mut Vec<u8>| {
        out.push(b'\n');
        out.resize(out.len() + depth * 2, b' ');
    };
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => {
                out.push(byte);
                while let Some(byte) = rest.next() {
                    out.push(byte);
                    match byte {
                        b'"' => break,
                        b'\\' => out.extend(rest.next()),
                        _ => {}
                    }
                }
            }
            b'{' | b'[' => {
                out.push(byte);
                if let Some(end) = rest.next_if(|&next| next == b'}' || next == b']') {
                    out.push(end);
                } else {
                    depth += 1;
                    line(depth, &mut out);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(depth, &mut out);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(depth, &mut out);
            }
            b':' => out.extend_from_slice(b": "),
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn structs_are_written_in_gos_order_with_their_zeroes() {
        let pod = schema().kind("", "v1", "Pod").expect("Pod");
        let value = json!({
            "status": {},
            "spec": {"volumes": [], "containers": [{"image": "i", "name": "c", "nonsense": 1}], "hostNetwork": false},
            "metadata": {"labels": {"b": "1", "a": "2"}, "name": "p", "creationTimestamp": null},
            "apiVersion": "v1",
            "kind": "Pod",
        });
        let mut out = Vec::new();
        write_object(&value, pod, &mut out);
        let want = concat!(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"a":"2","b":"1"}},"#,
            r#""spec":{"containers":[{"name":"c","image":"i","resources":{}}]},"status":{}}"#
        );
        assert_eq!(String::from_utf8(out).as_deref(), Ok(want));
        let mut out = Vec::new();
        write_object(&json!({}), pod, &mut out);
        let want = r#"{"metadata":{},"spec":{"containers":null},"status":{}}"#;
        assert_eq!(String::from_utf8(out).as_deref(), Ok(want));
    }

    #[test]
    fn indented_text_is_gos() {
        let compact = br#"{"a":[],"b":{},"c":[1,{"d":"x\",{"}]}"#;
        let want = "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": \"x\\\",{\"\n    }\n  ]\n}";
        assert_eq!(String::from_utf8(indent(compact)).as_deref(), Ok(want));
    }
}
