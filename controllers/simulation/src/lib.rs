//! Simulated nodes, a scheduler, kubelets and a CSI driver: pods run and volumes exist where nothing runs.
//!
//! In the order in which a pod meets them:
//! 1. [`node_registration`]: the Node objects `node-0`, `node-1`, ..., with the leases that show that they live;
//! 2. [`scheduler`]: binds pods to nodes, to any that the API has;
//! 3. [`csi`]: the driver `coracle.csi` with its sidecars;
//! 4. [`kubelet`]: runs the pods that are bound to the simulated nodes.
//!
//! Always true here:
//! - What a client writes is not fought over. The kubelet writes when something happens to a pod, not when a status is other
//!   than it would be; a pod that a client declares to be finished is finished.
//! - Foreign pods and nodes are left alone: other schedulers' pods, pods with [`IGNORE`], other nodes' pods.
//! - A node with [`SILENT`] neither reports nor runs anything, until the annotation is removed.
//! - Files are touched only through [`coracle_volumes::confined_fs`].
#![warn(missing_docs)]

mod csi;
mod kubelet;
mod node;
mod node_registration;
mod scheduler;
mod settings;

use coracle_kinds::pods;
use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::{Node, Pod};

use coracle_controller_runtime::ControllerDescriptor;
pub use settings::{Context, Settings};

/// Selected like controllers, by the names of the programs that do the same in a cluster.
pub static CONTROLLERS: &[ControllerDescriptor<Settings>] =
    &[ControllerDescriptor::of::<scheduler::Scheduler>(), ControllerDescriptor::of::<kubelet::Kubelet>()];

/// Runs with any controller and with simulated nodes; no flag selects it.
pub static ALWAYS: &[ControllerDescriptor<Settings>] =
    &[ControllerDescriptor::of::<node_registration::NodeRegistration>(), csi::DESCRIPTOR];

/// A pod with this annotation is not simulated.
pub const IGNORE: &str = "sim.coracle.dev/ignore";

/// A Node with this annotation has a kubelet that does nothing.
pub const SILENT: &str = "sim.coracle.dev/silent";

fn is_silent(node: &Node) -> bool {
    annotation(&node.metadata, SILENT) == Some("true")
}

fn is_ignored(pod: &Pod) -> bool {
    annotation(&pod.metadata, IGNORE) == Some("true")
}

/// Whether a pod has ended, of itself or because a client declared so.
fn is_finished(pod: &Pod) -> bool {
    matches!(pods::phase(pod), "Succeeded" | "Failed")
}
