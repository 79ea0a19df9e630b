//! Evaluation, which counts its cost.
//!
//! Source: cel-spec, "Evaluation"; cel-go's `interpreter/interpretable.go` and `runtimecost.go`.

mod attribute;
mod fold;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::activation::Activation;
use crate::cost;
use crate::error::EvalError;
use crate::functions;
use crate::meter::Meter;
use crate::plan::{Call, Step};
use crate::value::{Key, Value};

/// The result of an evaluation, and its cost.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The value, or why there is none.
    pub value: Result<Value<'a>, EvalError>,
    /// The cost.
    pub cost: u64,
}

type Evaluated<'a> = Result<Value<'a>, EvalError>;

/// Evaluates a plan.
pub fn evaluate<'a>(
    step: &Step,
    variables: &dyn Activation<'a>,
    cost_limit: u64,
    meter: &Meter,
) -> Outcome<'a> {
    let mut interpreter = Interpreter { variables, meter, scopes: Vec::new(), cost: 0, cost_limit };
    let value = interpreter.evaluate(step);
    Outcome { value, cost: interpreter.cost }
}

struct Interpreter<'p, 'a> {
    variables: &'p dyn Activation<'a>,
    meter: &'p Meter,
    scopes: Vec<Scope<'p, 'a>>,
    cost: u64,
    cost_limit: u64,
}

/// A variable of a fold.
struct Scope<'p, 'a> {
    name: &'p str,
    value: ScopeValue<'p, 'a>,
}

/// The value of a variable of a fold.
enum ScopeValue<'p, 'a> {
    Ready(Evaluated<'a>),
    /// It is evaluated when it is first read.
    Lazy(&'p Step),
}

impl<'p, 'a> Interpreter<'p, 'a> {
    /// Adds to the cost of the evaluation.
    ///
    /// # Errors
    /// The cost exceeds its limit.
    fn add_cost(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.cost_limit { Err(EvalError::CostLimit) } else { Ok(()) }
    }

    fn evaluate(&mut self, step: &'p Step) -> Evaluated<'a> {
        let meter = self.meter;
        meter.nested(|| self.step(step))
    }

    fn step(&mut self, step: &'p Step) -> Evaluated<'a> {
        match step {
            Step::Constant(value) => Ok(value.clone()),
            Step::Attribute(attribute) => self.attribute(attribute),
            Step::Logical { sides, decisive } => {
                let [a, b] = &**sides;
                self.logical(a, b, *decisive)
            }
            Step::Or { sides, value } => {
                let [a, b] = &**sides;
                match self.evaluate(a)? {
                    Value::Optional(None) => self.evaluate(b),
                    Value::Optional(Some(found)) if *value => Ok((*found).clone()),
                    other => Ok(other),
                }
            }
            Step::Call(call) => self.call(call),
            Step::Append { item, accumulator } => self.append(item, accumulator),
            Step::Membership { item, set } => {
                let item = self.evaluate(item)?;
                Ok(Value::Bool(
                    Key::of(&item).is_some_and(|key| key.alternatives().any(|key| set.contains(&key))),
                ))
            }
            Step::List(items) => {
                let list = self.list(items);
                self.charged(cost::LIST, list)
            }
            Step::Map(entries) => {
                let map = self.map(entries);
                self.charged(cost::MAP, map)
            }
            Step::Object { name, fields } => {
                let object = self.object(name, fields);
                self.charged(cost::OBJECT, object)
            }
            Step::Fold(fold) => self.fold(fold),
        }
    }

    /// Counts the cost of a result, which an error has too, and returns the result.
    fn charged(&mut self, cost: u64, result: Evaluated<'a>) -> Evaluated<'a> {
        match result {
            Err(error) if error.ends_evaluation() => Err(error),
            result => {
                self.add_cost(cost)?;
                result
            }
        }
    }

    /// Returns a value that was read from the object: bytes are decoded anew each time.
    fn read(&self, value: Value<'a>) -> Evaluated<'a> {
        if let Value::Bytes(bytes) = &value {
            self.meter.make(bytes.len())?;
        }
        Ok(value)
    }

    /// Checks the depth of a value that was built from others, and returns it.
    fn made(&self, value: Value<'a>) -> Evaluated<'a> {
        self.meter.check_depth(&value)?;
        Ok(value)
    }

    fn call(&mut self, call: &'p Call) -> Evaluated<'a> {
        if call.function.name == "@not_strictly_false" {
            let value = call.args.first().map_or(Err(EvalError::NoSuchOverload), |arg| self.evaluate(arg));
            return match value {
                Err(error) if error.ends_evaluation() => Err(error),
                value => {
                    self.add_cost(cost::CALL)?;
                    Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false)))))
                }
            };
        }
        let mut values = Vec::with_capacity(call.args.len());
        let mut failed = None;
        for (index, arg) in call.args.iter().enumerate() {
            // A call whose arguments are not all evaluated costs nothing.
            let ends = call.ends_early && index + 1 < call.args.len();
            match self.evaluate(arg) {
                Ok(value) => values.push(value),
                Err(error) if ends || error.ends_evaluation() => return Err(error),
                Err(error) => {
                    failed.get_or_insert(error);
                    // An error has no size.
                    values.push(Value::Null);
                }
            }
        }
        if let Some(error) = failed {
            self.add_cost(cost::of_call(call.function.name, call.overload, &values, None))?;
            return Err(error);
        }
        for value in &values {
            match value {
                Value::String(text) => self.meter.read(text.len())?,
                Value::Bytes(bytes) => self.meter.read(bytes.len())?,
                _ => {}
            }
        }
        // A call whose minimum cost exceeds the limit is not executed.
        let least = cost::of_call(call.function.name, call.overload, &values, None);
        if self.cost.saturating_add(least) > self.cost_limit {
            self.add_cost(least)?;
        }
        let result = match (call.function.call)(&values, self.meter) {
            Err(EvalError::NoSuchOverload) => Err(functions::no_such_overload(call.function.name, &values)),
            result => result,
        };
        let cost = cost::of_call(call.function.name, call.overload, &values, result.as_ref().ok());
        let result = self.charged(cost, result)?;
        self.made(result)
    }

    /// Evaluates a logical operator. A side that is `decisive` decides, even if the other has no
    /// value.
    fn logical(&mut self, a: &'p Step, b: &'p Step, decisive: bool) -> Evaluated<'a> {
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
            (Err(error), _) => Err(error),
            (Ok(Value::Bool(_)), Err(error)) => Err(error),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn element(
        &mut self,
        step: &'p Step,
        optional: bool,
        kind: &str,
    ) -> Result<Option<Value<'a>>, EvalError> {
        match self.evaluate(step)? {
            Value::Optional(value) if optional => Ok(value.map(|value| (*value).clone())),
            value if optional => Err(EvalError::Other(format!(
                "cannot initialize optional {kind} from non-optional value {}",
                functions::shown(&value, self.meter)?
            ))),
            value => Ok(Some(value)),
        }
    }

    fn list(&mut self, items: &'p [(Step, bool)]) -> Evaluated<'a> {
        let mut made = Vec::with_capacity(items.len());
        for (item, optional) in items {
            made.extend(self.element(item, *optional, "list element")?);
        }
        let list = self.meter.list(made)?;
        self.made(list)
    }

    fn map(&mut self, entries: &'p [(Step, Step, bool)]) -> Evaluated<'a> {
        let mut made = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.evaluate(key)?;
            let found = Key::of(&key)
                .ok_or_else(|| EvalError::Other(format!("unsupported key type: {}", key.type_of())))?;
            let kind = if *optional {
                format!("entry '{}'", functions::shown(&key, self.meter)?)
            } else {
                String::new()
            };
            match self.element(value, *optional, &kind)? {
                Some(value) => _ = made.insert(found, value),
                None => _ = made.remove(&found),
            }
        }
        self.meter.make_items(made.len())?;
        self.made(Value::map(made))
    }

    fn object(&mut self, name: &Arc<str>, fields: &'p [(Arc<str>, Step, bool)]) -> Evaluated<'a> {
        let mut made = BTreeMap::new();
        for (name, value, optional) in fields {
            let kind = if *optional { format!("entry '{name}'") } else { String::new() };
            match self.element(value, *optional, &kind)? {
                Some(value) => _ = made.insert(name.clone(), value),
                None => _ = made.remove(name),
            }
        }
        self.meter.make_items(made.len())?;
        self.made(Value::object(name.clone(), made))
    }
}
