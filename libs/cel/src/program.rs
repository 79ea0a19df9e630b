//! Programs: compiled expressions.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::activation::Activation;
use crate::ast::{Expr, ExprKind};
use crate::cost::Range;
use crate::interpreter::{self, Outcome};
use crate::meter::Meter;
use crate::plan::Step;
use crate::source::Issues;
use crate::types::Type;

/// The reason why an expression has no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is not well-formed, or its types do not fit.
    #[error("compilation failed: {0}")]
    Issues(Issues),
    /// A constant part of it cannot be evaluated.
    #[error("program instantiation failed: {0}")]
    Program(String),
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Program {
    plan: Step,
    names: BTreeSet<Arc<str>>,
    cost: Range,
    output: Type,
}

impl Program {
    pub(crate) fn new(expr: &Expr, plan: Step, output: Type, cost: Range) -> Program {
        let mut names = BTreeSet::new();
        expr.visit(&mut |expr| {
            if let ExprKind::Ident(name) = &expr.kind {
                names.insert(name.clone());
            }
        });
        Program { plan, names, cost, output }
    }

    /// Returns the type of the result.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// Returns the estimated maximum cost of an evaluation.
    pub fn max_cost(&self) -> u64 {
        self.cost.max
    }

    /// Returns the estimated minimum cost of an evaluation.
    pub fn min_cost(&self) -> u64 {
        self.cost.min
    }

    /// Returns `true` if the expression names a variable.
    pub fn names(&self, variable: &str) -> bool {
        self.names.contains(variable)
    }

    /// Evaluates the expression.
    ///
    /// - `cost_limit`: the most that it may cost, by upstream's cost model.
    /// - `meter`: counts what it really does, with the other evaluations for the same request.
    pub fn evaluate<'a>(
        &self,
        variables: &dyn Activation<'a>,
        cost_limit: u64,
        meter: &Meter,
    ) -> Outcome<'a> {
        interpreter::evaluate(&self.plan, variables, cost_limit, meter)
    }
}
