//! Node selectors and required node affinity of pods.

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// Returns `true` if a node matches the node selector and the required node affinity of a pod.
pub fn matches_node_affinity(spec: &PodSpec, node: &Node) -> bool {
    let has = |(key, value)| label(node, key) == Some(value);
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    spec.node_selector.iter().flatten().all(|(key, value)| has((key, value.as_str())))
        && required.is_none_or(|selector| selects(selector, node))
}

/// Returns the value of a node's label.
pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Returns `true` if any term of a selector selects a node.
pub fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_selects(term, node))
}

/// Returns `true` if a term selects a node. A term without requirements selects no node.
pub fn term_selects(term: &NodeSelectorTerm, node: &Node) -> bool {
    let empty = Vec::new();
    let labels = term.match_expressions.as_ref().unwrap_or(&empty);
    let fields = term.match_fields.as_ref().unwrap_or(&empty);
    let name = node.metadata.name.as_deref();
    (!labels.is_empty() || !fields.is_empty())
        && labels.iter().all(|requirement| meets(requirement, label(node, &requirement.key)))
        && fields.iter().all(|requirement| requirement.key == "metadata.name" && meets(requirement, name))
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let wanted = requirement.values.as_deref().unwrap_or_default();
    let is_in = value.is_some_and(|value| wanted.iter().any(|wanted| wanted == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compares = |with: fn(&i64, &i64) -> bool| {
        let limit = wanted.first().and_then(|text| number(text));
        value.and_then(number).zip(limit).is_some_and(|(value, limit)| with(&value, &limit))
    };
    match requirement.operator.as_str() {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compares(i64::gt),
        "Lt" => compares(i64::lt),
        _ => false,
    }
}
