//! Strategies of the group resource.k8s.io (dynamic resource allocation), one file a kind; the device requests of
//! claims, templates and classes are in [`devices`]. CEL expressions are validated as text only.

pub mod device_class;
mod devices;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;

pub use device_class::DeviceClassStrategy;
pub use resource_claim::ResourceClaimStrategy;
pub use resource_claim_template::ResourceClaimTemplateStrategy;
pub use resource_slice::ResourceSliceStrategy;

#[cfg(test)]
mod tests;
