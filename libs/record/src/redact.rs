//! Redaction: removes the values of Secrets and tokens from entries.
//!
//! Covered are the data of Secrets, in their versions and in the bodies of requests (whole objects,
//! patches of all types), with the copies of a Secret that clients keep in its annotations; and the
//! tokens in bodies of TokenReviews and TokenRequests. Nothing else is: a password in the
//! environment of a container or in a ConfigMap stays.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Entry;

/// The text in place of a value.
pub const REDACTED: &str = "redacted";
/// [`REDACTED`] in Base64, in place of a value in the `data` of a Secret.
pub const REDACTED_BASE64: &str = "cmVkYWN0ZWQ=";

/// The annotations in which clients keep a copy of the whole object.
const COPIES: [&str; 3] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
];
/// The fields of a Secret that have no secrets, but for annotations.
const PUBLIC_FIELDS: [&str; 5] = ["apiVersion", "immutable", "kind", "metadata", "type"];

/// The kinds with values that are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Secret.
    Secret,
    /// A TokenReview or a TokenRequest.
    Token,
}

/// Removes the values of Secrets and tokens from an entry, if it has any.
pub fn redact(entry: &mut Entry) {
    let (kind, payload) = match entry {
        Entry::Version(version) => {
            let is_secret = &*version.bucket == "secrets";
            (is_secret.then_some(Kind::Secret), &mut version.object)
        }
        Entry::Request(request) => {
            let kind = match (&*request.group, &*request.resource, &*request.subresource) {
                ("", "secrets", _) => Some(Kind::Secret),
                ("authentication.k8s.io", "tokenreviews", _) | ("", "serviceaccounts", "token") => {
                    Some(Kind::Token)
                }
                _ => None,
            };
            (kind, &mut request.body)
        }
        _ => return,
    };
    if let Some(bytes) = payload
        && let Some(kind) = kind.or_else(|| kind_of(bytes))
    {
        *bytes = redact_json(kind, bytes);
    }
}

/// Returns the JSON of an object or a patch without the secret values of its kind. Bytes that are
/// not JSON, such as YAML or protobuf, are replaced by the JSON text `"redacted"`.
pub fn redact_json(kind: Kind, json: &[u8]) -> Bytes {
    let mut value = serde_json::from_slice(json).unwrap_or(Value::Null);
    match &mut value {
        Value::Object(object) => redact_object(kind, object),
        Value::Array(operations) => redact_operations(kind, operations),
        other => *other = REDACTED.into(),
    }
    value.to_string().into()
}

/// Returns the kind that the object itself names.
fn kind_of(json: &[u8]) -> Option<Kind> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TypeMeta<'a> {
        #[serde(borrow)]
        api_version: Cow<'a, str>,
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    // Most objects are neither, and need not be parsed.
    if !["\"Secret\"", "\"TokenRe"].iter().any(|text| memmem::find(json, text.as_bytes()).is_some()) {
        return None;
    }
    let meta: TypeMeta<'_> = serde_json::from_slice(json).ok()?;
    match (&*meta.api_version, &*meta.kind) {
        ("v1", "Secret") => Some(Kind::Secret),
        (version, "TokenReview" | "TokenRequest") if version.starts_with("authentication.k8s.io/") => {
            Some(Kind::Token)
        }
        _ => None,
    }
}

fn redact_object(kind: Kind, object: &mut Map<String, Value>) {
    match kind {
        Kind::Secret => redact_secret(object),
        Kind::Token => {
            for field in ["spec", "status"] {
                match object.get_mut(field) {
                    Some(Value::Object(fields)) => {
                        fields.entry("token").and_modify(|token| replace(token, REDACTED));
                    }
                    Some(Value::Null) | None => {}
                    Some(other) => *other = REDACTED.into(),
                }
            }
        }
    }
}

fn redact_secret(secret: &mut Map<String, Value>) {
    for (field, value) in secret.iter_mut() {
        match (&**field, value) {
            ("data", value) => redact_values(value, REDACTED_BASE64),
            ("metadata", Value::Object(metadata)) => {
                if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                    annotations.retain(|name, _| !COPIES.contains(&&**name));
                }
            }
            // Directives of patches name fields or keys, not values.
            (field, Value::String(_) | Value::Bool(_)) if PUBLIC_FIELDS.contains(&field) => {}
            ("$patch", Value::String(_)) => {}
            (field, Value::Array(_)) if field.starts_with("$setElementOrder") => {}
            (_, value) => redact_values(value, REDACTED),
        }
    }
}

/// Replaces the members of an object, or any other value as a whole.
fn redact_values(value: &mut Value, text: &str) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let directives = ["delete", "merge", "replace"];
                let is_directive =
                    name == "$patch" && member.as_str().is_some_and(|s| directives.contains(&s));
                if !is_directive {
                    replace(member, text);
                }
            }
        }
        other => replace(other, text),
    }
}

/// Replaces a value. Null stays, for it deletes a member in a patch.
fn replace(value: &mut Value, text: &str) {
    if !value.is_null() {
        *value = text.into();
    }
}

/// Redacts a JSON patch: each value as if it were at its path in an object that is redacted.
fn redact_operations(kind: Kind, operations: &mut Vec<Value>) {
    operations.retain_mut(|operation| {
        let Value::Object(operation) = operation else { return false };
        let path = match operation.get("path") {
            Some(Value::String(path)) => path.clone(),
            _ => return false,
        };
        let Some(value) = operation.get_mut("value") else { return true };
        match redact_at(kind, &path, value.take()) {
            Some(redacted) => {
                *value = redacted;
                true
            }
            None => false,
        }
    });
}

/// Redacts a value at a JSON pointer; `None` if nothing of it is left.
fn redact_at(kind: Kind, path: &str, value: Value) -> Option<Value> {
    /// Nothing that has more levels is in a Secret or a token.
    const MAX_LEVELS: usize = 16;
    let tokens: Vec<String> =
        path.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
    if tokens.len() > MAX_LEVELS {
        return None;
    }
    let wrap = |value, token: &String| Value::Object(Map::from_iter([(token.clone(), value)]));
    let mut object = tokens.iter().rev().fold(value, wrap);
    match &mut object {
        Value::Object(object) => redact_object(kind, object),
        other => *other = REDACTED.into(),
    }
    for token in &tokens {
        object = match object {
            Value::Object(mut members) => members.remove(token)?,
            // An ancestor was replaced as a whole.
            other => return Some(other),
        };
    }
    Some(object)
}
