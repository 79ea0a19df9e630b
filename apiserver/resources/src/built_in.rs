//! The table of the built-in kinds: what the published types do not say about a kind, one entry
//! each.

use coracle_apimachinery::render::columns;
use coracle_apimachinery::render::table::Printer;
use coracle_apimachinery::strategy::{Behavior, DefaultStrategy, ResetFields, ScaleStrategy};
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

/// Returns the behavior of a built-in kind; a kind without an entry has the default one.
pub fn behavior(group: &str, kind: &str) -> Behavior {
    match (group, kind) {
        ("", "Binding") => Behavior::of(core::BindingStrategy),
        ("", "Pod") => Behavior::of(core::PodStrategy)
            .printer(
                Printer::of_columns(printers::pod::POD).with_row_conditions(printers::pod::row_conditions),
            )
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation()
            .returns_deleted_object()
            .graceful_deletion()
            .selectable_fields(core::pod::SELECTABLE_FIELDS)
            .reset_fields(core::pod::RESET_FIELDS),
        ("", "PodTemplate") => Behavior::of(core::PodTemplateStrategy)
            .columns(printers::template::POD_TEMPLATE)
            .generation()
            .returns_deleted_object(),
        ("", "ReplicationController") => Behavior::of(core::ReplicationControllerStrategy)
            .columns(printers::apps::REPLICATION_CONTROLLER)
            .name(NameRule::LongName)
            .generation()
            .orphans_by_default()
            .selectable_fields(core::replication_controller::SELECTABLE_FIELDS)
            .key_prefix("controllers"),
        ("", "Service") => Behavior::of(core::ServiceStrategy)
            .allocation(&core::service::allocation::ServiceAllocation)
            .columns(printers::networking::SERVICE)
            .name(NameRule::Label)
            .create_on_update()
            .returns_deleted_object()
            .selectable_fields(core::service::SELECTABLE_FIELDS)
            .key_prefix("services/specs"),
        ("", "Endpoints") => Behavior::of(core::EndpointsStrategy)
            .columns(printers::networking::ENDPOINTS)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .create_on_update()
            .key_prefix("services/endpoints")
            .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ("", "Node") => Behavior::of(core::NodeStrategy)
            .columns(printers::cluster::NODE)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .status_on_create()
            .selectable_fields(core::node::SELECTABLE_FIELDS)
            .key_prefix("minions"),
        ("", "Namespace") => Behavior::of(core::NamespaceStrategy)
            .columns(printers::cluster::NAMESPACE)
            .name(NameRule::Label)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .deleted_by_finalizing()
            .returns_deleted_object()
            .selectable_fields(core::namespace::SELECTABLE_FIELDS),
        ("", "ConfigMap") => Behavior::of(core::ConfigMapStrategy)
            .columns(printers::config::CONFIG_MAP)
            .metadata(USUAL.on_update(META_UPDATE_AND_META)),
        ("", "Secret") => Behavior::of(core::SecretStrategy)
            .columns(printers::config::SECRET)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .selectable_fields(core::secret::SELECTABLE_FIELDS),
        ("", "ServiceAccount") => Behavior::of(core::ServiceAccountStrategy)
            .columns(printers::NAME_AND_AGE)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("", "PersistentVolume") => Behavior::of(core::PersistentVolumeStrategy)
            .columns(printers::storage::PERSISTENT_VOLUME)
            .metadata(USUAL.on_update(META_TWICE))
            .returns_deleted_object(),
        ("", "PersistentVolumeClaim") => Behavior::of(core::PersistentVolumeClaimStrategy)
            .columns(printers::storage::PERSISTENT_VOLUME_CLAIM)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("", "ResourceQuota") => Behavior::of(core::ResourceQuotaStrategy)
            .columns(printers::policy::RESOURCE_QUOTA)
            .returns_deleted_object(),
        ("", "LimitRange") => {
            Behavior::of(core::LimitRangeStrategy).metadata(USUAL.on_update(META)).create_on_update()
        }
        ("", "Event") => Behavior::of(core::EventStrategy)
            .columns(printers::event::EVENT)
            .metadata(NOTHING)
            .create_on_update()
            .not_garbage_collected()
            .selectable_fields(core::event::SELECTABLE_FIELDS),
        ("events.k8s.io", "Event") => Behavior::of(core::EventsV1Strategy)
            .columns(printers::event::EVENT)
            .create_on_update()
            .not_garbage_collected()
            .selectable_fields(core::event::EVENTS_V1_SELECTABLE_FIELDS),
        ("apps", "Deployment") => Behavior::of(apps::DeploymentStrategy)
            .columns(printers::apps::DEPLOYMENT)
            .generation()
            .reset_fields(apps::deployment::RESET_FIELDS),
        ("apps", "ReplicaSet") => {
            Behavior::of(apps::ReplicaSetStrategy).columns(printers::apps::REPLICA_SET).generation()
        }
        ("apps", "StatefulSet") => Behavior::of(apps::StatefulSetStrategy)
            .columns(printers::apps::STATEFUL_SET)
            .name(NameRule::Label)
            .generation(),
        ("apps", "DaemonSet") => {
            let printer = Printer::of_columns(printers::apps::DAEMON_SET)
                .without_annotation(apps::DEPRECATED_TEMPLATE_GENERATION);
            Behavior::of(apps::DaemonSetStrategy).printer(printer).generation()
        }
        ("apps", "ControllerRevision") => Behavior::of(apps::ControllerRevisionStrategy)
            .columns(printers::apps::CONTROLLER_REVISION)
            .metadata(USUAL.on_update(META_UPDATE_AND_META)),
        ("batch", "Job") => Behavior::of(batch::JobStrategy)
            .columns(printers::batch::JOB)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .generation()
            .orphans_by_default()
            .selectable_fields(batch::job::SELECTABLE_FIELDS),
        ("batch", "CronJob") => Behavior::of(batch::CronJobStrategy)
            .columns(printers::batch::CRON_JOB)
            .metadata(USUAL.on_status_update(NONE))
            .generation(),
        ("autoscaling", "HorizontalPodAutoscaler") => {
            Behavior::of(autoscaling::HorizontalPodAutoscalerStrategy)
                .columns(printers::autoscaling::HORIZONTAL_POD_AUTOSCALER)
        }
        ("autoscaling", "Scale") => Behavior::of(ScaleStrategy).columns(columns::SCALE),
        ("policy", "PodDisruptionBudget") => Behavior::of(policy::PodDisruptionBudgetStrategy)
            .columns(printers::policy::POD_DISRUPTION_BUDGET)
            .name(NameRule::PathSegment)
            .metadata(NOTHING)
            .generation()
            .conditional_update(),
        ("policy", "Eviction") => Behavior::of(policy::EvictionStrategy),
        ("rbac.authorization.k8s.io", "Role") => Behavior::of(rbac::RoleStrategy)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("rbac.authorization.k8s.io", "RoleBinding") => Behavior::of(rbac::RoleBindingStrategy)
            .columns(printers::rbac::ROLE_BINDING)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("rbac.authorization.k8s.io", "ClusterRole") => Behavior::of(rbac::ClusterRoleStrategy)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => Behavior::of(rbac::ClusterRoleBindingStrategy)
            .columns(printers::rbac::CLUSTER_ROLE_BINDING)
            .name(NameRule::PathSegment)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .create_on_update(),
        ("networking.k8s.io", "Ingress") => Behavior::of(networking::IngressStrategy)
            .columns(printers::networking::INGRESS)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation()
            .key_prefix("ingress"),
        ("networking.k8s.io", "IngressClass") => Behavior::of(networking::IngressClassStrategy)
            .columns(printers::networking::INGRESS_CLASS)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .generation(),
        ("networking.k8s.io", "NetworkPolicy") => Behavior::of(networking::NetworkPolicyStrategy)
            .columns(printers::networking::NETWORK_POLICY)
            .generation(),
        ("networking.k8s.io", "IPAddress") => Behavior::of(networking::IpAddressStrategy)
            .columns(printers::networking::IP_ADDRESS)
            .name(NameRule::IpAddress)
            .metadata(USUAL.on_update(META_AND_META_UPDATE)),
        ("networking.k8s.io", "ServiceCIDR") => Behavior::of(networking::ServiceCidrStrategy)
            .columns(printers::networking::SERVICE_CIDR)
            .reset_fields(ResetFields::STATUS_ALONE),
        ("storage.k8s.io", "StorageClass") => Behavior::of(storage::StorageClassStrategy)
            .columns(printers::storage::STORAGE_CLASS)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .returns_deleted_object(),
        ("storage.k8s.io", "CSIDriver") => Behavior::of(storage::CsiDriverStrategy)
            .columns(printers::storage::CSI_DRIVER)
            .conditional_update()
            .returns_deleted_object(),
        ("storage.k8s.io", "CSINode") => Behavior::of(storage::CsiNodeStrategy)
            .columns(printers::storage::CSI_NODE)
            .metadata(USUAL.on_update(META))
            .conditional_update()
            .returns_deleted_object(),
        ("storage.k8s.io", "CSIStorageCapacity") => Behavior::of(storage::CsiStorageCapacityStrategy)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .conditional_update(),
        ("storage.k8s.io", "VolumeAttachment") => Behavior::of(storage::VolumeAttachmentStrategy)
            .columns(printers::storage::VOLUME_ATTACHMENT)
            .metadata(USUAL.on_update(META).on_status_update(META))
            .conditional_update()
            .returns_deleted_object()
            .reset_fields(ResetFields::STATUS_ALONE),
        ("storage.k8s.io", "VolumeAttributesClass") => Behavior::of(storage::VolumeAttributesClassStrategy)
            .columns(printers::storage::VOLUME_ATTRIBUTES_CLASS)
            .metadata(USUAL.on_update(META_UPDATE_AND_META))
            .returns_deleted_object(),
        ("scheduling.k8s.io", "PriorityClass") => Behavior::of(scheduling::PriorityClassStrategy)
            .columns(printers::cluster::PRIORITY_CLASS)
            .generation(),
        ("coordination.k8s.io", "Lease") => Behavior::of(coordination::LeaseStrategy)
            .columns(printers::config::LEASE)
            .metadata(GENERIC)
            .create_on_update()
            .conditional_update(),
        ("node.k8s.io", "RuntimeClass") => Behavior::of(node::RuntimeClassStrategy)
            .columns(printers::cluster::RUNTIME_CLASS)
            .metadata(GENERIC.on_update(META_AND_META_UPDATE))
            .create_on_update()
            .conditional_update(),
        ("discovery.k8s.io", "EndpointSlice") => Behavior::of(discovery::EndpointSliceStrategy)
            .columns(printers::networking::ENDPOINT_SLICE)
            .metadata(USUAL.on_update(META))
            .generation(),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            Behavior::of(certificates::CertificateSigningRequestStrategy)
                .columns(printers::certificates::CERTIFICATE_SIGNING_REQUEST)
                .name(NameRule::PathSegment)
                .metadata(USUAL.on_update(META_UPDATE_AND_META).on_status_update(META_UPDATE_AND_META))
                .selectable_fields(certificates::certificate_signing_request::SELECTABLE_FIELDS)
                .reset_fields(certificates::certificate_signing_request::RESET_FIELDS)
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            Behavior::of(admissionregistration::ValidatingWebhookConfigurationStrategy)
                .columns(printers::admissionregistration::WEBHOOKS)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            Behavior::of(admissionregistration::MutatingWebhookConfigurationStrategy)
                .columns(printers::admissionregistration::WEBHOOKS)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            Behavior::of(admissionregistration::ValidatingAdmissionPolicyStrategy)
                .columns(printers::admissionregistration::VALIDATING_POLICY)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            Behavior::of(admissionregistration::ValidatingAdmissionPolicyBindingStrategy)
                .columns(printers::admissionregistration::POLICY_BINDING)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            Behavior::of(admissionregistration::MutatingAdmissionPolicyStrategy)
                .columns(printers::admissionregistration::MUTATING_POLICY)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            Behavior::of(admissionregistration::MutatingAdmissionPolicyBindingStrategy)
                .columns(printers::admissionregistration::POLICY_BINDING)
                .metadata(GENERIC.on_update(META).on_status_update(NONE))
                .generation()
                .conditional_update()
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Behavior::of(apiextensions::CustomResourceDefinitionStrategy)
                .metadata(GENERIC)
                .generation()
                .conditional_update()
                .returns_deleted_object()
                .checks_preconditions()
                .key_prefix("apiextensions.k8s.io/customresourcedefinitions")
        }
        ("apiregistration.k8s.io", "APIService") => Behavior::of(apiregistration::ApiServiceStrategy)
            .columns(printers::cluster::API_SERVICE)
            .name(NameRule::PathSegment)
            .metadata(GENERIC.on_update(META_UPDATE_AND_META))
            .conditional_update()
            .reset_fields(ResetFields::STATUS_ALONE)
            .key_prefix("apiregistration.k8s.io/apiservices"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => Behavior::of(flowcontrol::FlowSchemaStrategy)
            .printer(
                Printer::of_columns(printers::flowcontrol::FLOW_SCHEMA)
                    .sorted_by(printers::flowcontrol::matching_order),
            )
            .metadata(USUAL.on_update(META).on_status_update(NONE))
            .generation()
            .reset_fields(ResetFields::STATUS_ALONE),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            Behavior::of(flowcontrol::PriorityLevelConfigurationStrategy)
                .columns(printers::flowcontrol::PRIORITY_LEVEL_CONFIGURATION)
                .metadata(USUAL.on_update(META).on_status_update(NONE))
                .generation()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("resource.k8s.io", "DeviceClass") => Behavior::of(dynamic_resource_allocation::DeviceClassStrategy)
            .columns(printers::NAME_AND_AGE)
            .name(NameRule::LongName)
            .metadata(USUAL.on_update(META_AND_META_UPDATE))
            .generation()
            .returns_deleted_object(),
        ("resource.k8s.io", "ResourceClaim") => {
            Behavior::of(dynamic_resource_allocation::ResourceClaimStrategy)
                .columns(printers::resource::RESOURCE_CLAIM)
                .metadata(USUAL.on_update(META_AND_META_UPDATE))
                .returns_deleted_object()
                .reset_fields(ResetFields::STATUS_ALONE)
        }
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            Behavior::of(dynamic_resource_allocation::ResourceClaimTemplateStrategy)
                .columns(printers::NAME_AND_AGE)
                .metadata(USUAL.on_update(META_AND_META_UPDATE))
                .returns_deleted_object()
        }
        ("resource.k8s.io", "ResourceSlice") => {
            Behavior::of(dynamic_resource_allocation::ResourceSliceStrategy)
                .columns(printers::resource::RESOURCE_SLICE)
                .generation()
                .returns_deleted_object()
                .selectable_fields(dynamic_resource_allocation::resource_slice::SELECTABLE_FIELDS)
        }
        ("", "ComponentStatus") => Behavior::of(DefaultStrategy)
            .columns(printers::cluster::COMPONENT_STATUS)
            .computed(&core::component_status::ComponentStatuses)
            .deprecated("v1 ComponentStatus is deprecated in v1.19+"),
        ("metrics.k8s.io", "PodMetrics") => Behavior::of(DefaultStrategy)
            .columns(printers::metrics::POD_METRICS)
            .computed(&metrics::SimulatedPodMetrics(metrics::Measured::Annotated)),
        ("metrics.k8s.io", "NodeMetrics") => Behavior::of(DefaultStrategy)
            .columns(printers::metrics::NODE_METRICS)
            .computed(&metrics::SimulatedNodeMetrics(metrics::Measured::Annotated)),
        _ => Behavior::of(DefaultStrategy),
    }
}
