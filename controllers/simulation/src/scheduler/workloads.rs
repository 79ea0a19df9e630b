//! The pods that belong together: those of a Service, and those of an owner. They are spread over
//! nodes and zones if a pod has no constraints of its own.
//!
//! Source: kube-scheduler's `DefaultSelector`.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_object_meta::controller_of;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

use crate::settings::Context;

/// The caches of Services and of the owners of pods.
pub struct Workloads {
    services: Arc<Cache<Service>>,
    replication_controllers: Arc<Cache<ReplicationController>>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    stateful_sets: Arc<Cache<StatefulSet>>,
}

impl Workloads {
    pub fn new(context: &Context) -> Workloads {
        Workloads {
            services: context.cache(),
            replication_controllers: context.cache(),
            replica_sets: context.cache(),
            stateful_sets: context.cache(),
        }
    }

    /// Returns the selector of the pods that belong to the same Services and the same owner; None
    /// if a pod has constraints of its own, or belongs to none.
    pub fn selector_of(&self, pod: &Pod) -> Option<Selector> {
        let constraints = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_ref());
        if constraints.is_some_and(|constraints| !constraints.is_empty()) {
            return None;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut selector = of_services(pod, &self.services.in_namespace(namespace));
        if let Some(owner) = controller_of(&pod.metadata) {
            let name = NamespacedName::new(namespace, &owner.name);
            let of_owner = match (owner.api_version.as_str(), owner.kind.as_str()) {
                ("v1", "ReplicationController") => self
                    .replication_controllers
                    .get(&name)
                    .and_then(|owner| Some(owner.spec.as_ref()?.selector.clone()?.into_iter().collect())),
                ("apps/v1", "ReplicaSet") => {
                    self.replica_sets.get(&name).and_then(|owner| of_labels(&owner.spec.as_ref()?.selector))
                }
                ("apps/v1", "StatefulSet") => {
                    self.stateful_sets.get(&name).and_then(|owner| of_labels(&owner.spec.as_ref()?.selector))
                }
                _ => None,
            };
            selector.extend(of_owner.into_iter().flatten());
        }
        (!selector.selects_all()).then_some(selector)
    }
}

/// Returns the selector of all Services that select a pod.
fn of_services(pod: &Pod, services: &[Arc<Service>]) -> Selector {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let selectors = services.iter().filter_map(|service| service.spec.as_ref()?.selector.clone());
    let selectors = selectors.map(|labels| labels.into_iter().collect::<Selector>());
    let mut all = Selector::default();
    for selector in selectors.filter(|selector: &Selector| selector.matches(&labels)) {
        all.extend(selector);
    }
    all
}

fn of_labels(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn services_select_the_pods_to_be_spread() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"labels": {"app": "web", "tier": "front"}}})).unwrap();
        let service = |selector: Value| {
            Arc::new(serde_json::from_value::<Service>(json!({"spec": {"selector": selector}})).unwrap())
        };
        for (case, services, want) in [
            ("none", vec![], ""),
            ("one", vec![service(json!({"app": "web"}))], "app=web"),
            ("another", vec![service(json!({"app": "db"}))], ""),
            ("without a selector", vec![service(Value::Null)], ""),
            (
                "two",
                vec![service(json!({"app": "web"})), service(json!({"tier": "front"}))],
                "app=web,tier=front",
            ),
        ] {
            assert_eq!(of_services(&pod, &services).to_string(), want, "{case}");
        }
    }
}
