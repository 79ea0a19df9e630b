//! The pods of a Service, and the Services affected by a change of a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, Change, NamespacedName};
use coracle_kinds::pods::is_ready;
use k8s_openapi::api::core::v1::{Pod, Service};

type Labels = BTreeMap<String, String>;

/// Returns the selector of a Service, or `None` if its endpoints do not come from pods.
pub fn selector(service: &Service) -> Option<&Labels> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty());
    selector.filter(|_| spec.type_.as_deref() != Some("ExternalName"))
}

/// Returns `true` if a Service selects pods with these labels.
fn selects(service: &Service, labels: &Labels) -> bool {
    selector(service)
        .is_some_and(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// Returns `true` if a Service has no cluster IP.
pub fn is_headless(service: &Service) -> bool {
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    matches!(address, None | Some("" | "None"))
}

/// Returns the pods that a Service selects, ordered by name.
pub fn pods_of(service: &Service, pods: &Cache<Pod>) -> Vec<Arc<Pod>> {
    let mut pods = pods.in_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
    let none = Labels::new();
    pods.retain(|pod| selects(service, pod.metadata.labels.as_ref().unwrap_or(&none)));
    pods
}

/// Returns the Services whose endpoints may be affected by a change of a pod.
pub fn services_of(change: &Change<Pod>, services: &Cache<Service>) -> Vec<NamespacedName> {
    let namespace = change.name().map(|name| name.namespace).unwrap_or_default();
    let labels = |pod: &Pod| pod.metadata.labels.clone().unwrap_or_default();
    let matching = |labels: &Labels| -> BTreeSet<NamespacedName> {
        let services = services.in_namespace(&namespace);
        let matching = services.iter().filter(|service| selects(service, labels));
        matching.map(|service| NamespacedName::of(service.as_ref())).collect()
    };
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return change.object().into_iter().flat_map(|pod| matching(&labels(pod))).collect();
    };
    let (before, after) = (labels(old), labels(new));
    match (change.changed(endpoint), change.changed(naming)) {
        (false, false) => Vec::new(),
        (true, _) if before != after => matching(&before).union(&matching(&after)).cloned().collect(),
        (false, true) if before != after => {
            matching(&before).symmetric_difference(&matching(&after)).cloned().collect()
        }
        _ => matching(&after).into_iter().collect(),
    }
}

/// Returns the properties of a pod on which its endpoint depends.
fn endpoint(pod: &Pod) -> impl PartialEq + use<> {
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.clone());
    (pod.metadata.deletion_timestamp.is_some(), is_ready(pod), ips)
}

/// Returns the properties of a pod on which its Services and its DNS name depend.
fn naming(pod: &Pod) -> impl PartialEq + use<> {
    let name = pod.spec.as_ref().map(|spec| (spec.hostname.clone(), spec.subdomain.clone()));
    (pod.metadata.labels.clone(), name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(name: &str, spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec})).unwrap()
    }

    fn pod(app: &str, ready: &str, ip: &str) -> Option<Arc<Pod>> {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"app": app}},
            "status": {"podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": ready}]},
        });
        Some(Arc::new(serde_json::from_value(pod).unwrap()))
    }

    #[test]
    fn services_are_reconciled_when_their_endpoints_may_change() {
        let services = Cache::with([
            service("x", json!({"selector": {"app": "x"}})),
            service("y", json!({"selector": {"app": "y"}})),
            service("none", json!({})),
            service("external", json!({"type": "ExternalName", "selector": {"app": "x"}})),
        ]);
        for (case, old, new, want) in [
            ("new", None, pod("x", "False", "1.1.1.1"), &["x"][..]),
            ("deleted", pod("x", "False", "1.1.1.1"), None, &["x"]),
            ("the same", pod("x", "True", "1.1.1.1"), pod("x", "True", "1.1.1.1"), &[]),
            ("ready", pod("x", "False", "1.1.1.1"), pod("x", "True", "1.1.1.1"), &["x"]),
            ("another address", pod("x", "True", "1.1.1.1"), pod("x", "True", "1.1.1.2"), &["x"]),
            ("other labels", pod("x", "True", "1.1.1.1"), pod("y", "True", "1.1.1.1"), &["x", "y"]),
            ("of no service", None, pod("z", "True", "1.1.1.1"), &[]),
        ] {
            let found = services_of(&Change { old, new }, &services);
            assert_eq!(found.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), want, "{case}");
        }
    }
}
