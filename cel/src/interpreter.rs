//! Evaluation, which counts its cost.
//!
//! Source: cel-spec, "Evaluation"; cel-go's `interpreter/interpretable.go` and `runtimecost.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Comprehension, Expr, ExprKind, Literal};
use crate::cost;
use crate::meter::Meter;
use crate::program::{Outcome, Program};
use crate::types::Type;
use crate::value::{Key, List, Map, Text, Value};

/// Why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The types of arguments fit no overload.
    #[error("no such overload")]
    NoSuchOverload,
    /// A map or object has no such key.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A list has no such index.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(i64),
    /// The evaluation cost more than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The evaluation did more than it may: too much work, too many bytes, or it took too long.
    #[error("operation interrupted: {0} limit exceeded")]
    WorkLimit(&'static str),
    /// Another error, in words.
    #[error("{0}")]
    Other(String),
}

impl EvalError {
    /// Whether the whole evaluation ends: no other operand decides instead.
    fn ends_evaluation(&self) -> bool {
        matches!(self, EvalError::CostLimit | EvalError::WorkLimit(_))
    }
}

/// The values of variables.
pub trait Activation<'a> {
    /// The value of a variable; None if it has none. A variable may itself be the result of an evaluation that failed.
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;

    /// The value of a member of a variable, where that is computed by itself; None to read it from the variable.
    fn resolve_member(&self, name: &str, member: &str) -> Option<Result<Value<'a>, EvalError>> {
        let _ = (name, member);
        None
    }
}

/// No variables.
pub const NO_VARIABLES: &[(&str, Value<'static>)] = &[];

impl<'a> Activation<'a> for [(&str, Value<'a>)] {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| Ok(value.clone()))
    }
}

impl<'a> Activation<'a> for &[(&str, Value<'a>)] {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        (**self).resolve(name)
    }
}

impl<'a, const N: usize> Activation<'a> for [(&str, Value<'a>); N] {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.as_slice().resolve(name)
    }
}

type Evaluated<'a> = Result<Value<'a>, EvalError>;

/// Evaluates a program.
pub fn evaluate<'a>(
    program: &Program,
    variables: &dyn Activation<'a>,
    cost_limit: u64,
    meter: &Meter,
) -> Outcome<'a> {
    let mut interpreter = Interpreter { program, variables, meter, scopes: Vec::new(), cost: 0, cost_limit };
    let value = interpreter.evaluate(&program.expr);
    Outcome { value, cost: interpreter.cost }
}

struct Interpreter<'p, 'a> {
    program: &'p Program,
    variables: &'p dyn Activation<'a>,
    meter: &'p Meter,
    scopes: Vec<(&'p str, Evaluated<'a>)>,
    cost: u64,
    cost_limit: u64,
}

impl<'p, 'a> Interpreter<'p, 'a> {
    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.cost_limit { Err(EvalError::CostLimit) } else { Ok(()) }
    }

    fn evaluate(&mut self, expr: &'p Expr) -> Evaluated<'a> {
        let meter = self.meter;
        meter.nested(|| self.node(expr))
    }

    fn node(&mut self, expr: &'p Expr) -> Evaluated<'a> {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(literal_value(literal)),
            ExprKind::Ident(name) => {
                self.charge(1)?;
                self.variable(name)
            }
            ExprKind::Select { operand, field, test_only } => self.select(expr, operand, field, *test_only),
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List(items) => self.list(items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => {
                self.charge(40)?;
                let mut made = BTreeMap::new();
                for field in fields {
                    if let Some(value) = self.element(&field.value, field.optional)? {
                        made.insert(field.name.clone(), value);
                    }
                }
                self.meter.make_items(made.len())?;
                self.made(Value::object(name.clone(), made))
            }
            ExprKind::Comprehension(fold) => self.fold(fold),
        }
    }

    fn variable(&self, name: &str) -> Evaluated<'a> {
        if let Some((_, value)) = self.scopes.iter().rev().find(|(scoped, _)| *scoped == name) {
            return value.clone();
        }
        match self.variables.resolve(name) {
            Some(value) => value,
            None => match Type::named(name) {
                Some(ty) => Ok(Value::Type(ty)),
                None => Err(EvalError::Other(format!("no such attribute(s): {name}"))),
            },
        }
    }

    fn select(&mut self, expr: &'p Expr, operand: &'p Expr, field: &str, test_only: bool) -> Evaluated<'a> {
        if let ExprKind::Ident(first) = &operand.kind
            && (&**first == "google" || &**first == "kubernetes" || &**first == "net")
            && let Some(ty) = Type::named(&format!("{first}.{field}"))
        {
            return Ok(Value::Type(ty));
        }
        if let Some(ty) = protobuf_type(expr) {
            return Ok(Value::Type(ty));
        }
        if let ExprKind::Ident(name) = &operand.kind
            && !test_only
            && let Some(value) = self.variables.resolve_member(name, field)
        {
            self.charge(2)?;
            return value;
        }
        let target = self.evaluate(operand)?;
        if test_only {
            return present(&target, field).map(Value::Bool);
        }
        self.charge(1)?;
        self.read(field_of(&target, field)?)
    }

    /// A value that was read from the object: bytes are decoded anew each time.
    fn read(&self, value: Value<'a>) -> Evaluated<'a> {
        if let Value::Bytes(bytes) = &value {
            self.meter.make(bytes.len())?;
        }
        Ok(value)
    }

    /// A value that was made of others.
    fn made(&self, value: Value<'a>) -> Evaluated<'a> {
        self.meter.check_depth(&value)?;
        Ok(value)
    }

    fn call(
        &mut self,
        expr: &'p Expr,
        function: &str,
        target: Option<&'p Expr>,
        args: &'p [Expr],
    ) -> Evaluated<'a> {
        match (function, args) {
            ("_&&_", [a, b]) => return self.logical(a, b, false),
            ("_||_", [a, b]) => return self.logical(a, b, true),
            ("_?:_" | "_?_:_", [condition, then, otherwise]) => {
                return match self.evaluate(condition)? {
                    Value::Bool(true) => self.evaluate(then),
                    Value::Bool(false) => self.evaluate(otherwise),
                    _ => Err(EvalError::NoSuchOverload),
                };
            }
            ("@not_strictly_false", [arg]) => {
                self.charge(1)?;
                return Ok(Value::Bool(!matches!(self.evaluate(arg), Ok(Value::Bool(false)))));
            }
            ("_+_", [Expr { kind: ExprKind::Ident(accu), .. }, added]) => {
                if let Some(appended) = self.append(accu, added) {
                    return appended;
                }
            }
            _ => {}
        }
        let Some(Some(call)) = self.program.calls.get(expr.id) else { return Err(EvalError::NoSuchOverload) };
        let mut values = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target.filter(|_| !call.qualified) {
            values.push(self.evaluate(target)?);
        }
        for arg in args {
            values.push(self.evaluate(arg)?);
        }
        for value in &values {
            match value {
                Value::String(text) => self.meter.read(text.len())?,
                Value::Bytes(bytes) => self.meter.read(bytes.len())?,
                _ => {}
            }
        }
        self.charge(cost::of_call(call.function.name, &values))?;
        self.made((call.function.call)(&values, self.meter)?)
    }

    /// Either side decides if it is `decisive`, even where the other has no value.
    fn logical(&mut self, a: &'p Expr, b: &'p Expr, decisive: bool) -> Evaluated<'a> {
        let left = self.evaluate(a);
        match &left {
            Ok(Value::Bool(value)) if *value == decisive => return left,
            Err(error) if error.ends_evaluation() => return left,
            _ => {}
        }
        let right = self.evaluate(b);
        match (left, right) {
            (_, Err(error)) if error.ends_evaluation() => Err(error),
            (_, Ok(Value::Bool(value))) if value == decisive => Ok(Value::Bool(decisive)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decisive)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    /// Appends to the list of a fold without copying what is in it.
    fn append(&mut self, accu: &str, added: &'p Expr) -> Option<Evaluated<'a>> {
        let ExprKind::List(items) = &added.kind else { return None };
        let [(item, false)] = items.as_slice() else { return None };
        let place = self.scopes.iter().rposition(|(name, _)| *name == accu)?;
        if !matches!(self.scopes.get(place), Some((_, Ok(Value::List(List::Values(_)))))) {
            return None;
        }
        let item = match self.charge(12).and_then(|()| self.evaluate(item)) {
            Ok(item) => item,
            Err(error) => return Some(Err(error)),
        };
        let taken = std::mem::replace(&mut self.scopes.get_mut(place)?.1, Ok(Value::Null));
        let Ok(Value::List(List::Values(mut list))) = taken else { return None };
        if let Err(error) = self.meter.make_items(1) {
            return Some(Err(error));
        }
        Arc::make_mut(&mut list).push(item);
        Some(self.made(Value::List(List::Values(list))))
    }

    fn element(&mut self, expr: &'p Expr, optional: bool) -> Result<Option<Value<'a>>, EvalError> {
        match self.evaluate(expr)? {
            Value::Optional(value) if optional => Ok(value.map(|value| (*value).clone())),
            _ if optional => Err(EvalError::NoSuchOverload),
            value => Ok(Some(value)),
        }
    }

    fn list(&mut self, items: &'p [(Expr, bool)]) -> Evaluated<'a> {
        self.charge(10)?;
        let mut made = Vec::with_capacity(items.len());
        for (item, optional) in items {
            made.extend(self.element(item, *optional)?);
        }
        let list = self.meter.list(made)?;
        self.made(list)
    }

    fn map(&mut self, entries: &'p [(Expr, Expr, bool)]) -> Evaluated<'a> {
        self.charge(30)?;
        let mut made = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.evaluate(key)?;
            let found = Key::of(&key)
                .ok_or_else(|| EvalError::Other(format!("unsupported key type: {}", key.type_of())))?;
            if let Some(value) = self.element(value, *optional)?
                && made.insert(found, value).is_some()
            {
                return Err(EvalError::Other("Failed with repeated key".into()));
            }
        }
        self.meter.make_items(made.len())?;
        self.made(Value::map(made))
    }

    fn fold(&mut self, fold: &'p Comprehension) -> Evaluated<'a> {
        let range = self.evaluate(&fold.range)?;
        let init = self.evaluate(&fold.init);
        let depth = self.scopes.len();
        self.scopes.push((&*fold.accu, init));
        let ended = match &range {
            Value::List(list) => self.fold_list(fold, list, depth),
            Value::Map(map) => self.fold_map(fold, map, depth),
            Value::Optional(None) => Ok(()),
            _ => Err(EvalError::NoSuchOverload),
        };
        self.scopes.truncate(depth + 1);
        let result = ended.and_then(|()| self.evaluate(&fold.result));
        self.scopes.truncate(depth);
        result
    }

    fn fold_list(&mut self, fold: &'p Comprehension, list: &List<'a>, depth: usize) -> Result<(), EvalError> {
        for index in 0..list.len() {
            let Some(item) = list.get(index) else { break };
            let item = self.read(item)?;
            let number = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
            let (first, second) = if fold.var2.is_some() { (number, item) } else { (item, Value::Null) };
            if !self.iterate(fold, first, second, depth)? {
                break;
            }
        }
        Ok(())
    }

    fn fold_map(&mut self, fold: &'p Comprehension, map: &Map<'a>, depth: usize) -> Result<(), EvalError> {
        self.meter.visit(map.len() as u64)?;
        for key in map.keys() {
            let value = if fold.var2.is_some() { map.at(&key).unwrap_or(Value::Null) } else { Value::Null };
            if !self.iterate(fold, key, value, depth)? {
                break;
            }
        }
        Ok(())
    }

    /// One iteration; false if the fold ends before it.
    fn iterate(
        &mut self,
        fold: &'p Comprehension,
        first: Value<'a>,
        second: Value<'a>,
        depth: usize,
    ) -> Result<bool, EvalError> {
        self.scopes.truncate(depth + 1);
        self.scopes.push((&*fold.var, Ok(first)));
        if let Some(var) = &fold.var2 {
            self.scopes.push((&**var, Ok(second)));
        }
        match self.evaluate(&fold.condition)? {
            Value::Bool(true) => {}
            _ => return Ok(false),
        }
        let step = self.evaluate(&fold.step);
        if let Err(error) = &step
            && error.ends_evaluation()
        {
            return Err(error.clone());
        }
        // An error in the accumulator is forgotten if a later element decides.
        let decides = matches!(fold.init.kind, ExprKind::Literal(Literal::Bool(_)));
        let step = if decides { step } else { Ok(step?) };
        if let Some(place) = self.scopes.get_mut(depth) {
            place.1 = step;
        }
        Ok(true)
    }
}

fn protobuf_type(expr: &Expr) -> Option<Type> {
    let ExprKind::Select { operand, field, test_only: false } = &expr.kind else { return None };
    let ExprKind::Select { operand, field: middle, .. } = &operand.kind else { return None };
    let ExprKind::Ident(first) = &operand.kind else { return None };
    if &**first != "google" { None } else { Type::named(&format!("google.{middle}.{field}")) }
}

fn literal_value<'a>(literal: &Literal) -> Value<'a> {
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

fn present(target: &Value<'_>, field: &str) -> Result<bool, EvalError> {
    match target {
        Value::Map(map) => Ok(map.get(field).is_some()),
        Value::Object(object) => Ok(object.fields.contains_key(field)),
        Value::Optional(None) => Ok(false),
        Value::Optional(Some(inner)) => present(inner, field),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn field_of<'a>(target: &Value<'a>, field: &str) -> Evaluated<'a> {
    match target {
        Value::Map(map) => map.get(field).ok_or_else(|| EvalError::NoSuchKey(field.to_owned())),
        Value::Object(object) => {
            object.fields.get(field).cloned().ok_or_else(|| EvalError::NoSuchKey(field.to_owned()))
        }
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => match field_of(inner, field) {
            Ok(value) => Ok(Value::Optional(Some(Arc::new(value)))),
            Err(EvalError::NoSuchKey(_)) => Ok(Value::Optional(None)),
            Err(error) => Err(error),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}
