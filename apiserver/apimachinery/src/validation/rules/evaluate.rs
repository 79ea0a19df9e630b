//! The evaluation of CEL rules against an object and its predecessor.

use std::cell::Cell;
use std::collections::BTreeMap;

use coracle_cel::{EvalError, Meter, Value as CelValue};
use serde_json::Value;

use super::{CompiledRule, RuleNode, RuleSet};
use crate::field::{ErrorType, Errors, Field, FieldError, Path, quote};
use crate::schema::Structural;
use crate::validation::structural;

/// The largest total cost of the rules of one object.
const OBJECT_BUDGET: u64 = 10_000_000;
/// The largest cost of one expression.
const CALL_LIMIT: u64 = 1_000_000;
/// The largest length of a message from an expression, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// The number of values that are compared, to find out whether they are unchanged.
const MAX_COMPARED: usize = 1_000_000;

/// Evaluates the rules of an object, unless an earlier error makes rules meaningless. In an update
/// the errors of unchanged values are forgiven.
///
/// - `structural`: the schema of the object.
/// - `meter`: counts the work of all of them together.
pub fn validate(
    object: &Field<'_>,
    old: Option<&Field<'_>>,
    structural: &Structural,
    rules: &RuleSet,
    meter: &Meter,
    errors: &mut Errors,
) {
    let Some(root) = &rules.root else { return };
    let blocking = |error: &FieldError| {
        matches!(
            error.error_type,
            ErrorType::NotSupported
                | ErrorType::Required
                | ErrorType::TooLong
                | ErrorType::TooMany
                | ErrorType::TypeInvalid
        )
    };
    if errors.iter().any(blocking) {
        let error = FieldError::new(ErrorType::Invalid, &Path::root(), Some(Value::Null), UNCHECKED);
        errors.push(FieldError { field: "<nil>".to_owned(), ..error });
        return;
    }
    let old = old.and_then(Field::value);
    let correlation = object.value().zip(old).map(|(value, old)| Correlation::new(value, old, structural));
    let compared = MAX_COMPARED;
    let mut evaluation = Evaluation { budget: OBJECT_BUDGET, exhausted: false, compared, meter, errors };
    evaluation.node(object, old, root, correlation.as_ref());
}

struct Evaluation<'e> {
    budget: u64,
    exhausted: bool,
    /// The number of values that may still be compared.
    compared: usize,
    meter: &'e Meter,
    errors: &'e mut Errors,
}

/// A value and the one that it replaces.
struct Correlation<'v> {
    value: &'v Value,
    old: &'v Value,
    structural: &'v Structural,
    /// Whether they are equal, once that was asked.
    is_unchanged: Cell<Option<bool>>,
}

impl<'v> Correlation<'v> {
    fn new(value: &'v Value, old: &'v Value, structural: &'v Structural) -> Correlation<'v> {
        Correlation { value, old, structural, is_unchanged: Cell::new(None) }
    }

    fn is_unchanged(&self, compared: &mut usize) -> bool {
        self.is_unchanged.get().unwrap_or_else(|| {
            let found = structural::is_unchanged(self.value, self.old, self.structural, compared);
            self.is_unchanged.set(Some(found));
            found
        })
    }
}

impl Evaluation<'_> {
    /// Evaluates the rules of a value and of its children. `correlation`: the innermost value that
    /// contains this one, or is it, and replaces another.
    fn node(
        &mut self,
        field: &Field<'_>,
        old: Option<&Value>,
        node: &RuleNode,
        correlation: Option<&Correlation<'_>>,
    ) {
        let Some(value) = field.value() else { return };
        for rule in &node.rules {
            if self.exhausted || self.errors.is_full() {
                return;
            }
            self.rule(field, value, old, node, rule, correlation);
        }
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let (inner, is_entry) = match node.properties.get(name) {
                        Some(inner) => (inner, false),
                        None => match node.entries.as_deref() {
                            Some(inner) => (inner, true),
                            None => continue,
                        },
                    };
                    let path = if is_entry { field.path().key(name) } else { field.path().child(name) };
                    let old = old.and_then(|old| old.get(name));
                    let inside = correlation.and_then(|whole| {
                        Some(Correlation::new(member, old?, whole.structural.specified_member(name)?))
                    });
                    let old = old.filter(|old| !old.is_null());
                    self.node(&Field::at(Some(member), path), old, inner, inside.as_ref().or(correlation));
                }
            }
            Value::Array(_) => {
                let Some(inner) = node.items.as_deref() else { return };
                let correlated = node.keys.as_ref().zip(old.and_then(Value::as_array));
                let olds: BTreeMap<String, &Value> = correlated
                    .map(|(keys, olds)| olds.iter().map(|old| (key_of(old, keys), old)).collect())
                    .unwrap_or_default();
                for item in field.items() {
                    let key = item.value().zip(node.keys.as_ref()).map(|(item, keys)| key_of(item, keys));
                    let old = key.and_then(|key| olds.get(&key).copied());
                    let inside = correlation.and_then(|whole| {
                        Some(Correlation::new(item.value()?, old?, whole.structural.items.as_deref()?))
                    });
                    self.node(&item, old, inner, inside.as_ref().or(correlation));
                }
            }
            _ => {}
        }
    }

    fn rule(
        &mut self,
        field: &Field<'_>,
        value: &Value,
        old: Option<&Value>,
        node: &RuleNode,
        rule: &CompiledRule,
        correlation: Option<&Correlation<'_>>,
    ) {
        let Some(decl) = node.decl.as_deref() else { return };
        let report = |errors: &mut Errors, detail: String| {
            let shown = Some(Value::from(node.ty.as_str()));
            errors.push(named(FieldError::new(ErrorType::Invalid, field.path(), shown, detail)));
        };
        let program = match &rule.program {
            Ok(program) => program,
            Err(detail) => return report(self.errors, format!("rule compile error: {detail}")),
        };
        if rule.uses_old_self && old.is_none() && !rule.optional_old_self {
            return;
        }
        let old_self = || old.map(|old| CelValue::of_json(old, decl));
        let given = if rule.optional_old_self {
            CelValue::Optional(old_self().map(std::sync::Arc::new))
        } else {
            old_self().unwrap_or(CelValue::Null)
        };
        let variables = [("self", CelValue::of_json(value, decl)), ("oldSelf", given)];
        let outcome = program.evaluate(&variables, CALL_LIMIT, self.meter);
        let exceeded = outcome.value == Err(EvalError::CostLimit);
        if outcome.cost > self.budget && !exceeded {
            self.exhausted = true;
            let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
            return report(self.errors, detail.to_owned());
        }
        self.budget = self.budget.saturating_sub(outcome.cost);
        match outcome.value {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => {
                let path = match &rule.field_path {
                    Some(path) => path.below(field.path()),
                    None => field.path().clone(),
                };
                // In a message `oldSelf` is never optional.
                let mut variables = vec![("self", CelValue::of_json(value, decl))];
                variables.extend(old_self().map(|old| ("oldSelf", old)));
                let error = match self.message(rule, &variables) {
                    Ok(detail) => failure(&path, value, detail, &rule.reason),
                    Err(detail) => {
                        self.exhausted = true;
                        let shown = Some(Value::from(node.ty.as_str()));
                        named(FieldError::new(ErrorType::Invalid, &path, shown, detail))
                    }
                };
                // An update is not rejected because of unchanged values.
                let is_unchanged =
                    !rule.uses_old_self && correlation.is_some_and(|c| c.is_unchanged(&mut self.compared));
                if is_unchanged {
                    self.errors.forgive(error);
                } else {
                    self.errors.push(error);
                }
            }
            Err(EvalError::CostLimit) => {
                self.exhausted = true;
                let (error, text) = (EvalError::CostLimit, rule.text());
                report(
                    self.errors,
                    format!(
                        "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {text}"
                    ),
                );
            }
            Err(error @ (EvalError::NoSuchOverload | EvalError::NoSuchOverloadOf(_))) => {
                let text = rule.text();
                report(
                    self.errors,
                    format!(
                        "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {text}"
                    ),
                );
            }
            Err(error) => {
                // No work is left, so the remaining rules cannot be evaluated either.
                self.exhausted |= matches!(error, EvalError::WorkLimit(_));
                report(self.errors, format!("{error} evaluating rule: {}", rule.text()));
            }
        }
    }

    /// Returns the message of a rule that does not hold: the result of its message expression,
    /// otherwise its message, otherwise a default text with the rule.
    ///
    /// # Errors
    /// The message expression exceeds a limit of costs.
    fn message(&mut self, rule: &CompiledRule, variables: &[(&str, CelValue<'_>)]) -> Result<String, String> {
        if let Some(program) = &rule.message_program {
            let outcome = program.evaluate(&variables, CALL_LIMIT, self.meter);
            if outcome.value == Err(EvalError::CostLimit) {
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    quote(&rule.message_expression)
                ));
            }
            if outcome.cost > self.budget {
                return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
            }
            self.budget -= outcome.cost;
            if let Ok(CelValue::String(text)) = outcome.value {
                let text = text.trim();
                if !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE {
                    return Ok(text.to_owned());
                }
            }
        }
        Ok(if rule.message.is_empty() { format!("failed rule: {}", rule.rule) } else { rule.message.clone() })
    }
}

/// Returns the error for a rule that does not hold. It contains the value only if that is a scalar.
fn failure(path: &Path, value: &Value, detail: String, reason: &str) -> FieldError {
    let (error_type, detail) = match reason {
        "FieldValueRequired" => (ErrorType::Required, detail),
        "FieldValueForbidden" => (ErrorType::Forbidden, detail),
        "FieldValueDuplicate" => (ErrorType::Duplicate, String::new()),
        _ => (ErrorType::Invalid, detail),
    };
    let printed = matches!(error_type, ErrorType::Invalid | ErrorType::Duplicate)
        && !matches!(value, Value::Object(_) | Value::Array(_));
    named(FieldError::new(error_type, path, printed.then(|| value.clone()), detail))
}

/// Names the path of the root, which is empty, in Go's format.
fn named(error: FieldError) -> FieldError {
    if error.field.is_empty() { FieldError { field: "<nil>".to_owned(), ..error } } else { error }
}

fn key_of(item: &Value, keys: &[String]) -> String {
    keys.iter().map(|key| item.get(key).map(Value::to_string).unwrap_or_default() + "\u{0}").collect()
}

#[cfg(test)]
mod tests {
    use coracle_cel::Limits;
    use serde_json::json;

    use super::*;
    use crate::schema::StructuralSchema;

    fn meter() -> Meter {
        // Other tests run concurrently, so only the work is limited, not the time.
        Meter::new(Limits { time: std::time::Duration::from_secs(600), ..Limits::REQUEST })
    }

    struct Kind {
        structural: StructuralSchema,
        rules: RuleSet,
    }

    impl Kind {
        fn of(schema: Value) -> Kind {
            let rules = RuleSet::read(&schema);
            Kind { structural: StructuralSchema::read(schema).unwrap(), rules }
        }

        fn validate(&self, object: &Value, old: Option<&Value>, meter: &Meter, errors: &mut Errors) {
            let old = old.map(Field::root);
            let structural = self.structural.root();
            validate(&Field::root(object), old.as_ref(), structural, &self.rules, meter, errors);
        }
    }

    fn found(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Errors::new();
        kind.validate(object, old, &meter(), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn rules() -> Kind {
        Kind::of(json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [
                    {"rule": "self.startsWith('w-')", "message": "must start with w-"},
                    {"rule": "self == oldSelf", "message": "is immutable"},
                ]},
                "min": {"type": "integer"}, "max": {"type": "integer"},
                "once": {"type": "string", "x-kubernetes-validations": [
                    {"rule": "oldSelf.hasValue() || self != 'x'", "optionalOldSelf": true, "message": "not x at first"},
                ]},
                "port": {"x-kubernetes-int-or-string": true},
                "l": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {
                        "type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "may not shrink"}],
                    },
                },
            },
            "x-kubernetes-validations": [
                {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max"},
                {"rule": "!has(self.min) || self.min != 7", "reason": "FieldValueDuplicate", "fieldPath": ".min"},
                {"rule": "!has(self.max) || self.max < 9", "messageExpression": "'at most 8, not ' + string(self.max)"},
                {"rule": "!has(self.port) || self.port + 1 > 0"},
            ],
        }}}))
    }

    #[test]
    fn rules_that_do_not_hold_are_reported() {
        let rules = rules();
        for (spec, want) in [
            (json!({"name": "w-x", "min": 1, "max": 2}), vec![]),
            (
                json!({"min": 3, "max": 2}),
                vec![
                    "spec: Invalid value: failed rule: !has(self.min) || !has(self.max) || self.min <= self.max",
                ],
            ),
            (json!({"min": 7}), vec!["spec.min: Duplicate value"]),
            (json!({"max": 9}), vec!["spec: Invalid value: at most 8, not 9"]),
            (json!({"name": "x"}), vec!["spec.name: Invalid value: \"x\": must start with w-"]),
            (json!({"once": "x"}), vec!["spec.once: Invalid value: \"x\": not x at first"]),
            (
                json!({"port": "http"}),
                vec![
                    "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: !has(self.port) || self.port + 1 > 0",
                ],
            ),
        ] {
            assert_eq!(found(&rules, &json!({"spec": spec}), None), want, "{spec}");
        }
    }

    #[test]
    fn transition_rules_see_the_value_before() {
        let rules = rules();
        for (old, new, want) in [
            (json!({"name": "w-a"}), json!({"name": "w-a"}), vec![]),
            (
                json!({"name": "w-a"}),
                json!({"name": "w-b"}),
                vec!["spec.name: Invalid value: \"w-b\": is immutable"],
            ),
            (json!({}), json!({"name": "w-b"}), vec![]),
            // An update is not rejected because of unchanged values.
            (json!({"name": "old"}), json!({"name": "old", "min": 1}), vec![]),
            (json!({"once": "y"}), json!({"once": "x"}), vec![]),
            (
                json!({"l": [{"k": "p", "v": 1}, {"k": "q", "v": 2}]}),
                json!({"l": [{"k": "q", "v": 1}, {"k": "p", "v": 1}]}),
                vec!["spec.l[0]: Invalid value: may not shrink"],
            ),
        ] {
            let (old, new) = (json!({"spec": old}), json!({"spec": new}));
            assert_eq!(found(&rules, &new, Some(&old)), want, "{old} {new}");
        }
    }

    #[test]
    fn unchanged_values_that_violate_rules_are_warned_of() {
        let kind = Kind::of(json!({"type": "object", "properties": {
            "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'bad'"}]},
            "l": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"}}},
                "x-kubernetes-validations": [{"rule": "self.all(item, item.v != 'bad')", "message": "no"}],
            },
            "s": {
                "type": "array", "items": {
                    "type": "string", "x-kubernetes-validations": [{"rule": "self != 'bad'"}],
                },
            },
            "open": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "x-kubernetes-validations": [{"rule": "has(self.a)", "message": "a is required"}],
                "properties": {"a": {"type": "string"}},
            },
            "fails": {"type": "integer", "x-kubernetes-validations": [{"rule": "1 / self > 0"}]},
        }}));
        for (old, new, want, warnings) in [
            (
                json!({"a": "bad"}),
                json!({"a": "bad", "s": []}),
                vec![],
                vec!["a: Invalid value: \"bad\": failed rule: self != 'bad'"],
            ),
            // The order of a list with keys does not count; that of others does.
            (
                json!({"l": [{"k": "p", "v": "bad"}, {"k": "q", "v": "x"}]}),
                json!({"l": [{"k": "q", "v": "x"}, {"k": "p", "v": "bad"}]}),
                vec![],
                vec!["l: Invalid value: no"],
            ),
            (
                json!({"s": ["bad", "x"]}),
                json!({"s": ["bad", "x"], "a": "x"}),
                vec![],
                vec!["s[0]: Invalid value: \"bad\": failed rule: self != 'bad'"],
            ),
            (
                json!({"s": ["bad", "x"]}),
                json!({"s": ["x", "bad"]}),
                vec!["s[1]: Invalid value: \"bad\": failed rule: self != 'bad'"],
                vec![],
            ),
            // What is not specified is not compared.
            (
                json!({"open": {"x": 1}}),
                json!({"open": {"x": 1}}),
                vec!["open: Invalid value: a is required"],
                vec![],
            ),
            // A rule that fails is an error even so.
            (
                json!({"fails": 0}),
                json!({"fails": 0}),
                vec!["fails: Invalid value: \"integer\": division by zero evaluating rule: 1 / self > 0"],
                vec![],
            ),
        ] {
            let mut errors = Errors::new();
            kind.validate(&new, Some(&old), &meter(), &mut errors);
            assert_eq!(errors.take_warnings(), warnings, "{old} {new}");
            let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(found, want, "{old} {new}");
        }
    }

    #[test]
    fn warnings_leave_room_for_errors() {
        let kind = Kind::of(json!({"type": "object", "properties": {
            "big": {"type": "string", "x-kubernetes-validations": [{"rule": "self == ''"}]},
            "kept": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        }}));
        let big = "x".repeat(2 << 20);
        let (old, new) = (json!({"big": big, "kept": "a"}), json!({"big": big, "kept": "b"}));
        let want = "kept: Invalid value: \"b\": failed rule: self == oldSelf";
        assert_eq!(found(&kind, &new, Some(&old)), [want]);
    }

    #[test]
    fn a_list_is_compared_once() {
        let kind = Kind::of(json!({"type": "object", "properties": {"l": {
            "type": "array",
            "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0"}]},
        }}}));
        let old = json!({"l": vec![-1; MAX_COMPARED / 4]});
        let mut new = old.clone();
        new["l"].as_array_mut().unwrap()[MAX_COMPARED / 4 - 1] = json!(-2);
        let mut errors = Errors::new();
        kind.validate(&new, Some(&old), &meter(), &mut errors);
        assert!(errors.is_full() || errors.len() > 1000, "{}", errors.len());
        assert!(errors.take_warnings().is_empty());
    }

    #[test]
    fn messages_see_the_old_value_itself() {
        let kind = Kind::of(json!({"type": "object", "properties": {"a": {
            "type": "string", "x-kubernetes-validations": [{
                "rule": "oldSelf.hasValue() && oldSelf.value() == self", "optionalOldSelf": true,
                "messageExpression": "oldSelf.hasValue() ? 'had' : 'none'",
            }],
        }}}));
        let want = "a: Invalid value: \"y\": failed rule: oldSelf.hasValue() && oldSelf.value() == self";
        assert_eq!(found(&kind, &json!({"a": "y"}), Some(&json!({"a": "x"}))), [want]);
        assert_eq!(found(&kind, &json!({"a": "y"}), None), [want]);
    }

    #[test]
    fn rules_are_not_evaluated_on_objects_of_a_wrong_type() {
        let object = json!({"spec": {"name": "x"}});
        let mut errors = Errors::new();
        errors.push(Field::root(&object).required(""));
        rules().validate(&object, None, &meter(), &mut errors);
        let texts: Vec<String> = errors.iter().skip(1).map(ToString::to_string).collect();
        assert_eq!(texts, [format!("<nil>: Invalid value: null: {UNCHECKED}")]);
    }

    #[test]
    fn all_rules_of_an_object_share_a_budget() {
        let rules = Kind::of(json!({"type": "object", "properties": {"l": {"type": "array", "items": {
            "type": "array", "items": {"type": "integer"},
            "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x != y || x == y))"}],
        }}}}));
        let inner: Vec<u32> = (0..200).collect();
        let object = json!({"l": vec![inner; 100]});
        let texts = found(&rules, &object, None);
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(
            texts[0].contains("running out of cost budget, no further validation rules will be run"),
            "{texts:?}"
        );
    }

    #[test]
    fn rules_that_do_too_much_end_the_validation() {
        let endless =
            "'x'.matches('x') && self.l.all(a, self.l.all(b, self.l.all(c, ''.findAll('') == [''])))";
        let rules = Kind::of(json!({"type": "object", "properties": {"spec": {
            "type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}},
            "x-kubernetes-validations": [{"rule": endless}, {"rule": "false"}],
        }}}));
        let object = json!({"spec": {"l": vec![1; 200]}});
        let mut errors = Errors::new();
        let meter = Meter::new(Limits { steps: 100_000, ..Limits::REQUEST });
        rules.validate(&object, None, &meter, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let want =
            "spec: Invalid value: \"object\": operation interrupted: work limit exceeded evaluating rule: ";
        assert_eq!(texts, [format!("{want}{endless}")]);
    }
}
