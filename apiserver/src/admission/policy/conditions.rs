//! Match conditions: whether a webhook or a policy is called at all.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions`.

use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_cel::{Activation, EvalError, Meter, Value as CelValue};
use serde_json::Value;

use super::CONDITIONS_BUDGET;
use super::evaluation::{Budget, EvaluationError};
use super::expression::Expression;
use crate::admission::json::items;

/// The `matchConditions` of a webhook or policy.
#[derive(Default)]
pub struct MatchConditions(Vec<Expression>);

impl MatchConditions {
    /// Reads the conditions of a webhook.
    pub fn of_webhook(conditions: &Value) -> MatchConditions {
        MatchConditions::read(conditions, &PolicyEnv::new(false))
    }

    /// Reads conditions with the variables of an environment.
    pub fn read(conditions: &Value, env: &PolicyEnv) -> MatchConditions {
        let read = |condition: &Value| Expression::read(&condition["expression"], env);
        MatchConditions(items(conditions).iter().filter_map(read).collect())
    }

    /// Returns whether all conditions hold. If one is false, the result is `false`, even if others
    /// cannot be evaluated. `namespaceObject` is null in conditions.
    ///
    /// # Errors
    /// The texts of the conditions that cannot be evaluated, if none is false.
    pub fn match_request<'a>(&self, variables: &dyn Activation<'a>, meter: &Meter) -> Result<bool, String> {
        let variables = &WithoutNamespace(variables);
        let mut budget = Budget::new(CONDITIONS_BUDGET, meter);
        let mut failed = Vec::new();
        for condition in &self.0 {
            let error = match budget.evaluate_beside(condition, variables, || 0) {
                Err(EvaluationError::OutOfBudget) => return Err(EvaluationError::OutOfBudget.to_string()),
                Ok(CelValue::Bool(true)) => continue,
                Ok(CelValue::Bool(false)) => return Ok(false),
                Ok(_) => "match condition is not a bool".to_owned(),
                Err(error) => error.to_string(),
            };
            if !failed.contains(&error) {
                failed.push(error);
            }
        }
        match failed.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }
}

/// The variables of a request, but for its namespace.
struct WithoutNamespace<'v, 'a>(&'v dyn Activation<'a>);

impl<'a> Activation<'a> for WithoutNamespace<'_, 'a> {
    fn resolve(&self, name: &str) -> Option<Result<CelValue<'a>, EvalError>> {
        if name == "namespaceObject" { Some(Ok(CelValue::Null)) } else { self.0.resolve(name) }
    }

    fn resolve_member(&self, name: &str, member: &str) -> Option<Result<CelValue<'a>, EvalError>> {
        self.0.resolve_member(name, member)
    }
}
