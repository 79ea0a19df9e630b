//! Strategies of the group resource.k8s.io, one file a kind; what claims, templates and classes say about devices is in
//! [`devices`]. Expressions are looked at as text only.

pub mod device_class;
mod devices;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;

#[cfg(test)]
mod tests;
