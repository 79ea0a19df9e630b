//! The desired number of replicas of a workload, read and written through its `/scale`.
//!
//! Source: apiextensions-apiserver, the `ScaleREST` and the validator of custom resources.

use serde_json::{Map, Value, json};

use super::Strategy;
use crate::codec::limits::MAX_DEPTH;
use crate::field::{Errors, Field, FieldError, Path};
use crate::go_value::GoValue;
use crate::validation::numbers;

/// The strategy of Scale.
pub struct ScaleStrategy;

impl Strategy for ScaleStrategy {
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        numbers::not_negative(&object.walk("spec.replicas"), errors);
    }
}

/// The paths of a custom resource's replicas: `subresources.scale` of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// `specReplicasPath`, such as `.spec.replicas`.
    pub spec_replicas: String,
    /// `statusReplicasPath`.
    pub status_replicas: String,
    /// `labelSelectorPath`; None if it is not set.
    pub label_selector: Option<String>,
}

impl ScalePaths {
    /// Reads the scale of a version; None if it has none.
    pub fn read(scale: &Value) -> Option<ScalePaths> {
        let path = |name: &str| scale.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(ScalePaths {
            spec_replicas: path("specReplicasPath")?,
            status_replicas: path("statusReplicasPath")?,
            label_selector: path("labelSelectorPath").filter(|path| !path.is_empty()),
        })
    }

    /// Returns the desired number of replicas; None if the object has none.
    ///
    /// # Errors
    /// Go's message for a value that is not a number.
    pub fn spec_replicas(&self, object: &Value) -> Result<Option<i64>, String> {
        integer(object, &self.spec_replicas)
    }

    /// Returns the current number of replicas; None if the object has none.
    ///
    /// # Errors
    /// Go's message for a value that is not a number.
    pub fn status_replicas(&self, object: &Value) -> Result<Option<i64>, String> {
        integer(object, &self.status_replicas)
    }

    /// Returns the label selector of the replicas, as text.
    ///
    /// # Errors
    /// Go's message for a value that is not a string.
    pub fn selector<'v>(&self, object: &'v Value) -> Result<Option<&'v str>, String> {
        let Some(path) = &self.label_selector else { return Ok(None) };
        let Some(value) = nested(object, path)? else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| mismatch(path, value, "string"))
    }

    /// Sets the desired number of replicas.
    ///
    /// # Errors
    /// Go's message if a value on the path is not an object. A path deeper than a document may be
    /// is refused.
    pub fn set_spec_replicas(&self, object: &mut Value, replicas: i64) -> Result<(), String> {
        let names: Vec<&str> = names(&self.spec_replicas).collect();
        if names.len() > MAX_DEPTH {
            return Err(format!("specReplicasPath has more than {MAX_DEPTH} names"));
        }
        let Some((last, parents)) = names.split_last() else { return Ok(()) };
        let mut place = object;
        for (depth, name) in parents.iter().enumerate() {
            let Some(members) = place.as_object_mut() else { return Err(not_an_object(&names[..depth])) };
            place = members.entry(*name).or_insert_with(|| Value::Object(Map::new()));
        }
        let Some(members) = place.as_object_mut() else { return Err(not_an_object(parents)) };
        members.insert((*last).to_owned(), json!(replicas));
        Ok(())
    }

    pub(super) fn validate_spec(&self, object: &Field<'_>, errors: &mut Errors) {
        if let Some(object) = object.value() {
            validate_replicas(&self.spec_replicas, self.spec_replicas(object), errors);
        }
    }

    pub(super) fn validate_status(&self, object: &Field<'_>, errors: &mut Errors) {
        let Some(object) = object.value() else { return };
        validate_replicas(&self.status_replicas, self.status_replicas(object), errors);
        if let (Some(path), Err(text)) = (&self.label_selector, self.selector(object)) {
            errors.push(error(path, Value::from(""), text));
        }
    }
}

fn validate_replicas(path: &str, replicas: Result<Option<i64>, String>, errors: &mut Errors) {
    match replicas {
        Err(text) => errors.push(error(path, Value::from(0), text)),
        Ok(Some(replicas)) if replicas < 0 => {
            errors.push(error(path, replicas.into(), "should be a non-negative integer".to_owned()));
        }
        Ok(Some(replicas)) if replicas > i64::from(i32::MAX) => {
            let text = format!("should be less than or equal to {}", i32::MAX);
            errors.push(error(path, replicas.into(), text));
        }
        Ok(_) => {}
    }
}

/// Returns an error about the value at a path. The path in the error keeps its leading dot.
fn error(path: &str, value: Value, detail: String) -> FieldError {
    let field = Field::at(None, Path::root().child(path));
    field.invalid_value(value, detail)
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

fn integer(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let Some(value) = nested(object, path)? else { return Ok(None) };
    value.as_i64().map(Some).ok_or_else(|| mismatch(path, value, "int64"))
}

/// Returns the value at a path; None if it does not exist.
fn nested<'v>(object: &'v Value, path: &str) -> Result<Option<&'v Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    for name in names(path) {
        let Some(members) = value.as_object() else {
            return Err(mismatch(&walked, value, "map[string]interface{}"));
        };
        let Some(member) = members.get(name) else { return Ok(None) };
        value = member;
        walked.push('.');
        walked.push_str(name);
        if value.is_null() && walked.len() < path.len() {
            return Ok(None);
        }
    }
    Ok(Some(value))
}

fn mismatch(path: &str, value: &Value, wanted: &str) -> String {
    let got = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let path = names(path).collect::<Vec<_>>().join(".");
    format!(".{path} accessor error: {} is of the type {got}, expected {wanted}", GoValue(value))
}

fn not_an_object(names: &[&str]) -> String {
    format!("value cannot be set because .{} is not a map[string]interface{{}}", names.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> ScalePaths {
        let scale = json!({
            "specReplicasPath": ".spec.a.b", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.sel",
        });
        ScalePaths::read(&scale).expect("paths")
    }

    #[test]
    fn no_path_makes_an_object_deeper_than_a_document() {
        let deep = |names: usize| ScalePaths { spec_replicas: ".a".repeat(names), ..paths() };
        let mut object = json!({});
        let refused = deep(300_000).set_spec_replicas(&mut object, 1);
        assert_eq!(refused, Err("specReplicasPath has more than 120 names".to_owned()));
        assert_eq!(object, json!({}));
        assert_eq!(deep(MAX_DEPTH).set_spec_replicas(&mut object, 1), Ok(()));
        assert_eq!(deep(MAX_DEPTH).spec_replicas(&object), Ok(Some(1)));
        assert_eq!(deep(300_000).spec_replicas(&object).ok(), None);
    }

    #[test]
    fn replicas_stand_where_the_paths_lead() {
        let paths = paths();
        for (object, want) in [
            (json!({}), Ok(None)),
            (json!({"spec": {"a": {"b": 3}}}), Ok(Some(3))),
            (
                json!({"spec": {"a": 1}}),
                Err(".spec.a accessor error: 1 is of the type int64, expected map[string]interface{}"),
            ),
            (
                json!({"spec": {"a": {"b": "x"}}}),
                Err(".spec.a.b accessor error: x is of the type string, expected int64"),
            ),
        ] {
            assert_eq!(paths.spec_replicas(&object), want.map_err(str::to_owned), "{object}");
        }
        let mut object = json!({"spec": {"x": 1}});
        assert_eq!(paths.set_spec_replicas(&mut object, 4), Ok(()));
        assert_eq!(object, json!({"spec": {"x": 1, "a": {"b": 4}}}));
        let mut object = json!({"spec": {"a": []}});
        assert!(paths.set_spec_replicas(&mut object, 4).is_err());
    }

    #[test]
    fn replicas_are_validated() {
        for (object, want) in [
            (json!({"spec": {"a": {"b": 1}}, "status": {"n": 1, "sel": "a=b"}}), vec![]),
            (
                json!({"spec": {"a": {"b": -1}}}),
                vec![".spec.a.b: Invalid value: -1: should be a non-negative integer"],
            ),
            (
                json!({"status": {"n": 2147483648u64, "sel": 1}}),
                vec![
                    ".status.n: Invalid value: 2147483648: should be less than or equal to 2147483647",
                    ".status.sel: Invalid value: \"\": .status.sel accessor error: 1 is of the type int64, expected string",
                ],
            ),
        ] {
            let mut errors = Errors::new();
            paths().validate_spec(&Field::root(&object), &mut errors);
            paths().validate_status(&Field::root(&object), &mut errors);
            let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(got, want, "{object}");
        }
    }
}
