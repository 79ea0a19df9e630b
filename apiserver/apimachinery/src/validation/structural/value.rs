//! The validation of one value: its type, its rules, and those of its children.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::list_type::key_of;
use super::number::{self, NumberError};
use crate::field::{ErrorType, Errors, Field, FieldError, Path};
use crate::schema::structural::Size;
use crate::schema::{List, Structural, StructuralType};
use crate::validation::formats;

/// The largest number of values in one validation, where each schema of a composition counts. The
/// compositions of a large schema multiply with the items of a large object.
const MAX_STEPS: usize = 2_000_000;

/// Validates a value by its schema.
pub(super) struct Validator {
    /// The prefix of the paths of errors.
    root: Path,
    /// The number of values that may still be validated.
    steps: usize,
    /// The number of values that may still be compared with the old ones.
    compared: usize,
    /// Whether an int-or-string must be an integer or a string. Defaults are not checked for it.
    checks_either: bool,
}

impl Validator {
    pub(super) fn new(root: Path) -> Validator {
        Validator { root, steps: MAX_STEPS, compared: MAX_STEPS, checks_either: true }
    }

    /// Returns the validator for a default.
    pub(super) fn of_default(self) -> Validator {
        Validator { checks_either: false, ..self }
    }

    /// Returns the validator with fewer steps.
    #[cfg(test)]
    pub(super) fn with_steps(self, steps: usize) -> Validator {
        Validator { steps, ..self }
    }

    /// Validates a value; `old` is its previous value.
    pub(super) fn validate(
        mut self,
        value: &Value,
        structural: &Structural,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        self.value(value, &Path::root(), structural, old, errors);
        if self.steps == 0 {
            errors.push(Field::at(None, self.root).internal("the schema takes too many steps to validate"));
        }
    }

    /// Validates a value. Returns the number of satisfied checks: the one of several schemas with
    /// most of them is assumed to be intended.
    pub(super) fn value(
        &mut self,
        value: &Value,
        path: &Path,
        structural: &Structural,
        old: Option<&Value>,
        errors: &mut Errors,
    ) -> usize {
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 || errors.is_full() {
            return 0;
        }
        let mut found = Errors::new();
        let checks = self.rules(value, path, structural, old, &mut found);
        if !found.is_empty()
            && !old.is_some_and(|old| is_unchanged(value, old, structural, &mut self.compared))
        {
            errors.extend(found);
        }
        checks
    }

    fn rules(
        &mut self,
        value: &Value,
        path: &Path,
        structural: &Structural,
        old: Option<&Value>,
        errors: &mut Errors,
    ) -> usize {
        let rules = &structural.rules;
        let wrong = wrong_type(value, structural).filter(|_| self.checks_either || !structural.int_or_string);
        let fits = usize::from(wrong.is_none());
        if let Some((wanted, got)) = wrong {
            let detail = format!("{path} in body must be of type {wanted}: \"{got}\"");
            errors.push(self.error(ErrorType::TypeInvalid, path, Some(got.into()), detail));
        }
        if value.is_null() {
            self.enumeration(value, path, structural, errors);
            return fits;
        }
        let has_type = structural.ty.is_some() || rules.format.is_some();
        // The compositions count twice, the enumeration and the whole once.
        let mut checks = 4 + if has_type { 1 + fits } else { 0 };
        if let Some(composition) = &structural.composition {
            checks += self.composition(value, path, composition, old, errors);
        }
        match value {
            Value::String(text) => {
                checks += 1 + usize::from(known_format(structural).is_some());
                self.text(text, path, structural, errors);
            }
            Value::Number(number) => {
                checks += 2;
                for error in number::errors(number, structural) {
                    errors.push(match error {
                        NumberError::Factor(factor) => {
                            let detail =
                                format!("factor MultipleOf declared for {path} must be positive: {factor}");
                            self.error(ErrorType::Invalid, path, Some(plain_number(factor)), detail)
                        }
                        NumberError::Value(text) => self.error(
                            ErrorType::Invalid,
                            path,
                            Some(value.clone()),
                            format!("{path} {text}"),
                        ),
                        NumberError::Type(text) => self.plain_error(format!("{text} in {path}")),
                    });
                }
            }
            Value::Array(items) => {
                checks += 2 + self.items(items, path, structural, old, errors);
                self.size(items.len(), path, rules.items, "items", errors);
            }
            _ => {}
        }
        self.enumeration(value, path, structural, errors);
        if let Value::Object(members) = value {
            self.size(members.len(), path, rules.properties, "properties", errors);
            checks += 1 + self.members(members, path, structural, old, errors);
        }
        checks
    }

    fn enumeration(&self, value: &Value, path: &Path, structural: &Structural, errors: &mut Errors) {
        let supported = &structural.rules.enumeration;
        // For kube-apiserver null is in no enumeration, even if it is listed.
        if supported.is_empty() || supported.contains(value) && !value.is_null() {
            return;
        }
        let quoted = |value: &Value| match value {
            Value::String(text) => crate::field::quote(text),
            other => crate::field::quote(&other.to_string()),
        };
        let supported: Vec<String> = supported.iter().map(quoted).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        errors.push(self.error(ErrorType::NotSupported, path, Some(value.clone()), detail));
    }

    /// Validates a string: reports the first violated rule, and the format.
    fn text(&self, text: &str, path: &Path, structural: &Structural, errors: &mut Errors) {
        let rules = &structural.rules;
        let length = text.chars().count();
        let invalid = |detail: String| self.error(ErrorType::Invalid, path, Some(text.into()), detail);
        if let Some(max) = rules.length.max.filter(|max| length > *max) {
            let error = Field::at(None, Path::root()).too_long(max);
            errors.push(self.at(error, path));
        } else if let Some(min) = rules.length.min.filter(|min| length < *min) {
            errors.push(invalid(format!("{path} in body should be at least {min} chars long")));
        } else if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
            errors.push(invalid(format!("{path} in body should match '{}'", pattern.text)));
        }
        let format = known_format(structural).filter(|format| !formats::is_valid(format, text));
        if let Some(format) = format {
            let shown = crate::field::quote(text);
            let detail = format!("{path} in body must be of type {format}: {shown}");
            errors.push(self.error(ErrorType::TypeInvalid, path, Some(text.into()), detail));
        }
    }

    /// Validates that a count is within the bounds.
    fn size(&self, count: usize, path: &Path, size: Size, of: &str, errors: &mut Errors) {
        if let Some(min) = size.min.filter(|min| count < *min) {
            let detail = format!("{path} in body should have at least {min} {of}");
            errors.push(self.error(ErrorType::Invalid, path, Some(count.into()), detail));
        }
        if let Some(max) = size.max.filter(|max| count > *max) {
            let error = Field::at(None, Path::root()).too_many(count, max);
            errors.push(self.at(error, path));
        }
    }

    fn items(
        &mut self,
        items: &[Value],
        path: &Path,
        structural: &Structural,
        old: Option<&Value>,
        errors: &mut Errors,
    ) -> usize {
        let Some(item_type) = &structural.items else { return 0 };
        let known = OldItems::of(old, structural);
        let item = |(index, item): (usize, &Value)| {
            self.value(item, &path.index(index), item_type, known.of_same_key(item), errors)
        };
        items.iter().enumerate().map(item).sum()
    }

    fn members(
        &mut self,
        members: &Map<String, Value>,
        path: &Path,
        structural: &Structural,
        old: Option<&Value>,
        errors: &mut Errors,
    ) -> usize {
        let is_root = path.is_root() && self.root.is_root();
        let mut checks = 0;
        for (name, value) in members {
            let known = old.and_then(|old| old.get(name));
            let known =
                known.filter(|_| !(is_root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")));
            if let Some(member) = structural.properties.get(name) {
                checks += self.value(value, &path.child(name), member, known, errors);
            } else if structural.closed {
                let detail = format!("{} in body is a forbidden property", path.child(name));
                errors.push(self.error(ErrorType::Invalid, path, Some(name.as_str().into()), detail));
            } else if let Some(entry) = &structural.additional_properties {
                checks += self.value(value, &path.child(name), entry, known, errors);
            }
        }
        for name in &structural.rules.required {
            if !members.contains_key(name) {
                errors.push(self.error(ErrorType::Required, &path.child(name), None, ""));
            }
        }
        checks
    }

    fn error(
        &self,
        error_type: ErrorType,
        path: &Path,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        self.at(FieldError::new(error_type, &Path::root(), value, detail), path)
    }

    /// Returns the error with the field `path`, below the root of this validator.
    fn at(&self, error: FieldError, path: &Path) -> FieldError {
        let field = match (path.is_root(), self.root.is_root()) {
            (true, true) => NO_PATH.to_owned(),
            (true, false) => self.root.to_string(),
            (false, true) => path.to_string(),
            (false, false) => format!("{}.{path}", self.root),
        };
        FieldError { field, ..error }
    }

    /// Returns an error without a path, for those whose path kube-apiserver does not know.
    pub(super) fn plain_error(&self, detail: String) -> FieldError {
        self.error(ErrorType::Invalid, &Path::root(), Some("".into()), detail)
    }
}

/// Go's output for a missing path.
const NO_PATH: &str = "<nil>";

/// The items of a list before an update, by their keys.
struct OldItems<'v> {
    by_key: HashMap<String, &'v Value>,
    list: &'v List,
}

impl<'v> OldItems<'v> {
    fn of(old: Option<&'v Value>, structural: &'v Structural) -> OldItems<'v> {
        let items = old.and_then(Value::as_array).into_iter().flatten();
        let by_key = match &structural.list {
            List::Map(keys) => items.map(|item| (key_of(item, keys).to_string(), item)).collect(),
            List::Atomic | List::Set => HashMap::new(),
        };
        OldItems { by_key, list: &structural.list }
    }

    fn of_same_key(&self, item: &Value) -> Option<&'v Value> {
        match self.list {
            List::Map(keys) if !self.by_key.is_empty() => {
                self.by_key.get(&key_of(item, keys).to_string()).copied()
            }
            _ => None,
        }
    }
}

/// Returns `true` if a value equals the old one, where the order of lists with keys does not count.
/// An object with members that its schema does not specify never does, as for kube-apiserver. Each
/// compared value takes one of the `steps`; without any, a value counts as changed.
pub(in crate::validation) fn is_unchanged(
    value: &Value,
    old: &Value,
    structural: &Structural,
    steps: &mut usize,
) -> bool {
    if !take(steps, 1) {
        return false;
    }
    match (value, old) {
        (Value::Object(members), Value::Object(olds)) => {
            members.len() == olds.len()
                && members.iter().all(|(name, value)| {
                    let member = structural.specified_member(name);
                    let correlated = olds.get(name).zip(member);
                    correlated.is_some_and(|(old, member)| is_unchanged(value, old, member, steps))
                })
        }
        (Value::Array(items), Value::Array(olds)) if items.len() == olds.len() => {
            let (List::Map(_), Some(item_type)) = (&structural.list, &structural.items) else {
                return is_same(value, old, steps);
            };
            take(steps, items.len()) && {
                let known = OldItems::of(Some(old), structural);
                items.iter().all(|item| {
                    known.of_same_key(item).is_some_and(|old| is_unchanged(item, old, item_type, steps))
                })
            }
        }
        _ => value == old,
    }
}

/// Returns `true` if two values are equal, and the steps suffice to find that out.
fn is_same(value: &Value, old: &Value, steps: &mut usize) -> bool {
    if !take(steps, 1) {
        return false;
    }
    match (value, old) {
        (Value::Object(members), Value::Object(olds)) => {
            members.len() == olds.len()
                && members
                    .iter()
                    .all(|(name, value)| olds.get(name).is_some_and(|old| is_same(value, old, steps)))
        }
        (Value::Array(items), Value::Array(olds)) => {
            items.len() == olds.len() && items.iter().zip(olds).all(|(item, old)| is_same(item, old, steps))
        }
        _ => value == old,
    }
}

/// Takes steps; returns `false` if there are not so many.
fn take(steps: &mut usize, count: usize) -> bool {
    let left = steps.checked_sub(count);
    *steps = left.unwrap_or(0);
    left.is_some()
}

/// Returns the JSON number of a float. A whole number has no fraction.
fn plain_number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { Value::from(value as i64) } else { Value::from(value) }
}

/// Returns the type that the value should have, and the type that it has; None if the value fits.
fn wrong_type(value: &Value, structural: &Structural) -> Option<(String, &'static str)> {
    let (got, got_format) = type_name(value);
    if value.is_null() {
        let typed = structural.ty.map(StructuralType::name).or(structural.int_or_string.then_some(EITHER));
        return typed.filter(|_| !structural.nullable).map(|wanted| (wanted.to_owned(), got));
    }
    if structural.int_or_string {
        let fits = match value {
            Value::String(_) => true,
            Value::Number(number) => number::is_integer(number),
            _ => false,
        };
        return (!fits).then(|| (EITHER.to_owned(), got));
    }
    let wanted = structural.ty?;
    let fits = match (wanted, value) {
        (StructuralType::Integer, Value::Number(number)) => number::is_integer(number),
        (StructuralType::Number, Value::Number(_)) => true,
        _ => wanted.name() == got,
    };
    if fits {
        return None;
    }
    let is_number = matches!(wanted, StructuralType::Integer | StructuralType::Number);
    match (known_format(structural), value) {
        (Some(format), Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            Some((format.to_owned(), got_format))
        }
        // kube-apiserver leaves strings and lists to the validation of their format, which does not
        // look at lists.
        (Some(_), Value::String(_) | Value::Array(_)) if !is_number => None,
        _ => Some((wanted.name().to_owned(), got)),
    }
}

/// Returns the format of a schema, if it is known for its type.
fn known_format(structural: &Structural) -> Option<&str> {
    let of_type = structural.ty.map_or("", StructuralType::name);
    structural.rules.format.as_deref().filter(|format| formats::is_known(format, of_type))
}

/// The types of `x-kubernetes-int-or-string`.
const EITHER: &str = "integer,string";

/// Returns the name of a value's type, and its format.
fn type_name(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}
