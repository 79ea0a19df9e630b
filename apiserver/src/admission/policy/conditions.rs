//! Match conditions: whether a webhook or a policy is called at all.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions`.

use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_cel::{Activation, Meter, Value as CelValue};
use serde_json::Value;

use super::CONDITIONS_BUDGET;
use super::definition::Expression;
use crate::admission::items;

/// The `matchConditions` of a webhook or policy.
#[derive(Default)]
pub struct MatchConditions(Vec<Expression>);

impl MatchConditions {
    /// Of a webhook.
    pub fn of_webhook(conditions: &Value) -> MatchConditions {
        MatchConditions::read(conditions, &PolicyEnv::new(false))
    }

    /// With the variables of an environment.
    pub fn read(conditions: &Value, env: &PolicyEnv) -> MatchConditions {
        let read = |condition: &Value| Expression::read(&condition["expression"], env);
        MatchConditions(items(conditions).iter().filter_map(read).collect())
    }

    /// Whether all conditions hold. One that is false decides, whatever others fail with.
    ///
    /// # Errors
    /// The text of the first condition that cannot be evaluated, if none is false.
    pub fn match_request<'a>(&self, variables: &dyn Activation<'a>, meter: &Meter) -> Result<bool, String> {
        let mut budget = CONDITIONS_BUDGET;
        let mut failed = None;
        for condition in &self.0 {
            let outcome = match &condition.program {
                Ok(program) => {
                    let outcome = program.evaluate(variables, super::CALL_LIMIT.min(budget), meter);
                    budget = budget.saturating_sub(outcome.cost);
                    outcome.value.map_err(|error| error.to_string())
                }
                Err(error) => Err(error.clone()),
            };
            match outcome {
                Ok(CelValue::Bool(true)) => {}
                Ok(CelValue::Bool(false)) => return Ok(false),
                Ok(_) => _ = failed.get_or_insert_with(|| "match condition is not a bool".to_owned()),
                Err(error) => {
                    failed.get_or_insert_with(|| {
                        format!("expression '{}' resulted in error: {error}", condition.text)
                    });
                }
            }
        }
        failed.map_or(Ok(true), Err)
    }
}
