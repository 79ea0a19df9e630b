//! Defaults of a pod's spec.
//!
//! [`default_pod_spec`] sets the defaults of pods and templates; [`default_pod`] adds those of Pods
//! alone, so that a template stays as its author wrote it.
//!
//! Source: the field descriptions of core/v1, "Defaults to ...".

use coracle_apimachinery::validation::resource_list;
use serde_json::{Map, Value, json};

use super::container_lists::ContainerType;
use super::{image, resources};
use crate::claim_spec::default_claim_spec;

type Object = Map<String, Value>;

/// Annotations that contained init containers before there was a field; they are removed
/// everywhere.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Defaults a template: its pod spec, as a template.
pub fn default_pod_template(template: &mut Value) {
    if template.is_null() {
        *template = json!({});
    }
    let Some(template) = template.as_object_mut() else { return };
    drop_init_container_annotations(template);
    default_pod_spec(template.entry("spec").or_insert_with(|| json!({})));
}

/// Defaults a Pod.
pub fn default_pod(pod: &mut Value) {
    let Some(pod) = pod.as_object_mut() else { return };
    drop_init_container_annotations(pod);
    let spec = pod.entry("spec").or_insert_with(|| json!({}));
    default_live_pod_spec(spec);
    default_pod_spec(spec);
    default_status(pod);
}

/// Sets the defaults that pods and templates share.
pub fn default_pod_spec(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else { return };
    mirror_service_account(spec);
    fill(
        spec,
        [
            ("dnsPolicy", json!("ClusterFirst")),
            ("restartPolicy", json!("Always")),
            ("securityContext", json!({})),
            ("terminationGracePeriodSeconds", json!(30)),
            ("schedulerName", json!("default-scheduler")),
        ],
    );
    for volume in objects(spec, "volumes") {
        default_volume(volume);
    }
    for list in ContainerType::ALL.map(ContainerType::list) {
        for container in objects(spec, list) {
            default_container(container);
        }
    }
    resource_list::round_up(spec.get_mut("overhead"));
    if let Some(requirements) = object(spec, "resources") {
        round_requirements(requirements);
    }
}

/// Copies the deprecated name of `serviceAccountName` if the new one is missing, and always sets it
/// to the same value.
pub fn mirror_service_account(spec: &mut Object) {
    let name = |spec: &Object, member| spec.get(member).filter(|v| v.as_str() != Some("")).cloned();
    match name(spec, "serviceAccountName").or_else(|| name(spec, "serviceAccount")) {
        Some(account) => {
            spec.insert("serviceAccountName".into(), account.clone());
            spec.insert("serviceAccount".into(), account);
        }
        None => {
            spec.remove("serviceAccountName");
            spec.remove("serviceAccount");
        }
    }
}

fn drop_init_container_annotations(owner: &mut Object) {
    let annotations = object(owner, "metadata").and_then(|metadata| object(metadata, "annotations"));
    if let Some(annotations) = annotations {
        annotations.retain(|key, _| !INIT_CONTAINER_ANNOTATIONS.contains(&key.as_str()));
    }
}

/// Sets the defaults of a Pod that a template does not get.
fn default_live_pod_spec(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in spec.as_object_mut().into_iter().flat_map(|spec| objects(spec, list)) {
            if let Some(requirements) = object(container, "resources") {
                default_requests_to_limits(requirements);
            }
        }
    }
    resources::default_pod_level(spec);
    let Some(spec) = spec.as_object_mut() else { return };
    fill(spec, [("enableServiceLinks", json!(true))]);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for container in objects(spec, list) {
                default_host_ports(container);
            }
        }
    }
    let negative_grace = |spec: &Object| spec.get("terminationGracePeriodSeconds")?.as_i64().map(|s| s < 0);
    if negative_grace(spec) == Some(true) {
        spec.insert("terminationGracePeriodSeconds".into(), json!(1));
    }
}

fn default_requests_to_limits(requirements: &mut Object) {
    let Some(limits) = requirements.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = requirements.entry("requests").or_insert_with(|| json!({}));
    if let Some(requests) = requests.as_object_mut() {
        fill(requests, limits);
    }
}

fn default_host_ports(container: &mut Object) {
    for port in objects(container, "ports") {
        let unset = port.get("hostPort").is_none_or(|port| port.as_i64() == Some(0));
        if let Some(number) = port.get("containerPort").filter(|_| unset).cloned() {
            port.insert("hostPort".into(), number);
        }
    }
}

/// Makes `podIP` and the first of `podIPs` equal; if they differ, `podIP` wins.
fn default_status(pod: &mut Object) {
    let Some(status) = object(pod, "status") else { return };
    let first = status.get("podIPs").and_then(|ips| ips.get(0)?.get("ip")).cloned();
    match (status.get("podIP").cloned(), first) {
        (Some(ip), first) if first.as_ref() != Some(&ip) => {
            status.insert("podIPs".into(), json!([{ "ip": ip }]));
        }
        (None, Some(first)) => {
            status.insert("podIP".into(), first);
        }
        _ => {}
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for status in objects(status, list) {
            resource_list::round_up(status.get_mut("allocatedResources"));
            if let Some(requirements) = object(status, "resources") {
                round_requirements(requirements);
            }
        }
    }
}

fn default_container(container: &mut Object) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or("");
    let pull = pull_policy(image);
    fill(
        container,
        [
            ("imagePullPolicy", json!(pull)),
            ("terminationMessagePath", json!("/dev/termination-log")),
            ("terminationMessagePolicy", json!("File")),
        ],
    );
    for port in objects(container, "ports") {
        fill(port, [("protocol", json!("TCP"))]);
    }
    for variable in objects(container, "env") {
        let Some(source) = object(variable, "valueFrom") else { continue };
        default_field_ref(source);
        if let Some(file) = object(source, "fileKeyRef") {
            fill(file, [("optional", json!(false))]);
        }
    }
    if let Some(requirements) = object(container, "resources") {
        round_requirements(requirements);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object(container, probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = object(container, "lifecycle") {
        for handler in ["postStart", "preStop"] {
            if let Some(handler) = object(lifecycle, handler) {
                default_http_get(handler);
            }
        }
    }
}

/// Returns the default pull policy of an image. The tag `latest` may change, so it is always
/// pulled.
fn pull_policy(image: &str) -> &'static str {
    if image::tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

fn default_probe(probe: &mut Object) {
    fill(
        probe,
        [
            ("timeoutSeconds", json!(1)),
            ("periodSeconds", json!(10)),
            ("successThreshold", json!(1)),
            ("failureThreshold", json!(3)),
        ],
    );
    default_http_get(probe);
    if let Some(grpc) = object(probe, "grpc") {
        fill(grpc, [("service", json!(""))]);
    }
}

fn default_http_get(handler: &mut Object) {
    if let Some(http) = object(handler, "httpGet") {
        fill(http, [("path", json!("/")), ("scheme", json!("HTTP"))]);
    }
}

fn default_field_ref(source: &mut Object) {
    if let Some(field) = object(source, "fieldRef") {
        fill(field, [("apiVersion", json!("v1"))]);
    }
}

/// Returns the defaults of volume sources.
fn source_defaults(source: &str) -> Vec<(&'static str, Value)> {
    match source {
        "secret" | "configMap" | "downwardAPI" | "projected" => vec![("defaultMode", json!(0o644))],
        "hostPath" => vec![("type", json!(""))],
        "iscsi" => vec![("iscsiInterface", json!("default"))],
        "rbd" => {
            vec![("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))]
        }
        "azureDisk" => vec![
            ("cachingMode", json!("ReadWrite")),
            ("fsType", json!("ext4")),
            ("readOnly", json!(false)),
            ("kind", json!("Shared")),
        ],
        "scaleIO" => vec![("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))],
        _ => Vec::new(),
    }
}

fn default_volume(volume: &mut Object) {
    if volume.keys().all(|member| member == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for (source, value) in volume.iter_mut() {
        let Some(value) = value.as_object_mut() else { continue };
        fill(value, source_defaults(source));
        match source.as_str() {
            "image" => {
                let reference = value.get("reference").and_then(Value::as_str).unwrap_or("");
                let pull = pull_policy(reference);
                fill(value, [("pullPolicy", json!(pull))]);
            }
            "downwardAPI" => objects(value, "items").for_each(default_field_ref),
            "projected" => objects(value, "sources").for_each(default_projection),
            "ephemeral" => {
                let template = value.get_mut("volumeClaimTemplate");
                if let Some(spec) = template.and_then(|template| template.get_mut("spec")) {
                    default_claim_spec(spec);
                }
            }
            _ => {}
        }
    }
}

fn default_projection(source: &mut Object) {
    if let Some(downward) = object(source, "downwardAPI") {
        objects(downward, "items").for_each(default_field_ref);
    }
    if let Some(token) = object(source, "serviceAccountToken") {
        fill(token, [("expirationSeconds", json!(3600))]);
    }
}

fn round_requirements(requirements: &mut Object) {
    for list in ["limits", "requests"] {
        resource_list::round_up(requirements.get_mut(list));
    }
}

/// Sets the members that are missing.
fn fill<K: Into<String>>(object: &mut Object, defaults: impl IntoIterator<Item = (K, Value)>) {
    for (member, value) in defaults {
        object.entry(member).or_insert(value);
    }
}

fn object<'a>(owner: &'a mut Object, member: &str) -> Option<&'a mut Object> {
    owner.get_mut(member)?.as_object_mut()
}

/// Iterates over the elements of a list of objects.
fn objects<'a>(owner: &'a mut Object, list: &str) -> impl Iterator<Item = &'a mut Object> {
    let items = owner.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}
