//! Strategies of the group resource, one file a kind.

pub mod device_class;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;
