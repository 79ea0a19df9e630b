use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::codec::json::decode_value;

fn read(text: &str) -> Result<Value, String> {
    let document = to_json(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok(serde_json::from_slice(&document.json).expect("JSON"))
}

#[test]
fn documents_are_read_as_yaml_1_1() {
    for (text, want) in [
        ("", json!(null)),
        (
            "a: y\nb: 'y'\nc: on\nd: 012\ne: 1e3\nf: ~\ng: 2001-01-01",
            json!({
                "a": true, "b": "y", "c": true, "d": 10, "e": 1000, "f": null, "g": "2001-01-01"
            }),
        ),
        (
            "{1: a, 1.5: b, true: c, 0x10: d, n: e, 1e3: f}",
            json!({
                "1": "a", "1.5": "b", "true": "c", "16": "d", "false": "e", "1000": "f"
            }),
        ),
        ("a: 1\n---\nb: [", json!({"a": 1})),
        ("a: 1\n...\nb: [", json!({"a": 1})),
        ("a: &x [1]\nb: *x", json!({"a": [1], "b": [1]})),
        ("<<: {a: 1, b: 2}\nb: 3", json!({"a": 1, "b": 3})),
        ("b: 3\n<<: [{a: 1}, {a: 9, b: 2}]", json!({"a": 1, "b": 2})),
        (
            "a: !!str 5\nb: !!int \"5\"\nc: !foo x\nd: !!binary QUI=",
            json!({"a": "5", "b": 5, "c": "x", "d": "AB"}),
        ),
        ("a: |\n  x\n   y\nb: >-\n  f\n  g\n\n  h\n", json!({"a": "x\n y\n", "b": "f g\nh"})),
        ("\u{feff}a: 1", json!({"a": 1})),
    ] {
        assert_eq!(read(text), Ok(want), "{text:?}");
    }
}

#[test]
fn errors_have_the_real_servers_messages() {
    for (text, want) in [
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("a: *b", "yaml: unknown anchor 'b' referenced"),
        ("a: {[b]: c}", "yaml: invalid map key: [\"b\"]"),
        ("a: .inf", "json: unsupported value: +Inf"),
        ("<<: 5", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: &a [*a]", "yaml: anchor value contains itself"),
        ("a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
        ("a: !!binary '!'", "yaml: !!binary value contains invalid base64 data"),
        ("a: \"\u{7}\"", "yaml: control characters are not allowed"),
        ("a: b # \u{7f}", "yaml: control characters are not allowed"),
        ("a: \u{fffe}", "yaml: control characters are not allowed"),
        ("\ta: b", "yaml: found character that cannot start any token"),
        ("#x\n  \ta: b", "yaml: line 2: found character that cannot start any token"),
        ("---\n\ta: b", "yaml: line 2: found character that cannot start any token"),
        ("a:\n\tb: c", "yaml: line 2: found character that cannot start any token"),
        ("a: @b", "yaml: found character that cannot start any token"),
        ("a: b\n\tc: d", "yaml: line 2: found a tab character that violates indentation"),
        ("a:\n- b\n\t- c\n", "yaml: line 3: found a tab character that violates indentation"),
        ("{", "yaml: line 1: did not find expected node content"),
        ("{\n\n", "yaml: line 2: did not find expected node content"),
        ("{a: b", "yaml: line 1: did not find expected ',' or '}'"),
        ("x: y\nz: {a\n\n\n", "yaml: line 4: did not find expected ',' or '}'"),
        ("a: [1", "yaml: line 1: did not find expected ',' or ']'"),
        ("x: [1\n\ny: 2", "yaml: line 2: did not find expected ',' or ']'"),
        ("a: b\n- c", "yaml: line 1: did not find expected key"),
        ("- a\nb: c", "yaml: line 1: did not find expected '-' indicator"),
    ] {
        assert_eq!(read(text), Err(want.to_owned()), "{text:?}");
    }
}

#[test]
fn repeated_keys_are_reported_and_the_last_one_counts() {
    let document = to_json(b"a: 1\nb: {k: 1, k: 2}\na: 3\n").expect("a document");
    assert_eq!(document.json, br#"{"a":3,"b":{"k":2}}"#);
    let want = "yaml: unmarshal errors:\n  line 2: key \"k\" already set in map\n  line 3: key \"a\" already set in map";
    assert_eq!(document.repeated_keys.as_deref(), Some(want));
}

#[test]
fn alias_expansion_is_bounded() {
    let levels: String =
        (1..12).map(|n| format!("l{n}: &l{n} [{}]\n", vec![format!("*l{}", n - 1); 10].join(","))).collect();
    let error = read(&format!("l0: &l0 [x,x,x,x,x,x,x,x,x,x]\n{levels}"));
    assert_eq!(error, Err("yaml: document contains excessive aliasing".to_owned()));
}

/// Checks the errors for documents of at most 3 MiB that expand to more.
#[test]
fn converted_documents_are_bounded() {
    let aliasing = "yaml: document contains excessive aliasing";
    let big = |bytes: usize| "x".repeat(bytes);
    let aliases = |count: usize| vec!["*a"; count].join(",");
    let map = |members: usize| (0..members).map(|n| format!("k{n}: {n}")).collect::<Vec<_>>().join(", ");
    for (case, text, want) in [
        ("a long string, often", format!("a: &a {}\nb: [{}]", big(20_000), aliases(50_000)), aliasing),
        ("in small maps", format!("a: &a {{k: {}}}\nb: [{}]", big(20_000), aliases(50_000)), aliasing),
        (
            "a long string as a key",
            format!("a: &a {}\nb: [{}]", big(20_000), vec!["{*a : 1}"; 5_000].join(",")),
            aliasing,
        ),
        (
            "anchors of anchors",
            format!("a: &a {}\nb: &b [{}]\nc: [{}]", big(1000), aliases(100), vec!["*b"; 1000].join(",")),
            aliasing,
        ),
        (
            "merged maps",
            format!("a: &a {{{}}}\nb: [{}]", map(1000), vec!["{<<: *a}"; 2000].join(",")),
            aliasing,
        ),
        ("merged lists of maps", format!("a: &a {{{}}}\n<<: [{}]", map(1000), aliases(2000)), aliasing),
        ("keys that are merged", format!("a: &a {{{}: 1}}\n<<: [{}]", big(20_000), aliases(5000)), aliasing),
        (
            "the prefix of a tag",
            format!("%TAG !a! !{}\n---\n- !a!x y{}", big(100_000), "\n- !a!x y".repeat(1000)),
            "yaml: exceeded max length of tags",
        ),
        ("flow lists", "[".repeat(3_000_000), "yaml: exceeded max number of flow indicators"),
        ("nodes", "- \n".repeat(1_000_001), "yaml: exceeded max number of nodes"),
        ("block lists", "- ".repeat(1_000_000), "yaml: exceeded max depth"),
        ("complex keys", "? ".repeat(1_000_000), "yaml: exceeded max depth"),
    ] {
        assert!(text.len() <= 3 << 20, "{case}");
        assert_eq!(
            to_json(text.as_bytes()).map(|d| d.json.len()).map_err(|e| e.to_string()),
            Err(want.to_owned()),
            "{case}"
        );
    }
}

#[test]
fn large_documents_without_aliases_are_read() {
    let text = "x".repeat(20_000);
    for (case, text) in [
        ("much from few aliases", format!("a: &a {text}\nb: [{}]", vec!["*a"; 100].join(","))),
        ("a long block", format!("a: |9\n{}", format!("         {text}\n").repeat(100))),
        ("a long number", format!("a: {}", "9".repeat(3_000_000))),
        ("a huge exponent", "a: 1e999999999".to_owned()),
        ("a long comment", format!("a: 1 # {}", "x".repeat(3_000_000))),
        ("later documents", format!("a: 1\n{}", "---\na: &a [*a]\n".repeat(100_000))),
        ("commas in text", format!("a: |\n  {}", "1,2,3,4,".repeat(50_000))),
    ] {
        assert!(to_json(text.as_bytes()).is_ok(), "{case}");
    }
}

#[test]
fn messages_about_repeated_keys_are_bounded() {
    let document = to_json("k: 1\n".repeat(400_000).as_bytes()).expect("a document");
    assert!(document.repeated_keys.expect("messages").len() < 1 << 20);
    let long = "k".repeat(100_000);
    let document = to_json(format!("? {long}\n: 1\n").repeat(25).as_bytes()).expect("a document");
    assert!(document.repeated_keys.expect("messages").len() < 1 << 20);
}

/// Compares with kube-apiserver's output for a ConfigMap with these values; only line separators
/// are written in a safer way.
#[test]
fn values_are_written_in_the_real_servers_style() {
    for (text, want) in [
        ("", "\"\""),
        ("plain words", "plain words"),
        (" a", "' a'"),
        ("a ", "'a '"),
        ("y", "\"y\""),
        ("1.0", "\"1.0\""),
        ("null", "\"null\""),
        ("a: b", "'a: b'"),
        ("a:b", "a:b"),
        ("a #b", "'a #b'"),
        ("a#b", "a#b"),
        ("- a", "'- a'"),
        ("-a", "-a"),
        ("--- a", "'--- a'"),
        ("'a'", "'''a'''"),
        ("[a", "'[a'"),
        ("a,b", "a,b"),
        ("l1\nl2", "|-\n  l1\n  l2"),
        ("l1\nl2\n", "|\n  l1\n  l2"),
        ("l1\n\n", "|+\n  l1\n"),
        (" x\ny", "|2-\n   x\n  y"),
        ("\n", "|2+\n"),
        ("\nx", "|2-\n\n  x"),
        ("a\tb", "\"a\\tb\""),
        ("é", "é"),
        ("😀", "\"\\U0001F600\""),
        ("x \ny", "\"x \\ny\""),
        ("2001-01-01", "\"2001-01-01\""),
        ("1:30", "\"1:30\""),
        ("=", "="),
        ("<<", "<<"),
        (".5", "\".5\""),
        ("1.5Gi", "1.5Gi"),
        ("a\u{2028}", "\"a\\L\""),
        (
            "word word word word word word word word word word word word word word word word word end",
            "word word word word word word word word word word word word word word word word\n  word end",
        ),
    ] {
        let written = String::from_utf8(from_json(&json!({"k": text}))).expect("text");
        assert_eq!(written, format!("k: {want}\n"), "{text:?}");
        assert_eq!(read(&written), Ok(json!({"k": text})), "{written}");
    }
}

#[test]
fn structures_are_written_in_the_real_servers_style() {
    let value = json!({
        "a10": {}, "a2": [], "1": "x", "B": null, "b": true,
        "list": [{"k": 1, "l": ["x", {"m": 2.5}]}, [1, [2]], "s"],
        "map": {"f:x": {".": {}, "k:{\"a\":\"b\"}": {}}},
    });
    let want = "\"1\": x\nB: null\na2: []\na10: {}\nb: true\nlist:\n- k: 1\n  l:\n  - x\n  - m: 2.5\n- - 1\n  - - 2\n- s\n\
                map:\n  f:x:\n    .: {}\n    k:{\"a\":\"b\"}: {}\n";
    assert_eq!(String::from_utf8(from_json(&value)).as_deref(), Ok(want));
    assert_eq!(read(want), Ok(value));
    for value in [
        json!({}),
        json!([]),
        json!("x"),
        json!({"k".repeat(200): {"a": [1]}, "l".repeat(200): [2], "m".repeat(200): "x"}),
    ] {
        let written = String::from_utf8(from_json(&value)).expect("text");
        assert_eq!(read(&written), Ok(value), "{written}");
    }
}

#[test]
fn invalid_utf8_is_refused() {
    for (text, want) in [
        (&b"a: \xff"[..], "yaml: invalid leading UTF-8 octet"),
        (b"a: \x80", "yaml: invalid leading UTF-8 octet"),
        (b"a: \xc3", "yaml: incomplete UTF-8 octet sequence"),
        (b"a: \xc3b", "yaml: invalid trailing UTF-8 octet"),
        (b"a: \xe2\x82b", "yaml: invalid trailing UTF-8 octet"),
        (b"a: \xed\xa0\x80", "yaml: invalid Unicode character"),
    ] {
        assert_eq!(to_json(text).map_err(|error| error.to_string()).err().as_deref(), Some(want), "{text:?}");
    }
    assert!(read("a: \u{a0}😀").is_ok());
}

#[test]
fn json_that_yaml_may_read_differently_is_not_shared() {
    for (text, want) in [
        (r#"{"a":{"b":[1,-20,true,null,"x: #y\"\\\/\n"],"":{}}}"#, true),
        ("{\"a\": 0, \"b\" : [ ]}\n", true),
        ("", false),
        ("[1]", false),
        ("{\n}", false),
        ("{\t}", false),
        (r#"{"<<":{}}"#, false),
        (r#"{"a":"é"}"#, false),
        (r#"{"a":"\u0041"}"#, false),
        ("{\"a\":\"\u{7f}\"}", false),
        (r#"{"a":-0}"#, false),
        (r#"{"a":010}"#, false),
        (r#"{"a":1.0}"#, false),
        (r#"{"a":1e3}"#, false),
        (r#"{"a":123456789012345}"#, true),
        (r#"{"a":1234567890123456}"#, false),
        ("{a:1}", false),
        ("{} # x", false),
    ] {
        assert_eq!(is_read_as_json(text.as_bytes()), want, "{text}");
    }
    let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert!(is_read_as_json(nested(49).as_bytes()) && !is_read_as_json(nested(50).as_bytes()));
    let long = |bytes: usize| format!(r#"{{"{}":1}}"#, "k".repeat(bytes));
    assert!(is_read_as_json(long(1000).as_bytes()) && !is_read_as_json(long(1001).as_bytes()));
    let large = |members: usize| format!("{{{}\"z\":1}}", "\"a\":1,".repeat(members));
    assert!(is_read_as_json(large(1000).as_bytes()) && !is_read_as_json(large(50_000).as_bytes()));
}

fn arbitrary_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000..1000i64).prop_map(Value::from),
        "[ -~\n\t]{0,8}".prop_map(Value::from),
        "<<|=|y|~|- a|a: b|a #b|---|\\.\\.\\.|[&*!|>%@`]x".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[ -~]{0,4}|<<|y|1", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Checks documents, and what becomes of them if a byte is another one.
    #[test]
    fn shared_json_is_the_same_object_in_yaml(
        value in prop::collection::btree_map("[ -~]{0,4}", arbitrary_value(), 0..5),
        at in any::<prop::sample::Index>(),
        other in prop::sample::select(b"{}[],: \"\\n-019tfe<#&*!|>'%@`?\n\t".to_vec()),
    ) {
        let mut text = serde_json::to_vec(&value).expect("JSON");
        for _ in 0..2 {
            if is_read_as_json(&text)
                && let Ok(decoded) = decode_value(&text)
                && decoded.strict.is_empty()
            {
                let shown = String::from_utf8_lossy(&text).into_owned();
                prop_assert_eq!(read(&shown), Ok(decoded.value), "{}", shown);
            }
            let at = at.index(text.len());
            text[at] = other;
        }
    }
}
