//! The columns of every built-in kind, one constant each, with the rules that compute their cells.
//!
//! Cells are computed from the stored version; a HorizontalPodAutoscaler is shown as autoscaling/v2, an Event as v1.

mod admissionregistration;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod cluster;
mod config;
mod event;
mod flowcontrol;
mod networking;
mod pod;
mod policy;
mod rbac;
mod resource;
mod storage;
mod template;

use serde_json::Value;

use super::columns::{AGE, Column, NAME};

const NAME_AND_AGE: &[Column] = &[NAME, AGE];

/// Group, kind and columns. Other kinds are shown by name and creation time.
pub const KINDS: &[(&str, &str, &[Column])] = &[
    ("", "ComponentStatus", cluster::COMPONENT_STATUS),
    ("", "ConfigMap", config::CONFIG_MAP),
    ("", "Endpoints", networking::ENDPOINTS),
    ("", "Event", event::EVENT),
    ("", "Namespace", cluster::NAMESPACE),
    ("", "Node", cluster::NODE),
    ("", "PersistentVolume", storage::PERSISTENT_VOLUME),
    ("", "PersistentVolumeClaim", storage::PERSISTENT_VOLUME_CLAIM),
    ("", "Pod", pod::POD),
    ("", "PodTemplate", template::POD_TEMPLATE),
    ("", "ReplicationController", apps::REPLICATION_CONTROLLER),
    ("", "ResourceQuota", policy::RESOURCE_QUOTA),
    ("", "Secret", config::SECRET),
    ("", "Service", networking::SERVICE),
    ("", "ServiceAccount", NAME_AND_AGE),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", admissionregistration::MUTATING_POLICY),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", admissionregistration::POLICY_BINDING),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", admissionregistration::WEBHOOKS),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", admissionregistration::VALIDATING_POLICY),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        admissionregistration::POLICY_BINDING,
    ),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", admissionregistration::WEBHOOKS),
    ("apiregistration.k8s.io", "APIService", cluster::API_SERVICE),
    ("apps", "ControllerRevision", apps::CONTROLLER_REVISION),
    ("apps", "DaemonSet", apps::DAEMON_SET),
    ("apps", "Deployment", apps::DEPLOYMENT),
    ("apps", "ReplicaSet", apps::REPLICA_SET),
    ("apps", "StatefulSet", apps::STATEFUL_SET),
    ("autoscaling", "HorizontalPodAutoscaler", autoscaling::HORIZONTAL_POD_AUTOSCALER),
    ("autoscaling", "Scale", autoscaling::SCALE),
    ("batch", "CronJob", batch::CRON_JOB),
    ("batch", "Job", batch::JOB),
    ("certificates.k8s.io", "CertificateSigningRequest", certificates::CERTIFICATE_SIGNING_REQUEST),
    ("coordination.k8s.io", "Lease", config::LEASE),
    ("discovery.k8s.io", "EndpointSlice", networking::ENDPOINT_SLICE),
    ("events.k8s.io", "Event", event::EVENT),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", flowcontrol::FLOW_SCHEMA),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", flowcontrol::PRIORITY_LEVEL_CONFIGURATION),
    ("networking.k8s.io", "IPAddress", networking::IP_ADDRESS),
    ("networking.k8s.io", "Ingress", networking::INGRESS),
    ("networking.k8s.io", "IngressClass", networking::INGRESS_CLASS),
    ("networking.k8s.io", "NetworkPolicy", networking::NETWORK_POLICY),
    ("networking.k8s.io", "ServiceCIDR", networking::SERVICE_CIDR),
    ("node.k8s.io", "RuntimeClass", cluster::RUNTIME_CLASS),
    ("policy", "PodDisruptionBudget", policy::POD_DISRUPTION_BUDGET),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", rbac::CLUSTER_ROLE_BINDING),
    ("rbac.authorization.k8s.io", "RoleBinding", rbac::ROLE_BINDING),
    ("resource.k8s.io", "DeviceClass", NAME_AND_AGE),
    ("resource.k8s.io", "ResourceClaim", resource::RESOURCE_CLAIM),
    ("resource.k8s.io", "ResourceClaimTemplate", NAME_AND_AGE),
    ("resource.k8s.io", "ResourceSlice", resource::RESOURCE_SLICE),
    ("scheduling.k8s.io", "PriorityClass", cluster::PRIORITY_CLASS),
    ("storage.k8s.io", "CSIDriver", storage::CSI_DRIVER),
    ("storage.k8s.io", "CSINode", storage::CSI_NODE),
    ("storage.k8s.io", "StorageClass", storage::STORAGE_CLASS),
    ("storage.k8s.io", "VolumeAttachment", storage::VOLUME_ATTACHMENT),
    ("storage.k8s.io", "VolumeAttributesClass", storage::VOLUME_ATTRIBUTES_CLASS),
];

/// The columns of a built-in kind; None for one without columns of its own.
pub fn columns(group: &str, kind: &str) -> Option<&'static [Column]> {
    KINDS.iter().find(|(g, k, _)| (*g, *k) == (group, kind)).map(|(.., columns)| *columns)
}

/// The `conditions` of a row, for a finished object.
pub type RowConditions = fn(&Value) -> Option<Value>;

/// The conditions of a kind's rows, if they have any.
pub fn row_conditions(group: &str, kind: &str) -> Option<RowConditions> {
    match (group, kind) {
        ("", "Pod") => Some(pod::row_conditions),
        _ => None,
    }
}

/// The key by which rows are sorted.
pub type SortKey = fn(&Value) -> (i64, String);

/// The sort key of a kind's rows, if it is not the order of the list.
pub fn sort_key(group: &str, kind: &str) -> Option<SortKey> {
    match (group, kind) {
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => Some(flowcontrol::matching_order),
        _ => None,
    }
}

/// At most `max` of `all`, joined, and the number of the others.
fn first_few(all: &[String], max: usize) -> String {
    let shown = all.get(..max).unwrap_or(all).join(",");
    match all.len().saturating_sub(max) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}
