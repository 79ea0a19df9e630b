//! Labels and label selectors in objects.
//!
//! Start at [`validate_label_selector`]; a plain map of labels (metadata, nodeSelector, template
//! labels) has [`validate_labels`].

use crate::field::{Errors, Field};
use crate::validation::content;

/// The exceptions for a selector that was stored under older rules, or is in an access review.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelectorOptions {
    /// Allows values that are not valid label values.
    pub allow_invalid_values: bool,
    /// Allows unknown operators, which access reviews ignore.
    pub allow_unknown_operators: bool,
}

/// Validates a `LabelSelector`; an absent one is valid.
pub fn validate_label_selector(selector: &Field<'_>, options: SelectorOptions, errors: &mut Errors) {
    validate_labels(&selector.get("matchLabels"), errors);
    for requirement in selector.get("matchExpressions").items() {
        validate_requirement(&requirement, options, errors);
    }
}

fn validate_requirement(requirement: &Field<'_>, options: SelectorOptions, errors: &mut Errors) {
    let (operator, values) = (requirement.get("operator"), requirement.get("values"));
    match operator.str() {
        "In" | "NotIn" => errors.push_if(values.is_empty(), || {
            values.required("must be specified when `operator` is 'In' or 'NotIn'")
        }),
        "Exists" | "DoesNotExist" => errors.push_if(!values.is_empty(), || {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        }),
        _ => errors
            .push_if(!options.allow_unknown_operators, || operator.invalid("not a valid selector operator")),
    }
    validate_label_name(&requirement.get("key"), errors);
    if !options.allow_invalid_values {
        for value in values.items() {
            errors.invalid_each(&value, content::label_value(value.str()));
        }
    }
}

/// Returns whether a stored selector has invalid values. An update of its object may keep such
/// values, but a new object may not have them.
pub fn has_invalid_values(selector: &Field<'_>) -> bool {
    let mut values = selector.get("matchExpressions").items().flat_map(|e| e.get("values").items());
    values.any(|value| !content::label_value(value.str()).is_empty())
}

/// Validates a label key that stands alone.
pub fn validate_label_name(name: &Field<'_>, errors: &mut Errors) {
    errors.invalid_each(name, content::qualified_name(name.str()));
}

/// Validates a map of labels. Errors are reported for the map itself, as kube-apiserver does.
pub fn validate_labels(labels: &Field<'_>, errors: &mut Errors) {
    for (key, value) in labels.entries() {
        for message in content::qualified_name(key) {
            errors.push(labels.invalid_value(key, message));
        }
        for message in content::label_value(value.str()) {
            errors.push(labels.invalid_value(value.str(), message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(selector: Value, options: SelectorOptions) -> String {
        let mut errors = Errors::new();
        validate_label_selector(&Field::root(&json!({"s": selector})).get("s"), options, &mut errors);
        if errors.is_empty() { String::new() } else { errors.summary() }
    }

    #[test]
    fn label_selectors_are_validated() {
        for (case, selector, want) in [
            ("none", json!(null), ""),
            ("empty", json!({}), ""),
            (
                "in without values",
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (
                "exists with values",
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
                "s.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            (
                "unknown operator",
                json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
                "s.matchExpressions[0].operator: Invalid value: \"Gt\": not a valid selector operator",
            ),
        ] {
            assert_eq!(check(selector, SelectorOptions::default()), want, "{case}");
        }
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]});
        assert!(
            check(bad.clone(), SelectorOptions::default())
                .starts_with("s.matchExpressions[0].values[0]: Invalid value: \"-\"")
        );
        let kept = SelectorOptions { allow_invalid_values: true, ..SelectorOptions::default() };
        assert_eq!(check(bad, kept), "");
    }

    #[test]
    fn labels_are_reported_for_the_map() {
        let labels = json!({"l": {"a b": "ok", "good": "no good"}});
        let mut errors = Errors::new();
        validate_labels(&Field::root(&labels).get("l"), &mut errors);
        let fields: Vec<_> = errors.iter().map(|e| (e.field.as_str(), e.bad_value.as_deref())).collect();
        assert_eq!(fields, [("l", Some("\"a b\"")), ("l", Some("\"no good\""))]);
    }
}
