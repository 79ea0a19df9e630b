//! The compositions `allOf`, `anyOf`, `oneOf` and `not`.
//!
//! If none of several schemas accepts a value, the errors of the best match are reported too.

use serde_json::Value;

use super::value::Validator;
use crate::field::{Errors, Path, quote};
use crate::schema::Structural;
use crate::schema::structural::Composition;

impl Validator {
    /// Validates a value against a composition. Returns the number of satisfied checks.
    pub(super) fn composition(
        &mut self,
        value: &Value,
        path: &Path,
        composition: &Composition,
        old: Option<&Value>,
        errors: &mut Errors,
    ) -> usize {
        let name = quote(&path.to_string());
        let mut checks = 0;
        let attempt = |validator: &mut Validator, structural: &Structural| {
            let mut found = Errors::new();
            let satisfied = validator.value(value, path, structural, old, &mut found);
            (found, satisfied)
        };
        if !composition.any_of.is_empty() {
            let (mut best, mut accepted) = (Best::default(), false);
            for structural in &composition.any_of {
                let (found, satisfied) = attempt(self, structural);
                accepted = found.is_empty();
                if accepted {
                    best.satisfied = satisfied;
                    break;
                }
                best.compare(found, satisfied);
            }
            checks += best.satisfied;
            if !accepted {
                errors.push(self.plain_error(format!("{name} must validate at least one schema (anyOf)")));
                errors.extend(best.found);
            }
        }
        if !composition.one_of.is_empty() {
            let (mut best, mut accepted) = (Best::default(), 0);
            for structural in &composition.one_of {
                let (found, satisfied) = attempt(self, structural);
                if found.is_empty() {
                    accepted += 1;
                    best.satisfied = satisfied;
                } else if accepted == 0 {
                    best.compare(found, satisfied);
                }
            }
            checks += if accepted > 1 { 0 } else { best.satisfied };
            if accepted != 1 {
                let count = match accepted {
                    0 => "Found none valid".to_owned(),
                    count => format!("Found {count} valid alternatives"),
                };
                errors.push(
                    self.plain_error(format!(
                        "{name} must validate one and only one schema (oneOf). {count}"
                    )),
                );
                if accepted == 0 {
                    errors.extend(best.found);
                }
            }
        }
        let mut accepted = 0;
        for structural in &composition.all_of {
            let (found, satisfied) = attempt(self, structural);
            checks += satisfied;
            accepted += usize::from(found.is_empty());
            errors.extend(found);
        }
        if accepted != composition.all_of.len() {
            let none = if accepted == 0 { ". None validated" } else { "" };
            errors.push(self.plain_error(format!("{name} must validate all the schemas (allOf){none}")));
        }
        if let Some(structural) = &composition.not
            && attempt(self, structural).0.is_empty()
        {
            errors.push(self.plain_error(format!("{name} must not validate the schema (not)")));
        }
        checks
    }
}

/// The errors by the schema that fits best.
#[derive(Default)]
struct Best {
    found: Errors,
    satisfied: usize,
}

impl Best {
    fn compare(&mut self, found: Errors, satisfied: usize) {
        if self.found.is_empty() || satisfied > self.satisfied {
            *self = Best { found, satisfied };
        }
    }
}
