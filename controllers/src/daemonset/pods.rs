//! The pods of a set: how they are made, for which node each is, and which of several counts.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::controller_revision::daemon_set::HASH_LABEL;
use coracle_kinds::pods::{from_template, is_terminal, is_terminating, node};
use coracle_object_meta::annotation;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};

const GENERATION_LABEL: &str = "pod-template-generation";
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
const NAME_FIELD: &str = "metadata.name";

/// Builds a pod of a set for a node. The scheduler binds it.
pub fn new_pod(set: &DaemonSet, node: &str, hash: &str) -> Option<Pod> {
    let template = &set.spec.as_ref()?.template;
    let mut pod = from_template(template, set);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = template_generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string());
    }
    let spec = pod.spec.as_mut()?;
    spec.tolerations = Some(tolerations(spec));
    require_node(spec, node);
    Some(pod)
}

fn template_generation(set: &DaemonSet) -> Option<i64> {
    annotation(&set.metadata, TEMPLATE_GENERATION)?.parse().ok()
}

/// Returns the tolerations of a template and those of all DaemonSet pods: such pods leave a node
/// only for taints that the cluster's administrators add.
pub fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let mut conditions = vec![
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    if spec.host_network == Some(true) {
        conditions.push(("network-unavailable", "NoSchedule"));
    }
    for (condition, effect) in conditions {
        let toleration = Toleration {
            key: Some(format!("node.kubernetes.io/{condition}")),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let is_same = |other: &Toleration| {
            (&other.key, &other.effect, &other.operator)
                == (&toleration.key, &toleration.effect, &toleration.operator)
                && other.value.as_deref().unwrap_or_default().is_empty()
        };
        match all.iter_mut().find(|other| is_same(other)) {
            Some(other) => *other = toleration,
            None => all.push(toleration),
        }
    }
    all
}

/// Replaces what the template requires of nodes, which was checked, by the name of one.
fn require_node(spec: &mut PodSpec, node: &str) {
    let term = NodeSelectorTerm {
        match_fields: Some(vec![NodeSelectorRequirement {
            key: NAME_FIELD.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]),
        match_expressions: None,
    };
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let affinity = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// Returns the node that a pod is for: the one that it is bound to, or that it requires.
pub fn target_node(pod: &Pod) -> Option<&str> {
    node(pod).or_else(|| {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let mut fields =
            required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
        let field = fields.find(|field| field.key == NAME_FIELD && field.operator == "In")?;
        match field.values.as_deref() {
            Some([name]) => Some(name),
            _ => None,
        }
    })
}

/// Groups the pods by node. Pods that ended and are terminating do not count.
pub fn by_node(pods: &[Arc<Pod>]) -> BTreeMap<&str, Vec<&Arc<Pod>>> {
    let mut nodes: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !(is_terminal(pod) && is_terminating(pod))) {
        if let Some(node) = target_node(pod) {
            nodes.entry(node).or_default().push(pod);
        }
    }
    nodes
}

/// Sorts the pods of a node: bound before unbound, then by age, then by name.
pub fn sort(pods: &mut [&Arc<Pod>]) {
    pods.sort_by_key(|pod| {
        let meta = &pod.metadata;
        (Reverse(node(pod).is_some()), meta.creation_timestamp.clone(), meta.name.clone())
    });
}

/// Returns `true` if a pod is of the current template, by the hash or by the template generation.
pub fn is_updated(pod: &Pod, set: &DaemonSet, hash: &str) -> bool {
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let generation = template_generation(set).map(|generation| generation.to_string());
    (!hash.is_empty() && has_hash(pod, hash))
        || generation.is_some_and(|generation| label(GENERATION_LABEL) == Some(&generation))
}

/// Returns `true` if a pod has this hash.
pub fn has_hash(pod: &Pod, hash: &str) -> bool {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(HASH_LABEL)).is_some_and(|label| label == hash)
}
