//! Admission policies: expressions that decide on requests in this process.
//!
//! | file | owns |
//! | --- | --- |
//! | `definition.rs` | a stored policy with its expressions, and a stored binding |
//! | `expression.rs` | one compiled expression |
//! | `compiled.rs` | when expressions are compiled |
//! | `variables.rs` | the variables of an expression: the request, its objects, parameters, composed variables |
//! | `authorizer.rs` | the variable `authorizer` |
//! | `conditions.rs` | match conditions, which webhooks have too |
//! | `params.rs` | the parameters that a binding names |
//! | `validating.rs` | ValidatingAdmissionPolicy |
//! | `mutating.rs` | MutatingAdmissionPolicy |
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy`, `.../plugin/cel`.

mod authorizer;
mod compiled;
mod conditions;
mod definition;
mod expression;
mod mutating;
mod params;
mod validating;
mod variables;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use compiled::Compiled;
pub use conditions::MatchConditions;
pub use mutating::MutatingAdmissionPolicy;
pub use validating::ValidatingAdmissionPolicy;
pub use variables::RequestVariables;

use super::AdmissionMetrics;
use crate::access::authorize::Authorizer;
use crate::resource_info::SharedResourceTable;

/// What the policies of both kinds work with.
#[derive(Clone)]
pub struct PolicyContext {
    /// The resources of now.
    pub resources: Arc<SharedResourceTable>,
    /// What the variable `authorizer` asks.
    pub authorizer: Arc<Authorizer>,
    /// What is counted of policies.
    pub metrics: Arc<AdmissionMetrics>,
}

/// What one expression may cost.
const CALL_LIMIT: u64 = 1_000_000;
/// What all expressions of a policy may cost for one binding and one parameter.
const BINDING_BUDGET: u64 = 10_000_000;
/// What all match conditions together may cost.
const CONDITIONS_BUDGET: u64 = 2_500_000;
