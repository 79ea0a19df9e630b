//! The resize of pods in place (KEP-1287): a kubelet allocates the resources of the spec once they
//! are free on the node. The status of a pod has those that are allocated.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_kinds::pods::{self, Role, containers};
use coracle_kinds::resources::{amount, requests, resource_list};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use parking_lot::Mutex;
use serde::Serialize;

/// The condition of a pod that waits for resources of its node.
pub const POD_RESIZE_PENDING: &str = "PodResizePending";

/// The pods that wait for resources of their nodes, by name, with the node.
#[derive(Clone, Default)]
pub struct WaitingResizes(Arc<Mutex<HashMap<NamespacedName, String>>>);

impl WaitingResizes {
    pub fn add(&self, pod: &NamespacedName, node: &str) {
        self.0.lock().insert(pod.clone(), node.to_owned());
    }

    /// Removes a pod, and returns `true` if it has waited.
    pub fn remove(&self, pod: &NamespacedName) -> bool {
        self.0.lock().remove(pod).is_some()
    }

    /// Returns the pods that wait for resources of a node.
    pub fn waiting_on(&self, node: &str) -> Vec<NamespacedName> {
        let waiting = self.0.lock();
        waiting.iter().filter(|(_, of)| *of == node).map(|(pod, _)| pod.clone()).collect()
    }

    /// Returns the pods that wait for resources of the node on which a change may have freed some.
    pub fn unblocked_by(&self, old: Option<&Pod>, new: Option<&Pod>) -> Vec<NamespacedName> {
        let has_waiting = !self.0.lock().is_empty();
        let freed = old.filter(|old| has_waiting && may_free_resources(old, new)).and_then(pods::node);
        freed.map(|node| self.waiting_on(node)).unwrap_or_default()
    }
}

/// The most pods of a node that get resources in order. Of more, each gets them in its turn, since
/// each is compared with all others.
const MAX_ORDERED: usize = 64;

/// Returns the pods that get resources of a node before one of those that wait, in their order.
pub fn preceding(mut waiting: Vec<Arc<Pod>>, pod: &Pod) -> Vec<Arc<Pod>> {
    if waiting.len() > MAX_ORDERED {
        return Vec::new();
    }
    waiting.sort_by_cached_key(|pod| precedence(pod));
    let place = waiting.iter().position(|other| other.metadata.uid == pod.metadata.uid);
    waiting.truncate(place.unwrap_or_default());
    waiting
}

/// Returns the place of a pod among those that wait for resources of a node: the kubelet's order.
fn precedence(pod: &Pod) -> impl Ord + use<> {
    let cpu_and_memory = |spec: &PodSpec| {
        let requests = requests(spec);
        ["cpu", "memory"].map(|name| amount(&requests, name))
    };
    let wanted = pod.spec.as_ref().map(cpu_and_memory);
    let allocated = allocated_spec(pod).map(|spec| cpu_and_memory(&spec));
    let is_increase = wanted
        .zip(allocated)
        .is_some_and(|(wanted, allocated)| wanted.iter().zip(&allocated).any(|(w, a)| w > a));
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let is_guaranteed =
        pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) == Some("Guaranteed");
    let since = pods::pending_resize(pod)
        .and_then(|condition| condition.last_transition_time.as_ref().map(|time| time.0));
    let name = NamespacedName::of(pod);
    (is_increase, Reverse(priority), !is_guaranteed, since.is_none(), since, name.namespace, name.name)
}

fn may_free_resources(old: &Pod, new: Option<&Pod>) -> bool {
    let has_changed = |new: &Pod| {
        let allocated = |pod| statuses(pod).map(|status| &status.allocated_resources);
        let of_pod = |pod: &Pod| pod.status.as_ref().and_then(|status| status.allocated_resources.clone());
        pods::is_terminal(new) || !allocated(old).eq(allocated(new)) || of_pod(old) != of_pod(new)
    };
    !pods::is_terminal(old) && new.is_none_or(has_changed)
}

/// Returns `true` if the resources of a pod are not those that its kubelet has allocated.
pub fn is_wanted(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let of_pod = pod.status.as_ref().and_then(|status| status.resources.as_ref());
    of_pod.zip(spec.resources.as_ref()).is_some_and(|(allocated, wanted)| differ(allocated, wanted))
        || resizable(pod).any(|container| {
            let none = ResourceRequirements::default();
            let wanted = container.resources.as_ref().unwrap_or(&none);
            allocated(pod, &container.name).is_some_and(|allocated| differ(allocated, wanted))
        })
}

/// Returns `true` if a container has to be restarted for its resources to change.
pub fn needs_restart(pod: &Pod, container: &Container) -> bool {
    let Some(allocated) = allocated(pod, &container.name) else { return false };
    let none = ResourceRequirements::default();
    let wanted = container.resources.as_ref().unwrap_or(&none);
    let lists = [(&allocated.requests, &wanted.requests), (&allocated.limits, &wanted.limits)];
    let lists = lists.map(|(old, new)| (resource_list(old.as_ref()), resource_list(new.as_ref())));
    let policies = container.resize_policy.iter().flatten();
    policies.filter(|policy| policy.restart_policy == "RestartContainer").any(|policy| {
        lists
            .iter()
            .any(|(old, new)| amount(old, &policy.resource_name) != amount(new, &policy.resource_name))
    })
}

/// Returns the resources that a kubelet has allocated to a container.
pub fn allocated<'a>(pod: &'a Pod, container: &str) -> Option<&'a ResourceRequirements> {
    statuses(pod).find(|status| status.name == container)?.resources.as_ref()
}

/// Returns the spec of a pod with the resources that its kubelet has allocated.
pub fn allocated_spec(pod: &Pod) -> Option<Cow<'_, PodSpec>> {
    let spec = pod.spec.as_ref()?;
    if !is_wanted(pod) {
        return Some(Cow::Borrowed(spec));
    }
    let mut spec = spec.clone();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(allocated) = allocated(pod, &container.name) {
            container.resources = Some(allocated.clone());
        }
    }
    if let Some(allocated) = pod.status.as_ref().and_then(|status| status.resources.clone()) {
        spec.resources = Some(allocated);
    }
    Some(Cow::Owned(spec))
}

/// Returns the requests of a pod as its status has them.
pub fn allocated_requests(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    requests(spec).into_iter().map(|(name, amount)| (name, Quantity(amount.to_string()))).collect()
}

/// Returns the message of the condition of a pod that waits for resources.
pub fn deferred(pod: &Pod) -> Option<String> {
    Some(pods::pending_resize(pod)?.message.clone().unwrap_or_default())
}

/// Returns `true` if the condition of a pod that waits for resources is about its present generation.
pub fn is_observed(pod: &Pod) -> bool {
    pods::pending_resize(pod)
        .is_some_and(|condition| condition.observed_generation == pod.metadata.generation)
}

/// Returns the message of an event, with the resources of all containers.
///
/// - `what`: what has become of the resize
/// - `error`: the reason for which it has failed
pub fn message(what: &str, pod: &Pod, error: &str) -> String {
    let list = |is_listed: fn(Role) -> bool| {
        let listed = containers(pod).filter(|(role, _)| is_listed(*role));
        let summary = |container: &Container| ContainerSummary {
            name: container.name.clone(),
            resources: container.resources.clone().unwrap_or_default().into(),
        };
        listed.map(|(_, container)| summary(&container)).collect()
    };
    let summary = Summary {
        init_containers: list(|role| matches!(role, Role::Init | Role::Sidecar)),
        containers: list(|role| role == Role::Main),
        generation: pod.metadata.generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(summary) => format!("Pod resize {what}: {summary}"),
        Err(_) => format!("Pod resize {what}"),
    }
}

/// The resources of a pod in events, in the kubelet's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerSummary>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerSummary>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct ContainerSummary {
    name: String,
    resources: ResourcesSummary,
}

#[derive(Serialize)]
struct ResourcesSummary {
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<BTreeMap<String, Quantity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<BTreeMap<String, Quantity>>,
}

impl From<ResourceRequirements> for ResourcesSummary {
    fn from(resources: ResourceRequirements) -> ResourcesSummary {
        ResourcesSummary { limits: resources.limits, requests: resources.requests }
    }
}

/// Iterates over the containers that can be resized.
fn resizable(pod: &Pod) -> impl Iterator<Item = Cow<'_, Container>> {
    let resizable = containers(pod).filter(|(role, _)| *role != Role::Ephemeral);
    resizable.map(|(_, container)| container)
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let lists =
        pod.status.iter().flat_map(|status| [&status.init_container_statuses, &status.container_statuses]);
    lists.flatten().flatten()
}

/// Returns `true` if the amounts differ, however they are written.
fn differ(one: &ResourceRequirements, other: &ResourceRequirements) -> bool {
    let lists = [(&one.requests, &other.requests), (&one.limits, &other.limits)];
    lists
        .into_iter()
        .any(|(one, other)| one != other && resource_list(one.as_ref()) != resource_list(other.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, more: Value) -> Pod {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "2"}}});
        let status =
            json!({"name": "c", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}});
        let mut pod = json!({
            "metadata": {"namespace": "n", "name": name, "uid": name},
            "spec": {"nodeName": "node-0", "containers": [container]},
            "status": {"phase": "Running", "containerStatuses": [status]},
        });
        for (path, value) in more.as_object().into_iter().flatten() {
            let (parent, member) = path.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[member] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn resizes_wait_in_the_order_of_the_kubelet() {
        let since =
            |time: &str| json!([{"type": POD_RESIZE_PENDING, "status": "True", "lastTransitionTime": time}]);
        let less = json!({"requests": {"cpu": "500m"}});
        let waiting = [
            pod("other", json!({})),
            pod("late", json!({"/status/conditions": since("2026-01-01T00:00:02Z")})),
            pod("early", json!({"/status/conditions": since("2026-01-01T00:00:01Z")})),
            pod("guaranteed", json!({"/status/qosClass": "Guaranteed"})),
            pod("important", json!({"/spec/priority": 1000})),
            pod("less", json!({"/spec/containers/0/resources": less})),
        ];
        let waiting = waiting.map(Arc::new).to_vec();
        let last = waiting[0].clone();
        let before = preceding(waiting.clone(), &last);
        let names: Vec<_> = before.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        assert_eq!(names, ["less", "important", "guaranteed", "early", "late"]);
        assert_eq!(preceding(waiting.clone(), &before[0]), [], "the first one");
        let crowd: Vec<_> = waiting.into_iter().cycle().take(MAX_ORDERED + 1).collect();
        assert_eq!(preceding(crowd, &last), []);
    }

    #[test]
    fn a_change_that_may_free_resources_unblocks_the_pods_of_its_node() {
        let waiting = WaitingResizes::default();
        let (here, elsewhere) = (NamespacedName::new("n", "here"), NamespacedName::new("n", "elsewhere"));
        let running = pod("p", json!({}));
        assert_eq!(waiting.unblocked_by(Some(&running), None), []);
        waiting.add(&here, "node-0");
        waiting.add(&elsewhere, "node-1");
        let smaller = json!({"cpu": "500m"});
        for (case, new, want) in [
            ("deleted", None, true),
            ("ended", Some(pod("p", json!({"/status/phase": "Succeeded"}))), true),
            (
                "smaller",
                Some(pod("p", json!({"/status/containerStatuses/0/allocatedResources": smaller}))),
                true,
            ),
            ("smaller as a whole", Some(pod("p", json!({"/status/allocatedResources": smaller}))), true),
            ("another label", Some(pod("p", json!({"/metadata/labels": {"a": "b"}}))), false),
        ] {
            let want: Vec<_> = want.then(|| here.clone()).into_iter().collect();
            assert_eq!(waiting.unblocked_by(Some(&running), new.as_ref()), want, "{case}");
        }
        assert_eq!(waiting.unblocked_by(None, Some(&running)), [], "a new one");
        assert!(waiting.remove(&here) && !waiting.remove(&here));
    }
}
