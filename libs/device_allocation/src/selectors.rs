//! The CEL selectors of classes and requests.
//!
//! Source: `k8s.io/dynamic-resource-allocation/cel`, `compile.go`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use coracle_cel::environments::{compile_selector, device};
use coracle_cel::{Env, EvalError, Key, Limits, Meter, Program, Value};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use parking_lot::Mutex;

use crate::budget::Budget;
use crate::capacity::{is_shareable, parse};
use crate::error::AllocationError;

/// The largest cost of an evaluation.
const MAX_COST: u64 = 1_000_000;
/// The work of an evaluation, far more than one within the largest cost needs.
const LIMITS: Limits = Limits { steps: 4_000_000, bytes: 4 << 20, time: Duration::from_secs(10) };
/// The number of expressions that stay compiled, and the sum of their lengths in bytes.
const MAX_PROGRAMS: usize = 100;
const MAX_LENGTH: usize = 128 << 10;
/// The cost of a compilation for each byte of the expression.
const STEPS_OF_BYTE: u64 = 20;

/// The compiled expressions of selectors. Few classes and claims have selectors of their own, so
/// nearly all expressions are compiled once.
#[derive(Debug, Default)]
pub struct SelectorCache {
    programs: Mutex<Programs>,
}

#[derive(Debug, Default)]
struct Programs {
    by_expression: HashMap<String, Compiled>,
    length: usize,
}

type Compiled = Arc<Result<Program, String>>;

impl SelectorCache {
    /// Returns the program of an expression, or why there is none.
    fn compile(&self, expression: &str, budget: &Budget) -> Result<Compiled, AllocationError> {
        static ENV: LazyLock<Env> = LazyLock::new(device);
        budget.spend_once(expression, STEPS_OF_BYTE.saturating_mul(expression.len() as u64))?;
        if let Some(known) = self.programs.lock().by_expression.get(expression) {
            return Ok(known.clone());
        }
        let compiled = Arc::new(compile_selector(&ENV, expression));
        let mut programs = self.programs.lock();
        if programs.by_expression.len() >= MAX_PROGRAMS || programs.length > MAX_LENGTH {
            *programs = Programs::default();
        }
        programs.length += expression.len();
        programs.by_expression.insert(expression.to_owned(), compiled.clone());
        Ok(compiled)
    }

    /// Evaluates an expression for a device.
    ///
    /// # Errors
    /// [`AllocationError::OutOfSteps`]; otherwise the text of the error is in the result.
    pub(crate) fn matches(
        &self,
        expression: &str,
        driver: &str,
        device: &Device,
        budget: &Budget,
    ) -> Result<Result<bool, String>, AllocationError> {
        let compiled = self.compile(expression, budget)?;
        let program = match compiled.as_ref() {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("CEL compile error: {error}"))),
        };
        let count = |len: Option<usize>| len.unwrap_or(0) as u64;
        let attributes = count(device.attributes.as_ref().map(BTreeMap::len));
        let capacities = count(device.capacity.as_ref().map(BTreeMap::len));
        // Variables and the look-up of the program cost about this.
        budget.spend(1 + attributes + capacities + expression.len() as u64 / 16)?;
        let variables = match Variables::of(driver, device) {
            Ok(variables) => variables,
            Err(error) => return Ok(Err(format!("CEL runtime error: {error}"))),
        };
        let value = evaluate(program, variables, budget)?;
        Ok(match value {
            Ok(Value::Bool(matches)) => Ok(matches),
            Ok(_) => Err("CEL runtime error: the result could not be converted to bool".to_owned()),
            Err(error) => Err(format!("CEL runtime error: {error}")),
        })
    }
}

/// Evaluates a program. An unknown domain is an empty map: it is added once the expression has
/// failed for the lack of it.
fn evaluate(
    program: &Program,
    mut variables: Variables,
    budget: &Budget,
) -> Result<Result<Value<'static>, EvalError>, AllocationError> {
    loop {
        let device = [("device", variables.value())];
        let outcome = program.evaluate(&device, MAX_COST, &Meter::new(LIMITS));
        budget.spend(outcome.cost.saturating_add(1))?;
        match outcome.value {
            Err(EvalError::NoSuchKey(key)) if variables.add_domain(&key) => {}
            value => return Ok(value),
        }
    }
}

/// The variable `device`: attributes and capacities by domain and name.
struct Variables {
    driver: String,
    is_shareable: bool,
    attributes: BTreeMap<String, BTreeMap<Key, Value<'static>>>,
    capacity: BTreeMap<String, BTreeMap<Key, Value<'static>>>,
    /// The unknown domains that were added.
    added: BTreeSet<String>,
}

impl Variables {
    /// The number of unknown domains that an expression can ask for.
    const MAX_ADDED: usize = 32;

    fn of(driver: &str, device: &Device) -> Result<Variables, String> {
        let mut variables = Variables {
            driver: driver.to_owned(),
            is_shareable: is_shareable(device),
            attributes: BTreeMap::new(),
            capacity: BTreeMap::new(),
            added: BTreeSet::new(),
        };
        let qualified = |name: &str| {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            (domain.to_owned(), Key::String(id.into()))
        };
        for (name, attribute) in device.attributes.iter().flatten() {
            let (domain, id) = qualified(name);
            let value = value(attribute).map_err(|error| format!("attribute {name}: {error}"))?;
            variables.attributes.entry(domain).or_default().insert(id, value);
        }
        for (name, capacity) in device.capacity.iter().flatten() {
            let (domain, id) = qualified(name);
            let value = Value::Quantity(parse(&capacity.value));
            variables.capacity.entry(domain).or_default().insert(id, value);
        }
        Ok(variables)
    }

    /// Adds an empty domain. Returns `false` if this cannot help.
    fn add_domain(&mut self, name: &str) -> bool {
        let is_known = self.attributes.contains_key(name) && self.capacity.contains_key(name);
        let is_new = !is_known && self.added.len() < Self::MAX_ADDED && self.added.insert(name.to_owned());
        if is_new {
            self.attributes.entry(name.to_owned()).or_default();
            self.capacity.entry(name.to_owned()).or_default();
        }
        is_new
    }

    fn value(&self) -> Value<'static> {
        let domains = |domains: &BTreeMap<String, BTreeMap<Key, Value<'static>>>| {
            let entries = domains.iter().map(|(domain, values)| (key(domain), Value::map(values.clone())));
            Value::map(entries.collect())
        };
        Value::map(BTreeMap::from([
            (key("driver"), Value::text(self.driver.clone())),
            (key("allowMultipleAllocations"), Value::Bool(self.is_shareable)),
            (key("attributes"), domains(&self.attributes)),
            (key("capacity"), domains(&self.capacity)),
        ]))
    }
}

fn key(name: &str) -> Key {
    Key::String(name.into())
}

fn value(attribute: &DeviceAttribute) -> Result<Value<'static>, String> {
    match attribute {
        DeviceAttribute { int: Some(int), .. } => Ok(Value::Int(*int)),
        DeviceAttribute { bool: Some(bool), .. } => Ok(Value::Bool(*bool)),
        DeviceAttribute { string: Some(string), .. } => Ok(Value::text(string.clone())),
        DeviceAttribute { version: Some(version), .. } => {
            let version = version.parse().map_err(|error| format!("parse semantic version: {error}"))?;
            Ok(Value::Semver(Arc::new(version)))
        }
        _ => Err("unsupported attribute value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn devices_are_selected_by_attributes_and_capacity() {
        let device: Device = serde_json::from_value(json!({
            "name": "d", "allowMultipleAllocations": true,
            "attributes": {
                "model": {"string": "a100"}, "other.example/index": {"int": 3}, "fast": {"bool": true},
                "version": {"version": "1.10.0"},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        }))
        .unwrap();
        let missing = "CEL runtime error: no such key: ";
        for (expression, want) in [
            (r#"device.driver == "gpu.example""#, Ok(true)),
            ("device.allowMultipleAllocations", Ok(true)),
            (r#"device.attributes["gpu.example"].model == "a100""#, Ok(true)),
            (r#"device.attributes["gpu.example"].fast"#, Ok(true)),
            (r#"device.attributes["other.example"].index > 3"#, Ok(false)),
            (r#"device.attributes["gpu.example"].version.isGreaterThan(semver("1.9.0"))"#, Ok(true)),
            (r#"device.capacity["gpu.example"].memory.compareTo(quantity("40Gi")) == 0"#, Ok(true)),
            (r#"has(device.attributes["unknown.example"].model)"#, Ok(false)),
            (r#""model" in device.attributes["unknown.example"]"#, Ok(false)),
            (r#""unknown.example" in device.attributes"#, Ok(false)),
            (r#"device.attributes["unknown.example"].model == "x""#, Err(format!("{missing}model"))),
            (r#"device.attributes["gpu.example"].size == 1"#, Err(format!("{missing}size"))),
            (r#"device.capacity["unknown.example"] == {}"#, Ok(true)),
        ] {
            let budget = Budget::new(100_000);
            let got = SelectorCache::default().matches(expression, "gpu.example", &device, &budget).unwrap();
            assert_eq!(got, want, "{expression}");
        }
    }

    #[test]
    fn steps_do_not_depend_on_the_cache() {
        let cache = SelectorCache::default();
        let device: Device = serde_json::from_value(json!({"name": "d"})).unwrap();
        let steps = || {
            let budget = Budget::new(10_000);
            // The second evaluation has no compilation.
            [(); 2].map(|()| {
                let before = budget.left();
                assert_eq!(cache.matches("device.driver == 'x'", "x", &device, &budget).unwrap(), Ok(true));
                before - budget.left()
            })
        };
        let [first, second] = steps();
        assert_eq!(first - second, STEPS_OF_BYTE * 20);
        assert_eq!(steps(), [first, second]);
    }

    #[test]
    fn the_cache_of_expressions_is_bounded() {
        let cache = SelectorCache::default();
        let budget = Budget::new(u64::MAX);
        for i in 0..MAX_PROGRAMS * 3 {
            cache.compile(&format!("1 == {i}"), &budget).unwrap().as_ref().as_ref().unwrap();
            assert!(cache.programs.lock().by_expression.len() <= MAX_PROGRAMS);
        }
        // The steps are the same for an expression that is compiled already.
        cache.compile("true", &budget).unwrap().as_ref().as_ref().unwrap();
        assert_eq!(cache.compile("true", &Budget::new(1)).unwrap_err(), AllocationError::OutOfSteps);
    }
}
