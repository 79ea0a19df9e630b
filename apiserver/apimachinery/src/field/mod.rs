//! Field: a value and its path, and the errors that validation finds.
//!
//! Validation reads objects through [`Field`], so that an error's path is always the path of the
//! value. Nothing here depends on a kind, but in debug builds a field knows its type and refuses
//! names that the type does not have ([`declared`]).
//!
//! Source: API conventions, "Validation"; the texts are those of kube-apiserver.

mod declared;
mod error;
mod path;
mod quote;

use std::cell::OnceCell;

use serde_json::Value;

use declared::Declared;

pub use error::{ErrorType, Errors, FieldError};
pub use path::Path;
pub use quote::{escape_html, is_printable, quote};

/// A value that may be absent, and its path. JSON null and a missing member are both absent.
///
/// The last path step is built on demand: most values are valid, so their path is never printed.
#[derive(Clone)]
pub struct Field<'a> {
    value: Option<&'a Value>,
    parent: Path,
    last: LastStep<'a>,
    path: OnceCell<Path>,
    declared: Declared,
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
    /// Creates the field of the whole object.
    pub fn root(object: &'a Value) -> Field<'a> {
        Field { declared: Declared::of_object(object), ..Field::at(Some(object), Path::root()) }
    }

    /// Creates a field with another path than from the root (for instance for a template that is
    /// validated alone).
    pub fn at(value: Option<&'a Value>, path: Path) -> Field<'a> {
        Field::inside(value, path, LastStep::None, Declared::default())
    }

    fn inside(value: Option<&'a Value>, parent: Path, last: LastStep<'a>, declared: Declared) -> Field<'a> {
        Field { value: value.filter(|v| !v.is_null()), parent, last, path: OnceCell::new(), declared }
    }

    /// Returns a member.
    ///
    /// # Panics
    /// In debug builds, if the declared type of the value has no member of that name.
    pub fn get(&self, name: &'a str) -> Field<'a> {
        let value = self.value.and_then(|v| v.get(name));
        let declared = self.declared.member(name, self.path());
        Field::inside(value, self.path().clone(), LastStep::Child(name), declared)
    }

    /// Returns a member that only some of the rule's types declare; absent for types without it.
    pub fn get_if_declared(&self, name: &'a str) -> Field<'a> {
        if self.declared.has_member(name) {
            self.get(name)
        } else {
            Field::inside(None, self.path().clone(), LastStep::Child(name), Declared::default())
        }
    }

    /// Returns a member at a path of several names: `pod.walk("spec.securityContext.runAsUser")`.
    pub fn walk(&self, dotted: &'a str) -> Field<'a> {
        dotted.split('.').fold(self.clone(), |field, name| field.get(name))
    }

    /// Returns the same value, reported under another path.
    pub fn with_path(&self, path: Path) -> Field<'a> {
        Field::inside(self.value, path, LastStep::None, self.declared)
    }

    /// Returns a field with another value of the same type, at the same path.
    pub fn with_value<'b>(&self, value: Option<&'b Value>) -> Field<'b> {
        Field::inside(value, self.path().clone(), LastStep::None, self.declared)
    }

    /// Iterates over the elements of a list; none if it is absent.
    pub fn items(&self) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let items = self.value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let path = if items.is_empty() { Path::root() } else { self.path().clone() };
        let item = self.declared.item();
        let at = move |(i, value)| Field::inside(Some(value), path.clone(), LastStep::Index(i), item);
        items.iter().enumerate().map(at)
    }

    /// Iterates over the entries of a map, in key order; none if it is absent. The path of an entry
    /// is `path[key]`.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let map = self.value.and_then(Value::as_object).filter(|map| !map.is_empty());
        let path = if map.is_none() { Path::root() } else { self.path().clone() };
        let entry = self.declared.entry();
        let at = move |key, value| Field::inside(Some(value), path.clone(), LastStep::Key(key), entry);
        map.into_iter().flatten().map(move |(key, value)| (key.as_str(), at(key, value)))
    }

    /// Returns the value of one key of a map, with the path that [`Field::entries`] gives it.
    pub fn entry(&self, key: &'a str) -> Field<'a> {
        let value = self.value.and_then(|v| v.get(key));
        Field::inside(value, self.path().clone(), LastStep::Key(key), self.declared.entry())
    }

    /// Returns the value, if it is present.
    pub fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        let made = || match self.last {
            LastStep::None => self.parent.clone(),
            LastStep::Child(name) => self.parent.child(name),
            LastStep::Index(index) => self.parent.index(index),
            LastStep::Key(key) => self.parent.key(key),
        };
        self.path.get_or_init(made)
    }

    /// Returns `true` if the value is present (a pointer that is not nil; for lists and maps see
    /// [`Field::is_empty`]).
    pub fn exists(&self) -> bool {
        self.value.is_some()
    }

    /// Returns `true` if the value is absent, or an empty string, list or map, which is Go's zero
    /// value.
    pub fn is_empty(&self) -> bool {
        match self.value {
            None => true,
            Some(Value::String(s)) => s.is_empty(),
            Some(Value::Array(a)) => a.is_empty(),
            Some(Value::Object(o)) => o.is_empty(),
            Some(_) => false,
        }
    }

    /// Returns the number of elements or members, or of bytes of a string; 0 if the value is
    /// absent.
    pub fn len(&self) -> usize {
        match self.value {
            Some(Value::String(s)) => s.len(),
            Some(Value::Array(a)) => a.len(),
            Some(Value::Object(o)) => o.len(),
            _ => 0,
        }
    }

    /// Returns the string, or `""` if there is none.
    pub fn str(&self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or("")
    }

    /// Returns the integer, if it is one.
    pub fn int(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    /// Returns the boolean, or false if there is none.
    pub fn bool(&self) -> bool {
        self.value.and_then(Value::as_bool).unwrap_or(false)
    }

    // Constructors of errors.

    /// Creates the error `Required value`.
    pub fn required(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Required, self.path(), None, detail)
    }

    /// Creates the error `Invalid value: VALUE: detail`. VALUE is this field's value (`""` or null
    /// if it is absent: see [`Field::invalid_value`]).
    pub fn invalid(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Invalid, self.path(), Some(self.shown_value()), detail)
    }

    /// Creates the error of [`Field::invalid`] for a pointer, list or map: an absent value is
    /// printed as null.
    pub fn invalid_or_null(&self, detail: impl Into<String>) -> FieldError {
        self.invalid_value(self.value.cloned().unwrap_or(Value::Null), detail)
    }

    /// Creates the error `Invalid value` with another value than the stored one.
    pub fn invalid_value(&self, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Invalid, self.path(), Some(value.into()), detail)
    }

    /// Creates the error `Duplicate value`.
    pub fn duplicate(&self) -> FieldError {
        FieldError::new(ErrorType::Duplicate, self.path(), Some(self.shown_value()), "")
    }

    /// Creates the error `Duplicate value` with another value than the stored one.
    pub fn duplicate_value(&self, value: impl Into<Value>) -> FieldError {
        FieldError::new(ErrorType::Duplicate, self.path(), Some(value.into()), "")
    }

    /// Creates the error `Not found`.
    pub fn not_found(&self) -> FieldError {
        FieldError::new(ErrorType::NotFound, self.path(), Some(self.shown_value()), "")
    }

    /// Creates the error `Forbidden`.
    pub fn forbidden(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorType::Forbidden, self.path(), None, detail)
    }

    /// Creates the error `Unsupported value: V: supported values: "a", "b"`. The values are listed
    /// in the given order; sort them where kube-apiserver does.
    pub fn not_supported<S: AsRef<str>>(&self, supported: &[S]) -> FieldError {
        let list: Vec<String> = supported.iter().map(|s| quote(s.as_ref())).collect();
        let detail =
            if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        FieldError::new(ErrorType::NotSupported, self.path(), Some(self.shown_value()), detail)
    }

    /// Creates the error `Too long`: more than `max_bytes` bytes.
    pub fn too_long(&self, max_bytes: usize) -> FieldError {
        FieldError::new(
            ErrorType::TooLong,
            self.path(),
            None,
            format!("may not be more than {max_bytes} {}", plural(max_bytes, "byte")),
        )
    }

    /// Creates the error `Too many`: `actual` items where `max` are allowed.
    pub fn too_many(&self, actual: usize, max: usize) -> FieldError {
        let detail = format!("must have at most {max} {}", plural(max, "item"));
        FieldError::new(ErrorType::TooMany, self.path(), Some(actual.into()), detail)
    }

    /// Creates the error `Internal error`.
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::field::error::MAX_BYTES;
    use crate::schema::DeclaredString;
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

    /// Returns the message of the panic.
    fn refusal(read: impl Fn(&Field<'_>)) -> Option<String> {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c"}]},
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| read(&Field::root(&pod)))).err()?;
        panicked.downcast::<String>().ok().map(|message| *message)
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_name_that_the_type_does_not_have_panics_in_debug_builds() {
        let first = |pod: &Field<'_>| _ = pod.walk("spec.containers").items().next().map(|c| c.get("images"));
        let want = r#"no field "images" in io.k8s.api.core.v1.Container at spec.containers[0]"#;
        assert_eq!(refusal(first).as_deref(), Some(want));
        let moved = |pod: &Field<'_>| _ = pod.get("spec").with_path(Path::of("template")).get("container");
        let want = r#"no field "container" in io.k8s.api.core.v1.PodSpec at template"#;
        assert_eq!(refusal(moved).as_deref(), Some(want));
        let replaced = |pod: &Field<'_>| _ = pod.get("metadata").with_value(None).get("label");
        assert!(refusal(replaced).is_some_and(|message| message.starts_with(r#"no field "label""#)));
        let optional = |pod: &Field<'_>| _ = pod.get("spec").get_if_declared("container");
        assert_eq!(refusal(optional), None);
        let scalar = |pod: &Field<'_>| _ = pod.walk("spec.nodeName.name");
        assert_eq!(refusal(scalar).as_deref(), Some(r#"no field "name" in String at spec.nodeName"#));
    }

    #[test]
    fn names_are_free_where_the_type_declares_none() {
        assert_eq!(refusal(|pod| _ = pod.walk("metadata.labels").get("any")), None);
        assert_eq!(refusal(|pod| _ = pod.walk("metadata.managedFields")), None);
        assert_eq!(refusal(|pod| _ = Field::at(pod.value(), Path::root()).get("any")), None);
        let custom = json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab"});
        assert!(!Field::root(&custom).walk("spec.any").exists());
    }

    #[test]
    fn strings_print_as_go_declares_them() {
        let object = json!({"named": "<\u{0}\"\\é", "plain": "<\u{0}"});
        let root = Field::root(&object);
        let mut errors = Errors::new();
        for name in ["named", "plain", "absent", "pointer"] {
            errors.push(root.get(name).invalid_or_null("bad"));
        }
        errors.push(root.get("named").not_supported(&["A"]));
        errors.push(root.get("plain").not_supported(&["A"]));
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
                r#"Unsupported value: "\u003c\u0000\"\\é": supported values: "A""#,
                r#"Unsupported value: "<\x00": supported values: "A""#,
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
