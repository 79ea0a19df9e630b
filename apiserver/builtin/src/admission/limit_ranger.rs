//! LimitRanger: the LimitRanges of a namespace set defaults for the requests and limits of
//! containers, and bounds for those of containers, pods and claims.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::access::authorize::aggregate;
use coracle_apiserver::admission::json::{items, list_at, object_at, text};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::Value;

use crate::pod_spec::{ResourceList, containers, resources, with_pod_level};
use coracle_quantity::Quantity;

pub(super) struct LimitRanger;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Beyond this, quantities are compared by whole units: thousandths would overflow.
const MAX_MILLI: i64 = i64::MAX / 1000;

impl AdmissionPlugin for LimitRanger {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if subject(attributes) == Some(Subject::Pod) {
            for range in ranges(attributes, cluster)? {
                set_defaults(attributes.object, &range);
            }
        }
        Ok(())
    }

    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let Some(subject) = subject(attributes) else { return Ok(()) };
        let spec = &attributes.object["spec"];
        for range in ranges(attributes, cluster)? {
            let errors: Vec<String> = items(&range["spec"]["limits"])
                .iter()
                .flat_map(|limit| match (subject, text(&limit["type"])) {
                    (Subject::Pod, "Container") => check_containers(limit, spec),
                    (Subject::Pod, "Pod") => {
                        check(limit, &limited_resources(spec, "requests"), &limited_resources(spec, "limits"))
                    }
                    (Subject::Claim, "PersistentVolumeClaim") => check_claim(limit, spec),
                    _ => Vec::new(),
                })
                .collect();
            if !errors.is_empty() {
                return Err(attributes.forbidden(aggregate(&errors)));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Subject {
    Pod,
    Claim,
}

/// Returns the kind of object that is limited; None if the request is not. Resources of a pod
/// change only through its `resize`.
fn subject(attributes: &AdmissionAttributes<'_>) -> Option<Subject> {
    let (operation, pods) = (attributes.operation, attributes.is_any("", "pods"));
    let subject = match (attributes.subresource, operation) {
        ("", Operation::Create) | ("resize", Operation::Update) if pods => Subject::Pod,
        ("", Operation::Create | Operation::Update) if attributes.is("", "persistentvolumeclaims") => {
            Subject::Claim
        }
        _ => return None,
    };
    let is_terminating =
        attributes.old_object.is_some_and(|old| !old["metadata"]["deletionTimestamp"].is_null());
    (!is_terminating).then_some(subject)
}

/// Computes the `requests` or `limits` of a whole pod. Unlike elsewhere, pod-level huge pages do
/// not count.
fn limited_resources(spec: &Value, which: &str) -> ResourceList {
    let mut pod_level = resources(&spec["resources"][which]);
    pod_level.retain(|name, _| matches!(name.as_str(), "cpu" | "memory"));
    with_pod_level(spec, which, pod_level)
}

fn ranges(attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<Vec<Value>> {
    cluster.list(&GroupResource::new("", "limitranges"), attributes.namespace)
}

/// Sets the defaults of a range where a container specifies nothing, and lists them in an
/// annotation.
fn set_defaults(pod: &mut Value, range: &Value) {
    let mut defaulted = Vec::new();
    for (list, title) in [("containers", "container"), ("initContainers", "init container")] {
        let Some(containers) =
            object_at(pod, "spec").filter(|s| s[list].is_array()).and_then(|s| list_at(s, list))
        else {
            continue;
        };
        for container in containers {
            let name = text(&container["name"]).to_owned();
            for (default, member, what) in
                [("defaultRequest", "requests", "request"), ("default", "limits", "limit")]
            {
                let set = set_list_defaults(container, member, &defaults(range, default));
                if !set.is_empty() {
                    defaulted.push(format!("{} {what} for {title} {name}", set.join(", ")));
                }
            }
        }
    }
    if defaulted.is_empty() {
        return;
    }
    let annotations = object_at(pod, "metadata").and_then(|m| object_at(m, "annotations"));
    if let Some(annotations) = annotations {
        annotations[ANNOTATION] = format!("LimitRanger plugin set: {}", defaulted.join("; ")).into();
    }
}

fn defaults(range: &Value, member: &str) -> Vec<(String, Value)> {
    let limits = items(&range["spec"]["limits"]).iter().filter(|limit| limit["type"] == "Container");
    let entries = limits.filter_map(|limit| limit[member].as_object()).flatten();
    entries.map(|(name, quantity)| (name.clone(), quantity.clone())).collect()
}

/// Sets the defaults that are missing in a list of resources; returns the names of those set,
/// sorted.
fn set_list_defaults(container: &mut Value, member: &str, defaults: &[(String, Value)]) -> Vec<String> {
    let mut set: Vec<String> = defaults
        .iter()
        .filter(|(name, _)| container["resources"][member][name].is_null())
        .map(|(name, _)| name.clone())
        .collect();
    set.sort();
    set.dedup();
    if let Some(list) = (!set.is_empty())
        .then(|| object_at(container, "resources").and_then(|r| object_at(r, member)))
        .flatten()
    {
        for (name, quantity) in defaults.iter().filter(|(name, _)| set.contains(name)) {
            list[name] = quantity.clone();
        }
    }
    set
}

fn check_containers(limit: &Value, spec: &Value) -> Vec<String> {
    containers(spec, &["containers", "initContainers"])
        .flat_map(|container| {
            let asked = &container["resources"];
            check(limit, &resources(&asked["requests"]), &resources(&asked["limits"]))
        })
        .collect()
}

/// Checks the bounds of an entry; returns those that are violated.
fn check(limit: &Value, requests: &ResourceList, limits: &ResourceList) -> Vec<String> {
    let kind = text(&limit["type"]);
    let bounds = |member: &str| resources(&limit[member]).into_iter();
    let asked = |name: &str| (requests.get(name), limits.get(name));
    let mut errors = Vec::new();
    for (name, min) in bounds("min") {
        errors.extend(check_min(kind, &name, min, asked(&name)));
    }
    for (name, max) in bounds("max") {
        errors.extend(check_max(kind, &name, max, asked(&name)));
    }
    for (name, ratio) in bounds("maxLimitRequestRatio") {
        errors.extend(check_ratio(kind, &name, ratio, asked(&name)));
    }
    errors
}

/// Checks a claim. Only its requests are bounded.
fn check_claim(limit: &Value, spec: &Value) -> Vec<String> {
    let requests = resources(&spec["resources"]["requests"]);
    let kind = text(&limit["type"]);
    let mut errors = Vec::new();
    for (name, min) in resources(&limit["min"]) {
        errors.extend(check_min(kind, &name, min, (requests.get(&name), None)));
    }
    for (name, max) in resources(&limit["max"]) {
        let bound = format!("maximum {name} usage per {kind} is {max}");
        errors.extend(match requests.get(&name) {
            None => Some(format!("{bound}.  No request is specified")),
            Some(request) if exceeds(request, &max) => Some(format!("{bound}, but request is {request}")),
            Some(_) => None,
        });
    }
    errors
}

type Asked<'a> = (Option<&'a Quantity>, Option<&'a Quantity>);

fn check_min(kind: &str, name: &str, min: Quantity, (request, limit): Asked<'_>) -> Option<String> {
    let bound = format!("minimum {name} usage per {kind} is {min}");
    match (request, limit) {
        (None, _) => Some(format!("{bound}.  No request is specified")),
        (Some(request), _) if exceeds(&min, request) => Some(format!("{bound}, but request is {request}")),
        (_, Some(limit)) if exceeds(&min, limit) => Some(format!("{bound}, but limit is {limit}")),
        _ => None,
    }
}

fn check_max(kind: &str, name: &str, max: Quantity, (request, limit): Asked<'_>) -> Option<String> {
    let bound = format!("maximum {name} usage per {kind} is {max}");
    match (request, limit) {
        (_, None) => Some(format!("{bound}.  No limit is specified")),
        (_, Some(limit)) if exceeds(limit, &max) => Some(format!("{bound}, but limit is {limit}")),
        (Some(request), _) if exceeds(request, &max) => Some(format!("{bound}, but request is {request}")),
        _ => None,
    }
}

fn check_ratio(kind: &str, name: &str, max: Quantity, (request, limit): Asked<'_>) -> Option<String> {
    let bound = format!("{name} max limit to request ratio per {kind} is {max}");
    let Some(request) = request.filter(|q| !q.is_zero()) else {
        return Some(format!("{bound}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|q| !q.is_zero()) else {
        return Some(format!("{bound}, but no limit is specified or limit is 0"));
    };
    let fine = [request, limit, &max].iter().all(|q| q.value() <= MAX_MILLI);
    let [limit, request] = [limit, request].map(|q| if fine { q.milli_value() } else { q.value() } as f64);
    let ratio = limit / request;
    let too_much = if max.value() <= MAX_MILLI {
        ratio * 1000.0 > max.milli_value() as f64
    } else {
        ratio > max.value() as f64
    };
    too_much.then(|| format!("{bound}, but provided ratio is {ratio:.6}"))
}

fn exceeds(a: &Quantity, b: &Quantity) -> bool {
    if a.value() <= MAX_MILLI && b.value() <= MAX_MILLI {
        a.milli_value() > b.milli_value()
    } else {
        a.value() > b.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    fn world(limit: Value) -> World {
        let range = json!({"metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": [limit]}});
        World::default().with("", "limitranges", range)
    }

    fn container_limit() -> Value {
        json!({"type": "Container", "default": {"cpu": "500m", "memory": "256Mi"},
               "defaultRequest": {"cpu": "250m", "memory": "256Mi"}, "min": {"cpu": "100m"},
               "max": {"cpu": "1", "memory": "512Mi"}, "maxLimitRequestRatio": {"cpu": "4"}})
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn defaults_are_set_and_listed_in_the_annotation() {
        for (given, want, defaulted) in [
            (
                json!({}),
                json!({"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}}),
                json!(
                    "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
                ),
            ),
            (
                json!({"requests": {"cpu": "300m"}, "limits": {"cpu": "600m"}}),
                json!({"limits": {"cpu": "600m", "memory": "256Mi"}, "requests": {"cpu": "300m", "memory": "256Mi"}}),
                json!("LimitRanger plugin set: memory request for container c; memory limit for container c"),
            ),
        ] {
            let got = Request::new("", "pods", "ns", pod(given))
                .run(&LimitRanger, &world(container_limit()))
                .expect("a pod");
            assert_eq!(got["spec"]["containers"][0]["resources"], want);
            assert_eq!(got["metadata"]["annotations"][ANNOTATION], defaulted);
        }
    }

    #[test]
    fn amounts_out_of_bounds_are_rejected() {
        let claim = |size: &str| json!({"metadata": {"name": "p"}, "spec": {"resources": {"requests": {"storage": size}}}});
        let size =
            json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}});
        let whole = json!({"type": "Pod", "max": {"cpu": "1"}});
        let cpu =
            |request: &str, limit: &str| pod(json!({"requests": {"cpu": request}, "limits": {"cpu": limit}}));
        for (resource, limit, object, want) in [
            (
                "pods",
                container_limit(),
                cpu("50m", "100m"),
                "minimum cpu usage per Container is 100m, but request is 50m",
            ),
            (
                "pods",
                container_limit(),
                cpu("300m", "2"),
                "[maximum cpu usage per Container is 1, but limit is 2, cpu max limit to request ratio per Container is 4, but provided ratio is 6.666667]",
            ),
            (
                "pods",
                container_limit(),
                cpu("100m", "500m"),
                "cpu max limit to request ratio per Container is 4, but provided ratio is 5.000000",
            ),
            ("pods", whole.clone(), pod(json!({})), "maximum cpu usage per Pod is 1.  No limit is specified"),
            (
                "persistentvolumeclaims",
                size.clone(),
                claim("512Mi"),
                "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi",
            ),
            (
                "persistentvolumeclaims",
                size.clone(),
                claim("3Gi"),
                "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi",
            ),
        ] {
            let got = Request::new("", resource, "ns", object).run(&LimitRanger, &world(limit));
            assert_eq!(got, Err(format!("403 {resource} \"p\" is forbidden: {want}")));
        }
        for (resource, limit, object) in
            [("pods", whole, cpu("1", "1")), ("persistentvolumeclaims", size, claim("2Gi"))]
        {
            assert!(Request::new("", resource, "ns", object).run(&LimitRanger, &world(limit)).is_ok());
        }
    }

    #[test]
    fn resources_of_the_pod_itself_are_limited_except_huge_pages() {
        let most = |name: &str| json!({"type": "Pod", "max": {name: "4Mi"}});
        let own = |name: &str| json!({"limits": {name: "8Mi"}, "requests": {name: "8Mi"}});
        let pod = |name: &str| {
            let container =
                json!({"name": "c", "resources": {"limits": {name: "2Mi"}, "requests": {name: "2Mi"}}});
            json!({"metadata": {"name": "p"}, "spec": {"containers": [container], "resources": own(name)}})
        };
        for (name, allowed) in [("memory", false), ("hugepages-2Mi", true)] {
            let request = Request::new("", "pods", "ns", pod(name));
            assert_eq!(request.run(&LimitRanger, &world(most(name))).is_ok(), allowed, "{name}");
        }
    }

    #[test]
    fn updates_of_pods_are_not_limited() {
        let request = Request::new("", "pods", "ns", pod(json!({}))).update(pod(json!({})));
        assert_eq!(request.run(&LimitRanger, &world(container_limit())), Ok(pod(json!({}))));
    }
}
