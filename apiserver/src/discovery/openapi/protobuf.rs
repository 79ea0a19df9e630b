//! OpenAPI documents as protobuf: gnostic's messages, converted from the JSON document by two
//! tables of field numbers.
//!
//! The tables have the members of our documents; the tests find members that they lack. Arbitrary
//! values (extensions, enums, defaults of version 2) are YAML text; ours is JSON, which is YAML.
//!
//! Source: gnostic-models, `openapiv2/OpenAPIv2.proto` and `openapiv3/OpenAPIv3.proto`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::codec::json::for_each_member;

/// Converts the JSON text of `/openapi/v2` to an `openapi.v2.Document`. The many paths and
/// definitions are decoded one at a time.
pub(super) fn swagger(document: &[u8]) -> Vec<u8> {
    let mut texts = HashMap::new();
    // The document is this server's own.
    let _ = for_each_member(document, |name, text| _ = texts.insert(name, text));
    let decoded = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or_default();
    let mut out = Vec::new();
    for (name, number, shape) in v2::MEMBERS {
        let Some(text) = texts.get(*name) else { continue };
        if let Shape::Message(Named { number: inner, value }) = shape {
            let mut pairs = Vec::new();
            let _ = for_each_member(text, |name, text| {
                named(*inner, &name, *value, &decoded(text), &mut pairs);
            });
            bytes(*number, &pairs, &mut out);
        } else {
            field(*number, *shape, &decoded(text), false, &mut out);
        }
    }
    out
}

/// Encodes a document of `/openapi/v3` as `openapi.v3.Document`.
pub(super) fn openapi(document: &Value) -> Vec<u8> {
    encode(&v3::DOCUMENT, document)
}

/// The type of a field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Bool,
    Int,
    Double,
    /// `Any { yaml = 2 }`
    Yaml,
    Message(&'static Message),
    /// Each element is a field of its own.
    Repeated(&'static Shape),
}

/// The structure of a message.
enum Message {
    /// Known members, and the number of the others, `x-...`, as `NamedAny`.
    Object { members: &'static [(&'static str, u32, Shape)], extensions: u32 },
    /// Any member: `NUMBER: { name = 1, value = 2 }`.
    Named { number: u32, value: Shape },
    /// A oneof: which field a value has.
    Choice(fn(&Value) -> (u32, Shape)),
}

use Message::{Choice, Named, Object};
use Shape::{Bool, Double, Int, Repeated, Text, Yaml};

const TEXTS: Shape = Repeated(&Text);
const YAMLS: Shape = Repeated(&Yaml);

const fn message(message: &'static Message) -> Shape {
    Shape::Message(message)
}

fn is_reference(value: &Value) -> bool {
    value.get("$ref").is_some()
}

/// A security scheme and its requirement are the same in both versions.
static REQUIREMENT: Message = Named { number: 1, value: message(&STRING_ARRAY) };
static STRING_ARRAY: Message = Choice(|_| (1, TEXTS));

mod v2 {
    use super::*;

    /// The items of the document.
    pub static MEMBERS: &[(&str, u32, Shape)] = &[
        ("swagger", 1, Text),
        ("info", 2, message(&INFO)),
        ("paths", 8, message(&PATHS)),
        ("definitions", 9, message(&DEFINITIONS)),
        ("parameters", 10, message(&PARAMETERS)),
        ("security", 12, Repeated(&message(&REQUIREMENT))),
        ("securityDefinitions", 13, message(&SECURITY)),
    ];
    static INFO: Message = Object { members: &[("title", 1, Text), ("version", 2, Text)], extensions: 7 };
    static PATHS: Message = Named { number: 2, value: message(&PATH_ITEM) };
    static PATH_ITEM: Message = Object {
        members: &[
            ("get", 2, message(&OPERATION)),
            ("put", 3, message(&OPERATION)),
            ("post", 4, message(&OPERATION)),
            ("delete", 5, message(&OPERATION)),
            ("options", 6, message(&OPERATION)),
            ("head", 7, message(&OPERATION)),
            ("patch", 8, message(&OPERATION)),
            ("parameters", 9, Repeated(&message(&PARAMETERS_ITEM))),
        ],
        extensions: 10,
    };
    static OPERATION: Message = Object {
        members: &[
            ("tags", 1, TEXTS),
            ("description", 3, Text),
            ("operationId", 5, Text),
            ("produces", 6, TEXTS),
            ("consumes", 7, TEXTS),
            ("parameters", 8, Repeated(&message(&PARAMETERS_ITEM))),
            ("responses", 9, message(&RESPONSES)),
            ("schemes", 10, TEXTS),
        ],
        extensions: 13,
    };
    static PARAMETERS: Message = Named { number: 1, value: message(&PARAMETER) };
    static PARAMETERS_ITEM: Message =
        Choice(|item| if is_reference(item) { (2, message(&REFERENCE)) } else { (1, message(&PARAMETER)) });
    static REFERENCE: Message = Object { members: &[("$ref", 1, Text)], extensions: 0 };
    static PARAMETER: Message =
        Choice(
            |parameter| {
                if parameter["in"] == "body" { (1, message(&BODY)) } else { (2, message(&NON_BODY)) }
            },
        );
    static BODY: Message = Object {
        members: &[
            ("description", 1, Text),
            ("name", 2, Text),
            ("in", 3, Text),
            ("required", 4, Bool),
            ("schema", 5, message(&SCHEMA)),
        ],
        extensions: 6,
    };
    static NON_BODY: Message =
        Choice(
            |parameter| {
                if parameter["in"] == "path" { (4, message(&IN_PATH)) } else { (3, message(&IN_QUERY)) }
            },
        );
    static IN_QUERY: Message = Object {
        members: &[
            ("required", 1, Bool),
            ("in", 2, Text),
            ("description", 3, Text),
            ("name", 4, Text),
            ("type", 6, Text),
            ("uniqueItems", 20, Bool),
        ],
        extensions: 23,
    };
    static IN_PATH: Message = Object {
        members: &[
            ("required", 1, Bool),
            ("in", 2, Text),
            ("description", 3, Text),
            ("name", 4, Text),
            ("type", 5, Text),
            ("uniqueItems", 19, Bool),
        ],
        extensions: 22,
    };
    static RESPONSES: Message = Named { number: 1, value: message(&RESPONSE_VALUE) };
    static RESPONSE_VALUE: Message = Choice(|_| (1, message(&RESPONSE)));
    static RESPONSE: Message =
        Object { members: &[("description", 1, Text), ("schema", 2, message(&SCHEMA_ITEM))], extensions: 5 };
    static SCHEMA_ITEM: Message = Choice(|_| (1, message(&SCHEMA)));
    static DEFINITIONS: Message = Named { number: 1, value: message(&SCHEMA) };
    static SCHEMA: Message = Object {
        members: &[
            ("$ref", 1, Text),
            ("format", 2, Text),
            ("title", 3, Text),
            ("description", 4, Text),
            ("default", 5, Yaml),
            ("multipleOf", 6, Double),
            ("maximum", 7, Double),
            ("exclusiveMaximum", 8, Bool),
            ("minimum", 9, Double),
            ("exclusiveMinimum", 10, Bool),
            ("maxLength", 11, Int),
            ("minLength", 12, Int),
            ("pattern", 13, Text),
            ("maxItems", 14, Int),
            ("minItems", 15, Int),
            ("uniqueItems", 16, Bool),
            ("maxProperties", 17, Int),
            ("minProperties", 18, Int),
            ("required", 19, TEXTS),
            ("enum", 20, YAMLS),
            ("additionalProperties", 21, message(&ADDITIONAL_PROPERTIES)),
            ("type", 22, message(&STRINGS)),
            ("items", 23, message(&SCHEMAS)),
            ("allOf", 24, Repeated(&message(&SCHEMA))),
            ("properties", 25, message(&DEFINITIONS)),
            ("externalDocs", 29, message(&EXTERNAL_DOCS)),
            ("example", 30, Yaml),
        ],
        extensions: 31,
    };
    static EXTERNAL_DOCS: Message =
        Object { members: &[("description", 1, Text), ("url", 2, Text)], extensions: 3 };
    static ADDITIONAL_PROPERTIES: Message =
        Choice(|value| if value.is_boolean() { (2, Bool) } else { (1, message(&SCHEMA)) });
    static STRINGS: Message = Choice(|_| (1, Text));
    static SCHEMAS: Message = Choice(|_| (1, message(&SCHEMA)));
    static SECURITY: Message = Named { number: 1, value: message(&SECURITY_ITEM) };
    static SECURITY_ITEM: Message = Choice(|_| (2, message(&API_KEY)));
    static API_KEY: Message = Object {
        members: &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)],
        extensions: 5,
    };
}

mod v3 {
    use super::*;

    pub static DOCUMENT: Message = Object {
        members: &[
            ("openapi", 1, Text),
            ("info", 2, message(&INFO)),
            ("paths", 4, message(&PATHS)),
            ("components", 5, message(&COMPONENTS)),
        ],
        extensions: 9,
    };
    static INFO: Message = Object { members: &[("title", 1, Text), ("version", 6, Text)], extensions: 7 };
    static PATHS: Message = Named { number: 1, value: message(&PATH_ITEM) };
    static PATH_ITEM: Message = Object {
        members: &[
            ("get", 4, message(&OPERATION)),
            ("put", 5, message(&OPERATION)),
            ("post", 6, message(&OPERATION)),
            ("delete", 7, message(&OPERATION)),
            ("options", 8, message(&OPERATION)),
            ("head", 9, message(&OPERATION)),
            ("patch", 10, message(&OPERATION)),
            ("parameters", 13, Repeated(&message(&PARAMETER_OR_REFERENCE))),
        ],
        extensions: 14,
    };
    static OPERATION: Message = Object {
        members: &[
            ("tags", 1, TEXTS),
            ("description", 3, Text),
            ("operationId", 5, Text),
            ("parameters", 6, Repeated(&message(&PARAMETER_OR_REFERENCE))),
            ("requestBody", 7, message(&BODY_OR_REFERENCE)),
            ("responses", 8, message(&RESPONSES)),
        ],
        extensions: 13,
    };
    static PARAMETER_OR_REFERENCE: Message = Choice(|_| (1, message(&PARAMETER)));
    static PARAMETER: Message = Object {
        members: &[
            ("name", 1, Text),
            ("in", 2, Text),
            ("description", 3, Text),
            ("required", 4, Bool),
            ("schema", 10, message(&SCHEMA_OR_REFERENCE)),
        ],
        extensions: 14,
    };
    static BODY_OR_REFERENCE: Message = Choice(|_| (1, message(&BODY)));
    static BODY: Message = Object {
        members: &[("description", 1, Text), ("content", 2, message(&MEDIA_TYPES)), ("required", 3, Bool)],
        extensions: 4,
    };
    static RESPONSES: Message = Named { number: 2, value: message(&RESPONSE_OR_REFERENCE) };
    static RESPONSE_OR_REFERENCE: Message = Choice(|_| (1, message(&RESPONSE)));
    static RESPONSE: Message =
        Object { members: &[("description", 1, Text), ("content", 3, message(&MEDIA_TYPES))], extensions: 5 };
    static MEDIA_TYPES: Message = Named { number: 1, value: message(&MEDIA_TYPE) };
    static MEDIA_TYPE: Message =
        Object { members: &[("schema", 1, message(&SCHEMA_OR_REFERENCE))], extensions: 5 };
    static COMPONENTS: Message = Object {
        members: &[("schemas", 1, message(&SCHEMAS)), ("securitySchemes", 7, message(&SECURITY))],
        extensions: 10,
    };
    static SCHEMAS: Message = Named { number: 1, value: message(&SCHEMA_OR_REFERENCE) };
    static SCHEMA_OR_REFERENCE: Message =
        Choice(|schema| if is_reference(schema) { (2, message(&REFERENCE)) } else { (1, message(&SCHEMA)) });
    static REFERENCE: Message = Object { members: &[("$ref", 1, Text)], extensions: 0 };
    static SCHEMA: Message = Object {
        members: &[
            ("nullable", 1, Bool),
            ("externalDocs", 6, message(&EXTERNAL_DOCS)),
            ("example", 7, Yaml),
            ("title", 9, Text),
            ("multipleOf", 10, Double),
            ("maximum", 11, Double),
            ("exclusiveMaximum", 12, Bool),
            ("minimum", 13, Double),
            ("exclusiveMinimum", 14, Bool),
            ("maxLength", 15, Int),
            ("minLength", 16, Int),
            ("pattern", 17, Text),
            ("maxItems", 18, Int),
            ("minItems", 19, Int),
            ("uniqueItems", 20, Bool),
            ("maxProperties", 21, Int),
            ("minProperties", 22, Int),
            ("required", 23, TEXTS),
            ("enum", 24, YAMLS),
            ("type", 25, Text),
            ("allOf", 26, Repeated(&message(&SCHEMA_OR_REFERENCE))),
            ("oneOf", 27, Repeated(&message(&SCHEMA_OR_REFERENCE))),
            ("anyOf", 28, Repeated(&message(&SCHEMA_OR_REFERENCE))),
            ("not", 29, message(&SCHEMA)),
            ("items", 30, message(&ITEMS)),
            ("properties", 31, message(&SCHEMAS)),
            ("additionalProperties", 32, message(&ADDITIONAL_PROPERTIES)),
            ("default", 33, message(&DEFAULT)),
            ("description", 34, Text),
            ("format", 35, Text),
        ],
        extensions: 36,
    };
    static EXTERNAL_DOCS: Message =
        Object { members: &[("description", 1, Text), ("url", 2, Text)], extensions: 3 };
    static ITEMS: Message = Choice(|_| (1, message(&SCHEMA_OR_REFERENCE)));
    static ADDITIONAL_PROPERTIES: Message =
        Choice(|value| if value.is_boolean() { (2, Bool) } else { (1, message(&SCHEMA_OR_REFERENCE)) });
    /// Defaults are scalars here: an object's or list's is an empty message.
    static DEFAULT: Message = Choice(|value| match value {
        Value::Number(_) => (1, Double),
        Value::Bool(_) => (2, Bool),
        _ => (3, Text),
    });
    static SECURITY: Message = Named { number: 1, value: message(&SECURITY_OR_REFERENCE) };
    static SECURITY_OR_REFERENCE: Message = Choice(|_| (1, message(&SECURITY_SCHEME)));
    static SECURITY_SCHEME: Message = Object {
        members: &[("type", 1, Text), ("description", 2, Text), ("name", 3, Text), ("in", 4, Text)],
        extensions: 9,
    };
}

fn encode(message: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match message {
        Object { members, extensions } => {
            for (name, number, shape) in *members {
                if let Some(member) = value.get(name) {
                    field(*number, *shape, member, false, &mut out);
                }
            }
            let extended = value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-"));
            for (name, member) in extended {
                named(*extensions, name, Yaml, member, &mut out);
            }
        }
        Named { number, value: shape } => {
            for (name, member) in value.as_object().into_iter().flat_map(Map::iter) {
                named(*number, name, *shape, member, &mut out);
            }
        }
        Choice(choose) => {
            let (number, shape) = choose(value);
            // The member of a oneof is written even if it is zero, to select it.
            field(number, shape, value, true, &mut out);
        }
    }
    out
}

fn named(number: u32, name: &str, shape: Shape, value: &Value, out: &mut Vec<u8>) {
    let mut pair = Vec::new();
    bytes(1, name.as_bytes(), &mut pair);
    field(2, shape, value, false, &mut pair);
    bytes(number, &pair, out);
}

/// Appends a field. Zero values are left out, unless `present`.
fn field(number: u32, shape: Shape, value: &Value, present: bool, out: &mut Vec<u8>) {
    match (shape, value) {
        (Text, Value::String(text)) if present || !text.is_empty() => bytes(number, text.as_bytes(), out),
        (Bool, Value::Bool(value)) if present || *value => {
            tag(number, 0, out);
            out.push(u8::from(*value));
        }
        (Int, Value::Number(value)) => {
            tag(number, 0, out);
            varint(value.as_i64().unwrap_or_default().cast_unsigned(), out);
        }
        (Double, Value::Number(value)) => {
            tag(number, 1, out);
            out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
        }
        (Yaml, value) => {
            let mut any = Vec::new();
            bytes(2, format!("{value}\n").as_bytes(), &mut any);
            bytes(number, &any, out);
        }
        (Shape::Message(message), value) => bytes(number, &encode(message, value), out),
        (Repeated(shape), Value::Array(items)) => {
            for item in items {
                field(number, *shape, item, true, out);
            }
        }
        _ => {}
    }
}

fn bytes(number: u32, content: &[u8], out: &mut Vec<u8>) {
    tag(number, 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

fn tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire_type), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Lists the fields as `number: content`, with messages in braces where the numbers say so.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn read(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let tag = read(&mut bytes);
            let content = match tag & 7 {
                0 => vec![u8::try_from(read(&mut bytes)).expect("small")],
                1 => {
                    let (double, rest) = bytes.split_at(8);
                    bytes = rest;
                    double.to_vec()
                }
                2 => {
                    let length = usize::try_from(read(&mut bytes)).expect("short");
                    let (content, rest) = bytes.split_at(length);
                    bytes = rest;
                    content.to_vec()
                }
                other => panic!("wire type {other}"),
            };
            found.push((tag >> 3, content));
        }
        found
    }

    fn at(bytes: &[u8], path: &[u64]) -> Option<Vec<u8>> {
        path.iter().try_fold(bytes.to_vec(), |bytes, number| {
            fields(&bytes).into_iter().find(|(n, _)| n == number).map(|(_, content)| content)
        })
    }

    #[test]
    fn version_2_documents_are_encoded() {
        let document = json!({
            "swagger": "2.0",
            "definitions": {"T": {"type": "object", "enum": ["a"], "x-kubernetes-map-type": "atomic"}},
            "paths": {"/api/": {"get": {"operationId": "getAPI", "parameters": [
                {"in": "query", "name": "watch", "type": "boolean", "uniqueItems": true}]}}},
        });
        let bytes = swagger(document.to_string().as_bytes());
        for (what, path, want) in [
            ("version", &[1][..], &b"2.0"[..]),
            ("name of a path", &[8, 2, 1], b"/api/"),
            ("operation", &[8, 2, 2, 2, 5], b"getAPI"),
            ("query parameter", &[8, 2, 2, 2, 8, 1, 2, 3, 4], b"watch"),
            ("name of a type", &[9, 1, 1], b"T"),
            ("type of a type", &[9, 1, 2, 22, 1], b"object"),
            ("enum", &[9, 1, 2, 20, 2], b"\"a\"\n"),
            ("extension", &[9, 1, 2, 31, 1], b"x-kubernetes-map-type"),
            ("its value", &[9, 1, 2, 31, 2, 2], b"\"atomic\"\n"),
        ] {
            assert_eq!(at(&bytes, path).as_deref(), Some(want), "{what}");
        }
    }

    #[test]
    fn version_3_documents_are_encoded() {
        let document = json!({
            "openapi": "3.0.0",
            "components": {"schemas": {"T": {"properties": {
                "a": {"allOf": [{"$ref": "#/b"}], "default": {}},
                "b": {"type": "string", "default": ""},
                "c": {"default": 1},
            }}}},
        });
        let bytes = openapi(&document);
        let schema = at(&bytes, &[5, 1, 1, 2, 1]).expect("the schema");
        let properties = fields(&at(&schema, &[31]).expect("properties"));
        let property = |index: usize, path: &[u64]| at(&properties[index].1, path);
        assert_eq!(property(0, &[1]).as_deref(), Some(&b"a"[..]));
        assert_eq!(property(0, &[2, 1, 26, 2, 1]).as_deref(), Some(&b"#/b"[..]));
        assert_eq!(property(0, &[2, 1, 33]).as_deref(), Some(&b""[..]));
        assert_eq!(property(1, &[2, 1, 33, 3]).as_deref(), Some(&b""[..]));
        assert_eq!(property(2, &[2, 1, 33, 1]), Some(1f64.to_le_bytes().to_vec()));
    }
}
