//! Load balancers: Services of that type and Ingresses get addresses, as a cloud gives them. Nothing listens there.
//!
//! What has a class of another implementation is left alone, and so is an address that a client wrote.

mod ingress;
mod pool;
mod service;

pub use ingress::IngressAddresses;
pub use service::ServiceAddresses;
