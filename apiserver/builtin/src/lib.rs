//! Whatever a server of Kubernetes' built-in kinds attaches to the generic API server: admission plugins and quotas. The counterpart of
//! k8s.io/kubernetes' `plugin` and `pkg/registry` over k8s.io/apiserver.
//!
//! The rules of single kinds are in `coracle-resources`; neither crate depends on the other.
#![warn(missing_docs)]

pub mod admission;
mod pod_spec;
mod quota;
mod rbac;
