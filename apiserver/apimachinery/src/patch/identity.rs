//! Kind and apiVersion of a patched object. A JSON or merge patch may leave them out, but not
//! change them.

use serde_json::{Map, Value, json};

use crate::codec::body::is_same_internal_kind;
use crate::codec::{DecodeError, TypeMeta, json as codec};
use crate::field::quote;
use crate::go_value::{TYPE_META, cannot_unmarshal};
use crate::names::GroupVersion;
use crate::schema::{StructId, schema};

/// The result of comparing kind and apiVersion of a patched object with the original's.
pub enum IdentityCheck {
    /// They are the same.
    Unchanged,
    /// Without an apiVersion the object is decoded without a version, and all its members are
    /// unknown.
    Versionless,
}

/// The reason why a patched custom resource has no type.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unidentified {
    /// The text of the decoding error.
    Undecodable(String),
    /// It has no kind.
    WithoutKind,
    /// It has no apiVersion.
    WithoutVersion,
}

impl TypeMeta {
    /// Returns the `apiVersion` and `kind` of an object; empty for missing members.
    pub fn of(object: &Value) -> TypeMeta {
        let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        TypeMeta { api_version: text("apiVersion"), kind: text("kind") }
    }

    /// Returns the type of a built-in kind; None for other kinds.
    pub fn struct_id(&self) -> Option<StructId> {
        let version = GroupVersion::parse(&self.api_version)?;
        schema().kind(&version.group, &version.version, &self.kind)
    }

    /// Reads the kind and apiVersion of a patched custom resource. They may have changed: it is then
    /// decoded as what it is, and found to be invalid.
    pub(super) fn of_patched(object: &Value) -> Result<TypeMeta, Unidentified> {
        let unreadable = |value: &Value, into: &str| {
            let error = DecodeError::Unreadable(cannot_unmarshal(value, into));
            Unidentified::Undecodable(error.to_string())
        };
        if !object.is_object() && !object.is_null() {
            return Err(unreadable(object, TYPE_META));
        }
        let text = |name: &str| match object.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(unreadable(other, &format!("struct field .{name} of type string"))),
        };
        let now = TypeMeta { api_version: text("apiVersion")?, kind: text("kind")? };
        if !now.api_version.is_empty() && GroupVersion::parse(&now.api_version).is_none() {
            let error = format!("unexpected GroupVersion string: {}", now.api_version);
            return Err(Unidentified::Undecodable(error));
        }
        match (now.kind.is_empty(), now.api_version.is_empty()) {
            (true, _) => Err(Unidentified::WithoutKind),
            (false, true) => Err(Unidentified::WithoutVersion),
            (false, false) => Ok(now),
        }
    }

    /// Sets `apiVersion` and `kind` of an object.
    pub fn restore(&self, object: &mut Value) {
        if let Value::Object(members) = object {
            members.insert("apiVersion".into(), self.api_version.as_str().into());
            members.insert("kind".into(), self.kind.as_str().into());
        }
    }

    /// Compares the kind and apiVersion of the patched object with the original's.
    ///
    /// # Errors
    /// The text of the decoding error.
    pub fn check(&self, patched: &Value) -> Result<IdentityCheck, String> {
        let mut now = TypeMeta::of(patched);
        if now.kind.is_empty() {
            now.kind.clone_from(&self.kind);
        }
        let was = GroupVersion::parse(&self.api_version).unwrap_or_else(|| GroupVersion::new("", ""));
        let internal = was.group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
        if now.api_version.is_empty() {
            return match now.kind == self.kind {
                true => Ok(IdentityCheck::Versionless),
                false => Err(self.no_conversion(internal, &now.kind, internal)),
            };
        }
        let Some(version) = GroupVersion::parse(&now.api_version) else {
            return Err(format!("unexpected GroupVersion string: {}", now.api_version));
        };
        if now.kind == self.kind && version.group == was.group && version.version == was.version {
            return Ok(IdentityCheck::Unchanged);
        }
        match schema().kind(&version.group, &version.version, &now.kind) {
            None if schema().is_unserved(&version.group, &version.version, &now.kind) => {
                match now.kind == self.kind && is_same_internal_kind(&version.group, &now.kind, &was.group) {
                    true => Ok(IdentityCheck::Unchanged),
                    false => Err(self.no_conversion(&version.version, &now.kind, internal)),
                }
            }
            None => Err(format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                quote(&now.kind),
                quote(&now.api_version)
            )),
            Some(_) if now.kind == self.kind && version.group == was.group => Ok(IdentityCheck::Unchanged),
            Some(other) => match codec::normalize(patched, other) {
                Err(error) => Err(error.to_string()),
                Ok(_) => Err(self.no_conversion(&version.version, &now.kind, internal)),
            },
        }
    }

    fn no_conversion(&self, from_package: &str, from: &str, to_package: &str) -> String {
        format!("converting ({from_package}.{from}) to ({to_package}.{}): unknown conversion", self.kind)
    }
}

/// Returns an empty object without a version, and the messages about unknown members of the object.
pub(super) fn unknown_members_of(object: &Value) -> (Value, Vec<String>) {
    let members = object.as_object().into_iter().flat_map(Map::keys);
    let unknown = members.filter(|name| !matches!(name.as_str(), "apiVersion" | "kind"));
    (json!({"metadata": {}}), unknown.map(|name| format!("unknown field {}", quote(name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_version_are_compared() {
        let was = TypeMeta::of(&json!({"apiVersion": "v1", "kind": "ConfigMap"}));
        for (api_version, kind, want) in [
            (json!("v1"), json!("ConfigMap"), Ok("same")),
            (json!("v1"), json!(""), Ok("same")),
            (json!("v1"), json!(null), Ok("same")),
            (json!(""), json!("ConfigMap"), Ok("versionless")),
            (json!(null), json!(null), Ok("versionless")),
            (json!("v1"), json!("Secret"), Err("illegal base64 data at input byte 0")),
            (
                json!("v1"),
                json!("Nope"),
                Err(
                    "no kind \"Nope\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
                ),
            ),
            (
                json!("v2"),
                json!("ConfigMap"),
                Err(
                    "no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
                ),
            ),
            (json!("a/b/c"), json!("ConfigMap"), Err("unexpected GroupVersion string: a/b/c")),
            (
                json!("apps/v1"),
                json!("Deployment"),
                Err("converting (v1.Deployment) to (core.ConfigMap): unknown conversion"),
            ),
            (
                json!("extensions/v1beta1"),
                json!("Deployment"),
                Err("converting (v1beta1.Deployment) to (core.ConfigMap): unknown conversion"),
            ),
            (
                json!(""),
                json!("Secret"),
                Err("converting (core.Secret) to (core.ConfigMap): unknown conversion"),
            ),
        ] {
            let patched = json!({"apiVersion": api_version, "kind": kind, "data": {"k": "v"}});
            let verdict = was.check(&patched).map(|verdict| match verdict {
                IdentityCheck::Unchanged => "same",
                IdentityCheck::Versionless => "versionless",
            });
            assert_eq!(verdict, want.map_err(str::to_owned), "{patched}");
        }
    }

    #[test]
    fn an_unserved_version_of_the_kind_is_accepted() {
        let was = TypeMeta::of(&json!({"apiVersion": "apps/v1", "kind": "Deployment"}));
        for api_version in ["apps/v1beta1", "extensions/v1beta1"] {
            let patched = json!({"apiVersion": api_version, "kind": "Deployment"});
            assert!(matches!(was.check(&patched), Ok(IdentityCheck::Unchanged)), "{api_version}");
        }
    }
}
