//! Expressions, as kube-apiserver's libraries answer them: whether they compile, the type, the
//! estimated cost, the value, the cost and the error.
//!
//! `peer/fixtures.json` has the environments with their bindings, `peer/answers.jsonl` the recorded
//! answers; `e2e/peer/cel/record` records them. `peer/differences.txt` lists what differs, with the
//! reason. `ANSWERS=FILE cargo test -p coracle-cel --test peer -- --nocapture` compares the answers
//! in another file.

mod peer_fixtures;

use std::collections::{BTreeMap, BTreeSet};

use peer_fixtures::Fixture;
use serde_json::Value as Json;

/// The answers that are recorded at least.
const MIN_ANSWERS: usize = 2_000;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peer");

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn fixtures() -> BTreeMap<String, Fixture> {
    let all: BTreeMap<String, Json> =
        serde_json::from_str(&read(&format!("{DIRECTORY}/fixtures.json"))).expect("fixtures");
    let known = |(name, json): (String, Json)| Some((name, Fixture::read(&json)?));
    all.into_iter().filter_map(known).collect()
}

/// Returns the members in which two answers differ.
fn differences(want: &Json, found: &Json) -> Vec<String> {
    // Selectors of devices are compiled only.
    let members: &[&str] = match want["fixture"] == "device" {
        true => &["issues", "type", "estimate"],
        false => &["issues", "type", "estimate", "value", "error", "cost"],
    };
    let differs = |name: &&&str| want.get(**name) != found.get(**name);
    let shown = |json: Option<&Json>| json.map_or("-".to_owned(), Json::to_string);
    members
        .iter()
        .filter(differs)
        .map(|name| format!("{name}: want {} found {}", shown(want.get(*name)), shown(found.get(*name))))
        .collect()
}

#[test]
fn expressions_are_answered_as_the_reference_implementation_answers_them() {
    let fixtures = fixtures();
    let file = std::env::var("ANSWERS");
    let answers = read(file.as_deref().unwrap_or(&format!("{DIRECTORY}/answers.jsonl")));
    let listed = read(&format!("{DIRECTORY}/differences.txt"));
    let listed: BTreeSet<&str> = listed.lines().filter(|line| !line.starts_with('#')).collect();
    let (mut total, mut wrong) = (0, Vec::new());
    for line in answers.lines() {
        let want: Json = serde_json::from_str(line).expect("an answer");
        let (name, expression) = (want["fixture"].as_str().unwrap_or(""), want["expression"].as_str());
        let (Some(fixture), Some(expression)) = (fixtures.get(name), expression) else { continue };
        total += 1;
        let key = format!("{name}: {expression}");
        let found = fixture.answer(expression);
        let different = differences(&want, &found);
        let is_listed = file.is_err() && listed.contains(key.replace('\n', "\\n").as_str());
        if different.is_empty() == is_listed {
            let what =
                if is_listed { "does not differ any more".to_owned() } else { different.join("\n    ") };
            wrong.push(format!("{key}\n    {what}"));
        }
    }
    println!("{} of {total} expressions differ", wrong.len());
    assert!(wrong.is_empty(), "{} of {total} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(file.is_ok() || total >= MIN_ANSWERS, "{total} answers are recorded, {MIN_ANSWERS} are expected");
}
