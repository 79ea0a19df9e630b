//! Secrets and tokens do not get into a record.

use coracle_record::redact::{Kind, REDACTED, REDACTED_BASE64, redact, redact_json};
use coracle_record::{Entry, Options};

use crate::sample::{plain, read, request, version, write};

/// A text that must not be found.
const SECRET: &str = "hunter2";

#[track_caller]
fn check(kind: Kind, json: &str, want: &str) {
    let redacted = redact_json(kind, json.as_bytes());
    assert_eq!(String::from_utf8(redacted.to_vec()).unwrap(), want, "{json}");
    assert!(!want.contains(SECRET));
}

#[test]
fn the_data_of_secrets_is_replaced_and_the_rest_kept() {
    check(
        Kind::Secret,
        r#"{"apiVersion":"v1","data":{"a":"hunter2","b":""},"immutable":true,"kind":"Secret","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2","team":"x"},"name":"n"},"stringData":{"c":"hunter2"},"type":"Opaque"}"#,
        r#"{"apiVersion":"v1","data":{"a":"cmVkYWN0ZWQ=","b":"cmVkYWN0ZWQ="},"immutable":true,"kind":"Secret","metadata":{"annotations":{"team":"x"},"name":"n"},"stringData":{"c":"redacted"},"type":"Opaque"}"#,
    );
    for annotation in ["kapp.k14s.io/original", "objectset.rio.cattle.io/applied"] {
        let json = format!(r#"{{"metadata":{{"annotations":{{"{annotation}":"hunter2"}}}}}}"#);
        check(Kind::Secret, &json, r#"{"metadata":{"annotations":{}}}"#);
    }
}

#[test]
fn data_of_a_wrong_shape_is_replaced_as_a_whole() {
    for (json, want) in [
        (r#"{"data":"hunter2"}"#, r#"{"data":"cmVkYWN0ZWQ="}"#),
        (r#"{"data":["hunter2"]}"#, r#"{"data":"cmVkYWN0ZWQ="}"#),
        (r#"{"data":{"a":{"b":"hunter2"}}}"#, r#"{"data":{"a":"cmVkYWN0ZWQ="}}"#),
        (r#"{"Data":{"a":"hunter2"},"x":"hunter2"}"#, r#"{"Data":{"a":"redacted"},"x":"redacted"}"#),
        (r#"{"type":{"a":"hunter2"}}"#, r#"{"type":{"a":"redacted"}}"#),
        ("\"hunter2\"", "\"redacted\""),
        ("null", "\"redacted\""),
    ] {
        check(Kind::Secret, json, want);
    }
}

#[test]
fn bodies_that_are_no_json_are_replaced_as_a_whole() {
    for body in [&b"data:\n  a: hunter2\n"[..], b"k8s\x00\x0ahunter2", b"", b"{\"data\":{\"a\":\"hunter2\"}"]
    {
        assert_eq!(redact_json(Kind::Secret, body), "\"redacted\"");
        assert_eq!(redact_json(Kind::Token, body), "\"redacted\"");
    }
    let nested = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    assert_eq!(redact_json(Kind::Secret, &nested), "\"redacted\"", "depth is bounded");
}

#[test]
fn patches_keep_their_meaning_without_their_values() {
    for (patch, want) in [
        // Merge patches and strategic merge patches.
        (r#"{"data":{"a":null,"b":"hunter2"}}"#, r#"{"data":{"a":null,"b":"cmVkYWN0ZWQ="}}"#),
        (r#"{"data":null}"#, r#"{"data":null}"#),
        (
            r#"{"$patch":"replace","data":{"$patch":"replace"}}"#,
            r#"{"$patch":"replace","data":{"$patch":"replace"}}"#,
        ),
        (r#"{"data":{"$patch":"hunter2"}}"#, r#"{"data":{"$patch":"cmVkYWN0ZWQ="}}"#),
        // JSON patches.
        (
            r#"[{"op":"add","path":"/data/a","value":"hunter2"},{"op":"remove","path":"/data/b"}]"#,
            r#"[{"op":"add","path":"/data/a","value":"cmVkYWN0ZWQ="},{"op":"remove","path":"/data/b"}]"#,
        ),
        (
            r#"[{"op":"replace","path":"/data","value":{"a":"hunter2"}}]"#,
            r#"[{"op":"replace","path":"/data","value":{"a":"cmVkYWN0ZWQ="}}]"#,
        ),
        (
            r#"[{"op":"add","path":"/stringData/a~1b","value":"hunter2"}]"#,
            r#"[{"op":"add","path":"/stringData/a~1b","value":"redacted"}]"#,
        ),
        (
            r#"[{"op":"replace","path":"","value":{"kind":"Secret","data":{"a":"hunter2"}}}]"#,
            r#"[{"op":"replace","path":"","value":{"data":{"a":"cmVkYWN0ZWQ="},"kind":"Secret"}}]"#,
        ),
        (
            r#"[{"op":"add","path":"/metadata/labels/a","value":"x"},{"op":"add","path":"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration","value":"hunter2"}]"#,
            r#"[{"op":"add","path":"/metadata/labels/a","value":"x"}]"#,
        ),
        (
            r#"[{"op":"add","path":"/data/a/b/c","value":"hunter2"}]"#,
            r#"[{"op":"add","path":"/data/a/b/c","value":"cmVkYWN0ZWQ="}]"#,
        ),
        (
            r#"[{"op":"add","path":"data/a","value":"hunter2"},"hunter2",{"value":"hunter2"}]"#,
            r#"[{"op":"add","path":"data/a","value":"redacted"}]"#,
        ),
    ] {
        check(Kind::Secret, patch, want);
    }
    let deep = format!(r#"[{{"op":"add","path":"{}","value":"hunter2"}}]"#, "/a".repeat(100_000));
    check(Kind::Secret, &deep, "[]");
}

#[test]
fn tokens_are_replaced() {
    for (json, want) in [
        (
            r#"{"kind":"TokenReview","spec":{"audiences":["a"],"token":"hunter2"}}"#,
            r#"{"kind":"TokenReview","spec":{"audiences":["a"],"token":"redacted"}}"#,
        ),
        (r#"{"spec":{},"status":{"token":"hunter2"}}"#, r#"{"spec":{},"status":{"token":"redacted"}}"#),
        (r#"{"spec":"hunter2"}"#, r#"{"spec":"redacted"}"#),
    ] {
        check(Kind::Token, json, want);
    }
}

/// Builds entries that have the secret, one for each rule.
fn secret_entries() -> Vec<Entry> {
    let secret = r#"{"apiVersion":"v1","kind":"Secret","data":{"a":"hunter2"}}"#;
    let mut entries = Vec::new();
    for (bucket, object) in [("secrets", secret), ("secrets", "hunter2"), ("pods", secret)] {
        let mut entry = version(1, Some(object));
        if let Entry::Version(version) = &mut entry {
            version.bucket = bucket.into();
        }
        entries.push(entry);
    }
    let review =
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"hunter2"}}"#;
    for (group, resource, subresource, body) in [
        ("", "secrets", "", "data: hunter2"),
        ("", "secrets", "", r#"{"data":{"a":"hunter2"}}"#),
        ("", "serviceaccounts", "token", r#"{"status":{"token":"hunter2"}}"#),
        ("authentication.k8s.io", "tokenreviews", "", r#"{"spec":{"token":"hunter2"}}"#),
        ("example.com", "proxies", "", secret),
        ("example.com", "proxies", "", review),
    ] {
        let mut entry = request(1, Some(body));
        if let Entry::Request(request) = &mut entry {
            (request.group, request.resource, request.subresource) =
                (group.into(), resource.into(), subresource.into());
        }
        entries.push(entry);
    }
    entries
}

#[test]
fn entries_with_secrets_are_found_by_bucket_resource_and_kind() {
    for mut entry in secret_entries() {
        assert!(format!("{entry:?}").contains(SECRET));
        redact(&mut entry);
        let text = format!("{entry:?}");
        assert!(!text.contains(SECRET), "{text}");
        assert!(text.contains(REDACTED) || text.contains(REDACTED_BASE64), "{text}");
    }
}

#[test]
fn other_objects_are_left_byte_for_byte() {
    for object in [
        r#"{ "kind":"ConfigMap", "data":{"Secret":"\"Secret\""} }"#,
        r#"{"apiVersion":"example.com/v1","kind":"Secret","spec":{"a":"b"}}"#,
        r#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"Secret","kind":"Secret"}}"#,
        "\"Secret\" is no JSON",
    ] {
        let mut entry = version(1, Some(object));
        redact(&mut entry);
        assert_eq!(entry, version(1, Some(object)));
    }
}

#[test]
fn a_record_has_no_secrets_unless_they_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    for (options, is_plain) in [(Options::default(), false), (plain(), true)] {
        let path = directory.path().join(format!("{is_plain}.coracle"));
        write(&path, &options, &[secret_entries()]);
        let mut read = read(&path).unwrap();
        read.pop();
        assert_eq!(read == secret_entries(), is_plain);
        assert_eq!(format!("{read:?}").contains(SECRET), is_plain);
    }
}
