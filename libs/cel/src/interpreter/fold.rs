//! Folds.

use std::sync::Arc;

use super::{Evaluated, Interpreter, Scope, ScopeValue};
use crate::cost;
use crate::error::EvalError;
use crate::plan::{Fold, Step};
use crate::value::{List, Map, Value};

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn fold(&mut self, fold: &'p Fold) -> Evaluated<'a> {
        let range = self.evaluate(&fold.range)?;
        let depth = self.scopes.len();
        self.scopes.push(Scope { name: &fold.accu, value: ScopeValue::Lazy(&fold.init) });
        let ended = match &range {
            Value::List(list) => self.fold_list(fold, list, depth),
            Value::Map(map) => self.fold_map(fold, map, depth),
            other if fold.var2.is_some() => {
                Err(EvalError::Other(format!("unsupported comprehension range type: {}", other.go_type())))
            }
            other => Err(EvalError::Other(format!("got '{}', expected iterable type", other.go_type()))),
        };
        self.scopes.truncate(depth + 1);
        let result = ended.and_then(|()| self.evaluate(&fold.result));
        self.scopes.truncate(depth);
        result
    }

    fn fold_list(&mut self, fold: &'p Fold, list: &List<'a>, depth: usize) -> Result<(), EvalError> {
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

    fn fold_map(&mut self, fold: &'p Fold, map: &Map<'a>, depth: usize) -> Result<(), EvalError> {
        self.meter.visit(map.len() as u64)?;
        for key in map.keys() {
            let value = if fold.var2.is_some() { map.at(&key).unwrap_or(Value::Null) } else { Value::Null };
            if !self.iterate(fold, key, value, depth)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs one iteration; false if the fold ends before it. An error in the accumulator does not
    /// end it: a later element may decide.
    fn iterate(
        &mut self,
        fold: &'p Fold,
        first: Value<'a>,
        second: Value<'a>,
        depth: usize,
    ) -> Result<bool, EvalError> {
        self.scopes.truncate(depth + 1);
        self.scopes.push(Scope { name: &fold.var, value: ScopeValue::Ready(Ok(first)) });
        if let Some(var) = &fold.var2 {
            self.scopes.push(Scope { name: var, value: ScopeValue::Ready(Ok(second)) });
        }
        match self.evaluate(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(error) if error.ends_evaluation() => return Err(error),
            _ => {}
        }
        let step = self.evaluate(&fold.step);
        if let Err(error) = &step
            && error.ends_evaluation()
        {
            return Err(error.clone());
        }
        if let Some(scope) = self.scopes.get_mut(depth) {
            scope.value = ScopeValue::Ready(step);
        }
        Ok(true)
    }

    /// Appends to the list of a fold without copying what is in it.
    pub(super) fn append(&mut self, item: &'p Step, accumulator: &str) -> Evaluated<'a> {
        // The variable, the list of one item, and the addition.
        self.add_cost(cost::CALL)?;
        let is_constant = matches!(item, Step::Constant(_));
        let item = self.evaluate(item);
        // A constant list costs nothing.
        self.add_cost(if is_constant { cost::CALL } else { cost::LIST + cost::CALL })?;
        let place = self.scopes.iter().rposition(|scope| scope.name == accumulator);
        let place = place.ok_or(EvalError::NoSuchOverload)?;
        let list = self.scoped(place)?;
        let item = item?;
        if !matches!(list, Value::List(List::Values(_))) {
            return Err(EvalError::NoSuchOverload);
        }
        drop(list);
        let placeholder = ScopeValue::Ready(Ok(Value::Null));
        let scope = self.scopes.get_mut(place).ok_or(EvalError::NoSuchOverload)?;
        let taken = std::mem::replace(&mut scope.value, placeholder);
        let ScopeValue::Ready(Ok(Value::List(List::Values(mut list)))) = taken else {
            return Err(EvalError::NoSuchOverload);
        };
        self.meter.make_items(1)?;
        Arc::make_mut(&mut list).push(item);
        self.made(Value::List(List::Values(list)))
    }
}
