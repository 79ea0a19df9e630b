//! Admission policies: expressions that decide on requests in this process.
//!
//! | file | owns |
//! | --- | --- |
//! | `definition.rs` | a stored policy with its expressions, and a stored binding |
//! | `expression.rs` | one compiled expression |
//! | `evaluation.rs` | the evaluation of expressions within a budget, and its errors |
//! | `compiled.rs` | the time at which expressions are compiled |
//! | `variables.rs` | the variables of an expression: the request, its objects, parameters, composed variables |
//! | `authorizer.rs` | the variable `authorizer` |
//! | `conditions.rs` | match conditions, which webhooks have too |
//! | `params.rs` | the parameters of a binding |
//! | `validating.rs` | ValidatingAdmissionPolicy |
//! | `mutating.rs` | MutatingAdmissionPolicy |
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy`, `.../plugin/cel`.

mod authorizer;
mod compiled;
mod conditions;
mod definition;
mod evaluation;
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

use super::generic::is_policy;
use super::{AdmissionAttributes, AdmissionMetrics};
use crate::access::authorize::Authorizer;
use crate::resource_info::SharedResourceTable;

/// The dependencies of both kinds of policies.
#[derive(Clone)]
pub struct PolicyContext {
    /// The resources of now.
    pub resources: Arc<SharedResourceTable>,
    /// The authorizer behind the variable `authorizer`.
    pub authorizer: Arc<Authorizer>,
    /// The metrics of policies.
    pub metrics: Arc<AdmissionMetrics>,
    /// The groups and resources that no policy is evaluated for, beside the policies themselves.
    pub excluded: &'static [(&'static str, &'static str)],
}

impl PolicyContext {
    /// Returns `true` if no policy is evaluated for a request.
    fn is_excluded(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        is_policy(attributes)
            || self.excluded.iter().any(|(group, resource)| attributes.is_any(group, resource))
    }
}

/// The largest cost of one expression.
const CALL_LIMIT: u64 = 1_000_000;
/// The largest cost of all expressions of a policy for one binding and one parameter.
const BINDING_BUDGET: u64 = 10_000_000;
/// The largest total cost of all match conditions.
const CONDITIONS_BUDGET: u64 = 2_500_000;
