//! The parts that a server of Kubernetes' built-in kinds attaches to the generic API server:
//! admission plugins, quotas, allocation, RBAC, addresses of Services, subresources of pods,
//! reviews, tokens, the objects of the start. The counterpart of k8s.io/kubernetes' `plugin` and
//! `pkg/registry` over k8s.io/apiserver.
//!
//! The rules of single kinds are in `coracle-resources`; neither crate depends on the other.
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure"))]

pub mod admission;
pub mod allocation;
pub mod authorization;
pub mod forwarding;
mod pod_spec;
mod pods;
mod quota;
pub mod rbac;
mod reviews;
pub mod services;
pub mod start;
pub mod timers;
pub mod tokens;

use std::sync::Arc;

use coracle_apiserver::serve::{ActionDeclaration, Extensions};
use coracle_behavior::Profile;

use forwarding::ForwardAccess;

static ACTIONS: [&[ActionDeclaration]; 3] = [&reviews::ACTIONS, &pods::ACTIONS, &tokens::ACTIONS];

/// Returns the parts of a server that depend on the built-in kinds.
///
/// - `profile`: the behavior of simulated pods, which also determines their logs.
/// - `access`: the addresses to which their ports may lead.
pub fn extensions(profile: Profile, access: Arc<ForwardAccess>) -> Extensions {
    let connect = Some(pods::connect(profile, access));
    // Rules are compared with all that their author may do.
    Extensions {
        actions: &ACTIONS,
        connect,
        large_groups: &[rbac::GROUP],
        review_groups: &["authentication.k8s.io", "authorization.k8s.io"],
        ..Extensions::default()
    }
}
