//! From a request's bytes to an object of the kind that its endpoint takes.
//!
//! A body may leave out `kind` and `apiVersion`: the endpoint's are taken. What it does say must fit.

use bytes::Bytes;
use serde_json::Value;

use crate::codec::{self, DecodeError};
use crate::names::GroupVersion;
use crate::request::Format;
use crate::request::options::FieldValidation;
use crate::schema::{StructId, schema};
use crate::{Error, Result};

/// A request's body, and the form it says it has.
pub struct Body {
    pub bytes: Bytes,
    pub format: Format,
}

/// The kind that an endpoint takes.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub type_id: StructId,
}

impl Expected<'_> {
    fn api_version(&self) -> String {
        GroupVersion::new(self.group, self.version).to_string()
    }
}

/// An object as it was sent, and what of it the type does not know.
pub struct Decoded {
    pub object: Value,
    pub warnings: Vec<String>,
}

impl Body {
    /// Decodes an object, which gets the `kind` and `apiVersion` of the endpoint.
    ///
    /// # Errors
    /// 400 for what is malformed or of another kind, and for unknown fields under `Strict`.
    pub fn decode(&self, expected: Expected<'_>, validation: FieldValidation) -> Result<Decoded> {
        let decoded = match codec::decode(&self.bytes, self.format, expected.type_id) {
            Ok(decoded) => decoded,
            Err(error) => return Err(self.refuse(expected, &error)),
        };
        let mut object = decoded.value;
        self.check_kind(expected, &object)?;
        if let Some(members) = object.as_object_mut() {
            members.insert("kind".to_owned(), expected.kind.into());
            members.insert("apiVersion".to_owned(), expected.api_version().into());
        }
        let warnings = match validation {
            FieldValidation::Ignore => Vec::new(),
            FieldValidation::Warn => decoded.strict,
            FieldValidation::Strict if decoded.strict.is_empty() => Vec::new(),
            FieldValidation::Strict => {
                return Err(cannot_be_handled(
                    expected.kind,
                    expected.version,
                    expected.kind,
                    &format!("strict decoding error: {}", decoded.strict.join(", ")),
                ));
            }
        };
        Ok(Decoded { object, warnings })
    }

    fn check_kind(&self, expected: Expected<'_>, object: &Value) -> Result<()> {
        let text = |member| object.get(member).and_then(Value::as_str).unwrap_or("");
        let kind = Some(text("kind")).filter(|k| !k.is_empty()).unwrap_or(expected.kind);
        let api_version = text("apiVersion");
        let version = if api_version.is_empty() {
            GroupVersion::new(expected.group, expected.version)
        } else {
            GroupVersion::parse(api_version).ok_or_else(|| {
                self.unrecognized(expected.kind, &format!("unexpected GroupVersion string: {api_version}"))
            })?
        };
        let same_version = version.group == expected.group && version.version == expected.version;
        if kind == expected.kind && same_version {
            return Ok(());
        }
        if schema().kind(&version.group, &version.version, kind).is_none() {
            let why = if schema().groups().iter().any(|g| g.name == version.group && g.versions.contains(&version.version.as_str())) {
                format!("no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"", crate::field::quote(kind), crate::field::quote(&version.to_string()))
            } else {
                format!("no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"", crate::field::quote(kind), crate::field::quote(&version.to_string()))
            };
            return Err(cannot_be_handled(kind, &version.version, expected.kind, &why));
        }
        if kind != expected.kind {
            let package = if expected.group.is_empty() { "core" } else { expected.group.split('.').next().unwrap_or("") };
            let why = format!(
                "converting ({}.{kind}) to ({package}.{}): unknown conversion",
                version.version, expected.kind
            );
            return Err(cannot_be_handled(kind, &version.version, expected.kind, &why));
        }
        Err(Error::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            expected.api_version()
        )))
    }

    /// Words a failure to decode; a body of another kind is told so first.
    fn refuse(&self, expected: Expected<'_>, error: &DecodeError) -> Error {
        let (kind, api_version) = match codec::type_meta(&self.bytes, self.format) {
            Ok(type_meta) => type_meta,
            Err(error) => {
                let why = format!("couldn't get version/kind; json parse error: {error}");
                return self.unrecognized(expected.kind, &why);
            }
        };
        let probe = serde_json::json!({"kind": kind, "apiVersion": api_version});
        if let Err(error) = self.check_kind(expected, &probe) {
            return error;
        }
        cannot_be_handled(expected.kind, expected.version, expected.kind, &error.to_string())
    }

    fn unrecognized(&self, kind: &str, why: &str) -> Error {
        Error::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({})",
            summary(&self.bytes)
        ))
    }
}

fn cannot_be_handled(kind: &str, version: &str, expected: &str, why: &str) -> Error {
    let version = crate::field::quote(version);
    Error::bad_request(format!("{kind} in version {version} cannot be handled as a {expected}: {why}"))
}

/// The first bytes of a body: JSON as text, anything else in hexadecimal.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let head = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let hex: String = head.iter().map(|b| format!("{b:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}
