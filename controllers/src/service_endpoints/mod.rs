//! What the controllers of EndpointSlices and Endpoints share.
//!
//! - [`selection`]: the pods of a Service, and the Services that a change of a pod concerns
//! - [`pods`]: which pods are endpoints, and by which ports
//! - [`endpoint_set`], [`subsets`]: endpoints of slices, and addresses of Endpoints, by what makes them the same
//! - [`slices`]: the changes of EndpointSlices, and their execution
//! - [`trigger_time`]: since when a change waits to be seen in the endpoints
//! - [`pace`]: how often the endpoints of one Service are written
//!
//! Source: `k8s.io/endpointslice` and kube-controller-manager's `pkg/controller/endpoint*`.

pub mod endpoint_set;
pub mod gauges;
pub mod pace;
pub mod pods;
pub mod selection;
pub mod slices;
pub mod subsets;
pub mod trigger_time;

/// The label of a headless Service's endpoints.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation that says since when the last change waits.
pub const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The annotation of Endpoints that are no Service's: leaders were elected with them once.
pub const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
