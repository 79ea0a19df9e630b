//! The shared parts of the controllers of EndpointSlices and Endpoints.
//!
//! - [`selection`]: the pods of a Service, and the Services affected by a change of a pod
//! - [`pods`]: the pods that are endpoints, and their ports
//! - [`endpoint_set`], [`subsets`]: endpoints of slices, and addresses of Endpoints, by their
//!   identity
//! - [`slices`]: the changes of EndpointSlices, and their execution
//! - [`trigger_time`]: the time since which a change has not been reflected in the endpoints
//! - [`rate_limit`]: the rate limit of writes for one Service
//!
//! Source: `k8s.io/endpointslice` and kube-controller-manager's `pkg/controller/endpoint*`.

pub mod endpoint_set;
pub mod gauges;
pub mod pods;
pub mod port_hash;
pub mod rate_limit;
pub mod selection;
pub mod slices;
pub mod subsets;
pub mod trigger_time;

/// The label of a headless Service's endpoints.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation with the time of the change that triggered the last update.
pub const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The annotation of Endpoints used as legacy leader-election locks.
pub const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
