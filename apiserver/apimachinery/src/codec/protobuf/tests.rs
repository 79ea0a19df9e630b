use std::rc::Rc;

use serde_json::Value;

use super::wire::{Reader, Write};
use super::*;
use crate::codec::{base64, json};
use crate::schema::{StructId, schema};

/// Returns the samples: the JSON of an object, parsed and as text, and its protobuf body.
fn samples() -> Vec<(Value, &'static str, Vec<u8>)> {
    let lines = include_str!("samples.txt").lines().filter(|line| !line.starts_with('#'));
    let split = lines.map(|line| line.split_once('\t').expect("two columns"));
    split.map(|(text, body)| (serde_json::from_str(text).expect(text), text, base64::decode(body))).collect()
}

fn type_of(object: &Value) -> StructId {
    let api_version = object["apiVersion"].as_str().unwrap_or("v1");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    schema().kind(group, version, object["kind"].as_str().expect("a kind")).expect("a known kind")
}

#[test]
fn the_real_servers_messages_round_trip() {
    for (object, text, body) in samples() {
        let id = type_of(&object);
        let kind = &object["kind"];
        let decoded = json::decode(text.as_bytes(), id).expect(text);
        assert_eq!(decoded.strict, Vec::<String>::new(), "{kind}");
        let mut written = Vec::new();
        json::write_object(&decoded.value, id, &mut written);
        assert_eq!(String::from_utf8(written).as_deref(), Ok(text), "{kind}");

        let envelope = open(&body).expect(text);
        assert_eq!(envelope.meta.kind, *kind);
        let mut from_protobuf = envelope.decode(id).expect(text);
        for name in ["kind", "apiVersion"] {
            if let Some(own) = object.get(name) {
                from_protobuf[name] = own.clone();
            }
        }
        assert_eq!(from_protobuf, decoded.value, "{kind}");

        let mut named = decoded.value;
        named["apiVersion"] = envelope.meta.api_version.as_str().into();
        assert!(encode(&named, id) == body, "{kind} is not encoded byte for byte");
    }
}

#[test]
fn watch_frames_are_the_real_servers() {
    let (_, _, body) = samples().into_iter().next().expect("a sample");
    let frame = watch_frame("ADDED", &body);
    let length = u32::try_from(frame.len() - 4).expect("a small frame");
    assert_eq!(frame[..4], length.to_be_bytes());
    assert_eq!(frame[4..12], *b"\n\x05ADDED\x12");
    assert!(frame.ends_with(&body));
    let event = schema().kind("", "v1", "WatchEvent").expect("WatchEvent");
    let decoded =
        decode::read_struct(Reader::inside(&frame[4..], 0, Rc::default()), event).expect("an event");
    assert_eq!(decoded["type"], "ADDED");
    assert_eq!(decoded["object"]["kind"], "ConfigMap");
}

#[test]
fn bodies_without_an_envelope_are_refused() {
    let expected = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    for (body, want) in [
        (&b""[..], "empty data"),
        (b"k8s", expected),
        (b"{}", expected),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a\x0f\x0a\x02v1", "unexpected EOF"),
    ] {
        assert_eq!(open(body).map_err(|error| error.to_string()).err().as_deref(), Some(want));
    }
}

#[test]
fn malformed_messages_have_the_real_servers_errors() {
    let config_map = schema().kind("", "v1", "ConfigMap").expect("ConfigMap");
    for (message, want) in [
        (&b"\xff"[..], "unexpected EOF"),
        (b"\x0a\x05ab", "unexpected EOF"),
        (b"\x08\x05", "proto: wrong wireType = 0 for field ObjectMeta"),
        (b"\x00\x00", "proto: ConfigMap: illegal tag 0 (wire type 0)"),
        (b"\x0c", "proto: ConfigMap: wiretype end group for non-group"),
    ] {
        let read = decode::read_struct(Reader::inside(message, 0, Rc::default()), config_map);
        assert_eq!(read.map_err(|error| error.to_string()), Err(want.to_owned()), "{message:?}");
    }
}

#[test]
fn envelopes_inside_of_envelopes_are_bounded() {
    let list = schema().kind("", "v1", "List").expect("List");
    let mut body = encode(&serde_json::json!({"apiVersion": "v1", "kind": "List"}), list);
    for _ in 0..2000 {
        let mut message = Vec::new();
        message.message_field(2, |out| out.bytes_field(1, &body));
        let mut next = MAGIC.to_vec();
        next.message_field(1, |out| {
            out.bytes_field(1, b"v1");
            out.bytes_field(2, b"List");
        });
        next.bytes_field(2, &message);
        body = next;
    }
    assert!(open(&body).expect("an envelope").decode(list).is_err());
}
