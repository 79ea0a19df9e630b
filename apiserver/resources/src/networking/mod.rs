//! Strategies of the group networking, one file a kind.

pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod network_policy;
pub mod service_cidr;

pub use ingress::IngressStrategy;
pub use ingress_class::IngressClassStrategy;
pub use ip_address::IpAddressStrategy;
pub use network_policy::NetworkPolicyStrategy;
pub use service_cidr::ServiceCidrStrategy;
