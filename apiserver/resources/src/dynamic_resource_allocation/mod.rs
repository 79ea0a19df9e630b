//! Strategies of the group resource.k8s.io (dynamic resource allocation), one file a kind. The
//! device requests of claims, templates and classes are in [`devices`], their CEL selectors in
//! [`selectors`], the status of claims in [`allocation`].

mod admin_access;
mod allocation;
mod capacity;
pub mod device_class;
mod devices;
mod lists;
mod names;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;
mod selectors;

pub use device_class::DeviceClassStrategy;
pub use resource_claim::ResourceClaimStrategy;
pub use resource_claim_template::ResourceClaimTemplateStrategy;
pub use resource_slice::ResourceSliceStrategy;

#[cfg(test)]
mod tests;
