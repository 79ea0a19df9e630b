//! Field: a value and its path, and the errors that validation finds.
//!
//! Validation reads objects through [`Field`], so that an error's path is always the path of the value. Nothing here
//! depends on a kind.
//!
//! Source: API conventions, "Validation"; the texts are those of the real server.

pub mod selectable_path;

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;

use serde_json::Value;

/// The path to a value, printed as the real server prints it: `spec.containers[0].env[1].name`, `metadata.labels[key]`.
#[derive(Clone, Default)]
pub struct Path(Option<Rc<Step>>);

struct Step {
    parent: Path,
    segment: Segment,
}

enum Segment {
    Child(String),
    Index(usize),
    Key(String),
}

impl Path {
    /// The root path, which is printed as the empty string.
    pub fn root() -> Path {
        Path(None)
    }

    /// A path of dotted names, such as `metadata.name`.
    pub fn of(dotted: &str) -> Path {
        dotted.split('.').fold(Path::root(), |path, name| path.child(name))
    }

    /// Whether this is the root path.
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// The path of a member.
    pub fn child(&self, name: &str) -> Path {
        self.step(Segment::Child(name.to_owned()))
    }

    /// The path of a list's element.
    pub fn index(&self, index: usize) -> Path {
        self.step(Segment::Index(index))
    }

    /// The path of a map's entry.
    pub fn key(&self, key: &str) -> Path {
        self.step(Segment::Key(key.to_owned()))
    }

    /// The path without its last element.
    pub fn parent(&self) -> Path {
        self.0.as_ref().map_or_else(Path::root, |step| step.parent.clone())
    }

    fn step(&self, segment: Segment) -> Path {
        Path(Some(Rc::new(Step { parent: self.clone(), segment })))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(step) = &self.0 else { return Ok(()) };
        step.parent.fmt(f)?;
        match &step.segment {
            Segment::Child(name) if step.parent.0.is_none() => f.write_str(name),
            Segment::Child(name) => write!(f, ".{name}"),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// A value that may be absent, and its path. JSON null and a missing member are both absent.
///
/// Most values are sound and have no members, so the last step of the path is made only when it is asked for.
#[derive(Clone)]
pub struct Field<'a> {
    value: Option<&'a Value>,
    parent: Path,
    last: LastStep<'a>,
    path: OnceCell<Path>,
}

#[derive(Clone, Copy)]
enum LastStep<'a> {
    /// The path is that of the parent.
    None,
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Field<'a> {
    /// The whole object.
    pub fn root(value: &'a Value) -> Field<'a> {
        Field::at(Some(value), Path::root())
    }

    /// A value with another path than from the root (for instance a template that is validated alone).
    pub fn at(value: Option<&'a Value>, path: Path) -> Field<'a> {
        Field::inside(value, path, LastStep::None)
    }

    fn inside(value: Option<&'a Value>, parent: Path, last: LastStep<'a>) -> Field<'a> {
        Field { value: value.filter(|v| !v.is_null()), parent, last, path: OnceCell::new() }
    }

    /// A member.
    pub fn get(&self, name: &'a str) -> Field<'a> {
        let value = self.value.and_then(|v| v.get(name));
        Field::inside(value, self.path().clone(), LastStep::Child(name))
    }

    /// Several members at once: `pod.walk("spec.securityContext.runAsUser")`.
    pub fn walk(&self, dotted: &'a str) -> Field<'a> {
        dotted.split('.').fold(self.clone(), |field, name| field.get(name))
    }

    /// The same value, reported under another path.
    pub fn with_path(&self, path: Path) -> Field<'a> {
        Field::at(self.value, path)
    }

    /// The elements of a list; none if it is absent.
    pub fn items(&self) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let items = self.value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let path = if items.is_empty() { Path::root() } else { self.path().clone() };
        items.iter().enumerate().map(move |(i, v)| Field::inside(Some(v), path.clone(), LastStep::Index(i)))
    }

    /// The entries of a map, in key order; none if it is absent. The path of an entry is `path[key]`.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let map = self.value.and_then(Value::as_object).filter(|map| !map.is_empty());
        let path = if map.is_none() { Path::root() } else { self.path().clone() };
        let entries = map.into_iter().flatten();
        entries.map(move |(k, v)| (k.as_str(), Field::inside(Some(v), path.clone(), LastStep::Key(k))))
    }

    /// The value of one key of a map, with the path that [`Field::entries`] gives it.
    pub fn entry(&self, key: &'a str) -> Field<'a> {
        let value = self.value.and_then(|v| v.get(key));
        Field::inside(value, self.path().clone(), LastStep::Key(key))
    }

    /// The value, if it is present.
    pub fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// The path.
    pub fn path(&self) -> &Path {
        let made = || match self.last {
            LastStep::None => self.parent.clone(),
            LastStep::Child(name) => self.parent.child(name),
            LastStep::Index(index) => self.parent.index(index),
            LastStep::Key(key) => self.parent.key(key),
        };
        self.path.get_or_init(made)
    }

    /// Whether the value is present (a pointer that is not nil; for lists and maps see [`Field::is_empty`]).
    pub fn exists(&self) -> bool {
        self.value.is_some()
    }

    /// Absent, or an empty string, list or map: Go's zero value of those.
    pub fn is_empty(&self) -> bool {
        match self.value {
            None => true,
            Some(Value::String(s)) => s.is_empty(),
            Some(Value::Array(a)) => a.is_empty(),
            Some(Value::Object(o)) => o.is_empty(),
            Some(_) => false,
        }
    }

    /// The number of elements or members, or of bytes of a string; 0 if the value is absent.
    pub fn len(&self) -> usize {
        match self.value {
            Some(Value::String(s)) => s.len(),
            Some(Value::Array(a)) => a.len(),
            Some(Value::Object(o)) => o.len(),
            _ => 0,
        }
    }

    /// The string, or `""` if there is none.
    pub fn str(&self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or("")
    }

    /// The integer, if it is one.
    pub fn int(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    /// The boolean, or false if there is none.
    pub fn bool(&self) -> bool {
        self.value.and_then(Value::as_bool).unwrap_or(false)
    }

    // Constructors of errors.

    /// `Required value`.
    pub fn required(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Required, self.path(), None, detail)
    }

    /// `Invalid value: VALUE: detail`, VALUE being this field's (`""` or null where it is absent: see [`Field::invalid_value`]).
    pub fn invalid(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Invalid, self.path(), Some(self.shown_value()), detail)
    }

    /// [`Field::invalid`] of a pointer, list or map: an absent value is printed as null.
    pub fn invalid_or_null(&self, detail: impl Into<String>) -> FieldError {
        self.invalid_value(self.value.cloned().unwrap_or(Value::Null), detail)
    }

    /// `Invalid value` with another value than the stored one.
    pub fn invalid_value(&self, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Invalid, self.path(), Some(value.into()), detail)
    }

    /// `Invalid value` of a wrong type.
    pub fn type_invalid(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::TypeInvalid, self.path(), Some(self.shown_value()), detail)
    }

    /// `Duplicate value`.
    pub fn duplicate(&self) -> FieldError {
        FieldError::new(ErrorType::Duplicate, self.path(), Some(self.shown_value()), "")
    }

    /// `Duplicate value` with another value than the stored one.
    pub fn duplicate_value(&self, value: impl Into<Value>) -> FieldError {
        FieldError::new(ErrorType::Duplicate, self.path(), Some(value.into()), "")
    }

    /// `Not found`.
    pub fn not_found(&self) -> FieldError {
        FieldError::new(ErrorType::NotFound, self.path(), Some(self.shown_value()), "")
    }

    /// `Forbidden`.
    pub fn forbidden(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Forbidden, self.path(), None, detail)
    }

    /// `Unsupported value: V: supported values: "a", "b"`, in the given order (sort where the real server sorts).
    pub fn not_supported<S: AsRef<str>>(&self, supported: &[S]) -> FieldError {
        let list: Vec<String> = supported.iter().map(|s| quote(s.as_ref())).collect();
        let detail =
            if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        let error = FieldError::new(ErrorType::NotSupported, self.path(), None, detail);
        // Enumerated values have types of their own, which Go prints as JSON.
        error.with_bad_value_text(escape_html(&self.shown_value().to_string()))
    }

    /// `Too long`: more than `max_bytes` bytes.
    pub fn too_long(&self, max_bytes: usize) -> FieldError {
        FieldError::new(
            ErrorType::TooLong,
            self.path(),
            None,
            format!("may not be more than {max_bytes} {}", plural(max_bytes, "byte")),
        )
    }

    /// `Too many`: `actual` items where `max` are allowed.
    pub fn too_many(&self, actual: usize, max: usize) -> FieldError {
        let detail = format!("must have at most {max} {}", plural(max, "item"));
        FieldError::new(ErrorType::TooMany, self.path(), Some(actual.into()), detail)
    }

    /// `Internal error`.
    pub fn internal(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Internal, self.path(), None, detail)
    }

    fn shown_value(&self) -> Value {
        self.value.cloned().unwrap_or_else(|| Value::String(String::new()))
    }
}

fn plural(n: usize, noun: &str) -> String {
    if n == 1 { noun.to_owned() } else { format!("{noun}s") }
}

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
    /// The reason of the cause in a Status.
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
    /// An error of a type; `bad_value` is printed as JSON.
    pub fn new(
        error_type: ErrorType,
        path: &Path,
        bad_value: Option<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        let bad_value = bad_value.map(|value| show(&value));
        FieldError { error_type, field: path.to_string(), bad_value, detail: detail.into() }
    }

    /// The same error with another text for its value: the real server prints some structs in their internal
    /// representation.
    pub fn with_bad_value_text(self, value: String) -> FieldError {
        FieldError { bad_value: Some(value), ..self }
    }

    /// The same error without its value.
    pub fn without_value(self) -> FieldError {
        FieldError { bad_value: None, ..self }
    }

    fn size(&self) -> usize {
        let texts = self.field.len() + self.bad_value.as_ref().map_or(0, String::len) + self.detail.len();
        size_of::<FieldError>() + texts
    }

    /// The message without the field's name.
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

/// Escapes JSON for HTML, as Go's encoder does.
pub fn escape_html(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Quotes as Go's `%q`: printable characters are kept, all others are escaped.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The text that [`quote`] has quoted.
fn unquote(quoted: &str) -> String {
    let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(quoted);
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        let code = match c {
            '\\' => rest.next(),
            _ => None,
        };
        let mut digits = |count: usize| {
            let hex: String = rest.by_ref().take(count).collect();
            u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        text.push(match code {
            None => c,
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('v') => '\u{b}',
            Some('f') => '\u{c}',
            Some('x') => digits(2),
            Some('u') => digits(4),
            Some(other) => other,
        });
    }
    text
}

/// The maximum size of the errors of one object in bytes: a hostile object can have a million errors, and no response
/// needs all of them. (The real server reports them all, and gives up after half a minute.)
const MAX_BYTES: usize = 1 << 20;

/// Go's declaration of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredString {
    /// It has a type of its own, such as `v1.Protocol`.
    pub is_named: bool,
    /// It is a pointer, so that it can be absent.
    pub is_pointer: bool,
}

/// The errors of one object in the order in which they were found, up to a total size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    found: Vec<FieldError>,
    bytes: usize,
}

impl Errors {
    /// No errors.
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

    /// Adds the error if the condition holds.
    pub fn push_if(&mut self, wrong: bool, error: impl FnOnce() -> FieldError) {
        if wrong && !self.is_full() {
            self.push(error());
        }
    }

    /// Adds an `Invalid value` of the field for each message, as the rules in `validation::content` return them.
    pub fn invalid_each(&mut self, field: &Field<'_>, messages: Vec<String>) {
        self.extend(messages.into_iter().map(|message| field.invalid(message)));
    }

    /// Prints values of strings as Go prints their types: those of a type with a name as JSON, and one that is no pointer as
    /// empty rather than absent.
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

    /// Whether the maximum size is reached, so that further validation is useless.
    pub fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    /// Whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The number of errors.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// The errors.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.found.iter()
    }

    /// The summary in a Status message: one error as it is, several as `[a, b]`, each text once.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_print_as_they_were_walked() {
        let pod = json!({"spec": {"containers": [{"name": "c"}]}, "metadata": {"labels": {"a.b/c": "v"}}});
        let root = Field::root(&pod);
        let first = root.walk("spec.containers").items().next().expect("one container");
        assert_eq!(first.get("image").required("").to_string(), "spec.containers[0].image: Required value");
        let (key, label) = root.walk("metadata.labels").entries().next().expect("one label");
        assert_eq!((key, label.path().to_string().as_str()), ("a.b/c", "metadata.labels[a.b/c]"));
    }

    #[test]
    fn strings_print_as_go_declares_them() {
        let object = json!({"named": "<\u{0}\"\\é", "plain": "<\u{0}"});
        let root = Field::root(&object);
        let mut errors = Errors::new();
        for name in ["named", "plain", "absent", "pointer"] {
            errors.push(root.get(name).invalid_or_null("bad"));
        }
        errors.print_strings(|path| {
            Some(DeclaredString { is_named: path == "named", is_pointer: path == "pointer" })
        });
        let texts: Vec<String> = errors.iter().map(FieldError::body).collect();
        assert_eq!(
            texts,
            [
                r#"Invalid value: "\u003c\u0000\"\\é": bad"#,
                r#"Invalid value: "<\x00": bad"#,
                r#"Invalid value: "": bad"#,
                "Invalid value: null: bad",
            ]
        );
    }

    #[test]
    fn values_print_as_go_prints_them() {
        let object = json!({"s": "a\"b\n✓", "n": 3, "l": ["x"]});
        let root = Field::root(&object);
        assert_eq!(root.get("s").invalid("bad").body(), r#"Invalid value: "a\"b\n✓": bad"#);
        assert_eq!(root.get("n").invalid("").body(), "Invalid value: 3");
        assert_eq!(root.get("l").duplicate().body(), r#"Duplicate value: ["x"]"#);
        assert_eq!(root.get("s").not_supported(&["A", "B"]).detail, r#"supported values: "A", "B""#);
        let object = json!({"s": "\u{0}<"});
        let printed = Field::root(&object).get("s").not_supported(&["A"]).body();
        assert_eq!(printed, r#"Unsupported value: "\u0000\u003c": supported values: "A""#);
    }

    #[test]
    fn the_size_of_reported_errors_is_bounded() {
        let object = json!({"a": "x".repeat(MAX_BYTES / 4)});
        let wrong = || Field::root(&object).get("a").invalid("bad");
        let small = || Field::root(&object).get("b").required("");
        type Add = fn(&mut Errors, &dyn Fn() -> FieldError);
        let add: [(&str, Add); 3] = [
            ("one by one", |errors, one| (0..10).for_each(|_| errors.push(one()))),
            ("if wrong", |errors, one| (0..10).for_each(|_| errors.push_if(true, one))),
            ("endlessly", |errors, one| errors.extend(std::iter::repeat_with(one))),
        ];
        for (case, add) in add {
            let mut errors = Errors::new();
            errors.push(small());
            add(&mut errors, &wrong);
            assert_eq!((errors.len(), errors.is_full()), (5, true), "{case}");
            errors.push_if(true, || panic!("{case}: made for nothing"));
        }
    }

    #[test]
    fn a_summary_lists_each_text_once() {
        let object = json!({});
        let mut errors = Errors::new();
        errors.push(Field::root(&object).get("a").required(""));
        errors.push(Field::root(&object).get("a").required(""));
        assert_eq!(errors.summary(), "a: Required value");
        errors.push(Field::root(&object).get("b").required("x"));
        assert_eq!(errors.summary(), "[a: Required value, b: Required value: x]");
    }
}
