//! Simulated nodes, a scheduler, kubelets and a CSI driver: pods run and volumes exist where
//! nothing runs.
//!
//! In the order in which a pod meets them:
//! 1. [`node_registration`]: the Node objects `node-0`, `node-1`, ..., with the leases that show
//!    that they live;
//! 2. [`scheduler`]: binds pods to nodes, to any that the API has;
//! 3. [`csi`]: the driver `coracle.csi` with its sidecars;
//! 4. [`kubelet`]: runs the pods that are bound to the simulated nodes;
//! 5. [`load_balancer`]: gives addresses to Services and Ingresses.
//!
//! Always true here:
//! - What a client writes is not fought over. The kubelet writes when something happens to a pod,
//!   not when a status is other than it would be; a pod that a client declares to be finished is
//!   finished.
//! - Foreign pods and nodes are left alone: other schedulers' pods, pods with [`IGNORE`], other
//!   nodes' pods.
//! - A node with [`SILENT`] neither reports nor runs anything, until the annotation is removed.
//! - Files are touched only through [`coracle_volumes::confined_fs`].
#![warn(missing_docs)]

mod csi;
mod kubelet;
mod load_balancer;
mod node;
mod node_registration;
mod scheduler;
mod settings;
mod simulated;
pub mod timers;

use coracle_controller_runtime::{Controller, ControllerDescriptor};

pub use settings::{Context, Settings};
pub use simulated::{IGNORE, SILENT};

/// Selected like controllers, by the names of the programs that do the same in a cluster.
pub static CONTROLLERS: &[ControllerDescriptor<Settings>] =
    &[ControllerDescriptor::of::<scheduler::Scheduler>(), ControllerDescriptor::of::<kubelet::Kubelet>()];

/// Returns the user agent of a controller of the simulation, with the name of the program that does
/// the same in a cluster; `None` for a controller of kube-controller-manager. The first part of the
/// user agent is the field manager of its writes.
pub fn user_agent(controller: &str) -> Option<String> {
    const COMMON: &str = concat!("v1.36 coracle/", env!("CARGO_PKG_VERSION"));
    let program = match controller {
        // Nodes register themselves.
        node_registration::NodeRegistration::NAME => kubelet::Kubelet::NAME,
        name => CONTROLLERS.iter().chain(ALWAYS).map(|known| known.name).find(|known| *known == name)?,
    };
    Some(format!("{program}/{COMMON}"))
}

/// Registers the simulated nodes, if there are any; no flag selects it. It is ready when it has
/// tried to register each that is not there.
pub static NODES: ControllerDescriptor<Settings> = node_registration::DESCRIPTOR;

/// Runs with any controller and with simulated nodes; no flag selects it.
pub static ALWAYS: &[ControllerDescriptor<Settings>] = &[
    csi::DESCRIPTOR,
    ControllerDescriptor::of::<load_balancer::ServiceAddresses>(),
    ControllerDescriptor::of::<load_balancer::IngressAddresses>(),
];
