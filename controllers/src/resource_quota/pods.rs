//! Pods: requests and limits, by the names that quotas have for them.
//!
//! A pod counts with what its containers ask for and, while they are resized, with what they have if that is more.

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodAffinityTerm, PodSpec, ResourceRequirements,
    ScopedResourceSelectorRequirement, WeightedPodAffinityTerm,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::measured::{Measured, Usage, add, amounts, one, raise};
use super::scopes;

const REQUESTS: &str = "requests.";
const LIMITS: &str = "limits.";
const HUGE_PAGES: &str = "hugepages-";
/// A resource that stands for devices of a class.
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

impl Measured for Pod {
    fn measures(name: &str) -> bool {
        let request = name.strip_prefix(REQUESTS);
        let part = request.or_else(|| name.strip_prefix(LIMITS)).unwrap_or(name);
        ["count/pods", "pods"].contains(&name)
            || COMPUTE.contains(&part)
            || request.unwrap_or(name).starts_with(HUGE_PAGES)
            || request.is_some_and(is_extended)
    }

    fn usage(&self, now: Timestamp) -> Usage {
        let mut usage = Usage::from([("count/pods".to_owned(), one())]);
        if runs(self, now) {
            usage.insert("pods".to_owned(), one());
            for (name, amount) in resources(self, Which::Requests) {
                let plain = COMPUTE.contains(&name.as_str()) || name.starts_with(HUGE_PAGES);
                if plain || is_extended(&name) {
                    usage.insert(format!("{REQUESTS}{name}"), amount);
                }
                if plain {
                    usage.insert(name, amount);
                }
            }
            let limits = resources(self, Which::Limits).into_iter();
            let limits = limits.filter(|(name, _)| COMPUTE.contains(&name.as_str()));
            usage.extend(limits.map(|(name, amount)| (format!("{LIMITS}{name}"), amount)));
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

/// A vendor's resource, such as `example.com/gpu`.
fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    name.starts_with(DEVICE_CLASS) || !(is_native || name.starts_with(REQUESTS))
}

/// Whether a pod holds what it asked for: it has not ended, and is not stuck in its end.
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
    fn of(self, resources: Option<&ResourceRequirements>) -> Usage {
        amounts(resources.and_then(|resources| match self {
            Which::Requests => resources.requests.as_ref(),
            Which::Limits => resources.limits.as_ref(),
        }))
    }
}

/// What a whole pod asks for. The containers' sum, but at least what each init container needs beside the sidecars that run by
/// then; the pod's own word counts more.
fn resources(pod: &Pod, which: Which) -> Usage {
    let Some(spec) = &pod.spec else { return Usage::new() };
    let mut total = Usage::new();
    let (mut sidecars, mut at_start) = (Usage::new(), Usage::new());
    for container in &spec.containers {
        add(&mut total, &held(pod, container, which));
    }
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let own = held(pod, container, which);
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut at_start, &sidecars);
        } else {
            let mut together = which.of(container.resources.as_ref());
            add(&mut together, &sidecars);
            raise(&mut at_start, &together);
        }
    }
    raise(&mut total, &at_start);
    let own = which.of(spec.resources.as_ref()).into_iter();
    total
        .extend(own.filter(|(name, _)| ["cpu", "memory"].contains(&&**name) || name.starts_with(HUGE_PAGES)));
    let mut overhead = amounts(spec.overhead.as_ref());
    if which == Which::Limits {
        overhead.retain(|name, _| total.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add(&mut total, &overhead);
    total
}

/// What a container asks for, or has.
fn held(pod: &Pod, container: &Container, which: Which) -> Usage {
    let asked = which.of(container.resources.as_ref());
    let Some(status) = status_of(pod, &container.name).filter(|status| status.resources.is_some()) else {
        return asked;
    };
    let mut held = which.of(status.resources.as_ref());
    if which == Which::Requests {
        raise(&mut held, &amounts(status.allocated_resources.as_ref()));
    }
    if !is_resize_infeasible(pod) {
        raise(&mut held, &asked);
    }
    held
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let mut all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.find(|status| status.name == container)
}

fn is_resize_infeasible(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
    let pending = conditions.find(|condition| condition.type_ == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
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
