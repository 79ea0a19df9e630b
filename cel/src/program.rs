//! Programs: compiled expressions.

use crate::ast::{Expr, ExprKind};
use crate::functions::{Function, Overload};
use crate::interpreter::{self, Activation, EvalError};
use crate::meter::Meter;
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

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) expr: Expr,
    pub(crate) calls: Vec<Option<CallRef>>,
    pub(crate) max_cost: u64,
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
    pub(crate) fn new(expr: Expr, output: Type, calls: Vec<Option<CallRef>>) -> Program {
        Program { expr, calls, max_cost: 0, output }
    }

    /// The type of the result.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// The greatest cost that an evaluation is estimated to have.
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// Whether the expression names a variable.
    pub fn names(&self, variable: &str) -> bool {
        let mut found = false;
        self.expr
            .visit(&mut |expr| found |= matches!(&expr.kind, ExprKind::Ident(name) if **name == *variable));
        found
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
        interpreter::evaluate(self, variables, cost_limit, meter)
    }
}
