//! Strategies of the group rbac, one file a kind.

pub mod cluster_role;
pub mod cluster_role_binding;
pub mod role;
pub mod role_binding;

pub use cluster_role::ClusterRoleStrategy;
pub use cluster_role_binding::ClusterRoleBindingStrategy;
pub use role::RoleStrategy;
pub use role_binding::RoleBindingStrategy;
