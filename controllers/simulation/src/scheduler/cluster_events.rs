//! Cluster events: the changes after which pods that were rejected are tried again.

use std::sync::atomic::{AtomicU64, Ordering};

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::{Node, Pod, PodResourceClaimStatus};

use super::dynamic_resources::may_need_devices;
use super::pod_info::{asks_for, nominated_node, occupies_node, wants_neighbors};
use super::requests::has_shrunk;

/// The effect of a change on the pods that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect.
    None,
    /// An effect on one of them only, which came, changed or is gone.
    OnItself,
    /// A pod more on a node, which helps those that want to be near others.
    Addition,
    /// A possible help for pods that need devices.
    Devices,
    /// A possible help for any of them.
    OnAll,
}

/// Counts cluster events.
#[derive(Debug, Default)]
pub struct EventCounter {
    on_all: AtomicU64,
    additions: AtomicU64,
    devices: AtomicU64,
}

/// The numbers of cluster events at a time (kube-scheduler: `moveRequestCycle`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveRequestCycle {
    on_all: u64,
    additions: u64,
    devices: u64,
}

impl EventCounter {
    /// Counts an event with this effect.
    pub fn count(&self, effect: Effect) {
        let counter = match effect {
            Effect::None | Effect::OnItself => return,
            Effect::Addition => &self.additions,
            Effect::Devices => &self.devices,
            Effect::OnAll => &self.on_all,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn now(&self) -> MoveRequestCycle {
        let counts = [&self.on_all, &self.additions, &self.devices];
        let [on_all, additions, devices] = counts.map(|count| count.load(Ordering::Relaxed));
        MoveRequestCycle { on_all, additions, devices }
    }
}

impl MoveRequestCycle {
    /// Returns the cycle after one more event for all.
    pub fn next(self) -> MoveRequestCycle {
        MoveRequestCycle { on_all: self.on_all.wrapping_add(1), ..self }
    }

    /// Returns `true` if an event since `then` may help a pod that was rejected.
    pub fn may_help(self, then: MoveRequestCycle, pod: &Pod) -> bool {
        self.on_all != then.on_all
            || self.additions != then.additions && wants_neighbors(pod)
            || self.devices != then.devices && may_need_devices(pod)
    }
}

/// Returns the node on which a pod takes up room: its own, or the one that it is nominated for.
fn claimed_node(pod: &Pod) -> Option<&str> {
    match pods::node(pod) {
        Some(node) => Some(node).filter(|_| occupies_node(pod)),
        None => nominated_node(pod),
    }
}

/// Returns the claims that were generated for a pod.
fn generated_claims(pod: &Pod) -> Option<&Vec<PodResourceClaimStatus>> {
    pod.status.as_ref()?.resource_claim_statuses.as_ref()
}

/// Returns the effect of a change of a pod.
pub fn effect_of_pod(old: Option<&Pod>, new: Option<&Pod>) -> Effect {
    let claimed = old.and_then(claimed_node);
    if claimed.is_some() && claimed != new.and_then(claimed_node) {
        return Effect::OnAll;
    }
    let is_unassigned = |pod: Option<&Pod>| pod.is_some_and(|pod| pods::node(pod).is_none());
    match (old, new) {
        (Some(old), Some(new)) if is_unassigned(Some(new)) => {
            match (asks_for(old) == asks_for(new), generated_claims(old) == generated_claims(new)) {
                (true, true) => Effect::OnItself,
                (true, false) => Effect::Devices,
                // It may have got tolerations or lost a gate.
                (false, _) => Effect::OnAll,
            }
        }
        (Some(old), Some(new)) if occupies_node(old) && occupies_node(new) => {
            match old.metadata.labels != new.metadata.labels || has_shrunk(old, new) {
                true => Effect::OnAll,
                false => Effect::None,
            }
        }
        (_, Some(new)) if occupies_node(new) => Effect::Addition,
        (old, new) if is_unassigned(new) || is_unassigned(old) => Effect::OnItself,
        _ => Effect::None,
    }
}

/// Returns the effect of a change of a node. Most only report that the node is alive.
pub fn effect_of_node(old: Option<&Node>, new: Option<&Node>) -> Effect {
    fn parts(node: &Node) -> impl PartialEq + '_ {
        let spec = node.spec.as_ref();
        let is_cordoned = spec.is_some_and(|spec| spec.unschedulable == Some(true));
        let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let features = node.status.as_ref().and_then(|status| status.declared_features.as_ref());
        (node.metadata.labels.as_ref(), is_cordoned, taints, allocatable, features)
    }
    match old.zip(new) {
        Some((old, new)) if parts(old) == parts(new) => Effect::None,
        _ => Effect::OnAll,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn changes_of_pods_wake_those_that_they_may_help() {
        let pod = |node: Option<&str>, labels: Value, cpu: &str, status: Value| -> Pod {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
            serde_json::from_value(json!({
                "metadata": {"labels": labels, "generation": 1},
                "spec": {"nodeName": node, "containers": [container]},
                "status": status,
            }))
            .unwrap()
        };
        let on = |node: &str| pod(Some(node), json!({"app": "x"}), "3", json!({}));
        let waiting = || pod(None, json!({"app": "x"}), "3", json!({}));
        let nominated = || pod(None, json!({"app": "x"}), "3", json!({"nominatedNodeName": "a"}));
        let labeled = pod(Some("a"), json!({"app": "y"}), "3", json!({}));
        let resized = |cpu: &str| {
            let mut pod = pod(Some("a"), json!({"app": "x"}), cpu, json!({}));
            pod.metadata.generation = Some(2);
            pod
        };
        let allocated = |cpu: &str| {
            let status = json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}});
            pod(Some("a"), json!({"app": "x"}), "1", json!({"containerStatuses": [status]}))
        };
        let changed = {
            let mut pod = waiting();
            pod.metadata.generation = Some(2);
            pod
        };
        let claiming = pod(
            None,
            json!({"app": "x"}),
            "3",
            json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}),
        );
        let ended = pod(Some("a"), json!({"app": "x"}), "3", json!({"phase": "Succeeded"}));
        let running = pod(Some("a"), json!({"app": "x"}), "3", json!({"phase": "Running"}));
        for (case, old, new, want) in [
            ("comes", None, Some(waiting()), Effect::OnItself),
            ("comes with a node", None, Some(on("a")), Effect::Addition),
            ("gets a node", Some(waiting()), Some(on("a")), Effect::Addition),
            ("gets its nominated node", Some(nominated()), Some(on("a")), Effect::Addition),
            ("gets another node than its nominated one", Some(nominated()), Some(on("b")), Effect::OnAll),
            ("runs", Some(on("a")), Some(running), Effect::None),
            ("ends", Some(on("a")), Some(ended.clone()), Effect::OnAll),
            ("is deleted", Some(on("a")), None, Effect::OnAll),
            ("has ended and is deleted", Some(ended), None, Effect::None),
            ("is deleted without a node", Some(waiting()), None, Effect::OnItself),
            ("is nominated", Some(waiting()), Some(nominated()), Effect::OnItself),
            ("loses its nomination", Some(nominated()), Some(waiting()), Effect::OnAll),
            ("is deleted with a nomination", Some(nominated()), None, Effect::OnAll),
            ("gets the claims of its templates", Some(waiting()), Some(claiming), Effect::Devices),
            ("asks for something else", Some(waiting()), Some(changed), Effect::OnAll),
            ("gets other labels", Some(on("a")), Some(labeled), Effect::OnAll),
            ("is to shrink", Some(on("a")), Some(resized("1")), Effect::OnAll),
            ("is to grow", Some(on("a")), Some(resized("4")), Effect::None),
            ("has shrunk", Some(allocated("3")), Some(allocated("2")), Effect::OnAll),
            ("has grown", Some(allocated("2")), Some(allocated("3")), Effect::None),
        ] {
            assert_eq!(effect_of_pod(old.as_ref(), new.as_ref()), want, "{case}");
        }
    }

    #[test]
    fn signs_of_life_of_nodes_wake_no_pods() {
        let node = |more: Value| -> Node {
            let mut node = json!({
                "metadata": {"name": "a", "labels": {"zone": "a"}},
                "spec": {}, "status": {"allocatable": {"cpu": "1"}},
            });
            for part in ["metadata", "spec", "status"] {
                for (key, value) in more[part].as_object().into_iter().flatten() {
                    node[part][key] = value.clone();
                }
            }
            serde_json::from_value(node).unwrap()
        };
        let plain = || Some(node(json!({})));
        let condition = json!([{"type": "Ready", "status": "True"}]);
        let taints = json!([{"key": "k", "effect": "NoSchedule"}]);
        for (case, old, new, want) in [
            ("comes", None, plain(), Effect::OnAll),
            ("is alive", plain(), Some(node(json!({"status": {"conditions": condition}}))), Effect::None),
            (
                "is annotated",
                plain(),
                Some(node(json!({"metadata": {"annotations": {"a": "b"}}}))),
                Effect::None,
            ),
            (
                "gets labels",
                plain(),
                Some(node(json!({"metadata": {"labels": {"zone": "b"}}}))),
                Effect::OnAll,
            ),
            ("gets taints", plain(), Some(node(json!({"spec": {"taints": taints}}))), Effect::OnAll),
            ("is uncordoned", Some(node(json!({"spec": {"unschedulable": true}}))), plain(), Effect::OnAll),
            ("grows", plain(), Some(node(json!({"status": {"allocatable": {"cpu": "2"}}}))), Effect::OnAll),
        ] {
            assert_eq!(effect_of_node(old.as_ref(), new.as_ref()), want, "{case}");
        }
    }

    #[test]
    fn events_help_the_pods_that_they_are_about() {
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]});
        let pod =
            |spec: Value| -> Pod { serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap() };
        let plain = pod(json!({"containers": []}));
        let drawn = pod(json!({"containers": [], "affinity": {"podAffinity": terms}}));
        let claiming = pod(json!({"containers": [], "resourceClaims": [{"name": "gpu"}]}));
        for (effect, want) in [
            (Effect::OnItself, [false, false, false]),
            (Effect::Addition, [false, true, false]),
            (Effect::Devices, [false, false, true]),
            (Effect::OnAll, [true, true, true]),
        ] {
            let counter = EventCounter::default();
            let then = counter.now();
            counter.count(effect);
            let got = [&plain, &drawn, &claiming].map(|pod| counter.now().may_help(then, pod));
            assert_eq!(got, want, "{effect:?}");
        }
    }
}
