//! Strategies of the group resource.k8s.io (dynamic resource allocation), one file a kind; the device requests of
//! claims, templates and classes are in [`devices`]. CEL expressions are validated as text only.

pub mod device_class;
mod devices;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;

#[cfg(test)]
mod tests;
