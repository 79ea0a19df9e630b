//! The built-in kinds: how each behaves in the generic pipeline, and the strategy where data cannot say it.
//!
//! Names, scopes, verbs and fields come from the schema table; this is what no table of the published modules tells.
//! Start at [`behaviour`].

pub mod admissionregistration;
#[cfg(test)]
mod answers;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod coordination;
pub mod core;
#[cfg(test)]
mod corpus;
pub mod defaulting;
pub mod discovery;
pub mod dynamic_resource_allocation;
pub mod flowcontrol;
pub mod idle;
pub mod networking;
pub mod node;
pub mod pod_spec;
pub mod policy;
pub mod rbac;
pub mod scheduling;
pub mod storage;
pub mod strategy;
pub mod validate;

use crate::validation::metadata::{self, NameRule};
use serde_json::Value;

use crate::names::GroupKind;
use strategy::{DefaultStrategy, Strategy};

/// How a kind behaves in the generic pipeline.
#[derive(Clone, Copy)]
pub struct Behaviour {
    pub strategy: &'static dyn Strategy,
    pub name: NameRule,
    /// What the kind's own validation does about metadata.
    pub metadata: metadata::MetadataValidation,
    /// The server counts changes of the desired state in `metadata.generation`.
    pub generation: bool,
    /// A client that creates may also set the status.
    pub status_on_create: bool,
    /// PUT of a missing object creates it.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites whatever is there.
    pub unconditional_update: bool,
    /// DELETE answers with the object, even when it is gone at once.
    pub delete_answers_object: bool,
    /// DELETE without a policy orphans the dependents.
    pub orphans_by_default: bool,
}

const USUAL: Behaviour = Behaviour {
    strategy: &DefaultStrategy,
    name: NameRule::Subdomain,
    metadata: metadata::MetadataValidation::USUAL,
    generation: false,
    status_on_create: false,
    create_on_update: false,
    unconditional_update: true,
    delete_answers_object: false,
    orphans_by_default: false,
};

/// An object in another version of its kind.
pub fn convert(kind: &GroupKind, to: &str, object: Value) -> Value {
    match (kind.kind.as_str(), to) {
        ("Event", "v1") => core::event::to_core(object),
        ("Event", _) => core::event::to_events(object),
        ("HorizontalPodAutoscaler", "autoscaling/v1") => autoscaling::convert::to_v1(object),
        ("HorizontalPodAutoscaler", _) => autoscaling::convert::to_v2(object),
        // No other kind is served in two versions.
        _ => object,
    }
}

/// The behaviour of a built-in kind; kinds not named here are usual.
pub fn behaviour(group: &str, kind: &str) -> Behaviour {
    Behaviour { metadata: metadata::MetadataValidation::of(group, kind), ..by_kind(group, kind) }
}

fn by_kind(group: &str, kind: &str) -> Behaviour {
    let usual = |strategy: &'static dyn Strategy| Behaviour { strategy, ..USUAL };
    let generation = |strategy| Behaviour { generation: true, ..usual(strategy) };
    let created_on_update = |strategy| Behaviour { create_on_update: true, ..usual(strategy) };
    let conditional = |strategy| Behaviour { unconditional_update: false, ..usual(strategy) };
    let answers = |strategy| Behaviour { delete_answers_object: true, ..usual(strategy) };
    let rbac =
        |strategy| Behaviour { name: NameRule::PathSegment, create_on_update: true, ..usual(strategy) };
    match (group, kind) {
        ("", "Binding") => usual(&core::binding::BindingStrategy),
        ("", "Pod") => Behaviour { generation: true, ..answers(&core::pod::PodStrategy) },
        ("", "PodTemplate") => Behaviour { generation: true, ..answers(&core::pod_template::PodTemplateStrategy) },
        ("", "ReplicationController") => Behaviour {
            name: NameRule::LongName,
            orphans_by_default: true,
            ..generation(&core::replication_controller::ReplicationControllerStrategy)
        },
        ("", "Service") => Behaviour {
            name: NameRule::Label,
            delete_answers_object: true,
            ..created_on_update(&core::service::ServiceStrategy)
        },
        ("", "Endpoints") => created_on_update(&core::endpoints::EndpointsStrategy),
        ("", "Node") => Behaviour { status_on_create: true, ..usual(&core::node::NodeStrategy) },
        ("", "Namespace") => Behaviour { name: NameRule::Label, ..usual(&core::namespace::NamespaceStrategy) },
        ("", "ConfigMap") => usual(&core::config_map::ConfigMapStrategy),
        ("", "Secret") => usual(&core::secret::SecretStrategy),
        ("", "ServiceAccount") => answers(&core::service_account::ServiceAccountStrategy),
        ("", "PersistentVolume") => answers(&core::persistent_volume::PersistentVolumeStrategy),
        ("", "PersistentVolumeClaim") => answers(&core::persistent_volume_claim::PersistentVolumeClaimStrategy),
        ("", "ResourceQuota") => answers(&core::resource_quota::ResourceQuotaStrategy),
        ("", "LimitRange") => created_on_update(&core::limit_range::LimitRangeStrategy),
        ("", "Event") => created_on_update(&core::event::EventStrategy),
        ("events.k8s.io", "Event") => created_on_update(&core::event::EventsV1Strategy),
        ("apps", "Deployment") => generation(&apps::deployment::DeploymentStrategy),
        ("apps", "ReplicaSet") => generation(&apps::replica_set::ReplicaSetStrategy),
        ("apps", "StatefulSet") => {
            Behaviour { name: NameRule::Label, ..generation(&apps::stateful_set::StatefulSetStrategy) }
        }
        ("apps", "DaemonSet") => generation(&apps::daemon_set::DaemonSetStrategy),
        ("apps", "ControllerRevision") => usual(&apps::controller_revision::ControllerRevisionStrategy),
        ("batch", "Job") => Behaviour { orphans_by_default: true, ..generation(&batch::job::JobStrategy) },
        ("batch", "CronJob") => generation(&batch::cron_job::CronJobStrategy),
        ("autoscaling", "HorizontalPodAutoscaler") => usual(&autoscaling::horizontal_pod_autoscaler::HorizontalPodAutoscalerStrategy),
        ("autoscaling", "Scale") => usual(&autoscaling::scale::ScaleStrategy),
        ("policy", "PodDisruptionBudget") => Behaviour {
            name: NameRule::PathSegment,
            generation: true,
            ..conditional(&policy::pod_disruption_budget::PodDisruptionBudgetStrategy)
        },
        ("policy", "Eviction") => usual(&policy::eviction::EvictionStrategy),
        ("rbac.authorization.k8s.io", "Role") => rbac(&rbac::role::RoleStrategy),
        ("rbac.authorization.k8s.io", "RoleBinding") => rbac(&rbac::role_binding::RoleBindingStrategy),
        ("rbac.authorization.k8s.io", "ClusterRole") => rbac(&rbac::cluster_role::ClusterRoleStrategy),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => rbac(&rbac::cluster_role_binding::ClusterRoleBindingStrategy),
        ("networking.k8s.io", "Ingress") => generation(&networking::ingress::IngressStrategy),
        ("networking.k8s.io", "IngressClass") => generation(&networking::ingress_class::IngressClassStrategy),
        ("networking.k8s.io", "NetworkPolicy") => generation(&networking::network_policy::NetworkPolicyStrategy),
        ("networking.k8s.io", "IPAddress") => {
            Behaviour { name: NameRule::IpAddress, ..usual(&networking::ip_address::IpAddressStrategy) }
        }
        ("networking.k8s.io", "ServiceCIDR") => usual(&networking::service_cidr::ServiceCidrStrategy),
        ("storage.k8s.io", "StorageClass") => answers(&storage::storage_class::StorageClassStrategy),
        ("storage.k8s.io", "CSIDriver") => {
            Behaviour { delete_answers_object: true, ..conditional(&storage::csi_driver::CsiDriverStrategy) }
        }
        ("storage.k8s.io", "CSINode") => {
            Behaviour { delete_answers_object: true, ..conditional(&storage::csi_node::CsiNodeStrategy) }
        }
        ("storage.k8s.io", "CSIStorageCapacity") => conditional(&storage::csi_storage_capacity::CsiStorageCapacityStrategy),
        ("storage.k8s.io", "VolumeAttachment") => {
            Behaviour { delete_answers_object: true, ..conditional(&storage::volume_attachment::VolumeAttachmentStrategy) }
        }
        ("storage.k8s.io", "VolumeAttributesClass") => answers(&storage::volume_attributes_class::VolumeAttributesClassStrategy),
        ("scheduling.k8s.io", "PriorityClass") => generation(&scheduling::priority_class::PriorityClassStrategy),
        ("coordination.k8s.io", "Lease") => {
            Behaviour { create_on_update: true, ..conditional(&coordination::lease::LeaseStrategy) }
        }
        ("node.k8s.io", "RuntimeClass") => {
            Behaviour { create_on_update: true, ..conditional(&node::runtime_class::RuntimeClassStrategy) }
        }
        ("discovery.k8s.io", "EndpointSlice") => generation(&discovery::endpoint_slice::EndpointSliceStrategy),
        ("certificates.k8s.io", "CertificateSigningRequest") => Behaviour {
            name: NameRule::PathSegment,
            ..usual(&certificates::certificate_signing_request::CertificateSigningRequestStrategy)
        },
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => Behaviour {
            generation: true,
            ..conditional(&admissionregistration::validating_webhook_configuration::ValidatingWebhookConfigurationStrategy)
        },
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => Behaviour {
            generation: true,
            ..conditional(&admissionregistration::mutating_webhook_configuration::MutatingWebhookConfigurationStrategy)
        },
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => Behaviour {
            generation: true,
            ..conditional(&admissionregistration::validating_admission_policy::ValidatingAdmissionPolicyStrategy)
        },
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => Behaviour {
            generation: true,
            ..conditional(&admissionregistration::validating_admission_policy_binding::ValidatingAdmissionPolicyBindingStrategy)
        },
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => Behaviour {
            generation: true,
            ..conditional(&admissionregistration::mutating_admission_policy::MutatingAdmissionPolicyStrategy)
        },
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => Behaviour {
            generation: true,
            ..conditional(&admissionregistration::mutating_admission_policy_binding::MutatingAdmissionPolicyBindingStrategy)
        },
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Behaviour {
            generation: true,
            delete_answers_object: true,
            ..conditional(&apiextensions::custom_resource_definition::CustomResourceDefinitionStrategy)
        },
        ("apiregistration.k8s.io", "APIService") => {
            Behaviour { name: NameRule::PathSegment, ..conditional(&apiregistration::api_service::ApiServiceStrategy) }
        }
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => generation(&flowcontrol::flow_schema::FlowSchemaStrategy),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            generation(&flowcontrol::priority_level_configuration::PriorityLevelConfigurationStrategy)
        }
        ("resource.k8s.io", "DeviceClass") => Behaviour {
            name: NameRule::LongName,
            generation: true,
            ..answers(&dynamic_resource_allocation::device_class::DeviceClassStrategy)
        },
        ("resource.k8s.io", "ResourceClaim") => answers(&dynamic_resource_allocation::resource_claim::ResourceClaimStrategy),
        ("resource.k8s.io", "ResourceClaimTemplate") => answers(&dynamic_resource_allocation::resource_claim_template::ResourceClaimTemplateStrategy),
        ("resource.k8s.io", "ResourceSlice") => {
            Behaviour { generation: true, ..answers(&dynamic_resource_allocation::resource_slice::ResourceSliceStrategy) }
        }
        _ => USUAL,
    }
}
