//! What is told of sets: kube-controller-manager's gauges, and those by which KEP-3335 has a start ordinal observed.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use kube::ResourceExt;
use prometheus::GaugeVec;

use super::{identity, rollout};
use crate::runtime::cache::NamespacedName;
use crate::runtime::metrics::Metrics;

pub(super) struct Gauges {
    replicas: GaugeVec,
    status_replicas: GaugeVec,
    start: GaugeVec,
    max_unavailable: GaugeVec,
    unavailable: GaugeVec,
}

impl Gauges {
    pub fn new(metrics: &Metrics) -> Gauges {
        let plain = |name, help| metrics.gauge(name, help, &["namespace", "statefulset"]);
        let labels = ["statefulset_namespace", "statefulset_name", "pod_management_policy"];
        let own = |name, help| metrics.gauge(name, help, &labels);
        Gauges {
            replicas: plain("kube_statefulset_replicas", "Number of desired pods for a StatefulSet."),
            status_replicas: plain(
                "kube_statefulset_status_replicas",
                "The number of replicas per StatefulSet.",
            ),
            start: plain("kube_statefulset_ordinals_start", "Start ordinal of the StatefulSet."),
            max_unavailable: own(
                "statefulset_controller_statefulset_max_unavailable",
                "Maximum number of unavailable pods allowed during StatefulSet rolling updates",
            ),
            unavailable: own(
                "statefulset_controller_statefulset_unavailable_replicas",
                "Current number of unavailable pods in StatefulSet",
            ),
        }
    }

    /// `unavailable` is only counted with the gate MaxUnavailableStatefulSet.
    pub fn tell(&self, set: &StatefulSet, status: &StatefulSetStatus, counts_unavailable: bool) {
        let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
        let labels = [namespace.as_str(), name.as_str()];
        self.replicas.with_label_values(&labels).set(identity::replicas(set).into());
        self.status_replicas.with_label_values(&labels).set(status.replicas.into());
        match set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref()) {
            Some(ordinals) => self.start.with_label_values(&labels).set(ordinals.start.unwrap_or(0).into()),
            // None is there for most sets.
            None => drop(self.start.remove_label_values(&labels)),
        }
        if counts_unavailable {
            let policy = set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref());
            let labels = [labels[0], labels[1], policy.unwrap_or("OrderedReady")];
            self.max_unavailable.with_label_values(&labels).set(rollout::max_unavailable(set).into());
            let unavailable = identity::replicas(set) - status.available_replicas.unwrap_or(0);
            self.unavailable.with_label_values(&labels).set(unavailable.max(0).into());
        }
    }

    pub fn forget(&self, set: &NamespacedName) {
        for gauge in [&self.replicas, &self.status_replicas, &self.start] {
            // Not every set is in each.
            let _ = gauge.remove_label_values(&[&set.namespace, &set.name]);
        }
        for gauge in [&self.max_unavailable, &self.unavailable] {
            for policy in ["OrderedReady", "Parallel"] {
                let _ = gauge.remove_label_values(&[&set.namespace, &set.name, policy]);
            }
        }
    }
}
