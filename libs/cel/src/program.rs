//! Programs: compiled expressions.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ast::{Expr, ExprKind};
use crate::cost::Range;
use crate::functions::{Function, Overload};
use crate::interpreter::{self, Activation, EvalError};
use crate::meter::Meter;
use crate::plan::Step;
use crate::source::Issues;
use crate::types::Type;
use crate::value::Value;

/// What a call means: the function, and which of its overloads fit the types of the arguments.
#[derive(Clone, Debug)]
pub struct CallRef {
    pub function: &'static Function,
    pub overloads: Vec<&'static Overload>,
    /// The receiver is part of the function's name and no value.
    pub qualified: bool,
}

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

/// What an evaluation gave, and what it cost.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The value, or why there is none.
    pub value: Result<Value<'a>, EvalError>,
    /// The cost.
    pub cost: u64,
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

    /// The type of the result.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// The greatest cost that an evaluation is estimated to have.
    pub fn max_cost(&self) -> u64 {
        self.cost.max
    }

    /// The least cost that an evaluation is estimated to have.
    pub fn min_cost(&self) -> u64 {
        self.cost.min
    }

    /// Whether the expression names a variable.
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
