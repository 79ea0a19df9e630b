//! The CEL selectors of devices.
//!
//! Source: `k8s.io/dynamic-resource-allocation/cel`, `compile.go`.

use std::sync::LazyLock;

use coracle_apimachinery::field::{Errors, Field};
use coracle_cel::{Env, environments};

use super::lists::{MAX_ENTRIES, validate_list};

const MAX_EXPRESSION: usize = 10 * 1024;
/// The estimated cost that a selector may have.
const MAX_COST: u64 = 1_000_000;

/// Validates the selectors of a request or a class.
pub fn validate_selectors(selectors: &Field<'_>, errors: &mut Errors) {
    validate_list(selectors, MAX_ENTRIES, errors, |selector, errors| {
        let cel = selector.get("cel");
        if cel.exists() {
            validate_expression(&cel.get("expression"), errors);
        } else {
            errors.push(cel.required(""));
        }
    });
}

fn validate_expression(expression: &Field<'_>, errors: &mut Errors) {
    if expression.len() > MAX_EXPRESSION {
        return errors.push(expression.too_long(MAX_EXPRESSION));
    }
    static ENV: LazyLock<Env> = LazyLock::new(environments::device);
    match environments::compile_selector(&ENV, expression.str()) {
        Err(detail) => errors.push(expression.invalid(detail)),
        Ok(program) => errors.push_if(program.max_cost() > MAX_COST, || {
            expression.forbidden("too complex, exceeds cost limit")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_compiled() {
        for (expression, want) in [
            (r#"device.driver == "gpu.example.com""#, ""),
            (r#"device.attributes["gpu.example.com"].model"#, ""),
            (r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("10Gi")) >= 0"#, ""),
            (r#"cel.bind(a, device.attributes["gpu.example.com"], a.one && a.other)"#, ""),
            ("device.allowMultipleAllocations", ""),
            (
                "",
                "s[0].cel.expression: Invalid value: \"\": compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
            ),
            (
                "device.nothing",
                "s[0].cel.expression: Invalid value: \"device.nothing\": compilation failed: ERROR: <input>:1:7: undefined field 'nothing'\n | device.nothing\n | ......^",
            ),
            (
                "cel.bind(1, 2, true)",
                "s[0].cel.expression: Invalid value: \"cel.bind(1, 2, true)\": compilation failed: ERROR: <input>:1:10: cel.bind() variable names must be simple identifiers\n | cel.bind(1, 2, true)\n | .........^",
            ),
            (
                r#"device.capacity["x"].y"#,
                r#"s[0].cel.expression: Invalid value: "device.capacity[\"x\"].y": must evaluate to bool or the unknown type, not kubernetes.Quantity"#,
            ),
            (
                "1",
                "s[0].cel.expression: Invalid value: \"1\": must evaluate to bool or the unknown type, not int",
            ),
        ] {
            let object = json!({"s": [{"cel": {"expression": expression}}]});
            let mut errors = Errors::new();
            validate_selectors(&Field::root(&object).get("s"), &mut errors);
            let found = if errors.is_empty() { String::new() } else { errors.summary() };
            assert_eq!(found, want, "{expression}");
        }
    }

    #[test]
    fn selectors_that_cost_too_much_are_refused() {
        let nested = r#"device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a + b + c == d))))"#;
        let object = json!([{"cel": {"expression": nested}}, {}]);
        let mut errors = Errors::new();
        validate_selectors(&Field::root(&object), &mut errors);
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let want =
            ["[0].cel.expression: Forbidden: too complex, exceeds cost limit", "[1].cel: Required value"];
        assert_eq!(found, want);
    }
}
