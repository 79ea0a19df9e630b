//! Conditions: the list of `metav1.Condition` in a status.
//!
//! Source: API conventions, "Typical status properties".

use std::collections::HashSet;

use super::{content, labels};
use crate::field::{Errors, Field};

const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

/// Validates a list of conditions with unique types.
pub fn validate_conditions(conditions: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        let kind = condition.get("type");
        if !seen.insert(kind.str()) {
            errors.push(kind.duplicate());
        }
        validate_condition(&condition, errors);
    }
}

/// Validates one condition.
pub fn validate_condition(condition: &Field<'_>, errors: &mut Errors) {
    labels::validate_label_name(&condition.get("type"), errors);
    let status = condition.get("status");
    if !["True", "False", "Unknown"].contains(&status.str()) {
        errors.push(status.not_supported(&["False", "True", "Unknown"]));
    }
    let observed = condition.get("observedGeneration");
    errors.push_if(observed.int() < Some(0) && observed.exists(), || {
        observed.invalid("must be greater than or equal to zero")
    });
    let since = condition.get("lastTransitionTime");
    errors.push_if(since.is_empty(), || since.required(""));
    let reason = condition.get("reason");
    if reason.is_empty() {
        errors.push(reason.required(""));
    } else {
        errors.extend(invalid_reason(reason.str()).map(|e| reason.invalid(e)));
        errors.push_if(reason.len() > MAX_REASON, || reason.too_long(MAX_REASON));
    }
    let message = condition.get("message");
    errors.push_if(message.len() > MAX_MESSAGE, || message.too_long(MAX_MESSAGE));
}

fn invalid_reason(text: &str) -> Option<String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    let edge = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let valid = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(edge)
        && text.chars().all(inner);
    (!valid).then(|| {
        content::regex_error(
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
            "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
            &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
        )
    })
}
