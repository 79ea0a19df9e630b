//! Round trips through every format, and malformed input.

use proptest::prelude::*;
use serde_json::Value;

use super::arbitrary::{Random, object};
use super::body::{Expected, Format};
use super::limits::{MAX_COLLECTIONS, MAX_DEPTH};
use super::{body, json, protobuf, yaml};
use crate::schema::{StructId, schema};

/// Returns every kind that has a group, version and kind, in a fixed order.
fn kinds() -> Vec<(&'static str, &'static str, &'static str, StructId)> {
    let all = schema().kinds().filter(|(_, id)| schema().get(*id).field("kind").is_some());
    let mut kinds: Vec<_> = all
        .map(|((group, version, kind), id)| match group {
            "*" => ("", "v1", kind, id),
            _ => (group, version, kind, id),
        })
        .collect();
    kinds.sort();
    kinds
}

fn random_object(group: &str, version: &str, kind: &str, id: StructId, seed: u64) -> Value {
    let mut value = Value::Object(object(id, &mut Random::new(seed), 0));
    value["kind"] = kind.into();
    value["apiVersion"] =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }.into();
    json::normalize(&value, id).expect("a fitting object").value
}

#[test]
fn every_kind_survives_every_format() {
    for (group, version, kind, id) in kinds() {
        for seed in 0..6 {
            let want = random_object(group, version, kind, id, seed);
            let mut text = Vec::new();
            json::write_object(&want, id, &mut text);
            let decoded = json::decode(&text, id).expect(kind);
            assert_eq!(decoded.value, want, "{kind}, JSON");
            assert_eq!(decoded.strict, Vec::<String>::new(), "{kind}");

            let document = yaml::to_json(&yaml::from_json(&want)).expect(kind);
            assert_eq!(json::decode(&document.json, id).expect(kind).value, want, "{kind}, YAML");

            let bytes = protobuf::encode(&want, id);
            let envelope = protobuf::open(&bytes).expect(kind);
            assert_eq!(
                (envelope.meta.kind.as_str(), &want["apiVersion"]),
                (kind, &envelope.meta.api_version.as_str().into())
            );
            let mut found = envelope.decode(id).expect(kind);
            found["kind"] = want["kind"].clone();
            found["apiVersion"] = want["apiVersion"].clone();
            let mut want = want;
            drop_empty_lists(&mut found);
            drop_empty_lists(&mut want);
            assert_eq!(found, want, "{kind}, protobuf");
        }
    }
}

/// Drops the members that are empty lists, which protobuf does not have.
fn drop_empty_lists(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(drop_empty_lists);
            members.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_lists),
        _ => {}
    }
}

/// Makes a few random changes to a valid body.
fn mangle(mut body: Vec<u8>, random: &mut Random) -> Vec<u8> {
    const MARKS: &[u8] = b"{}[]\",:\\ \n\t-#&*!|>'%@`?0123456789eEtfn.\x00\x08\x0b\x0c\x7f\xff\xc3\xe2";
    for _ in 0..=random.below(4) {
        let at = random.below(body.len() + 1);
        let other = random.below(body.len() + 1);
        let (start, end) = (at.min(other), at.max(other).min(at.min(other) + 40));
        match random.below(6) {
            0 => body.truncate(at),
            1 => body.insert(at, MARKS[random.below(MARKS.len())]),
            2 => {
                body.drain(start..end);
            }
            3 => {
                let piece = body[start..end].to_vec();
                body.splice(at..at, piece);
            }
            4 if at < body.len() => body[at] = MARKS[random.below(MARKS.len())],
            _ if at < body.len() => body[at] = random.next() as u8,
            _ => {}
        }
    }
    body
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Checks that no input causes a panic, and that decoded objects are decoded the same again.
    #[test]
    fn mangled_bodies_are_read_or_refused(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let all = kinds();
        let (group, version, kind, id) = all[random.below(all.len())];
        let object = random_object(group, version, kind, id, random.next());
        let mut text = Vec::new();
        json::write_object(&object, id, &mut text);
        let bodies = [
            (Format::Json, text),
            (Format::Yaml, yaml::from_json(&object)),
            (Format::Protobuf, protobuf::encode(&object, id)),
        ];
        for (format, body) in bodies {
            let mangled = mangle(body, &mut random);
            let Ok(read) = body::decode(format, &mangled, Expected { group, version, kind }) else { continue };
            let kind = read.value["kind"].as_str().expect("a kind");
            let type_id = schema().kind(&read.group, &read.version, kind).expect("a type");
            let mut text = Vec::new();
            json::write_object(&read.value, type_id, &mut text);
            let again = json::decode(&text, type_id).expect("what was written");
            prop_assert_eq!(&again.value, &read.value);
            protobuf::encode(&read.value, type_id);
            yaml::from_json(&read.value);
        }
    }

    #[test]
    fn random_bytes_are_refused(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let expected = Expected { group: "", version: "v1", kind: "Pod" };
        let _ = body::decode(Format::Json, &noise, expected);
        let _ = body::decode(Format::Yaml, &noise, expected);
        let enveloped = [protobuf::MAGIC, &noise].concat();
        let _ = body::decode(Format::Protobuf, &enveloped, expected);
        let pod = schema().kind("", "v1", "Pod").expect("Pod");
        let message = [protobuf::MAGIC, &[0x12, noise.len() as u8 | 0x80, (noise.len() >> 7) as u8], &noise].concat();
        if let Ok(envelope) = protobuf::open(&message) {
            let _ = envelope.decode(pod);
        }
    }
}

#[test]
fn deep_input_is_refused_without_recursing_through_it() {
    let crd = schema().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("the kind");
    let revision = schema().kind("apps", "v1", "ControllerRevision").expect("the kind");
    for depth in [100, 130, 5000, 200_000] {
        let fits = depth < MAX_DEPTH;
        let schemas = r#"{"not":"#.repeat(depth) + "{}" + &"}".repeat(depth);
        let text = format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schemas}}}}}]}}}}"#);
        let decoded = json::decode(text.as_bytes(), crd);
        assert_eq!(decoded.is_ok(), fits, "{depth} schemas");
        if let Ok(decoded) = decoded {
            let bytes = protobuf::encode(&decoded.value, crd);
            assert!(protobuf::open(&bytes).expect("ours").decode(crd).is_ok());
            assert!(yaml::to_json(&yaml::from_json(&decoded.value)).is_ok());
        }
        let text = format!(r#"{{"data":{}1{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert_eq!(json::decode(text.as_bytes(), revision).is_ok(), fits, "{depth} lists");
        let flow = "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(yaml::to_json(flow.as_bytes()).is_ok(), fits, "{depth} flow lists");
        let block = "- ".repeat(depth) + "x";
        assert_eq!(yaml::to_json(block.as_bytes()).is_ok(), fits, "{depth} block lists");
    }
}

/// Checks that separately decoded parts (raw JSON inside of protobuf) count at their depth.
#[test]
fn raw_json_inside_of_protobuf_counts_at_its_depth() {
    let revision = schema().kind("apps", "v1", "ControllerRevision").expect("the kind");
    let nested = |levels: usize| {
        let data = (0..levels).fold(Value::Null, |inner, _| serde_json::json!({ "a": inner }));
        protobuf::encode(
            &serde_json::json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": data}),
            revision,
        )
    };
    for (levels, fits) in [(MAX_DEPTH - 2, true), (MAX_DEPTH, false), (400, false)] {
        let body = nested(levels);
        assert_eq!(protobuf::open(&body).expect("an envelope").decode(revision).is_ok(), fits, "{levels}");
    }
}

#[test]
fn the_number_of_objects_in_a_body_is_bounded() {
    let pod = schema().kind("", "v1", "Pod").expect("Pod");
    // Around the containers: the pod, its spec and, in JSON, the list.
    let text =
        |containers: usize| format!(r#"{{"spec":{{"containers":[{}]}}}}"#, vec!["{}"; containers].join(","));
    let most = MAX_COLLECTIONS - 3;
    for (containers, fits) in [(most, true), (most + 1, false), (900_000, false)] {
        assert_eq!(json::decode(text(containers).as_bytes(), pod).is_ok(), fits, "{containers} in JSON");
    }
    for (containers, fits) in [(MAX_COLLECTIONS - 1, true), (MAX_COLLECTIONS, false)] {
        // Many empty fields 2; itself field 2 of the pod, which is field 2 of the envelope.
        let around = |message: Vec<u8>| {
            let mut length = message.len();
            let mut out = vec![0x12];
            while length > 0x7f {
                out.push(length as u8 | 0x80);
                length >>= 7;
            }
            out.push(length as u8);
            [out, message].concat()
        };
        let body = [protobuf::MAGIC, &around(around(b"\x12\0".repeat(containers)))].concat();
        let decoded = protobuf::open(&body).expect("an envelope").decode(pod);
        assert_eq!(decoded.is_ok(), fits, "{containers} in protobuf");
    }
}
