//! The errors that validation finds, and their texts.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use super::Field;
use super::path::Path;
use super::quote::{escape_html, quote, unquote};
use crate::schema::DeclaredString;

/// The type of an error; [`ErrorType::reason`] is the cause's reason in a Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorType {
    /// A referenced object does not exist.
    NotFound,
    /// A required value is missing.
    Required,
    /// A value that must be unique is repeated.
    Duplicate,
    /// A value is malformed or out of range.
    Invalid,
    /// A value is not one of the supported ones.
    NotSupported,
    /// A value is not allowed in this state.
    Forbidden,
    /// A text is too long.
    TooLong,
    /// A list has too many items.
    TooMany,
    /// Validation itself failed.
    Internal,
    /// A value has a wrong type.
    TypeInvalid,
}

impl ErrorType {
    /// Returns the reason of the cause in a Status.
    pub fn reason(self) -> &'static str {
        match self {
            ErrorType::NotFound => "FieldValueNotFound",
            ErrorType::Required => "FieldValueRequired",
            ErrorType::Duplicate => "FieldValueDuplicate",
            ErrorType::Invalid => "FieldValueInvalid",
            ErrorType::NotSupported => "FieldValueNotSupported",
            ErrorType::Forbidden => "FieldValueForbidden",
            ErrorType::TooLong => "FieldValueTooLong",
            ErrorType::TooMany => "FieldValueTooMany",
            ErrorType::Internal => "InternalError",
            ErrorType::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn text(self) -> &'static str {
        match self {
            ErrorType::NotFound => "Not found",
            ErrorType::Required => "Required value",
            ErrorType::Duplicate => "Duplicate value",
            ErrorType::Invalid | ErrorType::TypeInvalid => "Invalid value",
            ErrorType::NotSupported => "Unsupported value",
            ErrorType::Forbidden => "Forbidden",
            ErrorType::TooLong => "Too long",
            ErrorType::TooMany => "Too many",
            ErrorType::Internal => "Internal error",
        }
    }
}

/// An error in one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The type of the error.
    pub error_type: ErrorType,
    /// The path of the field.
    pub field: String,
    /// The printed value; None for the types that print none.
    pub bad_value: Option<String>,
    /// The explanation; may be empty.
    pub detail: String,
}

impl FieldError {
    /// Creates an error of a type; `bad_value` is printed as JSON.
    pub fn new(
        error_type: ErrorType,
        path: &Path,
        bad_value: Option<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        let bad_value = bad_value.map(|value| show(&value));
        FieldError { error_type, field: path.to_string(), bad_value, detail: detail.into() }
    }

    /// Returns the error with another text for its value, because kube-apiserver prints some
    /// structs in their internal representation.
    pub fn with_bad_value_text(self, value: String) -> FieldError {
        FieldError { bad_value: Some(value), ..self }
    }

    /// Returns the error without its value.
    pub fn without_value(self) -> FieldError {
        FieldError { bad_value: None, ..self }
    }

    fn size(&self) -> usize {
        let texts = self.field.len() + self.bad_value.as_ref().map_or(0, String::len) + self.detail.len();
        size_of::<FieldError>() + texts
    }

    /// Formats the message without the field's name.
    pub fn body(&self) -> String {
        let mut text = self.error_type.text().to_owned();
        if let Some(value) = &self.bad_value {
            text.push_str(": ");
            text.push_str(value);
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(s) => quote(s),
        other => escape_html(&other.to_string()),
    }
}

/// The maximum size of the errors of one object in bytes: a hostile object can have a million
/// errors, and no response needs all of them. (kube-apiserver reports them all, and gives up after
/// half a minute.)
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The errors of one object in the order in which they were found, up to a total size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    found: Vec<FieldError>,
    bytes: usize,
    forgiven: Vec<FieldError>,
    forgiven_bytes: usize,
}

impl Errors {
    /// Creates an empty list of errors.
    pub fn new() -> Errors {
        Errors::default()
    }

    /// Adds an error, unless the maximum size is reached.
    pub fn push(&mut self, error: FieldError) {
        if !self.is_full() {
            self.bytes += error.size();
            self.found.push(error);
        }
    }

    /// Adds an error in a value that was invalid before the update, too: only a warning. Up to the
    /// maximum size, which does not count against that of the errors.
    pub fn forgive(&mut self, error: FieldError) {
        if self.forgiven_bytes < MAX_BYTES {
            self.forgiven_bytes += error.size();
            self.forgiven.push(error);
        }
    }

    /// Takes the texts of the forgiven errors.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.forgiven).iter().map(ToString::to_string).collect()
    }

    /// Adds the error if the condition holds.
    pub fn push_if(&mut self, wrong: bool, error: impl FnOnce() -> FieldError) {
        if wrong && !self.is_full() {
            self.push(error());
        }
    }

    /// Adds an `Invalid value` of the field for each message, as the rules in `validation::content`
    /// return them.
    pub fn invalid_each(&mut self, field: &Field<'_>, messages: Vec<String>) {
        self.extend(messages.into_iter().map(|message| field.invalid(message)));
    }

    /// Reprints string values as Go would: a named string type as JSON, and an absent non-pointer
    /// string as `""` instead of null.
    ///
    /// - `string_at`: how Go declares the string at a path.
    pub fn print_strings(&mut self, string_at: impl Fn(&str) -> Option<DeclaredString>) {
        for error in &mut self.found {
            let Some(text) = &mut error.bad_value else { continue };
            let is_quoted = text.starts_with('"') && text.contains(['\\', '<', '>', '&']);
            if !is_quoted && text != "null" {
                continue;
            }
            match string_at(&error.field) {
                Some(string) if is_quoted && string.is_named => {
                    *text = escape_html(&Value::from(unquote(text)).to_string());
                }
                Some(string) if !is_quoted && !string.is_pointer => "\"\"".clone_into(text),
                _ => {}
            }
        }
    }

    /// Returns `true` if the maximum size is reached, so that further validation is useless.
    pub fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    /// Returns `true` if there are no errors.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the number of errors.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Iterates over the errors.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.found.iter()
    }

    /// Formats the summary for a Status message: one error as it is, several as `[a, b]`, each text
    /// once.
    pub fn summary(&self) -> String {
        let mut seen = HashSet::with_capacity(self.len());
        let texts: Vec<String> =
            self.iter().map(ToString::to_string).filter(|text| seen.insert(text.clone())).collect();
        match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        }
    }
}

impl Extend<FieldError> for Errors {
    fn extend<T: IntoIterator<Item = FieldError>>(&mut self, iter: T) {
        let mut errors = iter.into_iter();
        while !self.is_full()
            && let Some(error) = errors.next()
        {
            self.push(error);
        }
    }
}

impl IntoIterator for Errors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;
    fn into_iter(self) -> Self::IntoIter {
        self.found.into_iter()
    }
}
