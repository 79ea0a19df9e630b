//! Load balancers: Services of that type and Ingresses get addresses, as a cloud gives them.
//! Nothing listens there.
//!
//! Services with a class of another implementation are left alone, and so are addresses that a
//! client wrote, and Ingresses of an IngressClass that exists: its controller writes their status.

mod ingress;
mod pool;
mod service;

pub use ingress::IngressAddresses;
pub use service::ServiceAddresses;
