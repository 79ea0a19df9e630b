//! Hostile expressions: each ends within its limits, whatever it costs by upstream's model, and
//! none overflows the stack.
//!
//! The limits here are small, so that a debug build reaches them soon.
#![expect(clippy::disallowed_methods, reason = "a test waits and measures")]

use std::time::{Duration, Instant};

use coracle_cel::{Activation, DYN, Env, EvalError, Limits, Meter, NO_VARIABLES, Program, Type, Value};
use serde_json::{Value as Json, json};

const COST: u64 = 1_000_000;
const LIMITS: Limits = Limits { steps: 500_000, bytes: 4 << 20, time: Duration::from_secs(60) };
/// The longest that anything here may take, beside other tests. Without its limit each would take
/// hours.
const TIME: Duration = Duration::from_secs(30);

fn compile(text: &str) -> Program {
    let started = Instant::now();
    let program = Env::new().variable("object", Type::Dyn).compile(text);
    assert!(started.elapsed() < TIME, "compiled in {:?}", started.elapsed());
    program.unwrap_or_else(|issues| panic!("{issues:.1000}"))
}

/// Evaluates an expression, and returns the type of its value.
fn outcome(text: &str, object: &Json) -> Result<String, EvalError> {
    let variables = [("object", Value::of_json(object, &DYN))];
    let started = Instant::now();
    let outcome = compile(text).evaluate(&variables, COST, &Meter::new(LIMITS));
    assert!(started.elapsed() < TIME, "{text:.100} took {:?}", started.elapsed());
    outcome.value.map(|value| value.type_of().to_string())
}

/// Returns a value that contains another one twice, which contains another one twice, and so on.
fn shared(levels: usize, then: &str) -> String {
    let nested = (0..levels).fold(then.to_owned(), |then, level| {
        let level = levels - 1 - level;
        format!("optional.of([v{level}, v{level}]).optMap(v{}, {then}).value()", level + 1)
    });
    format!("optional.of(dyn('x')).optMap(v0, {nested}).value()")
}

#[test]
fn values_that_are_shared_many_times_are_visited_within_the_limit() {
    let (work, memory) = (Err(EvalError::WorkLimit("work")), Err(EvalError::WorkLimit("memory")));
    for (then, wants) in [
        ("v20 == v20", vec![&work]),
        ("v20 in [v20]", vec![&work]),
        ("[v20].indexOf(v20) == 0", vec![&work]),
        ("[v20, v20].distinct() == []", vec![&work]),
        ("sets.equivalent([v20], [v20])", vec![&work]),
        ("{'k': v20} == {'k': v20}", vec![&work]),
        ("'%s'.format([v20])", vec![&work, &memory]),
        ("object[v20] == 1", vec![&work, &memory]),
    ] {
        let found = outcome(&shared(20, then), &json!({}));
        assert!(wants.contains(&&found), "{then}: {found:?}");
    }
    assert_eq!(outcome(&shared(20, "size(v20) == 2"), &json!({})), Ok("bool".to_owned()), "is not visited");
    let program = compile(&shared(20, "v20"));
    let meter = Meter::new(LIMITS);
    let value = program.evaluate(&NO_VARIABLES, COST, &meter).value.expect("it is only made");
    assert!(value.to_json(&meter).is_err() && meter.is_exceeded());
}

/// Repeats the expression for each item of a list, within another such list, and so on.
fn repeated(loops: usize, expression: &str) -> String {
    (0..loops).fold(expression.to_owned(), |inner, at| format!("object.l.all(i{at}, {inner})"))
}

#[test]
fn what_costs_nothing_is_limited_too() {
    let object = json!({"l": (0..100).collect::<Vec<_>>(), "s": "x".repeat(50_000), "part": "ab"});
    let list = format!("[{}]", vec!["'item'"; 2000].join(","));
    for expression in [
        "''.findAll('').size() >= 0",
        "object.s.contains('')",
        "!object.s.startsWith('y')",
        "object.s.find('') == ''",
        "object.s.findAll('x').size() > 0",
        "object.s.split('').size() > 0",
        "object.s != 'x'",
        "size(object.s) > 1",
        &format!("{list}.size() > 0"),
        // Patterns that are not kept.
        "'x'.matches(string(i0) + '|' + string(i1) + '|' + string(i2) + '|x')",
    ] {
        let found = outcome(&repeated(4, expression), &object);
        let limits = [EvalError::CostLimit, EvalError::WorkLimit("work"), EvalError::WorkLimit("memory")];
        assert!(found.as_ref().is_err_and(|error| limits.contains(error)), "{expression:.60}: {found:?}");
    }
}

#[test]
fn what_is_made_is_limited() {
    let object = json!({"l": (0..1000).collect::<Vec<_>>(), "s": "x".repeat(50_000)});
    let fifty = (0..50).map(|_| "object.s").collect::<Vec<_>>().join(",");
    for expression in [
        "object.l.map(i, object.s).join(object.s).size() > 0".to_owned(),
        format!("'{}'.format([{fifty}, {fifty}]).size() > 0", "%s".repeat(100)),
        "object.l.map(i, object.s + object.s).size() > 0".to_owned(),
        "object.s.replace('x', object.s).size() > 0".to_owned(),
        "object.s.replace('', object.s, 1000).size() > 0".to_owned(),
        "object.l.map(i, object.s.upperAscii()).size() > 0".to_owned(),
        "object.l.map(i, bytes(object.s)).size() > 0".to_owned(),
        "object.l.map(i, lists.range(10000)).flatten().size() > 0".to_owned(),
        "object.l.map(i, object.l.map(j, i)).size() > 0".to_owned(),
        "object.l.map(i, '%1000.1000f'.replace('1000.', '.').format([1.5])).size() > 0 && object.l.map(i, object.s.split('')).size() > 0".to_owned(),
    ] {
        let found = outcome(&expression, &object);
        assert!(matches!(found, Err(EvalError::WorkLimit(_) | EvalError::CostLimit)), "{expression:.60}: {found:?}");
    }
}

#[test]
fn the_clock_ends_an_evaluation() {
    let object = json!({"l": (0..100).collect::<Vec<_>>()});
    let variables = [("object", Value::of_json(&object, &DYN))];
    let brief = Limits { steps: u64::MAX, bytes: u64::MAX, time: Duration::from_millis(5) };
    let program = compile(&repeated(6, "i0 == i1 || i0 != i1"));
    let outcome = program.evaluate(&variables, u64::MAX, &Meter::new(brief));
    assert_eq!(outcome.value.err(), Some(EvalError::WorkLimit("time")));
    assert_eq!(EvalError::WorkLimit("time").to_string(), "operation interrupted: time limit exceeded");
}

#[test]
fn a_limit_is_not_hidden_by_what_decides_otherwise() {
    let object = json!({"l": (0..100).collect::<Vec<_>>()});
    let endless = repeated(5, "i0 >= 0");
    for expression in [
        format!("{endless} || true"),
        format!("true && {endless} || true"),
        format!("!({endless} && false)"),
        format!("object.l.exists(x, {endless} || x == 1) || true"),
    ] {
        assert!(outcome(&expression, &object).is_err(), "{expression}");
    }
}

#[test]
fn large_expressions_compile_in_time() {
    // Each of these needed time by the square of its length, or more.
    let many = |part: &str| vec![part; 90_000 / (part.len() + 1)].join(",");
    compile(&format!("[{}].size() > 0", many("[]+[]")));
    compile(&format!("[{}].size() > 0", many("{'a':[]}")));
    compile(&format!("[{}].size() > 0", many("''.matches('a{999}')")));
    compile(&format!("[{}].size() > 0", many("[1].map(x,x)")));
    let started = Instant::now();
    let wrong = Env::new().compile(&format!("[{}]", many("nope"))).expect_err("nothing is declared");
    let text = wrong.to_string();
    assert!(started.elapsed() < TIME && text.len() < 100_000, "{} bytes", text.len());
    assert!(text.ends_with(" more errors were truncated"), "{text:.200}");
}

#[test]
fn types_that_repeat_variables_are_bounded() {
    // The type of each has the type of the one before twice.
    let mut text = "v30 == v30".to_owned();
    for level in (0..30).rev() {
        text = format!("[{{v{level}: v{level}}}].map(v{}, {text}).size() > 0", level + 1);
    }
    let text = format!("[[]].map(v0, {text}).size() > 0");
    assert!(
        compile(&text).evaluate(&NO_VARIABLES, COST, &Meter::new(LIMITS)).value.is_err(),
        "lists are no keys"
    );
}

/// A variable that is an expression itself, which reads the variable.
struct Endless<'p> {
    program: &'p Program,
    meter: &'p Meter,
}

impl<'a> Activation<'a> for Endless<'_> {
    fn resolve(&self, _: &str) -> Option<Result<Value<'a>, EvalError>> {
        Some(self.program.evaluate(self, COST, self.meter).value)
    }
}

#[test]
fn evaluations_within_each_other_do_not_overflow_the_stack() {
    // A thread of the server has 2 MiB, beside what it needs to get there.
    let stack = 3 << 19;
    let sums = format!("object{}", " + 1".repeat(200));
    for text in [
        "object",
        "[[object]]",
        "{'k': object}",
        "[1].map(x, [1].all(y, object == 1))",
        "optional.of(1).optMap(x, object).value()",
        "!(object || (true ? object : false) && object)",
        "size([object, dyn('a'.replace('b', object))])",
        &sums,
    ] {
        let program = compile(text);
        let run = move || {
            let meter = Meter::new(LIMITS);
            Endless { program: &program, meter: &meter }.resolve("object").map(|value| value.err())
        };
        let thread = std::thread::Builder::new().stack_size(stack).spawn(run).expect("a thread");
        let found = thread.join().expect("no panic");
        assert!(matches!(found, Some(Some(EvalError::WorkLimit(_)))), "{text:.60}: {found:?}");
    }
}

#[test]
fn patterns_are_those_of_go_and_bounded_before_they_are_parsed() {
    for (text, want) in [
        // As in Go these classes are of ASCII, so that they are small.
        ("'abc'.matches('^\\\\w{1,63}$') ? dyn(1) : dyn('no')", Ok("int")),
        ("'\u{e9}'.matches('^\\\\w$') ? dyn(1) : dyn('no')", Ok("string")),
        ("'\u{661}'.matches('^\\\\d$') ? dyn(1) : dyn('no')", Ok("string")),
        ("'[b'.find('[[]b') == '[b'", Ok("bool")),
        // Each of these characters takes kilobytes while it is parsed.
        ("'x'.matches(object.classes)", Err("error parsing regexp: expression too large")),
        ("'x'.matches('(' + object.word)", Err("error parsing regexp: missing closing ): `(a`")),
    ] {
        let found = outcome(text, &json!({"classes": r"\pL".repeat(1_000_000), "word": "a"}));
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(|error| &**error), want, "{text}");
    }
    let literal = format!("'x'.matches('{}')", r"\\pL".repeat(20_000));
    assert!(Env::new().compile(&literal).is_err(), "a literal pattern is too long");
}

#[test]
fn parsing_ends_after_a_hundred_syntax_errors() {
    for text in [format!("object{}", ".".repeat(90_000)), format!("[{}0]", "object.,".repeat(10_000))] {
        let started = Instant::now();
        let issues = Env::new().variable("object", Type::Dyn).compile(&text).expect_err("no expression");
        assert!(started.elapsed() < TIME, "{:?}", started.elapsed());
        let printed = issues.to_string();
        assert_eq!(printed.matches("ERROR: ").count(), 100);
        assert!(!printed.contains("more errors were truncated"), "{text:.20}");
    }
}
