use coracle_apiserver::admission::testing::Request;
use serde_json::{Value, json};

use super::reserve;

fn quota(hard: Value, used: Value) -> Value {
    json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
}

fn scoped(mut quota: Value, spec: Value) -> Value {
    quota["spec"] = spec;
    quota
}

fn pod(spec: Value) -> Value {
    json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

fn container(name: &str, requests: Value) -> Value {
    json!({"name": name, "resources": {"requests": requests}})
}

fn claim(size: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
           "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": size}}}})
}

/// Reserves for the request; returns the usage after it, or the error; `""` if nothing is reserved.
fn render(mut request: Request, quota: Value) -> String {
    match reserve(&request.attributes(), &[quota]) {
        Err(error) => error.to_string(),
        Ok(reserved) => reserved
            .iter()
            .flatten()
            .next()
            .map_or(String::new(), |quota| quota["status"]["used"].to_string()),
    }
}

#[test]
fn objects_count_by_each_name_of_their_resource() {
    let secret = || json!({"kind": "Secret", "metadata": {"name": "s"}});
    let lease = || json!({"kind": "Lease", "metadata": {"name": "l"}});
    let service = json!({"kind": "Service", "metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{}, {}]}});
    for (case, request, quota, want) in [
        (
            "by the old name",
            Request::new("", "secrets", "ns", secret()),
            quota(json!({"secrets": "2"}), json!({"secrets": "1"})),
            r#"{"secrets":"2"}"#,
        ),
        (
            "one too many",
            Request::new("", "secrets", "ns", secret()),
            quota(json!({"secrets": "1"}), json!({"secrets": "1"})),
            r#"secrets "s" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1"#,
        ),
        (
            "by the general name",
            Request::new("coordination.k8s.io", "leases", "ns", lease()),
            quota(
                json!({"count/leases.coordination.k8s.io": "0"}),
                json!({"count/leases.coordination.k8s.io": "0"}),
            ),
            r#"leases.coordination.k8s.io "l" is forbidden: exceeded quota: q, requested: count/leases.coordination.k8s.io=1, used: count/leases.coordination.k8s.io=0, limited: count/leases.coordination.k8s.io=0"#,
        ),
        (
            "nobody knows how many there are",
            Request::new("", "secrets", "ns", secret()),
            quota(json!({"secrets": "1", "count/secrets": "1"}), json!({"secrets": "0"})),
            r#"secrets "s" is forbidden: status unknown for quota: q, resources: count/secrets,secrets"#,
        ),
        (
            "the devices of a claim",
            Request::new(
                "resource.k8s.io",
                "resourceclaims",
                "ns",
                json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
                    {"exactly": {"deviceClassName": "a", "allocationMode": "ExactCount", "count": 2}},
                    {"firstAvailable": [
                        {"deviceClassName": "a", "allocationMode": "ExactCount", "count": 1},
                        {"deviceClassName": "b", "allocationMode": "All"},
                    ]},
                ]}}}),
            ),
            quota(
                json!({"a.deviceclass.resource.k8s.io/devices": "3", "requests.deviceclass.resource.kubernetes.io/b": "50"}),
                json!({"a.deviceclass.resource.k8s.io/devices": "0", "requests.deviceclass.resource.kubernetes.io/b": "1"}),
            ),
            r#"{"a.deviceclass.resource.k8s.io/devices":"3","requests.deviceclass.resource.kubernetes.io/b":"33"}"#,
        ),
        (
            "an update adds none",
            Request::new("", "secrets", "ns", secret()).update(secret()),
            quota(json!({"secrets": "0"}), json!({"secrets": "0"})),
            "",
        ),
        (
            "what a service takes",
            Request::new("", "services", "ns", service),
            quota(
                json!({"services": "5", "services.nodeports": "5", "services.loadbalancers": "5"}),
                json!({"services": "1", "services.nodeports": "1", "services.loadbalancers": "0"}),
            ),
            r#"{"services":"2","services.loadbalancers":"1","services.nodeports":"3"}"#,
        ),
        (
            "a larger claim",
            Request::new("", "persistentvolumeclaims", "ns", claim("3Gi")).update(claim("1Gi")),
            quota(
                json!({"requests.storage": "4Gi", "fast.storageclass.storage.k8s.io/requests.storage": "9Gi"}),
                json!({"requests.storage": "1Gi", "fast.storageclass.storage.k8s.io/requests.storage": "1Gi"}),
            ),
            r#"{"fast.storageclass.storage.k8s.io/requests.storage":"3Gi","requests.storage":"3Gi"}"#,
        ),
        (
            "a smaller claim gives nothing back",
            Request::new("", "persistentvolumeclaims", "ns", claim("1Gi")).update(claim("3Gi")),
            quota(json!({"requests.storage": "4Gi"}), json!({"requests.storage": "3Gi"})),
            "",
        ),
    ] {
        assert_eq!(render(request, quota), want, "{case}");
    }
}

#[test]
fn pods_count_by_their_requests_and_limits() {
    let cpu = |used: &str| {
        quota(json!({"requests.cpu": "1", "pods": "5"}), json!({"requests.cpu": used, "pods": "0"}))
    };
    let asks = |cpu: &str| pod(json!({"containers": [container("c", json!({"cpu": cpu}))]}));
    for (case, object, quota, want) in [
        ("it fits", asks("300m"), cpu("500m"), r#"{"pods":"1","requests.cpu":"800m"}"#),
        (
            "it does not",
            asks("600m"),
            cpu("500m"),
            r#"pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"#,
        ),
        (
            "it does not say",
            pod(json!({"containers": [container("b", json!({})), container("a", json!({}))]})),
            cpu("0"),
            r#"pods "p" is forbidden: failed quota: q: must specify requests.cpu for: a,b"#,
        ),
        (
            "the pod as a whole says it",
            pod(json!({"containers": [container("c", json!({}))], "resources": {"requests": {"cpu": "1"}}})),
            cpu("0"),
            r#"{"pods":"1","requests.cpu":"1"}"#,
        ),
        ("out of scope", asks("9"), scoped(cpu("0"), json!({"scopes": ["BestEffort"]})), ""),
        (
            "in scope",
            asks("1"),
            scoped(cpu("0"), json!({"scopes": ["NotTerminating", "NotBestEffort"]})),
            r#"{"pods":"1","requests.cpu":"1"}"#,
        ),
        (
            "not of the class",
            asks("9"),
            scoped(
                cpu("0"),
                json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}),
            ),
            "",
        ),
    ] {
        assert_eq!(render(Request::new("", "pods", "ns", object), quota), want, "{case}");
    }
}
