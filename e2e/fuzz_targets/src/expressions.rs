//! CEL: compiling and evaluating end within time and memory limits; an evaluation ends within its
//! limit and within its estimate.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use coracle_cel::{DYN, DeclType, Env, EvalError, Limits, Meter, Type, Value};
use serde_json::{Value as Json, json};

/// The cost limit of an evaluation. That of one expression in a schema is ten times as high.
const LIMIT: u64 = 100_000;
/// The work limit of an evaluation, independent of its cost. It has no deadline, since its duration
/// is tested.
const LIMITS: Limits = Limits { steps: 1_000_000, bytes: 16 << 20, time: Duration::from_secs(3600) };
/// The time limit for an input, in a debug build with other processes. `tests/corpus.rs` measures
/// the memory as well.
const TIME: Duration = Duration::from_secs(5);

static DECL: LazyLock<Arc<DeclType>> = LazyLock::new(|| {
    let schema = json!({"type": "object", "properties": {
        "s": {"type": "string", "maxLength": 20},
        "n": {"type": "integer"}, "d": {"type": "number"}, "b": {"type": "boolean"},
        "t": {"type": "string", "format": "date-time"}, "e": {"type": "string", "format": "duration"},
        "x": {"x-kubernetes-int-or-string": true},
        "l": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
        "o": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 10}, "value": {"type": "string", "maxLength": 10}}}},
        "set": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 10}},
        "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}},
    }});
    Arc::new(DeclType::of_schema(&schema, "selfType", false).expect("a type"))
});

static ENV: LazyLock<Env> = LazyLock::new(|| {
    Env::new()
        .declared("self", &DECL, false)
        .variable("object", Type::Dyn)
        .variable("list", Type::list(Type::Dyn))
});

/// Within the sizes of the schema.
static OBJECT: LazyLock<Json> = LazyLock::new(|| {
    json!({
        "s": "some text, ten", "n": 7, "d": 2.5, "b": true, "t": "2026-01-02T03:04:05Z", "e": "1m30s", "x": "50%",
        "l": [3, 1, 2, -1, 0], "o": [{"name": "a", "value": "b"}, {"name": "c"}], "set": ["b", "a"],
        "m": {"k": 1, "other": 2},
    })
});

/// Evaluates an expression over a typed object, the same object without its type, and a list.
pub fn cel_expression(data: &[u8]) -> bool {
    let started = Instant::now();
    let is_valid = evaluate(data);
    let took = started.elapsed();
    assert!(took < TIME, "{:?} takes {took:?}", String::from_utf8_lossy(data));
    is_valid
}

fn evaluate(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let program = match ENV.compile(text) {
        Ok(program) => program,
        Err(issues) => {
            assert!(!issues.to_string().is_empty(), "{text:?} is refused without a reason");
            return false;
        }
    };
    let items = || vec![Value::Int(1), Value::text("a"), Value::Bool(true)];
    let variables = || {
        let typed = Value::of_json(&OBJECT, &DECL);
        [("self", typed), ("object", Value::of_json(&OBJECT, &DYN)), ("list", Value::list(items()))]
    };
    let meter = Meter::new(LIMITS);
    let outcome = program.evaluate(&variables(), LIMIT, &meter);
    if let Ok(value) = &outcome.value {
        // A conversion to JSON, as for a patch.
        assert!(value.to_json(&meter).is_ok() || meter.is_exceeded());
    }
    match &outcome.value {
        Err(EvalError::CostLimit) => assert!(outcome.cost > LIMIT, "{text:?} stops at {}", outcome.cost),
        _ => assert!(outcome.cost <= LIMIT, "{text:?} costs {}", outcome.cost),
    }
    let meter_of_again = Meter::new(LIMITS);
    let again = program.evaluate(&variables(), LIMIT, &meter_of_again);
    // Patterns that are kept are less work than before, and such large values are not compared by
    // the assertion.
    if meter.is_exceeded() || meter_of_again.is_exceeded() {
        return true;
    }
    assert_eq!((&again.value, again.cost), (&outcome.value, outcome.cost), "{text:?} evaluated again");
    // The estimates are cel-go's, which are not bounds for values without a declared size and for
    // macros that make lists. A selection from an optional is counted but not estimated: one for
    // each character is more than enough.
    let unbounded = ["object", "list", "map(", "filter(", "transform", "sortBy", "flatten"];
    if !unbounded.iter().any(|word| text.contains(word)) {
        let (cost, most) = (outcome.cost, program.max_cost().saturating_add(text.len() as u64));
        assert!(cost <= most || cost > LIMIT, "{text:?} costs {cost}, estimated were {most}");
    }
    true
}
