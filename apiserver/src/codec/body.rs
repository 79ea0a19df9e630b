//! Body: a request's body to the object of a kind that fits the endpoint.
//!
//! Which kind a body is, is the body's to say; what it leaves out is the endpoint's. A body that cannot be read, is of a
//! kind nobody knows, does not fit its kind, or is of a kind that the endpoint does not take, is refused in this order and
//! in the real server's words.

use serde_json::Value;

use super::{DecodeError, Decoded, TypeMeta, json, protobuf, yaml};
use crate::error::Error;
use crate::schema::{StructId, schema};

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// The kind that an endpoint takes, in its version.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

/// A body that was read.
#[derive(Debug)]
pub struct Body {
    /// Normalised, with the body's own `kind` and `apiVersion` in full.
    pub value: Value,
    /// Messages about unknown and repeated members.
    pub strict: Vec<String>,
    /// The body's group and version; they may differ from the endpoint's where a kind has several.
    pub group: String,
    pub version: String,
    pub type_id: StructId,
}

/// Reads the body of a request for a built-in kind.
///
/// # Errors
/// [`Error::BadRequest`], always.
pub fn decode(format: Format, body: &[u8], expected: Expected<'_>) -> Result<Body, Error> {
    let unrecognized = |error: &dyn std::fmt::Display| {
        let (kind, summary) = (expected.kind, summary(body));
        Error::BadRequest(format!(
            "the object provided is unrecognized (must be of type {kind}): {error} ({summary})"
        ))
    };
    let endpoint = schema().kind(expected.group, expected.version, expected.kind);
    let (meta, decoded) = read(format, body, endpoint).map_err(|error| unrecognized(&error))?;
    let (group, version) = match (split_api_version(&meta.api_version), format) {
        (Some(split), _) => split,
        // Protobuf takes a malformed one for none.
        (None, Format::Protobuf) => (String::new(), String::new()),
        (None, _) => {
            let error = format!("unexpected GroupVersion string: {}", meta.api_version);
            return Err(unrecognized(&error));
        }
    };
    let body_is = Actual::with_defaults(group, version, meta.kind, expected);
    let refuse = |error: &dyn std::fmt::Display| {
        Error::BadRequest(format!(
            "{} in version {:?} cannot be handled as a {}: {error}",
            body_is.kind, body_is.version, expected.kind
        ))
    };
    if body_is.version.is_empty() {
        let text = String::from_utf8_lossy(body);
        return Err(refuse(&format!("Object 'apiVersion' is missing in '{text}'")));
    }
    let Some(type_id) = schema().kind(&body_is.group, &body_is.version, &body_is.kind) else {
        let (kind, version) = (&body_is.kind, body_is.api_version());
        return Err(refuse(&format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )));
    };
    let decoded = if endpoint == Some(type_id) {
        decoded
    } else {
        read(format, body, Some(type_id)).map_err(|error| unrecognized(&error))?.1
    };
    let Decoded { mut value, strict } = decoded.map_err(|error| refuse(&error))?;
    if !body_is.fits(expected) {
        let known = schema().get(type_id);
        return Err(refuse(&format!(
            "converting ({}.{}) to ({}.{}): unknown conversion",
            known.package.rsplit('.').next().unwrap_or_default(),
            known.name,
            internal_package(expected, endpoint),
            expected.kind
        )));
    }
    value["apiVersion"] = body_is.api_version().into();
    value["kind"] = body_is.kind.as_str().into();
    Ok(Body { value, strict, group: body_is.group, version: body_is.version, type_id })
}

type Read = (TypeMeta, Result<Decoded, DecodeError>);

/// Reads what the body says it is, and the body as a type, which may turn out not to be its own. Fails if there is no
/// telling what the body is.
fn read(format: Format, body: &[u8], id: Option<StructId>) -> Result<Read, DecodeError> {
    let (meta, decoded) = match format {
        Format::Json => json::decode_with_meta(body, id),
        Format::Yaml => {
            let document = yaml::to_json(body)?;
            let (meta, mut decoded) = json::decode_with_meta(&document.json, id);
            if let (Ok(decoded), Some(repeated)) = (&mut decoded, document.repeated_keys) {
                decoded.strict.insert(0, repeated);
            }
            (meta, decoded)
        }
        Format::Protobuf => {
            let envelope = protobuf::open(body)?;
            let value = id.map_or_else(|| Ok(Value::Null), |id| envelope.decode(id));
            (envelope.meta, value.map(|value| Decoded { value, strict: Vec::new() }))
        }
    };
    match decoded {
        Err(error @ DecodeError::Unreadable(_)) => Err(error),
        decoded => Ok((meta, decoded)),
    }
}

/// What a body is, with what it leaves out filled in.
struct Actual {
    group: String,
    version: String,
    kind: String,
}

impl Actual {
    fn with_defaults(group: String, version: String, kind: String, expected: Expected<'_>) -> Actual {
        let mut actual = Actual { group, version, kind };
        if actual.kind.is_empty() {
            actual.kind = expected.kind.to_owned();
        }
        if actual.version.is_empty() && actual.group.is_empty() {
            actual.group = expected.group.to_owned();
        }
        if actual.version.is_empty() && actual.group == expected.group {
            actual.version = expected.version.to_owned();
        }
        actual
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Versions of one kind fit one another; events are one kind in two groups.
    fn fits(&self, expected: Expected<'_>) -> bool {
        self.kind == expected.kind && (self.group == expected.group || self.kind == "Event")
    }
}

fn split_api_version(text: &str) -> Option<(String, String)> {
    match text.split_once('/') {
        None => Some((String::new(), text.to_owned())),
        Some((group, version)) if !version.contains('/') => Some((group.to_owned(), version.to_owned())),
        Some(_) => None,
    }
}

/// The Go package of the server's internal type, which has the name of the group's.
fn internal_package(expected: Expected<'_>, endpoint: Option<StructId>) -> &str {
    let package = endpoint.map_or(expected.group, |id| schema().get(id).package);
    package.rsplit('.').nth(1).unwrap_or_default()
}

/// The beginning of a body, as messages show it: text if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const MOST: usize = 30;
    let shown = &body[..body.len().min(MOST)];
    let text = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > MOST { text + " ..." } else { text }
}
