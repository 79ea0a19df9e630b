//! The pod spec of Pods and pod templates: defaults, rules and warnings.
//!
//! Every kind with a template calls the functions re-exported here with the template and its path; the Pod kind
//! (`core::pod`) adds the rules of status, updates and subresources.
//!
//! Feature gates have the defaults of Kubernetes 1.36. Privileged containers are allowed, as every cluster tool
//! configures the real server (its flag `--allow-privileged`). Start at [`validate_pod_spec`] in `spec.rs`.

pub mod annotations;
mod containers;
mod defaults;
mod env;
mod image;
mod options;
mod prepare;
mod probes;
mod projected;
pub mod resources;
pub mod scheduling;
pub mod security;
mod spec;
mod volumes;
mod warnings;

#[cfg(test)]
mod tests;

pub use containers::validate_image_is_trimmed;
pub use defaults::{default_pod, default_pod_spec, default_pod_template, mirror_service_account};
pub use options::Options;
pub use prepare::{drop_disabled, prepare_pod_template};
pub use spec::{validate_pod_spec, validate_pod_template};
pub use warnings::{pod_template_warnings, pod_warnings};

pub use coracle_apimachinery::qos::qos_class;

use coracle_apimachinery::field::Field;
use coracle_apimachinery::pods;

/// The type of a container, by the list of the pod's spec that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerType {
    /// An init container, sidecars included.
    Init,
    /// An app container.
    App,
    /// An ephemeral container.
    Ephemeral,
}

impl ContainerType {
    /// All types, in the order in which they start.
    pub const ALL: [ContainerType; 3] = [ContainerType::Init, ContainerType::App, ContainerType::Ephemeral];

    /// The member of a pod's spec that lists containers of this type.
    pub fn list(self) -> &'static str {
        match self {
            ContainerType::Init => "initContainers",
            ContainerType::App => "containers",
            ContainerType::Ephemeral => "ephemeralContainers",
        }
    }

    /// The member of a pod's status that lists their statuses.
    pub fn statuses(self) -> &'static str {
        match self {
            ContainerType::Init => "initContainerStatuses",
            ContainerType::App => "containerStatuses",
            ContainerType::Ephemeral => "ephemeralContainerStatuses",
        }
    }
}

/// All containers of a pod: init, app and ephemeral ones.
pub fn containers<'a>(spec: &Field<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    ContainerType::ALL.map(|kind| spec.get(kind.list())).into_iter().flat_map(|list| list.items())
}

/// Whether an init container is a sidecar.
pub fn is_sidecar(container: &Field<'_>) -> bool {
    container.value().is_some_and(pods::is_sidecar)
}
