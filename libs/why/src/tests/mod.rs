//! Situations as tables: the objects of a cluster, and the answer.

mod bounds;
mod fake;
mod gone;
mod kept;
mod network;
mod pods;
mod present;
mod stateful_sets;
mod storage;
mod storage_protection;
mod tree;
mod wire;
mod workloads;

use fake::Fake;

use crate::{Explanation, explain};

/// The time of all explanations.
const NOW: &str = "2026-11-27T10:05:00Z";

/// A situation: its name, the object as `RESOURCE NAME`, the cluster, the question with the
/// sentence of its answer, and texts in its causes, in their order. The question `none` means that
/// there is no answer.
type Case<'a> = (&'a str, &'a str, Fake, &'a str, &'a [&'a str]);

fn explained(cluster: &Fake, object: &str) -> Option<Explanation> {
    let (resource, name) = object.split_once(' ').unwrap();
    let namespace = if fake::is_namespaced(resource) { "shop" } else { "" };
    explain(cluster, resource, namespace, name, NOW.parse().unwrap())
}

fn check(cases: Vec<Case>) {
    let failures: Vec<String> = cases.into_iter().filter_map(mismatch).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Describes what differs in a situation.
fn mismatch((case, object, cluster, want, causes): Case) -> Option<String> {
    let Some(explanation) = explained(&cluster, object) else { return Some(format!("{case}: never seen")) };
    let question = want.split_once(':').map_or(want, |(question, _)| question);
    let answers: Vec<String> = explanation
        .answers
        .iter()
        .map(|answer| format!("{}: {}", wire::name(answer.question), answer.sentence))
        .collect();
    if question == "none" {
        return (!answers.is_empty()).then(|| format!("{case}: {answers:?}"));
    }
    let Some(answer) = explanation.answers.iter().find(|answer| wire::name(answer.question) == question)
    else {
        return Some(format!("{case}: no such question: {answers:?}"));
    };
    let got = format!("{question}: {}", answer.sentence);
    let lines: Vec<String> = answer.causes.iter().map(ToString::to_string).collect();
    let mut rest = lines.iter();
    let missing = causes.iter().find(|cause| !rest.any(|line| line.contains(*cause)));
    if let Some(missing) = missing {
        return Some(format!("{case}: no cause {missing:?} in\n{}", lines.join("\n")));
    }
    (got != want).then(|| format!("CASE {case} => {got}\n    {}", lines.join("\n    ")))
}
