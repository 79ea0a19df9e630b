//! Rules of lists that several kinds of the group have.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};

/// The maximum number of requests, constraints, configurations, selectors and allocated devices,
/// each.
pub const MAX_ENTRIES: usize = 32;

/// Validates each entry of a list with at most `most` entries.
pub fn validate_list(
    list: &Field<'_>,
    most: usize,
    errors: &mut Errors,
    mut each: impl FnMut(&Field<'_>, &mut Errors),
) -> bool {
    if list.len() > most {
        errors.push(list.too_many(list.len(), most));
        return false;
    }
    for entry in list.items() {
        each(&entry, errors);
    }
    true
}

/// Reports entries with the same `key`.
pub fn refuse_duplicates<'a>(list: &Field<'a>, key: impl Fn(&Field<'a>) -> &'a str, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for entry in list.items() {
        let key = key(&entry);
        errors.push_if(!seen.insert(key), || entry.duplicate_value(key));
    }
}
