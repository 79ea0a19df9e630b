use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn rules(list: &Value) -> Vec<PolicyRule> {
    PolicyRule::of_role(&json!({"rules": list}))
}

fn described(owned: &Value, wanted: &Value) -> String {
    missing(&rules(owned), &rules(wanted), CoverageLimits::STANDARD).expect("few rules").describe()
}

#[test]
fn missing_rights_are_described() {
    let pods = json!({"verbs": ["get", "list"], "apiGroups": ["", "x"], "resources": ["pods", "pods/log"]});
    for (owned, wanted, want) in [
        (json!([pods]), json!([pods]), ""),
        (
            json!([{"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]}]),
            json!([pods]),
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n{APIGroups:[\"\"], Resources:[\"pods/log\"], Verbs:[\"list\"]}\n{APIGroups:[\"x\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n{APIGroups:[\"x\"], Resources:[\"pods/log\"], Verbs:[\"list\"]}",
        ),
        (
            json!([]),
            json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]}]),
            "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}",
        ),
        (
            json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["a"], "resourceNames": ["n"]}]),
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["a"], "resourceNames": ["n", "m"]},
                   {"verbs": ["get"], "apiGroups": [""], "resources": ["a"]}]),
            "{APIGroups:[\"\"], Resources:[\"a\"], ResourceNames:[\"m\"], Verbs:[\"get\"]}\n{APIGroups:[\"\"], Resources:[\"a\"], Verbs:[\"get\"]}",
        ),
        (
            json!([{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]),
            json!([{"verbs": ["get"], "nonResourceURLs": ["/a/b", "/a"]}]),
            "{NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}",
        ),
    ] {
        assert_eq!(described(&owned, &wanted), want, "{owned} {wanted}");
    }
}

fn texts(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

/// Checks rules that would take minutes or all memory if each pair of rules, names or groups were
/// compared.
#[test]
fn hostile_rules_are_compared_in_bounded_steps() {
    let wide = |n: usize| {
        json!([{"verbs": texts("v", n), "apiGroups": texts("g", n), "resources": texts("r", n),
                "resourceNames": texts("n", n)}])
    };
    let names = |n: usize| json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": texts("n", n)}]);
    let single = |n: usize| {
        texts("n", n).into_iter().map(|name| {
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [name]})
        }).collect::<Value>()
    };
    let same = |n: usize| {
        (0..n).map(|_| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})).collect::<Value>()
    };
    // Any two have something in common on each axis but one.
    let same_but = |n: usize| {
        (0..n)
            .map(|i| {
                json!({"verbs": ["get"], "apiGroups": ["a", "b"],
        "resources": ["pods", "x"], "resourceNames": [format!("n{}", i / 60), format!("n{}", i % 60)]})
            })
            .collect::<Value>()
    };
    // Each rule leaves out another value of each list, so that boxes split again and again.
    let sieves = |n: usize| {
        let but = |prefix: &str, excluded: usize| {
            texts(prefix, n)
                .into_iter()
                .enumerate()
                .filter(|(i, _)| *i != excluded)
                .map(|(_, t)| t)
                .collect::<Vec<_>>()
        };
        (0..n)
            .map(|i| {
                json!({"verbs": but("v", i), "apiGroups": but("g", (i * 7) % n),
            "resources": but("r", (i * 11) % n), "resourceNames": but("n", (i * 13) % n)})
            })
            .collect::<Value>()
    };
    let urls = |n: usize| json!([{"verbs": ["get"], "nonResourceURLs": texts("/a/", n)}]);
    let prefixes = |n: usize| {
        json!([{"verbs": ["get"], "nonResourceURLs":
        (0..n).map(|i| format!("/a/{i}*")).collect::<Vec<_>>()}])
    };
    let none = json!([]);
    for (case, owned, wanted) in [
        ("thirteen million rights", &none, wide(60)),
        ("all of them held", &wide(60), wide(60)),
        ("all but one of each", &wide(59), wide(60)),
        ("many names", &none, names(16_000)),
        ("many names, held in one rule", &names(16_000), names(16_000)),
        ("many names, each held in a rule", &single(4_000), names(16_000)),
        ("many rules", &single(4_000), single(4_000)),
        ("many rules of many values", &same_but(4_000), same_but(4_000)),
        ("the same rule again and again", &same(20_000), same(20_000)),
        ("sieves", &sieves(60), wide(60)),
        ("urls", &urls(16_000), urls(16_000)),
        ("prefixes", &prefixes(16_000), urls(16_000)),
    ] {
        let (owned, wanted) = (rules(owned), rules(&wanted));
        let started = Instant::now();
        let outcome = missing(&owned, &wanted, CoverageLimits::STANDARD);
        let took = started.elapsed();
        assert!(took < Duration::from_secs(20), "{case}: {took:?}");
        let length = outcome.map_or(0, |missing| missing.describe().len());
        assert!(length <= CoverageLimits::STANDARD.description + 100, "{case}: {length}");
        eprintln!("{case}: {took:?}, {length} bytes");
    }
}

#[test]
fn comparisons_over_the_limit_are_refused() {
    let rule = json!([{"verbs": ["get"], "apiGroups": [""], "resources": texts("r", 100)}]);
    let limits = CoverageLimits { steps: 50, ..CoverageLimits::STANDARD };
    let rules = rules(&rule);
    assert_eq!(missing(&rules, &rules, limits), Err(TooManySteps));
}

#[test]
fn a_long_description_is_cut() {
    let rule = json!([{"verbs": ["get"], "apiGroups": [""], "resources": texts("r", 100)}]);
    let limits = CoverageLimits { description: 160, ..CoverageLimits::STANDARD };
    let rules = rules(&rule);
    let text = missing([], &rules, limits).expect("few rules").describe();
    assert_eq!(
        text,
        "{APIGroups:[\"\"], Resources:[\"r0\"], Verbs:[\"get\"]}\n{APIGroups:[\"\"], Resources:[\"r1\"], Verbs:[\"get\"]}\n...and more"
    );
}

/// Computes coverage by its definition: every single right is granted by one rule or missing.
fn multiplied_out(owned: &[PolicyRule], wanted: &[PolicyRule]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let has = |list: &Values, value: &str| list.contains(ALL) || list.contains(value);
    for rule in wanted {
        let names: Vec<Option<&String>> = match rule.resource_names.as_slice() {
            [] => vec![None],
            names => names.iter().map(Some).collect(),
        };
        for group in rule.api_groups.as_slice() {
            for resource in rule.resources.as_slice() {
                for name in &names {
                    for verb in rule.verbs.as_slice() {
                        let covered = owned.iter().any(|own| {
                            let star = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
                            has(&own.verbs, verb)
                                && has(&own.api_groups, group)
                                && (has(&own.resources, resource)
                                    || star.is_some_and(|star| own.resources.contains(&star)))
                                && (own.resource_names.is_empty()
                                    || name.is_some_and(|name| own.resource_names.contains(name)))
                        });
                        if !covered {
                            lines.insert(format!("{group} {resource} {name:?} {verb}"));
                        }
                    }
                }
            }
        }
    }
    lines
}

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    let some = |values: &'static [&'static str], least: usize| {
        proptest::sample::subsequence(values, least..=values.len().min(3))
            .prop_map(|list| list.into_iter().map(str::to_owned).collect::<Values>())
    };
    (
        some(&["get", "list", "watch", "*"], 1),
        some(&["", "apps", "*"], 1),
        some(&["pods", "pods/log", "nodes/log", "*/log", "*"], 1),
        some(&["a", "b", "c"], 0),
    )
        .prop_map(|(verbs, api_groups, resources, resource_names)| PolicyRule {
            verbs,
            api_groups,
            resources,
            resource_names,
            ..PolicyRule::default()
        })
}

proptest! {
    #[test]
    fn box_comparison_agrees_with_single_rights(
        owned in proptest::collection::vec(any_rule(), 0..5),
        wanted in proptest::collection::vec(any_rule(), 1..3),
    ) {
        let text = missing(&owned, &wanted, CoverageLimits::STANDARD).expect("few rules").describe();
        // Each line is `{APIGroups:["g"], Resources:["r"], ResourceNames:["n"], Verbs:["v" "w"]}`.
        let mut lines = BTreeSet::new();
        for line in text.lines() {
            let inside = |title: &str| {
                let (_, rest) = line.split_once(&format!("{title}:["))?;
                rest.split_once(']').map(|(list, _)| list.trim_matches('"').to_owned())
            };
            let name = inside("ResourceNames");
            let verbs = inside("Verbs").expect("verbs");
            for verb in verbs.split("\" \"") {
                lines.insert(format!("{} {} {:?} {verb}",
                    inside("APIGroups").expect("a group"), inside("Resources").expect("a resource"), name));
            }
        }
        prop_assert_eq!(lines, multiplied_out(&owned, &wanted));
    }
}
