//! The pod spec of Pods and pod templates: defaults, rules and warnings.
//!
//! Every kind with a template calls the functions re-exported here with the template and its path;
//! the Pod kind (`core::pod`) adds the rules of status, updates and subresources.
//!
//! Feature gates have the defaults of Kubernetes 1.36. Privileged containers are allowed, as every
//! cluster tool configures kube-apiserver (its flag `--allow-privileged`). Start at
//! [`validate_pod_spec`] in `spec.rs`.

mod allowances;
pub mod annotations;
mod container_lists;
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
mod volume_members;
mod volumes;
mod warnings;

#[cfg(test)]
mod tests;

pub use container_lists::{ContainerType, is_sidecar};
pub use containers::validate_image_is_trimmed;
pub use defaults::{default_pod, default_pod_spec, default_pod_template, mirror_service_account};
pub use options::PodValidationOptions;
pub use prepare::{drop_disabled, prepare_pod_template};
pub use spec::{validate_pod_spec, validate_pod_template};
pub use warnings::{pod_template_warnings, pod_warnings};

pub use coracle_apimachinery::qos::qos_class;
