//! The table of the built-in kinds: what the published types do not say about a kind, one entry each.

use coracle_apimachinery::render::table::Printer;
use coracle_apimachinery::strategy::{Behaviour, DefaultStrategy, ResetFields, ScaleStrategy};
use coracle_apimachinery::validation::metadata::{
    META, META_AND_META_UPDATE, META_TWICE, META_UPDATE_AND_META, MetadataValidation, NONE, NameRule,
};

use crate::{
    admissionregistration, apiextensions, apiregistration, apps, autoscaling, batch, certificates,
    coordination, core, discovery, dynamic_resource_allocation, flowcontrol, metrics, networking, node,
    policy, printers, rbac, scheduling, storage,
};

const USUAL: MetadataValidation = MetadataValidation::USUAL;
const GENERIC: MetadataValidation = MetadataValidation::GENERIC;
const NOTHING: MetadataValidation = MetadataValidation::NOTHING;

/// The behavior of a built-in kind; a kind without an entry has the default one.
pub fn behaviour(group: &str, kind: &str) -> Behaviour {
    match (group, kind) {
        ("", "Binding") => Behaviour::of(core::BindingStrategy),
        ("", "Pod") => Behaviour::of(core::PodStrategy)
            .printer(
                Printer::of_columns(printers::pod::POD).with_row_conditions(printers::pod::row_conditions),
            )
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation()
            .returns_deleted_object()
            .graceful_deletion()
            .selectable_fields(core::pod::SELECTABLE_FIELDS)
            .reset_fields(core::pod::RESET_FIELDS),
        ("", "PodTemplate") => Behaviour::of(core::PodTemplateStrategy)
            .columns(printers::template::POD_TEMPLATE)
            .generation()
            .returns_deleted_object(),
        ("", "ReplicationController") => Behaviour::of(core::ReplicationControllerStrategy)
            .columns(printers::apps::REPLICATION_CONTROLLER)
            .name(NameRule::LongName)
            .generation()
            .orphans_by_default()
            .selectable_fields(core::replication_controller::SELECTABLE_FIELDS)
            .key_prefix("controllers"),
        ("", "Service") => Behaviour::of(core::ServiceStrategy)
            .allocation(&core::service::allocation::ServiceAllocation)
            .columns(printers::networking::SERVICE)
            .name(NameRule::Label)
            .create_on_update()
            .returns_deleted_object()
            .selectable_fields(core::service::SELECTABLE_FIELDS)
            .key_prefix("services/specs"),
        ("", "Endpoints") => Behaviour::of(core::EndpointsStrategy)
            .columns(printers::networking::ENDPOINTS)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .create_on_update()
            .key_prefix("services/endpoints")
            .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ("", "Node") => Behaviour::of(core::NodeStrategy)
            .columns(printers::cluster::NODE)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .status_on_create()
            .selectable_fields(core::node::SELECTABLE_FIELDS)
            .key_prefix("minions"),
        ("", "Namespace") => Behaviour::of(core::NamespaceStrategy)
            .columns(printers::cluster::NAMESPACE)
            .name(NameRule::Label)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .deleted_by_finalizing()
            .returns_deleted_object()
            .selectable_fields(core::namespace::SELECTABLE_FIELDS),
        ("", "ConfigMap") => Behaviour::of(core::ConfigMapStrategy)
            .columns(printers::config::CONFIG_MAP)
            .metadata(USUAL.on_update(META_UPDATE_AND_META)),
        ("", "Secret") => Behaviour::of(core::SecretStrategy)
            .columns(printers::config::SECRET)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .selectable_fields(core::secret::SELECTABLE_FIELDS),
        ("", "ServiceAccount") => Behaviour::of(core::ServiceAccountStrategy)
            .columns(printers::NAME_AND_AGE)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("", "PersistentVolume") => Behaviour::of(core::PersistentVolumeStrategy)
            .columns(printers::storage::PERSISTENT_VOLUME)
            .metadata(USUAL.on_update(META_TWICE))
            .returns_deleted_object(),
        ("", "PersistentVolumeClaim") => Behaviour::of(core::PersistentVolumeClaimStrategy)
            .columns(printers::storage::PERSISTENT_VOLUME_CLAIM)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("", "ResourceQuota") => Behaviour::of(core::ResourceQuotaStrategy)
            .columns(printers::policy::RESOURCE_QUOTA)
            .returns_deleted_object(),
        ("", "LimitRange") => {
            Behaviour::of(core::LimitRangeStrategy).metadata(USUAL.on_update(META)).create_on_update()
        }
        ("", "Event") => Behaviour::of(core::EventStrategy)
            .columns(printers::event::EVENT)
            .metadata(NOTHING)
            .create_on_update()
            .not_garbage_collected()
            .selectable_fields(core::event::SELECTABLE_FIELDS),
        ("events.k8s.io", "Event") => Behaviour::of(core::EventsV1Strategy)
            .columns(printers::event::EVENT)
            .create_on_update()
            .not_garbage_collected()
            .selectable_fields(core::event::EVENTS_V1_SELECTABLE_FIELDS),
        ("apps", "Deployment") => Behaviour::of(apps::DeploymentStrategy)
            .columns(printers::apps::DEPLOYMENT)
            .generation()
            .reset_fields(apps::deployment::RESET_FIELDS),
        ("apps", "ReplicaSet") => {
            Behaviour::of(apps::ReplicaSetStrategy).columns(printers::apps::REPLICA_SET).generation()
        }
        ("apps", "StatefulSet") => Behaviour::of(apps::StatefulSetStrategy)
            .columns(printers::apps::STATEFUL_SET)
            .name(NameRule::Label)
            .generation(),
        ("apps", "DaemonSet") => {
            let printer = Printer::of_columns(printers::apps::DAEMON_SET)
                .without_annotation(apps::DEPRECATED_TEMPLATE_GENERATION);
            Behaviour::of(apps::DaemonSetStrategy).printer(printer).generation()
        }
        ("apps", "ControllerRevision") => Behaviour::of(apps::ControllerRevisionStrategy)
            .columns(printers::apps::CONTROLLER_REVISION)
            .metadata(USUAL.on_update(META_UPDATE_AND_META)),
        ("batch", "Job") => Behaviour::of(batch::JobStrategy)
            .columns(printers::batch::JOB)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .generation()
            .orphans_by_default()
            .selectable_fields(batch::job::SELECTABLE_FIELDS),
        ("batch", "CronJob") => Behaviour::of(batch::CronJobStrategy)
            .columns(printers::batch::CRON_JOB)
            .metadata(USUAL.on_status_update(NONE))
            .generation(),
        ("autoscaling", "HorizontalPodAutoscaler") => {
            Behaviour::of(autoscaling::HorizontalPodAutoscalerStrategy)
                .columns(printers::autoscaling::HORIZONTAL_POD_AUTOSCALER)
        }
        ("autoscaling", "Scale") => Behaviour::of(ScaleStrategy).columns(printers::autoscaling::SCALE),
        ("policy", "PodDisruptionBudget") => Behaviour::of(policy::PodDisruptionBudgetStrategy)
            .columns(printers::policy::POD_DISRUPTION_BUDGET)
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
            .columns(printers::rbac::ROLE_BINDING)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("rbac.authorization.k8s.io", "ClusterRole") => Behaviour::of(rbac::ClusterRoleStrategy)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => {
            Behaviour::of(rbac::ClusterRoleBindingStrategy)
                .columns(printers::rbac::CLUSTER_ROLE_BINDING)
                .name(NameRule::PathSegment)
                .metadata(USUAL.on_update(META_AND_META_UPDATE))
                .create_on_update()
        }
        ("networking.k8s.io", "Ingress") => Behaviour::of(networking::IngressStrategy)
            .columns(printers::networking::INGRESS)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation()
            .key_prefix("ingress"),
        ("networking.k8s.io", "IngressClass") => Behaviour::of(networking::IngressClassStrategy)
            .columns(printers::networking::INGRESS_CLASS)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation(),
        ("networking.k8s.io", "NetworkPolicy") => Behaviour::of(networking::NetworkPolicyStrategy)
            .columns(printers::networking::NETWORK_POLICY)
            .generation(),
        ("networking.k8s.io", "IPAddress") => Behaviour::of(networking::IpAddressStrategy)
            .columns(printers::networking::IP_ADDRESS)
            .name(NameRule::IpAddress)
            .metadata(USUAL.on_update(META_AND_META_UPDATE)),
        ("networking.k8s.io", "ServiceCIDR") => Behaviour::of(networking::ServiceCidrStrategy)
            .columns(printers::networking::SERVICE_CIDR)
            .reset_fields(ResetFields::STATUS_ALONE),
        ("storage.k8s.io", "StorageClass") => Behaviour::of(storage::StorageClassStrategy)
            .columns(printers::storage::STORAGE_CLASS)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .returns_deleted_object(),
        ("storage.k8s.io", "CSIDriver") => Behaviour::of(storage::CsiDriverStrategy)
            .columns(printers::storage::CSI_DRIVER)
            .conditional_update()
            .returns_deleted_object(),
        ("storage.k8s.io", "CSINode") => Behaviour::of(storage::CsiNodeStrategy)
            .columns(printers::storage::CSI_NODE)
            .metadata(USUAL.on_update(META))
            .conditional_update()
            .returns_deleted_object(),
        ("storage.k8s.io", "CSIStorageCapacity") => Behaviour::of(storage::CsiStorageCapacityStrategy)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .conditional_update(),
        ("storage.k8s.io", "VolumeAttachment") => Behaviour::of(storage::VolumeAttachmentStrategy)
            .columns(printers::storage::VOLUME_ATTACHMENT)
            .metadata(USUAL.on_update(META).on_status_update(META))
            .conditional_update()
            .returns_deleted_object()
            .reset_fields(ResetFields::STATUS_ALONE),
        ("storage.k8s.io", "VolumeAttributesClass") => Behaviour::of(storage::VolumeAttributesClassStrategy)
            .columns(printers::storage::VOLUME_ATTRIBUTES_CLASS)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("scheduling.k8s.io", "PriorityClass") => Behaviour::of(scheduling::PriorityClassStrategy)
            .columns(printers::cluster::PRIORITY_CLASS)
            .generation(),
        ("coordination.k8s.io", "Lease") => Behaviour::of(coordination::LeaseStrategy)
            .columns(printers::config::LEASE)
            .metadata(GENERIC)
            .create_on_update()
            .conditional_update(),
        ("node.k8s.io", "RuntimeClass") => Behaviour::of(node::RuntimeClassStrategy)
            .columns(printers::cluster::RUNTIME_CLASS)
            .metadata(GENERIC.on_update(META_AND_META_UPDATE))
            .create_on_update()
            .conditional_update(),
        ("discovery.k8s.io", "EndpointSlice") => Behaviour::of(discovery::EndpointSliceStrategy)
            .columns(printers::networking::ENDPOINT_SLICE)
            .metadata(USUAL.on_update(META))
            .generation(),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            Behaviour::of(certificates::CertificateSigningRequestStrategy)
                .columns(printers::certificates::CERTIFICATE_SIGNING_REQUEST)
                .name(NameRule::PathSegment)
                .metadata(USUAL.on_update(META_UPDATE_AND_META).on_status_update(META_UPDATE_AND_META))
                .selectable_fields(certificates::certificate_signing_request::SELECTABLE_FIELDS)
                .reset_fields(certificates::certificate_signing_request::RESET_FIELDS)
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            Behaviour::of(admissionregistration::ValidatingWebhookConfigurationStrategy)
                .columns(printers::admissionregistration::WEBHOOKS)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            Behaviour::of(admissionregistration::MutatingWebhookConfigurationStrategy)
                .columns(printers::admissionregistration::WEBHOOKS)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            Behaviour::of(admissionregistration::ValidatingAdmissionPolicyStrategy)
                .columns(printers::admissionregistration::VALIDATING_POLICY)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            Behaviour::of(admissionregistration::ValidatingAdmissionPolicyBindingStrategy)
                .columns(printers::admissionregistration::POLICY_BINDING)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            Behaviour::of(admissionregistration::MutatingAdmissionPolicyStrategy)
                .columns(printers::admissionregistration::MUTATING_POLICY)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            Behaviour::of(admissionregistration::MutatingAdmissionPolicyBindingStrategy)
                .columns(printers::admissionregistration::POLICY_BINDING)
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
            .columns(printers::cluster::API_SERVICE)
            .name(NameRule::PathSegment)
            .metadata(GENERIC.on_update(META_UPDATE_AND_META))
            .conditional_update()
            .reset_fields(ResetFields::STATUS_ALONE)
            .key_prefix("apiregistration.k8s.io/apiservices"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => Behaviour::of(flowcontrol::FlowSchemaStrategy)
            .printer(
                Printer::of_columns(printers::flowcontrol::FLOW_SCHEMA)
                    .sorted_by(printers::flowcontrol::matching_order),
            )
            .metadata(USUAL.on_update(META).on_status_update(NONE))
            .generation()
            .reset_fields(ResetFields::STATUS_ALONE),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            Behaviour::of(flowcontrol::PriorityLevelConfigurationStrategy)
                .columns(printers::flowcontrol::PRIORITY_LEVEL_CONFIGURATION)
                .metadata(USUAL.on_update(META).on_status_update(NONE))
                .generation()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("resource.k8s.io", "DeviceClass") => Behaviour::of(dynamic_resource_allocation::DeviceClassStrategy)
            .columns(printers::NAME_AND_AGE)
            .name(NameRule::LongName)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .generation()
            .returns_deleted_object(),
        ("resource.k8s.io", "ResourceClaim") => {
            Behaviour::of(dynamic_resource_allocation::ResourceClaimStrategy)
                .columns(printers::resource::RESOURCE_CLAIM)
                .metadata(USUAL.on_update(META_AND_META_UPDATE))
                .returns_deleted_object()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            Behaviour::of(dynamic_resource_allocation::ResourceClaimTemplateStrategy)
                .columns(printers::NAME_AND_AGE)
                .returns_deleted_object()
        }
        ("resource.k8s.io", "ResourceSlice") => {
            Behaviour::of(dynamic_resource_allocation::ResourceSliceStrategy)
                .columns(printers::resource::RESOURCE_SLICE)
                .generation()
                .returns_deleted_object()
                .selectable_fields(dynamic_resource_allocation::resource_slice::SELECTABLE_FIELDS)
        }
        ("", "ComponentStatus") => Behaviour::of(DefaultStrategy)
            .columns(printers::cluster::COMPONENT_STATUS)
            .computed(&core::component_status::ComponentStatuses)
            .deprecated("v1 ComponentStatus is deprecated in v1.19+"),
        ("metrics.k8s.io", "PodMetrics") => Behaviour::of(DefaultStrategy)
            .columns(printers::metrics::POD_METRICS)
            .computed(&metrics::SimulatedPodMetrics(metrics::Measured::Annotated)),
        ("metrics.k8s.io", "NodeMetrics") => Behaviour::of(DefaultStrategy)
            .columns(printers::metrics::NODE_METRICS)
            .computed(&metrics::SimulatedNodeMetrics(metrics::Measured::Annotated)),
        _ => Behaviour::of(DefaultStrategy),
    }
}
