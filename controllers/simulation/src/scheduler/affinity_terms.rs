//! Terms by which a pod is drawn to other pods or away from them, and the pods that these select.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

/// The labels of namespaces, by their names.
pub type Namespaces = HashMap<String, BTreeMap<String, String>>;

/// Iterates over the required affinity terms of a pod.
pub fn required_affinity_terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let to = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    to.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()).into_iter().flatten()
}

/// Iterates over the required anti-affinity terms of a pod.
pub fn required_anti_affinity_terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    anti.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()).into_iter().flatten()
}

/// Iterates over the preferred terms of a pod, those of anti-affinity with a negative weight.
pub fn preferred_terms(pod: &Pod) -> impl Iterator<Item = (&PodAffinityTerm, i64)> {
    fn weighted(
        terms: Option<&Vec<WeightedPodAffinityTerm>>,
        sign: i64,
    ) -> impl Iterator<Item = (&PodAffinityTerm, i64)> {
        terms.into_iter().flatten().map(move |term| (&term.pod_affinity_term, sign * i64::from(term.weight)))
    }
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let to = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let to = to.and_then(|to| to.preferred_during_scheduling_ignored_during_execution.as_ref());
    let anti = anti.and_then(|anti| anti.preferred_during_scheduling_ignored_during_execution.as_ref());
    weighted(to, 1).chain(weighted(anti, -1))
}

/// Returns `true` if a pod has affinity terms that count for other pods.
pub fn has_affinity(pod: &Pod) -> bool {
    preferred_terms(pod).next().is_some() || required_affinity_terms(pod).next().is_some()
}

/// Returns `true` if an affinity term of `owner` selects the pod `other`.
pub fn selects(term: &PodAffinityTerm, owner: &Pod, other: &Pod, namespaces: &Namespaces) -> bool {
    let namespace = other.metadata.namespace.as_deref().unwrap_or_default();
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let is_named = listed.iter().any(|name| name == namespace);
    let is_selected = term.namespace_selector.as_ref().is_some_and(|selector| {
        namespaces.get(namespace).is_some_and(|labels| is_selected(Some(selector), labels))
    });
    let is_own = listed.is_empty()
        && term.namespace_selector.is_none()
        && owner.metadata.namespace == other.metadata.namespace;
    (is_named || is_selected || is_own) && is_selected_pod(term.label_selector.as_ref(), other)
}

/// Returns `true` if a selector selects a pod.
fn is_selected_pod(selector: Option<&LabelSelector>, pod: &Pod) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    is_selected(selector, pod.metadata.labels.as_ref().unwrap_or(&NONE))
}

/// Returns `true` if a selector matches these labels. `None` selects nothing, an empty selector
/// everything.
fn is_selected(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let selector = selector.and_then(|selector| Selector::try_from(selector.clone()).ok());
    selector.is_some_and(|selector| selector.matches(labels))
}
