//! The planner: makes the plan of a checked expression, and evaluates its constant parts.
//!
//! Source: cel-go's `interpreter/planner.go` and `decorators.go`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::activation::NO_VARIABLES;
use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Literal};
use crate::error::EvalError;
use crate::functions::{self, CallRef, Overload};
use crate::interpreter;
use crate::meter::{Limits, Meter};
use crate::plan::{Attribute, AttributeRoot, Call, Fold, Qualifier, QualifierKey, Step};
use crate::types::Type;
use crate::value::{Key, Text, Value};

/// Plans a checked expression.
///
/// - `calls`: the resolved call of each node, indexed by [`Expr::id`]; None for nodes that are not
///   calls.
///
/// # Errors
/// The text of the error if a constant part has no value.
pub fn plan(expr: &Expr, calls: &[Option<CallRef>]) -> Result<Step, String> {
    Planner { calls, scopes: Vec::new() }.plan(expr)
}

struct Planner<'e> {
    calls: &'e [Option<CallRef>],
    /// The variables of the folds around the node.
    scopes: Vec<Arc<str>>,
}

type Planned<T> = Result<T, String>;

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Planned<Step> {
        Ok(match &expr.kind {
            ExprKind::Literal(literal) => Step::Constant(literal_value(literal)),
            ExprKind::Ident(name) => match Type::named(name).filter(|_| !self.scopes.contains(name)) {
                Some(ty) => Step::Constant(Value::Type(ty)),
                None => attribute(AttributeRoot::Variable(name.clone()), Vec::new()),
            },
            ExprKind::Select { operand, field, test_only } => {
                let mut attribute = self.attribute(operand)?;
                let key = QualifierKey::Constant(Value::String(Text::Shared(field.clone())));
                attribute.qualify(Qualifier { key, optional: false, test_only: *test_only });
                attribute.test_only = *test_only;
                Step::Attribute(Box::new(attribute))
            }
            ExprKind::Call { function, target, args } => {
                return self.call(expr, function, target.as_deref(), args);
            }
            ExprKind::List(items) => {
                let plan = |(item, optional): &(Expr, bool)| Ok((self.plan(item)?, *optional));
                fold_constant(Step::List(items.iter().map(plan).collect::<Planned<_>>()?))?
            }
            ExprKind::Map(entries) => {
                let plan = |(key, value, optional): &(Expr, Expr, bool)| {
                    Ok((self.plan(key)?, self.plan(value)?, *optional))
                };
                fold_constant(Step::Map(entries.iter().map(plan).collect::<Planned<_>>()?))?
            }
            ExprKind::Struct { name, fields } => {
                let mut planned = Vec::with_capacity(fields.len());
                for field in fields {
                    planned.push((field.name.clone(), self.plan(&field.value)?, field.optional));
                }
                Step::Object { name: name.clone(), fields: planned }
            }
            ExprKind::Comprehension(fold) => self.fold(fold)?,
        })
    }

    fn fold(&mut self, fold: &Comprehension) -> Planned<Step> {
        let (range, init) = (self.plan(&fold.range)?, self.plan(&fold.init)?);
        let depth = self.scopes.len();
        self.scopes.push(fold.accu.clone());
        self.scopes.push(fold.var.clone());
        self.scopes.extend(fold.var2.clone());
        let (condition, step) = (self.plan(&fold.condition)?, self.plan(&fold.step)?);
        self.scopes.truncate(depth + 1);
        let result = self.plan(&fold.result)?;
        self.scopes.truncate(depth);
        let (var, var2, accu) = (fold.var.clone(), fold.var2.clone(), fold.accu.clone());
        Ok(Step::Fold(Box::new(Fold { range, var, var2, accu, init, condition, step, result })))
    }

    fn attribute(&mut self, expr: &Expr) -> Planned<Attribute> {
        Ok(self.plan(expr)?.into_attribute())
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) -> Planned<Step> {
        match (function, args) {
            ("_&&_" | "_||_", [a, b]) => {
                let sides = Box::new([self.plan(a)?, self.plan(b)?]);
                return Ok(Step::Logical { sides, decisive: function == "_||_" });
            }
            ("_?_:_", [condition, then, otherwise]) => {
                let root = AttributeRoot::Conditional {
                    condition: self.plan(condition)?,
                    then: Box::new(self.attribute(then)?),
                    otherwise: Box::new(self.attribute(otherwise)?),
                };
                return Ok(attribute(root, Vec::new()));
            }
            ("_[_]" | "_[?_]" | "_?._", [operand, key]) => return self.index(function, operand, key),
            _ => {}
        }
        let Some(Some(call)) = self.calls.get(expr.id) else { return Err("no such overload".to_owned()) };
        if let ("or" | "orValue", Some(target), [arg]) = (function, target, args) {
            let sides = Box::new([self.plan(target)?, self.plan(arg)?]);
            return Ok(Step::Or { sides, value: function == "orValue" });
        }
        let overload = match call.overloads.as_slice() {
            [overload] => Some(*overload),
            _ => None,
        };
        let mut steps = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target.filter(|_| !call.qualified) {
            steps.push(self.plan(target)?);
        }
        for arg in args {
            steps.push(self.plan(arg)?);
        }
        finish_call(call.function, overload, steps)
    }

    fn index(&mut self, function: &str, operand: &Expr, key: &Expr) -> Planned<Step> {
        let mut operand = self.attribute(operand)?;
        let key = match self.plan(key)? {
            Step::Constant(key @ (Value::Bytes(_) | Value::Null | Value::List(_) | Value::Map(_))) => {
                return Err(format!("invalid qualifier type: {}", key.go_type()));
            }
            Step::Constant(key) => QualifierKey::Constant(key),
            step => QualifierKey::Computed(step.into_attribute()),
        };
        operand.qualify(Qualifier { key, optional: function != "_[_]", test_only: false });
        operand.test_only = false;
        Ok(Step::Attribute(Box::new(operand)))
    }
}

fn attribute(root: AttributeRoot, qualifiers: Vec<Qualifier>) -> Step {
    Step::Attribute(Box::new(Attribute { root, qualifiers, test_only: false }))
}

/// Builds a call, or its constant value.
fn finish_call(
    function: &'static functions::Function,
    overload: Option<&'static Overload>,
    mut args: Vec<Step>,
) -> Planned<Step> {
    const CONVERSIONS: [&str; 10] =
        ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];
    match (function.name, args.as_mut_slice()) {
        ("_+_", [Step::Attribute(accu), Step::List(items)]) if accu.is_accumulator() => {
            if let [(_, false)] = items.as_slice()
                && let Some((item, _)) = items.pop()
            {
                return Ok(Step::Append { item: Box::new(item), accumulator: ACCUMULATOR.into() });
            }
        }
        ("_+_", [Step::Attribute(accu), Step::Constant(Value::List(list))])
            if accu.is_accumulator() && list.len() == 1 =>
        {
            if let Some(item) = list.get(0) {
                let item = Box::new(Step::Constant(item));
                return Ok(Step::Append { item, accumulator: ACCUMULATOR.into() });
            }
        }
        ("@in", [item, Step::Constant(Value::List(list))])
            if overload.is_some_and(|overload| matches!(overload.params.get(1), Some(Type::List(_)))) =>
        {
            if list.is_empty() {
                return Ok(Step::Constant(Value::Bool(false)));
            }
            // Only items of simple types can be looked up.
            let key = |value: Value<'static>| Key::of(&value).filter(|_| !matches!(value, Value::Null));
            if let Some(keys) = list.iter().map(key).collect::<Option<Vec<Key>>>() {
                let set: BTreeSet<Key> = keys.into_iter().flat_map(Key::alternatives).collect();
                let item = Box::new(std::mem::replace(item, Step::Constant(Value::Null)));
                return Ok(Step::Membership { item, set: Arc::new(set) });
            }
        }
        _ => {}
    }
    let is_pattern = ["matches", "find", "findAll"].contains(&function.name)
        && matches!(args.get(1), Some(Step::Constant(Value::String(_))));
    if let (true, Some(Step::Constant(Value::String(pattern)))) = (is_pattern, args.get(1)) {
        functions::check_pattern(pattern)?;
    }
    let is_constant_conversion =
        CONVERSIONS.contains(&function.name) && args.len() == 1 && args.iter().all(Step::is_constant);
    let ends_early = args.len() > 2 || is_pattern;
    let call = Step::Call(Box::new(Call { function, overload, args, ends_early }));
    if is_constant_conversion { evaluated(&call) } else { Ok(call) }
}

/// Builds a list or map, or its constant value.
fn fold_constant(step: Step) -> Planned<Step> {
    let is_constant = match &step {
        Step::List(items) => items.iter().all(|(item, _)| item.is_constant()),
        Step::Map(entries) => entries.iter().all(|(key, value, _)| key.is_constant() && value.is_constant()),
        _ => false,
    };
    if is_constant { evaluated(&step) } else { Ok(step) }
}

fn evaluated(step: &Step) -> Planned<Step> {
    let meter = Meter::new(Limits::REQUEST);
    match interpreter::evaluate(step, &NO_VARIABLES, u64::MAX, &meter).value {
        Ok(value) => Ok(Step::Constant(value)),
        Err(EvalError::WorkLimit(_)) => Ok(step.clone()),
        Err(error) => Err(error.to_string()),
    }
}

fn literal_value(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}
