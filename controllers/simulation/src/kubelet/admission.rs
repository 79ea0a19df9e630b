//! The kubelet's own admission of pods: a pod that was bound without the scheduler may not fit its
//! node.
//!
//! The checks, their order, reasons and messages are the kubelet's; only the first failure is
//! reported.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use coracle_kinds::node_affinity::matches_node_affinity;
use coracle_kinds::pods::{self, host_ports, host_ports_conflict};
use coracle_kinds::resources::{amount, requests, resource_list};
use coracle_kinds::taints::{is_tolerated, no_execute_taints};
use coracle_pod_resources::{ResourceList, add_resource_list};
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{ContainerPort, Node, Pod, PodSpec};

use super::resize;
use crate::scheduler::is_extended;

/// The pods that kubelets have admitted, and the resources they occupy on their nodes.
#[derive(Default)]
pub struct AdmittedPods {
    nodes: HashMap<String, Occupied>,
    /// The node of each pod, by its uid.
    node_of: HashMap<String, String>,
}

#[derive(Default)]
struct Occupied {
    /// The requests of each pod, by its uid.
    requests: HashMap<String, ResourceList>,
    used: ResourceList,
    /// The pods that have ports of the node.
    ports: Vec<(String, ContainerPort)>,
}

/// The reason for which a pod is not admitted.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason in the status of the pod.
    pub reason: String,
    /// The check that failed.
    pub message: String,
}

impl AdmittedPods {
    /// Creates the record of pods that were admitted before.
    pub fn with(pods: impl Iterator<Item = Arc<Pod>>) -> AdmittedPods {
        let mut admitted = AdmittedPods::default();
        pods.for_each(|pod| admitted.add(&pod));
        admitted
    }

    /// Admits a pod to its node.
    ///
    /// # Errors
    /// It cannot be there.
    pub fn admit(&mut self, pod: &Pod, node: &Node) -> Result<(), Rejection> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if self.node_of.contains_key(uid) {
            return Ok(());
        }
        let nothing = Occupied::default();
        let occupied = node.metadata.name.as_ref().and_then(|name| self.nodes.get(name));
        if let Some(rejection) =
            pod.spec.as_ref().and_then(|spec| occupied.unwrap_or(&nothing).rejection(pod, spec, node))
        {
            return Err(rejection);
        }
        self.add(pod);
        Ok(())
    }

    /// Exchanges the resources of an admitted pod for those of its spec.
    ///
    /// # Errors
    /// The node has no room for them. The pod keeps those that it had.
    pub fn resize(&mut self, pod: &Pod, node: &Node) -> Result<(), Rejection> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let occupied = self.node_of.get(uid).and_then(|name| self.nodes.get_mut(name));
        let Some((occupied, spec)) = occupied.zip(pod.spec.as_ref()) else { return self.admit(pod, node) };
        let old = occupied.release(uid);
        let rejection = occupied.insufficient_resource(pod, spec, node);
        occupied.allocate(uid, if rejection.is_some() { old } else { requests(spec) });
        rejection.map_or(Ok(()), Err)
    }

    /// Corrects the resources of an admitted pod to those that its status has.
    pub fn reallocate(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let occupied = self.node_of.get(uid).and_then(|name| self.nodes.get_mut(name));
        if let Some((occupied, spec)) = occupied.zip(resize::allocated_spec(pod)) {
            occupied.release(uid);
            occupied.allocate(uid, requests(&spec));
        }
    }

    /// Releases the resources of the pods of a node other than these, given by their uids.
    pub fn retain(&mut self, node: &str, live: &HashSet<&str>) {
        let Some(occupied) = self.nodes.get(node) else { return };
        let gone = occupied.requests.keys().filter(|uid| !live.contains(uid.as_str()));
        for uid in gone.cloned().collect::<Vec<_>>() {
            self.release(&uid);
        }
    }

    /// Releases the resources of a pod.
    pub fn release(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        let Some(occupied) = self.nodes.get_mut(&node) else { return };
        occupied.ports.retain(|(owner, _)| owner != uid);
        occupied.release(uid);
    }

    fn add(&mut self, pod: &Pod) {
        let (Some(uid), Some(node), Some(spec)) =
            (&pod.metadata.uid, pods::node(pod), resize::allocated_spec(pod))
        else {
            return;
        };
        let occupied = self.nodes.entry(node.to_owned()).or_default();
        if !occupied.requests.contains_key(uid) {
            occupied.allocate(uid, requests(&spec));
            occupied.ports.extend(host_ports(&spec).map(|port| (uid.clone(), port.clone())));
            self.node_of.insert(uid.clone(), node.to_owned());
        }
    }
}

impl Occupied {
    fn allocate(&mut self, uid: &str, requests: ResourceList) {
        add_resource_list(&mut self.used, &requests);
        self.requests.insert(uid.to_owned(), requests);
    }

    /// Releases the resources of a pod, and returns them.
    fn release(&mut self, uid: &str) -> ResourceList {
        let requests = self.requests.remove(uid).unwrap_or_default();
        for (name, quantity) in &requests {
            if let Some(used) = self.used.get_mut(name) {
                *used = used.minus(quantity);
            }
        }
        requests
    }

    fn rejection(&self, pod: &Pod, spec: &PodSpec, node: &Node) -> Option<Rejection> {
        let is_taken =
            |port: &ContainerPort| self.ports.iter().any(|(_, taken)| host_ports_conflict(port, taken));
        let is_untolerated =
            no_execute_taints(node).any(|taint| !is_tolerated(taint, spec.tolerations.as_deref()));
        let failed = |predicate: &str, why: &str| {
            let message = format!("Predicate {predicate} failed: {why}");
            Some(Rejection { reason: predicate.to_owned(), message })
        };
        if let Some(rejection) = self.insufficient_resource(pod, spec, node) {
            return Some(rejection);
        }
        if !matches_node_affinity(spec, node) {
            return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
        }
        if host_ports(spec).any(is_taken) {
            return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
        }
        match is_untolerated {
            true => failed("TaintToleration", "node(s) had taints that the pod didn't tolerate"),
            false => None,
        }
    }

    fn insufficient_resource(&self, pod: &Pod, spec: &PodSpec, node: &Node) -> Option<Rejection> {
        const FIRST: [&str; 4] = ["pods", "cpu", "memory", "ephemeral-storage"];
        // A node without a status has no bounds.
        let allocatable = resource_list(Some(node.status.as_ref()?.allocatable.as_ref()?));
        let mut wanted = requests(spec);
        wanted.insert("pods".to_owned(), Quantity::from_int(1));
        let mut used = self.used.clone();
        let count = i64::try_from(self.requests.len()).unwrap_or(i64::MAX);
        used.insert("pods".to_owned(), Quantity::from_int(count));
        let others = wanted.keys().map(String::as_str).filter(|name| !FIRST.contains(name));
        // A node does not know the resources of a whole cluster, nor those that are devices.
        let is_elsewhere =
            |name: &str| is_extended(name) && (!allocatable.contains_key(name) || is_device(pod, name));
        let others = others.filter(|name| !is_elsewhere(name));
        let lacks = |name: &&str| {
            let wanted = amount(&wanted, name);
            wanted.is_positive() && wanted > amount(&allocatable, name).minus(&amount(&used, name))
        };
        let name = FIRST.into_iter().chain(others).find(lacks)?;
        let unit = |quantity: Quantity| match name {
            "cpu" => quantity.milli_value(),
            _ => quantity.value(),
        };
        let [requested, used, capacity] = [&wanted, &used, &allocatable].map(|list| unit(amount(list, name)));
        Some(Rejection {
            reason: format!("OutOf{name}"),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        })
    }
}

/// Returns `true` if the scheduler has allocated devices for an extended resource of a pod.
fn is_device(pod: &Pod, resource: &str) -> bool {
    let status = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    status
        .is_some_and(|status| status.request_mappings.iter().any(|mapping| mapping.resource_name == resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "k", "effect": "NoExecute"}, {"key": "s", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "1Ki", "pods": "2"}},
        }))
        .unwrap()
    }

    fn pod(uid: &str, more: Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": uid, "uid": uid},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}], "tolerations": [{"key": "k", "operator": "Exists"}]},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn asking(resource: &str, amount: &str) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {resource: amount}}}]})
    }

    #[test]
    fn pods_that_do_not_fit_are_rejected() {
        let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]});
        let more = "Node didn't have enough resource:";
        for (case, there, pod_spec, want) in [
            ("plain", vec![], json!({}), String::new()),
            ("too much cpu", vec![], asking("cpu", "2001m"), format!("OutOfcpu {more} cpu, requested: 2001, used: 0, capacity: 2000")),
            (
                "too much memory for now",
                vec![asking("memory", "1000")],
                asking("memory", "100"),
                format!("OutOfmemory {more} memory, requested: 100, used: 1000, capacity: 1024"),
            ),
            ("full", vec![json!({}), json!({})], json!({}), format!("OutOfpods {more} pods, requested: 1, used: 2, capacity: 2")),
            ("a resource of the cluster", vec![], asking("a.b/c", "1"), String::new()),
            (
                "an unknown resource",
                vec![],
                asking("hugepages-2Mi", "1"),
                format!("OutOfhugepages-2Mi {more} hugepages-2Mi, requested: 1, used: 0, capacity: 0"),
            ),
            (
                "another zone",
                vec![],
                json!({"nodeSelector": {"zone": "b"}}),
                "NodeAffinity Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned(),
            ),
            (
                "a port that is taken",
                vec![port.clone()],
                port.clone(),
                "NodePorts Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned(),
            ),
            (
                "a taint that evicts",
                vec![],
                json!({"tolerations": []}),
                "TaintToleration Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate".to_owned(),
            ),
        ] {
            let there = there.into_iter().enumerate().map(|(number, spec)| pod(&number.to_string(), spec));
            let mut admitted = AdmittedPods::with(there);
            let got = admitted.admit(&pod("x", pod_spec), &node());
            let got = got.err().map(|Rejection { reason, message }| format!("{reason} {message}"));
            assert_eq!(got.unwrap_or_default(), want, "{case}");
        }
    }

    #[test]
    fn what_ended_pods_had_is_free_again() {
        let port = json!({"containers": [{
            "name": "c", "ports": [{"containerPort": 1, "hostPort": 80}], "resources": {"requests": {"cpu": "2"}},
        }]});
        let mut admitted = AdmittedPods::default();
        assert_eq!(admitted.admit(&pod("a", port.clone()), &node()), Ok(()));
        assert_eq!(admitted.admit(&pod("a", port.clone()), &node()), Ok(()), "it was admitted before");
        assert!(admitted.admit(&pod("b", port.clone()), &node()).is_err());
        admitted.release("a");
        admitted.release("unknown");
        assert_eq!(admitted.admit(&pod("c", port.clone()), &node()), Ok(()));
        admitted.retain("n", &HashSet::from(["d"]));
        assert_eq!(admitted.admit(&pod("b", port), &node()), Ok(()));
    }

    #[test]
    fn a_resize_takes_what_is_free_beside_the_others() {
        let mut admitted = AdmittedPods::default();
        for uid in ["a", "b"] {
            assert_eq!(admitted.admit(&pod(uid, asking("cpu", "1")), &node()), Ok(()));
        }
        let grown = pod("a", asking("cpu", "1500m"));
        let message =
            |resized: Result<(), Rejection>| resized.map_err(|rejection| rejection.message).unwrap_err();
        let full = "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000";
        assert_eq!(message(admitted.resize(&grown, &node())), full);
        assert_eq!(message(admitted.resize(&grown, &node())), full, "it keeps what it had");
        assert_eq!(admitted.resize(&pod("b", asking("cpu", "500m")), &node()), Ok(()));
        assert_eq!(admitted.resize(&grown, &node()), Ok(()));
        assert_eq!(admitted.resize(&grown, &node()), Ok(()), "again");
        admitted.release("b");
        assert_eq!(admitted.resize(&pod("a", asking("cpu", "2")), &node()), Ok(()));
        // After a restart of the process it has what its status says.
        let mut deferred = Pod::clone(&grown);
        deferred.status = serde_json::from_value(json!({
            "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}],
        }))
        .unwrap();
        let mut restored = AdmittedPods::with([Arc::new(deferred.clone())].into_iter());
        assert_eq!(restored.admit(&pod("b", asking("cpu", "1500m")), &node()), Ok(()));
        // It was allocated, and then withdrawn before it was written.
        admitted.reallocate(&deferred);
        assert_eq!(admitted.admit(&pod("c", asking("cpu", "1500m")), &node()), Ok(()));
    }
}
