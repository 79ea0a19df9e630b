//! The requests of a pod as the scheduler counts them: also during an in-place resize, and with
//! defaults for containers without requests.
//!
//! Source: component-helpers' `resource.PodRequests`.

use std::cell::Cell;
use std::collections::BTreeMap;

use coracle_kinds::pods;
use coracle_kinds::resources::{amount, is_sidecar, resource_list};
use coracle_pod_resources::{
    InitContainer, ResourceList, add_resource_list, aggregate_containers, apply_pod_level_resources,
    max_resource_list,
};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// The assumed use of a container without requests: CPU in thousandths, memory in bytes.
const DEFAULT: CpuAndMemory = CpuAndMemory([100, 200 << 20]);

/// CPU in thousandths and memory in bytes: the amounts that the scores compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuAndMemory(pub [i64; 2]);

impl CpuAndMemory {
    /// Returns the amounts in a list of resources.
    pub fn of(list: &ResourceList) -> CpuAndMemory {
        CpuAndMemory([amount(list, "cpu").milli_value(), amount(list, "memory").value()])
    }

    /// Returns the sum of two amounts.
    pub fn plus(self, CpuAndMemory([more_cpu, more_memory]): CpuAndMemory) -> CpuAndMemory {
        let CpuAndMemory([cpu, memory]) = self;
        CpuAndMemory([cpu.saturating_add(more_cpu), memory.saturating_add(more_memory)])
    }

    /// Returns the difference of two amounts.
    pub fn minus(self, CpuAndMemory([less_cpu, less_memory]): CpuAndMemory) -> CpuAndMemory {
        let CpuAndMemory([cpu, memory]) = self;
        CpuAndMemory([cpu.saturating_sub(less_cpu), memory.saturating_sub(less_memory)])
    }
}

/// The requests of a pod with its overhead.
#[derive(Debug, Default)]
pub struct PodRequests {
    /// Requests of all resources.
    pub all: ResourceList,
    /// Requests of CPU and memory only.
    pub cpu_and_memory: CpuAndMemory,
    /// The same with the scheduler's defaults for containers without requests (upstream
    /// `NonZeroRequested`).
    pub non_zero: CpuAndMemory,
}

impl PodRequests {
    pub fn of(pod: &Pod) -> PodRequests {
        let Some(spec) = &pod.spec else { return PodRequests::default() };
        let lacking = Cell::new(CpuAndMemory::default());
        let all = aggregate(pod, spec, |list| lacking.set(lacking.get().plus(defaults_for(list))));
        let cpu_and_memory = CpuAndMemory::of(&all);
        let adds_up = spec.init_containers.is_none() && spec.resources.is_none();
        let non_zero = match lacking.get() {
            lacking if adds_up || lacking == CpuAndMemory::default() => cpu_and_memory.plus(lacking),
            _ => CpuAndMemory::of(&aggregate(pod, spec, add_defaults)),
        };
        PodRequests { all, cpu_and_memory, non_zero }
    }
}

/// Returns `true` if a pod needs less of a resource than before, because it was resized.
pub fn has_shrunk(old: &Pod, new: &Pod) -> bool {
    let may_differ = old.metadata.generation != new.metadata.generation
        || pods::is_resize_infeasible(old) != pods::is_resize_infeasible(new)
        || !resources_in_status(old).eq(resources_in_status(new));
    may_differ && {
        let [old, new] = [old, new].map(|pod| PodRequests::of(pod).all);
        old.iter().any(|(name, quantity)| *quantity > amount(&new, name))
    }
}

/// Returns the sum of a pod's requests, after `adapt` has seen those of each container.
fn aggregate(pod: &Pod, spec: &PodSpec, adapt: impl Fn(&mut ResourceList)) -> ResourceList {
    let adapted = |mut list: ResourceList| {
        adapt(&mut list);
        list
    };
    let containers = spec.containers.iter().map(|container| adapted(of_container(pod, container)));
    let init_containers = spec.init_containers.iter().flatten().map(|container| {
        let is_restartable = is_sidecar(container);
        let resources = match is_restartable {
            true => of_container(pod, container),
            false => resource_list(requests_of(container)),
        };
        InitContainer { resources: adapted(resources), is_restartable }
    });
    let mut total = aggregate_containers(containers, init_containers);
    apply_pod_level_resources(&mut total, of_pod_level(pod, spec));
    add_resource_list(&mut total, &resource_list(spec.overhead.as_ref()));
    total
}

fn requests_of(container: &Container) -> Option<&BTreeMap<String, Text>> {
    container.resources.as_ref().and_then(|resources| resources.requests.as_ref())
}

fn of_container(pod: &Pod, container: &Container) -> ResourceList {
    let spec = requests_of(container);
    let status = statuses(pod).find(|status| status.name == container.name);
    match status.and_then(|status| Some((status, status.resources.as_ref()?))) {
        None => resource_list(spec),
        Some((status, resources)) => {
            effective(pod, spec, resources.requests.as_ref(), status.allocated_resources.as_ref())
        }
    }
}

fn of_pod_level(pod: &Pod, spec: &PodSpec) -> ResourceList {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let status = pod.status.as_ref().filter(|_| requests.is_some());
    match status.and_then(|status| Some((status, status.resources.as_ref()?))) {
        None => resource_list(requests),
        Some((status, resources)) => {
            let allocated = status.allocated_resources.as_ref();
            let all = effective(pod, requests, resources.requests.as_ref(), allocated);
            let names = requests.into_iter().flat_map(BTreeMap::keys);
            names.map(|name| (name.clone(), amount(&all, name))).collect()
        }
    }
}

/// Returns the amounts that a node has to keep free during a resize: the largest of those that are
/// requested, in use and allocated. Requests that the node can never meet do not count.
fn effective(
    pod: &Pod,
    spec: Option<&BTreeMap<String, Text>>,
    actuated: Option<&BTreeMap<String, Text>>,
    allocated: Option<&BTreeMap<String, Text>>,
) -> ResourceList {
    // Most pods are not being resized, and have the same three times.
    if spec == actuated && spec == allocated {
        return resource_list(spec);
    }
    let mut all = resource_list(actuated);
    max_resource_list(&mut all, &resource_list(allocated));
    if !pods::is_resize_infeasible(pod) {
        max_resource_list(&mut all, &resource_list(spec));
    }
    all
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let all = [&status.container_statuses, &status.init_container_statuses];
        all.into_iter().flatten().flatten()
    })
}

type ResourcesInStatus<'a> = (Option<&'a BTreeMap<String, Text>>, Option<&'a BTreeMap<String, Text>>);

/// Iterates over the resources in use and allocated, of each container and of the pod as a whole.
fn resources_in_status(pod: &Pod) -> impl Iterator<Item = ResourcesInStatus<'_>> {
    fn parts<'a>(
        resources: &'a Option<ResourceRequirements>,
        allocated: &'a Option<BTreeMap<String, Text>>,
    ) -> ResourcesInStatus<'a> {
        (resources.as_ref().and_then(|resources| resources.requests.as_ref()), allocated.as_ref())
    }
    let of_containers = statuses(pod).map(|status| parts(&status.resources, &status.allocated_resources));
    let of_pod = pod.status.iter().map(|status| parts(&status.resources, &status.allocated_resources));
    of_containers.chain(of_pod)
}

/// Returns the defaults for the requests that are missing.
fn defaults_for(list: &ResourceList) -> CpuAndMemory {
    let CpuAndMemory([cpu, memory]) = DEFAULT;
    let default = |name: &str, amount: i64| if list.contains_key(name) { 0 } else { amount };
    CpuAndMemory([default("cpu", cpu), default("memory", memory)])
}

fn add_defaults(list: &mut ResourceList) {
    let CpuAndMemory([cpu, memory]) = DEFAULT;
    for (name, text) in [("cpu", format!("{cpu}m")), ("memory", memory.to_string())] {
        if !list.contains_key(name) {
            list.extend(text.parse().ok().map(|quantity| (name.to_owned(), quantity)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value, status: Value) -> Pod {
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn during_a_resize_the_largest_amounts_count() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let one = || json!({"containers": [container("1")]});
        let status = |allocated: &str, actuated: &str| {
            json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actuated}}})
        };
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        let mut init = container("1");
        init["name"] = json!("c");
        let infeasible = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        let deferred = json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]);
        let whole = json!({"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "1"}}});
        for (case, spec, status, want) in [
            ("no status", one(), json!({}), 1000),
            ("no resize", one(), json!({"containerStatuses": [status("1", "1")]}), 1000),
            ("allocated", one(), json!({"containerStatuses": [status("3", "2")]}), 3000),
            ("in use", one(), json!({"containerStatuses": [status("2", "3")]}), 3000),
            ("requested", one(), json!({"containerStatuses": [status("500m", "500m")]}), 1000),
            (
                "infeasible",
                one(),
                json!({"containerStatuses": [status("500m", "500m")], "conditions": infeasible}),
                500,
            ),
            (
                "deferred",
                one(),
                json!({"containerStatuses": [status("500m", "500m")], "conditions": deferred}),
                1000,
            ),
            (
                "a sidecar",
                json!({"containers": [], "initContainers": [sidecar]}),
                json!({"initContainerStatuses": [status("3", "3")]}),
                3000,
            ),
            (
                "an init container",
                json!({"containers": [], "initContainers": [init]}),
                json!({"initContainerStatuses": [status("3", "3")]}),
                1000,
            ),
            (
                "the pod as a whole",
                whole,
                json!({"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "2"}}}),
                3000,
            ),
        ] {
            let requests = PodRequests::of(&pod(spec, status));
            assert_eq!(requests.cpu_and_memory.0, [want, 0], "{case}");
        }
    }

    #[test]
    fn missing_requests_have_defaults() {
        let plain = || json!({"name": "c"});
        let asking = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = plain();
        sidecar["restartPolicy"] = json!("Always");
        let whole = json!({"requests": {"cpu": "100m", "memory": "100Mi"}});
        for (case, spec, want) in [
            ("each container", json!({"containers": [plain(), plain()]}), [200, 400]),
            ("one resource", json!({"containers": [asking("1")]}), [1000, 200]),
            ("zero is a request", json!({"containers": [asking("0")]}), [0, 200]),
            ("sidecars", json!({"containers": [plain()], "initContainers": [sidecar, sidecar]}), [300, 600]),
            (
                "init containers run before",
                json!({"containers": [asking("1")], "initContainers": [plain()]}),
                [1000, 200],
            ),
            (
                "requests of the pod as a whole",
                json!({"containers": [plain(), plain()], "resources": whole}),
                [100, 100],
            ),
            (
                "overhead",
                json!({"containers": [plain()], "overhead": {"cpu": "50m", "memory": "1Mi"}}),
                [150, 201],
            ),
        ] {
            let CpuAndMemory([cpu, memory]) = PodRequests::of(&pod(spec, json!({}))).non_zero;
            assert_eq!([cpu, memory >> 20], want, "{case}");
        }
    }
}
