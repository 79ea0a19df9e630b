//! cel-spec's conformance data: `conformance/simple.jsonl` has the names, expressions, bindings and
//! results of those of its tests that need no protocol buffers. What differs is in
//! `conformance/differences.txt`: what Kubernetes refuses (lists and maps of mixed types),
//! libraries that it does not have, and what is wrong here. `REGENERATE=1` writes that file anew.

use std::collections::BTreeMap;

use coracle_cel::{Env, Key, Limits, Meter, Type, Value};
use serde_json::Value as Json;

fn value(json: &Json) -> Option<Value<'static>> {
    let (kind, json) = json.as_object()?.iter().next()?;
    Some(match kind.as_str() {
        "null" => Value::Null,
        "bool" => Value::Bool(json.as_bool()?),
        "int" => Value::Int(json.as_str()?.parse().ok()?),
        "uint" => Value::Uint(json.as_str()?.parse().ok()?),
        "double" => Value::Double(json.as_str()?.parse().ok()?),
        "string" => Value::text(json.as_str()?),
        "bytes" => {
            let bytes: Option<Vec<u8>> =
                json.as_array()?.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
            Value::Bytes(bytes?.into())
        }
        "type" => Value::Type(Type::named(json.as_str()?)?),
        "list" => Value::list(json.as_array()?.iter().map(value).collect::<Option<_>>()?),
        "map" => {
            let entry = |pair: &Json| Some((Key::of(&value(pair.get(0)?)?)?, value(pair.get(1)?)?));
            let entries: Option<BTreeMap<Key, Value<'static>>> = json.as_array()?.iter().map(entry).collect();
            Value::map(entries?)
        }
        _ => return None,
    })
}

/// Returns `true` if a case has the expected result.
fn holds(case: &Json) -> bool {
    let bindings = case["bindings"].as_object().cloned().unwrap_or_default();
    let env = bindings.keys().fold(Env::new(), |env, name| env.variable(name, Type::Dyn));
    let Ok(program) = env.compile(case["expr"].as_str().unwrap_or_default()) else {
        return case["error"] == true;
    };
    let Some(variables) =
        bindings.iter().map(|(name, json)| Some((name.as_str(), value(json)?))).collect::<Option<Vec<_>>>()
    else {
        return false;
    };
    let outcome = program.evaluate(&variables.as_slice(), 10_000_000, &Meter::new(Limits::REQUEST)).value;
    if case["error"] == true {
        return outcome.is_err();
    }
    let Some(want) = value(&case["value"]) else { return false };
    match (outcome, want) {
        (Ok(Value::Double(found)), Value::Double(want)) => found == want || found.is_nan() && want.is_nan(),
        (Ok(found), want) => found.type_of().name() == want.type_of().name() && found == want,
        (Err(_), _) => false,
    }
}

#[test]
fn results_are_those_of_the_specification() {
    let cases = include_str!("conformance/simple.jsonl").lines();
    let cases: Vec<Json> = cases.map(|line| serde_json::from_str(line).expect("a case")).collect();
    let different: Vec<&str> =
        cases.iter().filter(|case| !holds(case)).filter_map(|case| case["name"].as_str()).collect();
    let text = different.join("\n") + "\n";
    if std::env::var_os("REGENERATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/differences.txt");
        std::fs::write(path, &text).expect("the file is written");
        return;
    }
    assert_eq!(text, include_str!("conformance/differences.txt"), "of {} cases", cases.len());
}
