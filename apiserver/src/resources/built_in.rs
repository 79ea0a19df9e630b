//! The table of the built-in kinds: what the published types do not say about a kind, one entry each.

use super::strategy::DefaultStrategy;
use super::{
    Behaviour, ResetFields, admissionregistration, apiextensions, apiregistration, apps, autoscaling, batch,
    certificates, coordination, core, discovery, dynamic_resource_allocation, flowcontrol, networking, node,
    policy, rbac, scheduling, storage,
};
use crate::validation::metadata::{
    META, META_AND_META_UPDATE, META_TWICE, META_UPDATE_AND_META, MetadataValidation, NONE, NameRule,
};

const USUAL: MetadataValidation = MetadataValidation::USUAL;
const GENERIC: MetadataValidation = MetadataValidation::GENERIC;
const NOTHING: MetadataValidation = MetadataValidation::NOTHING;

/// The behaviour of a built-in kind; a kind without an entry has the usual one.
pub fn behaviour(group: &str, kind: &str) -> Behaviour {
    match (group, kind) {
        ("", "Binding") => Behaviour::of(core::BindingStrategy),
        ("", "Pod") => Behaviour::of(core::PodStrategy)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation()
            .returns_deleted_object()
            .graceful_deletion()
            .selectable_fields(core::pod::SELECTABLE_FIELDS)
            .reset_fields(core::pod::RESET_FIELDS),
        ("", "PodTemplate") => Behaviour::of(core::PodTemplateStrategy).generation().returns_deleted_object(),
        ("", "ReplicationController") => Behaviour::of(core::ReplicationControllerStrategy)
            .name(NameRule::LongName)
            .generation()
            .orphans_by_default()
            .selectable_fields(core::replication_controller::SELECTABLE_FIELDS)
            .key_prefix("controllers"),
        ("", "Service") => Behaviour::of(core::ServiceStrategy)
            .name(NameRule::Label)
            .create_on_update()
            .returns_deleted_object()
            .selectable_fields(core::service::SELECTABLE_FIELDS)
            .key_prefix("services/specs"),
        ("", "Endpoints") => Behaviour::of(core::EndpointsStrategy)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .create_on_update()
            .key_prefix("services/endpoints")
            .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ("", "Node") => Behaviour::of(core::NodeStrategy)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .status_on_create()
            .selectable_fields(core::node::SELECTABLE_FIELDS)
            .key_prefix("minions"),
        ("", "Namespace") => Behaviour::of(core::NamespaceStrategy)
            .name(NameRule::Label)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .deleted_by_finalizing()
            .selectable_fields(core::namespace::SELECTABLE_FIELDS),
        ("", "ConfigMap") => {
            Behaviour::of(core::ConfigMapStrategy).metadata(USUAL.on_update(META_UPDATE_AND_META))
        }
        ("", "Secret") => Behaviour::of(core::SecretStrategy)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .selectable_fields(core::secret::SELECTABLE_FIELDS),
        ("", "ServiceAccount") => Behaviour::of(core::ServiceAccountStrategy)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("", "PersistentVolume") => Behaviour::of(core::PersistentVolumeStrategy)
            .metadata(USUAL.on_update(META_TWICE))
            .returns_deleted_object(),
        ("", "PersistentVolumeClaim") => Behaviour::of(core::PersistentVolumeClaimStrategy)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("", "ResourceQuota") => Behaviour::of(core::ResourceQuotaStrategy).returns_deleted_object(),
        ("", "LimitRange") => {
            Behaviour::of(core::LimitRangeStrategy).metadata(USUAL.on_update(META)).create_on_update()
        }
        ("", "Event") => Behaviour::of(core::EventStrategy)
            .metadata(NOTHING)
            .create_on_update()
            .not_garbage_collected()
            .selectable_fields(core::event::SELECTABLE_FIELDS),
        ("events.k8s.io", "Event") => Behaviour::of(core::EventsV1Strategy)
            .create_on_update()
            .not_garbage_collected()
            .selectable_fields(core::event::EVENTS_V1_SELECTABLE_FIELDS),
        ("apps", "Deployment") => {
            Behaviour::of(apps::DeploymentStrategy).generation().reset_fields(apps::deployment::RESET_FIELDS)
        }
        ("apps", "ReplicaSet") => Behaviour::of(apps::ReplicaSetStrategy).generation(),
        ("apps", "StatefulSet") => {
            Behaviour::of(apps::StatefulSetStrategy).name(NameRule::Label).generation()
        }
        ("apps", "DaemonSet") => Behaviour::of(apps::DaemonSetStrategy).generation(),
        ("apps", "ControllerRevision") => {
            Behaviour::of(apps::ControllerRevisionStrategy).metadata(USUAL.on_update(META_UPDATE_AND_META))
        }
        ("batch", "Job") => Behaviour::of(batch::JobStrategy)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .generation()
            .orphans_by_default()
            .selectable_fields(batch::job::SELECTABLE_FIELDS),
        ("batch", "CronJob") => {
            Behaviour::of(batch::CronJobStrategy).metadata(USUAL.on_status_update(NONE)).generation()
        }
        ("autoscaling", "HorizontalPodAutoscaler") => {
            Behaviour::of(autoscaling::HorizontalPodAutoscalerStrategy)
        }
        ("autoscaling", "Scale") => Behaviour::of(autoscaling::ScaleStrategy),
        ("policy", "PodDisruptionBudget") => Behaviour::of(policy::PodDisruptionBudgetStrategy)
            .name(NameRule::PathSegment)
            .metadata(NOTHING)
            .generation()
            .conditional_update(),
        ("policy", "Eviction") => Behaviour::of(policy::EvictionStrategy),
        ("rbac.authorization.k8s.io", "Role") => Behaviour::of(rbac::RoleStrategy)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("rbac.authorization.k8s.io", "RoleBinding") => Behaviour::of(rbac::RoleBindingStrategy)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("rbac.authorization.k8s.io", "ClusterRole") => Behaviour::of(rbac::ClusterRoleStrategy)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => {
            Behaviour::of(rbac::ClusterRoleBindingStrategy)
                .name(NameRule::PathSegment)
                .metadata(USUAL.on_update(META_AND_META_UPDATE))
                .create_on_update()
        }
        ("networking.k8s.io", "Ingress") => Behaviour::of(networking::IngressStrategy)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation()
            .key_prefix("ingress"),
        ("networking.k8s.io", "IngressClass") => Behaviour::of(networking::IngressClassStrategy)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation(),
        ("networking.k8s.io", "NetworkPolicy") => {
            Behaviour::of(networking::NetworkPolicyStrategy).generation()
        }
        ("networking.k8s.io", "IPAddress") => Behaviour::of(networking::IpAddressStrategy)
            .name(NameRule::IpAddress)
            .metadata(USUAL.on_update(META_AND_META_UPDATE)),
        ("networking.k8s.io", "ServiceCIDR") => {
            Behaviour::of(networking::ServiceCidrStrategy).reset_fields(ResetFields::STATUS_ALONE)
        }
        ("storage.k8s.io", "StorageClass") => Behaviour::of(storage::StorageClassStrategy)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .returns_deleted_object(),
        ("storage.k8s.io", "CSIDriver") => {
            Behaviour::of(storage::CsiDriverStrategy).conditional_update().returns_deleted_object()
        }
        ("storage.k8s.io", "CSINode") => Behaviour::of(storage::CsiNodeStrategy)
            .metadata(USUAL.on_update(META))
            .conditional_update()
            .returns_deleted_object(),
        ("storage.k8s.io", "CSIStorageCapacity") => Behaviour::of(storage::CsiStorageCapacityStrategy)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .conditional_update(),
        ("storage.k8s.io", "VolumeAttachment") => Behaviour::of(storage::VolumeAttachmentStrategy)
            .metadata(USUAL.on_update(META).on_status_update(META))
            .conditional_update()
            .returns_deleted_object()
            .reset_fields(ResetFields::STATUS_ALONE),
        ("storage.k8s.io", "VolumeAttributesClass") => Behaviour::of(storage::VolumeAttributesClassStrategy)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("scheduling.k8s.io", "PriorityClass") => {
            Behaviour::of(scheduling::PriorityClassStrategy).generation()
        }
        ("coordination.k8s.io", "Lease") => Behaviour::of(coordination::LeaseStrategy)
            .metadata(GENERIC)
            .create_on_update()
            .conditional_update(),
        ("node.k8s.io", "RuntimeClass") => Behaviour::of(node::RuntimeClassStrategy)
            .metadata(GENERIC.on_update(META_AND_META_UPDATE))
            .create_on_update()
            .conditional_update(),
        ("discovery.k8s.io", "EndpointSlice") => {
            Behaviour::of(discovery::EndpointSliceStrategy).metadata(USUAL.on_update(META)).generation()
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            Behaviour::of(certificates::CertificateSigningRequestStrategy)
                .name(NameRule::PathSegment)
                .metadata(USUAL.on_update(META_UPDATE_AND_META).on_status_update(META_UPDATE_AND_META))
                .selectable_fields(certificates::certificate_signing_request::SELECTABLE_FIELDS)
                .reset_fields(certificates::certificate_signing_request::RESET_FIELDS)
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            Behaviour::of(admissionregistration::ValidatingWebhookConfigurationStrategy)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            Behaviour::of(admissionregistration::MutatingWebhookConfigurationStrategy)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            Behaviour::of(admissionregistration::ValidatingAdmissionPolicyStrategy)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            Behaviour::of(admissionregistration::ValidatingAdmissionPolicyBindingStrategy)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            Behaviour::of(admissionregistration::MutatingAdmissionPolicyStrategy)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            Behaviour::of(admissionregistration::MutatingAdmissionPolicyBindingStrategy)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Behaviour::of(apiextensions::CustomResourceDefinitionStrategy)
                .metadata(GENERIC)
                .generation()
                .conditional_update()
                .returns_deleted_object()
                .key_prefix("apiextensions.k8s.io/customresourcedefinitions")
        }
        ("apiregistration.k8s.io", "APIService") => Behaviour::of(apiregistration::ApiServiceStrategy)
            .name(NameRule::PathSegment)
            .metadata(GENERIC.on_update(META_UPDATE_AND_META))
            .conditional_update()
            .reset_fields(ResetFields::STATUS_ALONE)
            .key_prefix("apiregistration.k8s.io/apiservices"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => Behaviour::of(flowcontrol::FlowSchemaStrategy)
            .metadata(USUAL.on_update(META).on_status_update(NONE))
            .generation()
            .reset_fields(ResetFields::STATUS_ALONE),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            Behaviour::of(flowcontrol::PriorityLevelConfigurationStrategy)
                .metadata(USUAL.on_update(META).on_status_update(NONE))
                .generation()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("resource.k8s.io", "DeviceClass") => Behaviour::of(dynamic_resource_allocation::DeviceClassStrategy)
            .name(NameRule::LongName)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .generation()
            .returns_deleted_object(),
        ("resource.k8s.io", "ResourceClaim") => {
            Behaviour::of(dynamic_resource_allocation::ResourceClaimStrategy)
                .metadata(USUAL.on_update(META_AND_META_UPDATE))
                .returns_deleted_object()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            Behaviour::of(dynamic_resource_allocation::ResourceClaimTemplateStrategy).returns_deleted_object()
        }
        ("resource.k8s.io", "ResourceSlice") => {
            Behaviour::of(dynamic_resource_allocation::ResourceSliceStrategy)
                .generation()
                .returns_deleted_object()
                .selectable_fields(dynamic_resource_allocation::resource_slice::SELECTABLE_FIELDS)
        }
        ("", "ComponentStatus") => {
            Behaviour::of(DefaultStrategy).deprecated("v1 ComponentStatus is deprecated in v1.19+")
        }
        _ => Behaviour::of(DefaultStrategy),
    }
}
