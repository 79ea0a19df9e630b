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

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// All containers of a pod: init, app and ephemeral ones.
pub fn containers<'a>(spec: &Field<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    CONTAINER_LISTS.map(|list| spec.get(list)).into_iter().flat_map(|list| list.items())
}

/// An init container that keeps running beside the app containers.
pub fn is_sidecar(container: &Field<'_>) -> bool {
    container.get("restartPolicy").str() == "Always"
}
