//! Composite values as they are printed in messages.
//!
//! kube-apiserver prints what it validates, and it validates its internal types: Go's JSON of a
//! struct without tags, including zero values (`{"Type":"Slow","RollingUpdate":null}`).
//! `printed/types.txt` lists the fields of those types and the published member of each field;
//! `printed/generate.go` generates it from Kubernetes' own packages.
//!
//! A row of the table is a type's name and its fields in order, `Name[~][=member]:shape`: `~` omits
//! the field when it is absent, `member` is given if it is not the name with a small first letter,
//! and `@[member]:shape` is an embedded struct. A shape is the printed zero value, the name of a
//! struct, or `?`, `[` or `{` (a nullable pointer, list or map) and a shape.
//!
//! Output beyond `MAX_BYTES` bytes is omitted: zero values make the output many times as long as
//! its value.
//!
//! Start at [`internal`].

mod diff;

pub use diff::diff;

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::field::{Field, FieldError, escape_html};

/// No more fields and items are printed beyond this many bytes.
const MAX_BYTES: usize = 1 << 20;

/// Returns a value as Go prints it in the internal type of that name (`apps.DeploymentStrategy`);
/// `null` for None.
pub fn internal(type_name: &'static str, value: Option<&Value>) -> String {
    let Some(value) = value else { return "null".to_owned() };
    let mut out = String::new();
    print(type_name, Some(value), &mut out);
    escape_html(&out)
}

/// Creates the error of [`Field::invalid`] for a value of an internal type.
pub fn invalid(field: &Field<'_>, type_name: &'static str, detail: &str) -> FieldError {
    field.invalid(detail).with_bad_value_text(internal(type_name, field.value()))
}

/// Creates the error of [`Field::not_supported`] for a value of an internal type.
pub fn not_supported(field: &Field<'_>, type_name: &'static str, supported: &[&str]) -> FieldError {
    field.not_supported(supported).with_bad_value_text(internal(type_name, field.value()))
}

/// Creates the error of [`Field::duplicate`] for a value of an internal type.
pub fn duplicate(field: &Field<'_>, type_name: &'static str) -> FieldError {
    field.duplicate().with_bad_value_text(internal(type_name, field.value()))
}

struct Member {
    /// None: an embedded struct.
    shown: Option<&'static str>,
    omitted_when_absent: bool,
    /// The member that holds the value; the owner itself for an embedded struct of the same level.
    member: String,
    shape: &'static str,
}

fn types() -> &'static HashMap<&'static str, Vec<Member>> {
    static TYPES: OnceLock<HashMap<&'static str, Vec<Member>>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let rows = include_str!("types.txt").lines();
        rows.map(|row| {
            let (name, members) = row.split_once(' ').unwrap_or((row, ""));
            (name, members.split_whitespace().filter_map(member).collect())
        })
        .collect()
    })
}

fn member(text: &'static str) -> Option<Member> {
    let (name, shape) = text.split_once(':')?;
    if let Some(member) = name.strip_prefix('@') {
        return Some(Member { shown: None, omitted_when_absent: false, member: member.to_owned(), shape });
    }
    let (shown, member) = match name.split_once('=') {
        Some((shown, member)) => (shown, Some(member)),
        None => (name, None),
    };
    let (shown, omitted_when_absent) = match shown.strip_suffix('~') {
        Some(shown) => (shown, true),
        None => (shown, false),
    };
    let member = member.map_or_else(|| small_first_letter(shown), str::to_owned);
    Some(Member { shown: Some(shown), omitted_when_absent, member, shape })
}

fn small_first_letter(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

fn print(shape: &'static str, value: Option<&Value>, out: &mut String) {
    let value = value.filter(|value| !value.is_null());
    match (shape.chars().next(), value) {
        (Some('?' | '[' | '{'), None) => out.push_str("null"),
        (Some('?'), value) => print(&shape[1..], value, out),
        (Some('['), Some(Value::Array(items))) => {
            print_list('[', ']', items, out, |item, out| print(&shape[1..], Some(item), out));
        }
        (Some('{'), Some(Value::Object(entries))) => {
            print_list('{', '}', entries, out, |(key, value), out| {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                print(&shape[1..], Some(value), out);
            })
        }
        (_, Some(value)) if !types().contains_key(shape) => out.push_str(&value.to_string()),
        (_, None) if !types().contains_key(shape) => out.push_str(shape),
        (_, value) => {
            out.push('{');
            print_fields(shape, value, &mut true, out);
            out.push('}');
        }
    }
}

fn print_list<T>(
    open: char,
    close: char,
    items: impl IntoIterator<Item = T>,
    out: &mut String,
    mut one: impl FnMut(T, &mut String),
) {
    out.push(open);
    for (i, item) in items.into_iter().enumerate() {
        if out.len() > MAX_BYTES {
            break;
        }
        if i > 0 {
            out.push(',');
        }
        one(item, out);
    }
    out.push(close);
}

/// Prints the fields of a struct, including those of embedded structs.
fn print_fields(type_name: &str, value: Option<&Value>, first: &mut bool, out: &mut String) {
    let moved = (type_name == "core.PodSpec").then(|| value.map(with_host_sharing)).flatten();
    let value = moved.as_ref().or(value);
    for member in types().get(type_name).into_iter().flatten() {
        let inner =
            if member.member.is_empty() { value } else { value.and_then(|value| value.get(&member.member)) };
        match member.shown {
            None => print_fields(member.shape, inner, first, out),
            Some(_) if member.omitted_when_absent && inner.is_none() || out.len() > MAX_BYTES => {}
            Some(shown) => {
                if !std::mem::take(first) {
                    out.push(',');
                }
                out.push('"');
                out.push_str(shown);
                out.push_str("\":");
                print(member.shape, inner, out);
            }
        }
    }
}

/// Moves the host namespaces from the spec to the security context, where the internal pod has
/// them.
fn with_host_sharing(spec: &Value) -> Value {
    let mut moved = spec.clone();
    for member in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
        if let Some(value) = spec.get(member) {
            moved["securityContext"][member] = value.clone();
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_print_as_the_real_server_printed_them() {
        for (type_name, value, want) in [
            ("apps.DeploymentStrategy", json!({"type": "Slow"}), r#"{"Type":"Slow","RollingUpdate":null}"#),
            (
                "apps.DeploymentStrategy",
                json!({"rollingUpdate": {"maxSurge": "25%"}}),
                r#"{"Type":"","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":"25%"}}"#,
            ),
            (
                "policy.PodDisruptionBudgetSpec",
                json!({"maxUnavailable": 1, "minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}),
                r#"{"MinAvailable":"50%","Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}"#,
            ),
            (
                "meta.LabelSelector",
                json!({"matchExpressions": [{"key": "k", "operator": "Exists"}], "matchLabels": {"a": "b"}}),
                r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"Exists"}]}"#,
            ),
            (
                "core.Volume",
                json!({"name": "v", "emptyDir": {"medium": "<x>"}}),
                "{\"Name\":\"v\",\"HostPath\":null,\"EmptyDir\":{\"Medium\":\"\\u003cx\\u003e\",\"SizeLimit\":null},",
            ),
        ] {
            let printed = internal(type_name, Some(&value));
            assert!(printed.starts_with(want), "{type_name}: {printed}");
        }
    }

    #[test]
    fn host_namespaces_print_in_the_security_context() {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostNetwork": true, "containers": []}});
        let printed = internal("core.PodTemplateSpec", Some(&template));
        assert!(printed.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#), "{printed}");
        assert!(printed.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"#), "{printed}");
    }

    #[test]
    fn every_shape_of_the_table_is_known() {
        for member in types().values().flatten() {
            let inner = member.shape.trim_start_matches(['?', '[', '{']);
            let known = types().contains_key(inner) || serde_json::from_str::<Value>(inner).is_ok();
            assert!(known, "{inner}");
        }
    }
}
