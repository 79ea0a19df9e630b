//! Pods: requests and limits, by the names that quotas have for them.
//!
//! A pod counts with what its containers ask for and, while they are resized, with what they have
//! if that is more.

use coracle_kinds::pods::is_resize_infeasible;
use coracle_pod_resources::{
    InitContainer, ResourceList, add_overhead_to_limits, add_resource_list, aggregate_containers,
    apply_pod_level_resources, max_resource_list, quota,
};
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodAffinityTerm, PodSpec, ResourceRequirements,
    ScopedResourceSelectorRequirement, WeightedPodAffinityTerm,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::evaluators::{Evaluator, amounts, one};
use super::scopes;

impl Evaluator for Pod {
    fn matches(name: &str) -> bool {
        quota::pods::matches(name)
    }

    fn usage(&self, now: Timestamp) -> ResourceList {
        let mut usage = ResourceList::from([(quota::pods::COUNT_PODS.to_owned(), one())]);
        if runs(self, now) {
            let (requests, limits) = (resources(self, Which::Requests), resources(self, Which::Limits));
            usage.extend(quota::pods::compute_usage(&requests, &limits));
        }
        usage
    }

    fn is_in(&self, scope: &ScopedResourceSelectorRequirement) -> bool {
        let Some(spec) = &self.spec else { return false };
        let terminating = spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0);
        let best_effort =
            self.status.as_ref().and_then(|status| status.qos_class.as_deref()) == Some("BestEffort");
        match scope.scope_name.as_str() {
            "Terminating" => terminating,
            "NotTerminating" => !terminating,
            "BestEffort" => best_effort,
            "NotBestEffort" => !best_effort,
            "PriorityClass" => scopes::selects(scope, &[spec.priority_class_name.as_deref()]),
            "CrossNamespacePodAffinity" => crosses_namespaces(spec),
            _ => false,
        }
    }
}

/// Returns `true` if a pod counts: it has not ended, and is not stuck in termination.
fn runs(pod: &Pod, now: Timestamp) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let end = pod.metadata.deletion_timestamp.as_ref().zip(pod.metadata.deletion_grace_period_seconds);
    let stuck =
        end.is_some_and(|(from, grace)| now.duration_since(from.0) > SignedDuration::from_secs(grace));
    !stuck && !matches!(phase, Some("Failed" | "Succeeded"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Requests,
    Limits,
}

impl Which {
    fn of(self, resources: Option<&ResourceRequirements>) -> ResourceList {
        amounts(resources.and_then(|resources| match self {
            Which::Requests => resources.requests.as_ref(),
            Which::Limits => resources.limits.as_ref(),
        }))
    }
}

/// Returns the requests or limits of a whole pod, with its overhead.
fn resources(pod: &Pod, which: Which) -> ResourceList {
    let Some(spec) = &pod.spec else { return ResourceList::new() };
    let init_containers = spec.init_containers.iter().flatten().map(|container| {
        let is_restartable = container.restart_policy.as_deref() == Some("Always");
        let resources = match is_restartable {
            true => held(pod, container, which),
            false => which.of(container.resources.as_ref()),
        };
        InitContainer { resources, is_restartable }
    });
    let containers = spec.containers.iter().map(|container| held(pod, container, which));
    let mut total = aggregate_containers(containers, init_containers);
    apply_pod_level_resources(&mut total, which.of(spec.resources.as_ref()));
    let overhead = amounts(spec.overhead.as_ref());
    match which {
        Which::Requests => add_resource_list(&mut total, &overhead),
        Which::Limits => add_overhead_to_limits(&mut total, &overhead),
    }
    total
}

/// Returns the resources that count for a container: those of its spec and, during a resize, those
/// that it has.
fn held(pod: &Pod, container: &Container, which: Which) -> ResourceList {
    let asked = which.of(container.resources.as_ref());
    let Some(status) = status_of(pod, &container.name).filter(|status| status.resources.is_some()) else {
        return asked;
    };
    let mut held = which.of(status.resources.as_ref());
    if which == Which::Requests {
        max_resource_list(&mut held, &amounts(status.allocated_resources.as_ref()));
    }
    if !is_resize_infeasible(pod) {
        max_resource_list(&mut held, &asked);
    }
    held
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let mut all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.find(|status| status.name == container)
}

fn crosses_namespaces(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.iter();
    let near = affinity.clone().flat_map(|affinity| &affinity.pod_affinity).any(|near| {
        any_crosses(
            near.required_during_scheduling_ignored_during_execution.as_deref(),
            near.preferred_during_scheduling_ignored_during_execution.as_deref(),
        )
    });
    let mut far = affinity.flat_map(|affinity| &affinity.pod_anti_affinity);
    near || far.any(|far| {
        any_crosses(
            far.required_during_scheduling_ignored_during_execution.as_deref(),
            far.preferred_during_scheduling_ignored_during_execution.as_deref(),
        )
    })
}

fn any_crosses(required: Option<&[PodAffinityTerm]>, preferred: Option<&[WeightedPodAffinityTerm]>) -> bool {
    let preferred = preferred.into_iter().flatten().map(|weighted| &weighted.pod_affinity_term);
    let mut terms = required.into_iter().flatten().chain(preferred);
    terms.any(|term| term.namespaces.iter().flatten().next().is_some() || term.namespace_selector.is_some())
}

#[cfg(test)]
mod tests;
