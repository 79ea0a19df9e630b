//! Expressions, by tables: what they evaluate to, what is wrong with them, and what they cost.

use std::sync::Arc;

use coracle_cel::{DeclType, Env, Limits, Meter, NO_VARIABLES, Type, Value};
use serde_json::json;

const LIMIT: u64 = 1_000_000;

fn meter() -> Meter {
    Meter::new(Limits::REQUEST)
}

/// Evaluates an expression to JSON, or to the text of its error.
fn evaluated(text: &str) -> String {
    let object = json!({
        "a": {"b": [1, 2, 3]}, "s": "text", "n": 3, "m": {"x": 1}, "empty": [], "nothing": null,
        "labels": {"app": "web"},
    });
    let program = match Env::new().variable("object", Type::Dyn).compile(text) {
        Ok(program) => program,
        Err(error) => return error.to_string().trim_start_matches("compilation failed: ").to_owned(),
    };
    let variables = [("object", Value::of_json(&object, &coracle_cel::DYN))];
    match program.evaluate(&variables, LIMIT, &meter()).value {
        Ok(value) => value
            .to_json(&meter())
            .expect("it is small")
            .map_or_else(|| value.type_of().to_string(), |json| json.to_string()),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn expressions_have_the_values_of_the_language() {
    for (text, want) in [
        // Operators.
        ("1 + 2 * 3", "7"),
        ("-(2) - -3", "1"),
        ("7 % 3 + 8 / 4", "3"),
        ("1 / 0", "error: division by zero"),
        ("9223372036854775807 + 1", "error: integer overflow"),
        ("1u - 2u", "error: unsigned integer overflow"),
        ("'a' + 'b' == 'ab'", "true"),
        ("b'a' + b'\\x62' == b'ab'", "true"),
        ("[1] + [2, 3]", "[1,2,3]"),
        ("1 == 1.0 || false", "found"),
        ("1 < 1.5 && 2u > 1 && 1.0 <= 1", "true"),
        ("!(true && false) || false", "true"),
        ("true ? 'yes' : 'no'", "\"yes\""),
        ("2 in [1, 2] && !('b' in {'a': 1})", "true"),
        ("0x1F + 1", "32"),
        ("1e3 + .5", "1000.5"),
        // Errors do not count where the other side decides.
        ("object.nope == 1 || true", "true"),
        ("object.nope == 1 && true", "error: no such key: nope"),
        // Members.
        ("object.a.b[1]", "2"),
        ("object['s']", "\"text\""),
        ("object.a.b[3]", "error: index out of bounds: 3"),
        ("has(object.a) && !has(object.z) && has(object.nothing)", "true"),
        ("object.?z.orValue('default')", "\"default\""),
        ("object.?s.orValue('default')", "\"text\""),
        ("object.a.?b[?1].orValue(5)", "2"),
        ("object.?z.?y.hasValue()", "false"),
        ("optional.of(1).optMap(x, x + 1).value()", "2"),
        ("optional.none().optMap(x, x).orValue(7)", "7"),
        ("[?object.?z, ?object.?s]", "[\"text\"]"),
        ("{'a': dyn(1), ?'b': object.?z}", "{\"a\":1}"),
        // Macros.
        ("object.a.b.all(x, x > 0) && object.a.b.exists(x, x == 2)", "true"),
        ("object.a.b.exists_one(x, x > 2)", "true"),
        ("object.a.b.map(x, x * 2)", "[2,4,6]"),
        ("object.a.b.map(x, x > 1, x * 2)", "[4,6]"),
        ("object.a.b.filter(x, x != 2)", "[1,3]"),
        ("[1, 2].all(i, v, v == i + 1)", "true"),
        ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", "true"),
        ("[5, 6].transformList(i, v, i + v)", "[5,7]"),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 10)", "{\"b\":20}"),
        ("object.m.map(k, k)", "[\"x\"]"),
        ("[[1, 2], [3]].map(l, l.map(x, x + 1))", "[[2,3],[4]]"),
        ("[0, 1].exists(x, 1 / x == 1)", "true"),
        // Strings.
        ("'hello'.size() + size('äö')", "7"),
        ("'hello'.startsWith('he') && 'hello'.endsWith('lo') && 'hello'.contains('ell')", "true"),
        ("'abc123'.matches('^[a-z]+[0-9]+$')", "true"),
        ("'hello'.charAt(1) + 'hello'.substring(2, 4)", "\"ell\""),
        ("'a,b,c'.split(',')", "[\"a\",\"b\",\"c\"]"),
        ("['a', 'b'].join('-')", "\"a-b\""),
        ("'hello'.indexOf('l') + 'hello'.lastIndexOf('l')", "5"),
        ("'Hello'.lowerAscii() + 'x'.upperAscii() + ' y '.trim()", "\"helloXy\""),
        ("'aaa'.replace('a', 'b', 2)", "\"bba\""),
        ("'%s is %d, %.2f, %x'.format(['a', 5, 1.5, 255])", "\"a is 5, 1.50, ff\""),
        ("'a1b22'.findAll('[0-9]+')", "[\"1\",\"22\"]"),
        ("'a1b22'.find('[0-9]+')", "\"1\""),
        // Lists and sets.
        ("[3, 1, 2].sort() == [1, 2, 3] && [1, 2].isSorted()", "true"),
        ("[1, 2, 3].sum() + [4, 9].max() - [4, 9].min()", "11"),
        ("[1, 1, 2].distinct().reverse()", "[2,1]"),
        ("[[1], [2, 3]].flatten().slice(1, 3)", "[2,3]"),
        ("lists.range(3)", "[0,1,2]"),
        ("[7, 8].first().value() + [7, 8].last().value()", "15"),
        (
            "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1]) && !sets.intersects([1], [2])",
            "true",
        ),
        // Conversions, times.
        ("int('5') + int(2.9) + int(3u)", "10"),
        ("string(1) + string(true) + string(1.5)", "\"1true1.5\""),
        ("duration('1h30m').getMinutes()", "90"),
        ("timestamp('2020-01-02T03:04:05Z').getFullYear()", "2020"),
        ("timestamp('2020-01-02T00:00:00Z') - timestamp('2020-01-01T00:00:00Z') == duration('24h')", "true"),
        ("type(1) == int && type('a') == string && type([1]) == list", "true"),
        ("double('x')", "program instantiation failed: type conversion error from 'string' to 'double'"),
        ("double(object.s)", "error: type conversion error from 'string' to 'double'"),
        // Keywords are names of fields.
        ("has(object.namespace) || has(object.if)", "false"),
        // A value without fields.
        ("has(object.nothing.x)", "false"),
        ("object.nothing.?x.hasValue()", "false"),
        ("object.n.x", "error: no such key: x"),
        ("optional.of(1) == null", "false"),
        ("[3, 1, 2].sortBy(x, -x)", "[3,2,1]"),
        ("string(timestamp('2020-01-02T03:04:05+01:00'))", "\"2020-01-02T03:04:05+01:00\""),
        ("'%s'.format([[1.5, 'a', {'k': null}]])", "\"[1.500000, \\\"a\\\", {\\\"k\\\":null}]\""),
        ("dyn(1).size()", "error: no such overload: size"),
        ("object.s - 1", "error: no such overload"),
        ("object.m + 1", "error: no such overload: _+_"),
        // Kubernetes.
        ("quantity('1Ki').add(quantity('24')).isGreaterThan(quantity('1k')) && isQuantity('5Gi')", "true"),
        ("quantity('50k').sub(quantity('20k')).asInteger()", "30000"),
        (
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
            "true",
        ),
        ("cidr('192.168.1.5/24').masked().prefixLength() == 24 && ip('::1').family() == 6", "true"),
        (
            "isIP('1.2.3.4') && !isIP('1.2.3') && !isCIDR('10.0.0.0/33') && ip('127.0.0.1').isLoopback()",
            "true",
        ),
        (
            "url('https://u@example.com:80/a?b=c').getHostname() + url('https://x:80/a').getPort()",
            "\"example.com80\"",
        ),
        ("url('https://x/p?a=1&a=2').getQuery()['a']", "[\"1\",\"2\"]"),
        ("isURL('http://a') && !isURL('a b')", "true"),
        ("semver('1.2.3').isLessThan(semver('1.10.0')) && !isSemver('v1') && isSemver('v1', true)", "true"),
        ("format.dns1123Label().validate('my-name').hasValue()", "false"),
        ("format.named('dns1123Label').value().validate('My').hasValue()", "true"),
    ] {
        // Literals of different types are not compared where both types are known.
        let want = if want == "found" {
            "ERROR: <input>:1:3: found no matching overload for '_==_' applied to '(int, double)'\n | 1 == 1.0 || false\n | ..^"
        } else {
            want
        };
        assert_eq!(evaluated(text), want, "{text}");
    }
}

#[test]
fn errors_have_the_texts_of_the_reference_implementation() {
    const EXPECTING: &str = "expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    for (text, column, want) in [
        ("object.x ==", 12, format!("Syntax error: mismatched input '<EOF>' {EXPECTING}")),
        ("1 + 2 3 +", 7, "Syntax error: mismatched input '3' expecting <EOF>".to_owned()),
        ("a b", 3, "Syntax error: extraneous input 'b' expecting <EOF>".to_owned()),
        ("x", 1, "undeclared reference to 'x' (in container '')".to_owned()),
        ("undefined(object)", 10, "undeclared reference to 'undefined' (in container '')".to_owned()),
        ("'a' + 1", 5, "found no matching overload for '_+_' applied to '(string, int)'".to_owned()),
        (
            "'a'.startsWith(1)",
            15,
            "found no matching overload for 'startsWith' applied to 'string.(int)'".to_owned(),
        ),
        ("[1, 'a']", 5, "expected type 'int' but found 'string'".to_owned()),
        ("'a'.matches('[')", 13, "invalid matches argument".to_owned()),
        ("duration('x')", 10, "invalid duration argument".to_owned()),
        ("'a'.b", 4, "type 'string' does not support field selection".to_owned()),
        ("has(object)", 5, "invalid argument to has() macro".to_owned()),
        ("[1].all(x.y, true)", 10, "argument must be a simple name".to_owned()),
    ] {
        let found = evaluated(text);
        let first = found.split('\n').next().unwrap_or("");
        assert_eq!(first, format!("ERROR: <input>:1:{column}: {want}"), "{text}");
    }
}

#[test]
fn evaluation_ends_at_its_cost_limit() {
    let items: Vec<i64> = (0..2000).collect();
    let object = json!({"l": items});
    let env = Env::new().variable("object", Type::Dyn);
    let program = env.compile("object.l.all(x, object.l.all(y, x == y || x != y))").expect("it compiles");
    let variables = [("object", Value::of_json(&object, &coracle_cel::DYN))];
    let outcome = program.evaluate(&variables, LIMIT, &meter());
    let text = outcome.value.err().map(|error| error.to_string());
    assert_eq!(text.as_deref(), Some("operation cancelled: actual cost limit exceeded"));
    assert!(outcome.cost <= LIMIT + 100_000);
}

#[test]
fn what_grows_without_bound_is_refused_or_cut_off() {
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    let long = format!("1{}", "+1".repeat(20_000));
    let lists = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    let signs = format!("{}true", "!".repeat(10_001));
    let members = format!("object{}", ".a".repeat(3000));
    for text in [&deep, &long, &lists, &members, &"a".repeat(200_000)] {
        assert!(Env::new().variable("object", Type::Dyn).compile(text).is_err());
    }
    assert!(Env::new().compile(&signs).is_ok());
    let mut doubled = "['a']".to_owned();
    for _ in 0..40 {
        doubled = format!("{doubled}.map(x, x + x)");
    }
    let program = Env::new().compile(&doubled).expect("it compiles");
    assert!(program.evaluate(&NO_VARIABLES, LIMIT, &meter()).value.is_err());
}

fn estimated(schema: serde_json::Value, rule: &str) -> u64 {
    let decl = Arc::new(DeclType::of_schema(&schema, "selfType", false).expect("a type"));
    Env::new().declared("self", &decl, false).compile(rule).expect("it compiles").max_cost()
}

#[test]
fn costs_are_estimated_from_the_bounds_of_the_schema() {
    let list = |items, max: Option<u64>| {
        let mut schema = json!({"type": "array", "items": items});
        if let Some(max) = max {
            schema["maxItems"] = max.into();
        }
        json!({"type": "object", "properties": {"l": schema}})
    };
    let unbounded = list(json!({"type": "string"}), None);
    let bounded = list(json!({"type": "string", "maxLength": 20}), Some(10));
    let nested = "self.l.all(x, self.l.all(y, x == y))";
    assert!(estimated(unbounded.clone(), nested) > 1_000_000_000);
    assert!(estimated(unbounded, "self.l.all(x, x.contains('abc'))") > 1_000_000_000);
    assert!(estimated(bounded, nested) < 10_000);
    assert!(estimated(json!({"type": "string", "maxLength": 10}), "self == 'a'") < 10);
}

#[test]
fn values_have_the_types_of_the_schema() {
    let schema = json!({"type": "object", "properties": {
        "d": {"type": "string", "format": "duration"}, "t": {"type": "string", "format": "date-time"},
        "n": {"type": "number"}, "p": {"x-kubernetes-int-or-string": true},
        "in": {"type": "string"}, "if": {"type": "string"}, "namespace": {"type": "string"}, "a-b": {"type": "string"},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    }});
    let decl = Arc::new(DeclType::of_schema(&schema, "selfType", false).expect("a type"));
    let object = json!({
        "d": "90s", "t": "2020-01-01T00:00:00Z", "n": 1, "p": "http", "in": "x", "namespace": "n", "a-b": "y",
        "m": {"k": 1},
    });
    let env = Env::new().declared("self", &decl, false);
    for rule in [
        "self.d == duration('1m30s')",
        "self.t < timestamp('2021-01-01T00:00:00Z')",
        "self.n / 2.0 == 0.5",
        "self.p == 'http'",
        "self.__in__ == 'x' && self.a__dash__b == 'y'",
        "self.m.all(k, self.m[k] == 1) && self.m.k == 1",
        "has(self.__in__) && !has(self.__if__) && !has(self.if) && self.namespace == 'n' && self.__namespace__ == 'n'",
    ] {
        let program = env.compile(rule).unwrap_or_else(|issues| panic!("{rule}: {issues}"));
        let outcome = program.evaluate(&[("self", Value::of_json(&object, &decl))], LIMIT, &meter());
        assert_eq!(outcome.value, Ok(Value::Bool(true)), "{rule}");
    }
    for (rule, want) in [
        ("self.nope == 'x'", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 'x'\n | ....^"),
        (
            "self.n == 'a'",
            "ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(double, string)'\n | self.n == 'a'\n | .......^",
        ),
    ] {
        let error = env.compile(rule).err().map(|error| error.to_string());
        assert_eq!(error, Some(format!("compilation failed: {want}")));
    }
}

#[test]
fn lists_are_compared_and_joined_by_the_semantics_of_the_first_one() {
    let list = |semantics: &str, items: serde_json::Value| json!({"type": "array", "x-kubernetes-list-type": semantics, "items": items});
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let mut keyed = list(
        "map",
        json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}),
    );
    keyed["x-kubernetes-list-map-keys"] = json!(["k"]);
    let schema = json!({"type": "object", "properties": {
        "l": list("atomic", text.clone()), "set": list("set", text), "keyed": keyed.clone(), "other": keyed,
        "large": list("set", number.clone()), "reversed": list("atomic", number),
    }});
    let decl = Arc::new(DeclType::of_schema(&schema, "selfType", false).expect("a type"));
    let (one, two) = (json!({"k": "a", "v": 1}), json!({"k": "b", "v": 2}));
    let object = json!({
        "l": ["a", "b"], "set": ["b", "a"], "keyed": [one, two], "other": [two, one],
        "large": (0..40).collect::<Vec<_>>(), "reversed": (0..40).rev().collect::<Vec<_>>(),
    });
    let env = Env::new().declared("self", &decl, false);
    for (expression, want) in [
        ("self.set == self.l", true),
        ("self.l == self.set", false),
        ("['a', 'b'] == self.set", false),
        ("self.set == ['a', 'a']", true),
        ("self.set == ['a']", false),
        ("self.set + ['c'] == ['c', 'a', 'b']", true),
        ("self.set + self.l == ['a', 'b']", true),
        ("self.l + self.set == ['a', 'b', 'b', 'a']", true),
        ("self.l + self.set == ['b', 'a', 'a', 'b']", false),
        ("self.keyed == dyn(self.other)", true),
        ("self.keyed + self.keyed == dyn(self.other)", true),
        ("self.keyed.filter(x, true) == dyn(self.other)", false),
        ("self.large == self.reversed", true),
        ("self.reversed == self.large", false),
    ] {
        let program = env.compile(expression).unwrap_or_else(|issues| panic!("{expression}: {issues}"));
        let outcome = program.evaluate(&[("self", Value::of_json(&object, &decl))], LIMIT, &meter());
        assert_eq!(outcome.value, Ok(Value::Bool(want)), "{expression}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[a-z0-9.()\\[\\]{}+*/%!?:&|<>='\",\\\\ -]{0,60}") {
        let _ = evaluated(&text);
    }

    #[test]
    fn no_combination_of_words_panics(words in proptest::collection::vec(
        proptest::sample::select(vec![
            "object", ".a", ".b", "[0]", "(", ")", " + ", " == ", "1", "'x'", ".size()", ".map(x, ", "x", ", ", "[", "]",
            "{", "}", ": ", " ? ", "!", "-", ".all(x, ", ".optMap(x, ", ".?a", "[?0]", "has(", "true", "optional.of(",
            "lists.range(", ".replace('', ", "duration('1s')", " in ", "1.5", "2u", "b'a'", "null", "type(",
        ]), 0..14)) {
        let _ = evaluated(&words.concat());
    }
}
