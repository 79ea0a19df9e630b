//! The evaluation of a policy's expressions within a budget, and its errors.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel`, `Evaluate` in `activation.go`.

use std::fmt;

use coracle_cel::{Activation, Meter, Value as CelValue};

use super::CALL_LIMIT;
use super::expression::Expression;
use super::variables::PolicyVariables;

/// The reason for which an expression has no value. Its text is kube-apiserver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvaluationError {
    /// The expression does not compile.
    Compilation(String),
    /// The expressions together cost too much: no others are evaluated.
    OutOfBudget,
    /// The evaluation failed.
    Expression {
        /// The expression.
        text: String,
        /// The reason.
        error: String,
    },
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvaluationError::Compilation(error) => write!(f, "compilation error: {error}"),
            EvaluationError::OutOfBudget => f.write_str(
                "validation failed due to running out of cost budget, no further validation rules will be run",
            ),
            EvaluationError::Expression { text, error } => {
                write!(f, "expression '{text}' resulted in error: {error}")
            }
        }
    }
}

/// The cost that is left for expressions, and the meter of their work.
pub struct Budget<'m> {
    remaining: u64,
    meter: &'m Meter,
}

impl Budget<'_> {
    /// Creates a budget.
    pub fn new(remaining: u64, meter: &Meter) -> Budget<'_> {
        Budget { remaining, meter }
    }

    /// Evaluates an expression of a policy within the remaining budget, from which its composed
    /// variables are paid for, too.
    ///
    /// # Errors
    /// It has no value. Without a budget the caller must not evaluate others.
    pub fn evaluate<'a>(
        &mut self,
        expression: &Expression,
        variables: &PolicyVariables<'a>,
    ) -> Result<CelValue<'a>, EvaluationError> {
        self.evaluate_beside(expression, variables, || variables.cost.take())
    }

    /// Evaluates an expression within the remaining budget.
    ///
    /// - `more`: the cost of what was evaluated for it
    ///
    /// # Errors
    /// As those of [`evaluate`](Self::evaluate).
    pub fn evaluate_beside<'a>(
        &mut self,
        expression: &Expression,
        variables: &dyn Activation<'a>,
        more: impl FnOnce() -> u64,
    ) -> Result<CelValue<'a>, EvaluationError> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Err(EvaluationError::Compilation(error.clone())),
        };
        let outcome = program.evaluate(variables, CALL_LIMIT, self.meter);
        self.spend(outcome.cost.saturating_add(more()))?;
        outcome.value.map_err(|error| EvaluationError::Expression {
            text: expression.text.clone(),
            error: error.to_string(),
        })
    }

    /// Returns `true` if so many expressions cannot cost more than is left.
    pub fn covers(&self, expressions: usize) -> bool {
        u64::try_from(expressions).is_ok_and(|count| count.saturating_mul(CALL_LIMIT) <= self.remaining)
    }

    /// Takes a cost from the budget.
    ///
    /// # Errors
    /// It is not enough.
    fn spend(&mut self, cost: u64) -> Result<(), EvaluationError> {
        self.remaining = self.remaining.checked_sub(cost).ok_or(EvaluationError::OutOfBudget)?;
        Ok(())
    }
}
