//! Selectors: what is printed is parsed as the same selector again.

use coracle_apimachinery::selector::{FieldSelector, LabelSelector};

/// Tests `labelSelector`: parsing the printed selector yields the same one.
pub fn label_selector(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(selector) = LabelSelector::parse(text) else { return false };
    let printed = selector.to_string();
    assert_eq!(LabelSelector::parse(&printed).as_ref(), Ok(&selector), "{printed:?} of {text:?}");
    let everything = selector.matches(|_| None) && selector.matches(|_| Some("x"));
    assert!(everything || !selector.is_empty(), "an empty selector selects everything");
    !selector.is_empty()
}

/// Tests `fieldSelector`: parsing the printed selector yields the same one.
pub fn field_selector(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(selector) = FieldSelector::parse(text) else { return false };
    let terms = sorted(&selector);
    let printed: Vec<String> = terms
        .iter()
        .map(|(field, value, equal)| {
            let value = value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
            format!("{field}{}{value}", if *equal { "=" } else { "!=" })
        })
        .collect();
    let printed = printed.join(",");
    let again = FieldSelector::parse(&printed).unwrap_or_else(|error| panic!("{printed:?}: {error}"));
    assert_eq!(sorted(&again), terms, "{printed:?} of {text:?}");
    // An object with the fields that the selector requires is selected, unless the selector is
    // contradictory.
    let required = |field: &str| selector.exact(field);
    let contradictory = selector.terms().iter().any(|term| {
        let value = required(&term.field).unwrap_or("");
        (value == term.value) != term.equal
    });
    assert_eq!(selector.matches(required), !contradictory);
    !selector.is_empty()
}

/// Sorts the terms so that the order does not depend on how they are written.
fn sorted(selector: &FieldSelector) -> Vec<(&str, &str, bool)> {
    let mut terms: Vec<_> =
        selector.terms().iter().map(|term| (&*term.field, &*term.value, term.equal)).collect();
    terms.sort_unstable();
    terms
}
