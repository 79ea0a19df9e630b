//! Strategies of the core group, one file a kind.

pub mod binding;
pub mod component_status;
pub mod config_map;
pub mod endpoints;
pub mod event;
pub mod limit_range;
pub mod namespace;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod pod_template;
pub mod replication_controller;
pub mod resource_quota;
pub mod secret;
pub mod service;
pub mod service_account;

pub use binding::BindingStrategy;
pub use config_map::ConfigMapStrategy;
pub use endpoints::EndpointsStrategy;
pub use event::{EventStrategy, EventsV1Strategy};
pub use limit_range::LimitRangeStrategy;
pub use namespace::NamespaceStrategy;
pub use node::NodeStrategy;
pub use persistent_volume::PersistentVolumeStrategy;
pub use persistent_volume_claim::PersistentVolumeClaimStrategy;
pub use pod::PodStrategy;
pub use pod_template::PodTemplateStrategy;
pub use replication_controller::ReplicationControllerStrategy;
pub use resource_quota::ResourceQuotaStrategy;
pub use secret::SecretStrategy;
pub use service::ServiceStrategy;
pub use service_account::ServiceAccountStrategy;
