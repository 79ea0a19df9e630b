//! Bodies: whatever is decoded is within the limits, and every format gives it back as it is.

use coracle_apimachinery::codec::body::{self, Expected, Format};
use coracle_apimachinery::codec::{json, protobuf, yaml};
use coracle_apimachinery::names::GroupVersion;
use coracle_apimachinery::schema::{StructId, schema};
use serde_json::Value;

use crate::{assert_within_limits, document};

/// Tests JSON of any kind.
pub fn json_body(data: &[u8]) -> bool {
    if let Some(value) = document(data) {
        assert_within_limits(&value);
        let mut text = Vec::new();
        json::write_untyped(&value, &mut text);
        assert_eq!(document(&text).as_ref(), Some(&value), "the written text is another document");
    }
    decodes_as_it_is(Format::Json, data)
}

/// Tests YAML of any kind.
pub fn yaml_body(data: &[u8]) -> bool {
    if yaml::is_read_as_json(data)
        && let Ok(decoded) = json::decode_value(data)
        && decoded.strict.is_empty()
    {
        let converted = yaml::to_json(data).map(|converted| document(&converted.json));
        assert_eq!(converted, Ok(Some(decoded.value)), "the JSON is another document in YAML");
    }
    if let Ok(converted) = yaml::to_json(data)
        && let Some(value) = document(&converted.json).filter(Value::is_object)
    {
        assert_within_limits(&value);
        let printed = yaml::from_json(&value);
        let again = yaml::to_json(&printed).map(|again| document(&again.json));
        let text = String::from_utf8_lossy(&printed);
        assert_eq!(again, Ok(Some(value)), "the printed YAML is another document:\n{text}");
    }
    decodes_as_it_is(Format::Yaml, data)
}

/// Tests Protobuf of any kind. Bytes without an envelope are a Pod's.
pub fn protobuf_body(data: &[u8]) -> bool {
    let pod = schema().kind("", "v1", "Pod").expect("a kind of the table");
    if data.strip_prefix(protobuf::MAGIC).is_none() {
        let mut body = protobuf::MAGIC.to_vec();
        body.push(0x12);
        let mut length = data.len();
        while length >= 0x80 {
            body.push(length as u8 | 0x80);
            length >>= 7;
        }
        body.push(length as u8);
        body.extend_from_slice(data);
        let decoded = protobuf::open(&body).and_then(|envelope| envelope.decode(pod));
        return decoded.is_ok_and(|value| {
            is_the_same_in_every_format(value, pod, "v1", "Pod");
            true
        });
    }
    decodes_as_it_is(Format::Protobuf, data)
}

/// Decodes a body by the kind that it says it is, else as a Pod. What comes of it is the same in
/// every format.
fn decodes_as_it_is(format: Format, data: &[u8]) -> bool {
    let meta = body::type_meta(format, data).unwrap_or_default();
    let (group, version) = meta.api_version.split_once('/').unwrap_or(("", &meta.api_version));
    let known = schema().kind(group, version, &meta.kind).is_some();
    let expected = match known {
        true => Expected { group, version, kind: &meta.kind },
        false => Expected { group: "", version: "v1", kind: "Pod" },
    };
    let Ok(decoded) = body::decode(format, data, expected) else { return false };
    let kind = decoded.value["kind"].as_str().expect("a decoded body has a kind").to_owned();
    let id = schema().kind(&decoded.group, &decoded.version, &kind).expect("a decoded body has a known kind");
    let api_version = GroupVersion::new(&decoded.group, &decoded.version).to_string();
    is_the_same_in_every_format(decoded.value, id, &api_version, &kind);
    true
}

fn is_the_same_in_every_format(mut value: Value, id: StructId, api_version: &str, kind: &str) {
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    assert_within_limits(&value);

    let mut text = Vec::new();
    json::write_object(&value, id, &mut text);
    let shown = String::from_utf8_lossy(&text);
    serde_json::from_slice::<Value>(&text).unwrap_or_else(|error| panic!("serde_json: {error}: {shown}"));
    let again = json::decode(&text, id).unwrap_or_else(|error| panic!("{error}: {shown}"));
    assert_eq!(again.value, value, "as JSON");
    assert!(again.strict.is_empty(), "{:?} in {shown}", again.strict);

    let printed = yaml::from_json(&value);
    let shown = String::from_utf8_lossy(&printed);
    let converted = yaml::to_json(&printed).unwrap_or_else(|error| panic!("{error}:\n{shown}"));
    let again = json::decode(&converted.json, id).unwrap_or_else(|error| panic!("{error}:\n{shown}"));
    assert_eq!(again.value, value, "as YAML:\n{shown}");

    let encoded = protobuf::encode(&value, id);
    let envelope = protobuf::open(&encoded).expect("what was encoded");
    let Ok(mut again) = envelope.decode(id) else { return };
    again["apiVersion"] = api_version.into();
    again["kind"] = kind.into();
    // An object of protobuf has no place for what only JSON can say; encoded once, it is at rest.
    assert_eq!(protobuf::encode(&again, id), encoded, "as protobuf");
}
