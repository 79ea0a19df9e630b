//! The parts that a server of Kubernetes' built-in kinds attaches to the generic API server:
//! admission plugins, quotas, allocation, addresses of Services, subresources of pods, reviews, tokens. The counterpart
//! of k8s.io/kubernetes' `plugin` and `pkg/registry` over k8s.io/apiserver.
//!
//! The rules of single kinds are in `coracle-resources`; neither crate depends on the other.
#![warn(missing_docs)]

pub mod admission;
pub mod allocation;
mod pod_spec;
mod pods;
mod quota;
mod rbac;
mod reviews;
pub mod services;
pub mod start;
pub mod timers;
pub mod tokens;

use coracle_apiserver::serve::{ActionDeclaration, Extensions};

static ACTIONS: [&[ActionDeclaration]; 3] = [&reviews::ACTIONS, &pods::ACTIONS, &tokens::ACTIONS];

/// The answers to requests that the generic server leaves to those who know the kinds.
pub fn extensions() -> Extensions {
    Extensions { actions: &ACTIONS, connect: Some(pods::connect) }
}
