//! Situations as tables: the objects of a cluster, and the answer.

mod bounds;
mod fake;
mod gone;
mod network;
mod pods;
mod present;
mod storage;
mod tree;
mod wire;
mod workloads;

use fake::Fake;

use crate::{Explanation, explain};

/// The time of all explanations.
const NOW: &str = "2026-11-27T10:05:00Z";

/// A situation: its name, the object as `RESOURCE NAME`, the cluster, the question with the sentence of its answer, and texts in its
/// causes, in their order. The question `none` means that there is no answer.
type Case<'a> = (&'a str, &'a str, Fake, &'a str, &'a [&'a str]);

fn explained(cluster: &Fake, object: &str) -> Option<Explanation> {
    let (resource, name) = object.split_once(' ').unwrap();
    let namespace = if fake::is_namespaced(resource) { "shop" } else { "" };
    explain(cluster, resource, namespace, name, NOW.parse().unwrap())
}

fn check(cases: Vec<Case>) {
    for (case, object, cluster, want, causes) in cases {
        let explanation = explained(&cluster, object).unwrap_or_else(|| panic!("{case}: never seen"));
        let question = want.split_once(':').map_or(want, |(question, _)| question);
        let answers: Vec<String> = explanation
            .answers
            .iter()
            .map(|answer| format!("{}: {}", wire::name(answer.question), answer.sentence))
            .collect();
        if question == "none" {
            assert_eq!(answers, Vec::<String>::new(), "{case}");
            continue;
        }
        let answer = explanation.answers.iter().find(|answer| wire::name(answer.question) == question);
        let answer = answer.unwrap_or_else(|| panic!("{case}: {answers:?}"));
        assert_eq!(format!("{question}: {}", answer.sentence), want, "{case}");
        let lines: Vec<String> = answer.causes.iter().map(ToString::to_string).collect();
        let mut rest = lines.iter();
        for cause in causes {
            assert!(rest.any(|line| line.contains(cause)), "{case}: no cause {cause:?} in {lines:#?}");
        }
    }
}
