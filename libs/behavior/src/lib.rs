//! The behavior of what is simulated, for the kubelets that run it and for the API server that
//! reads its logs.
//!
//! - [`Profile`] is the behavior of everything that nothing else is said about;
//! - [`overrides`] reads the annotations and parameters that change it;
//! - [`inheritance`] finds those of owners and namespaces, which count for their pods;
//! - [`PodBehavior`] is that of a pod: when its containers are ready, when they end, what they log,
//!   what the commands answer that are executed in them, and where their ports lead to;
//! - [`AddressBlock`] has the addresses of load balancers;
//! - [`command`] follows commands that say plainly what they do.
//!
//! Everything here is pure: there is no clock, no cache and no client.
#![warn(missing_docs)]

mod addresses;
pub mod command;
mod environment;
mod exec;
mod exits;
mod images;
pub mod inheritance;
pub mod overrides;
mod pod;
mod ports;
mod probes;
mod profile;

pub use addresses::AddressBlock;
pub use environment::{Environment, Variable};
pub use exec::{Answer, Answers};
pub use exits::Exits;
pub use images::Images;
pub use pod::{EXEC, EXITS, Ending, Execution, FORWARD, MISSING_IMAGES, Output, PodBehavior};
pub use ports::ForwardedPorts;
pub use probes::{FailingProbe, Readiness, Started};
pub use profile::Profile;
