//! Decodes a request's body to an object of the endpoint's kind.
//!
//! The body determines its kind; missing parts default to the endpoint's. A body that cannot be
//! parsed, has an unknown kind, does not match its kind, or has a kind that the endpoint does not
//! accept, is rejected in this order and with kube-apiserver's messages.

use serde_json::Value;

use super::{DecodeError, Decoded, TypeMeta, json, protobuf, structural, yaml};
use crate::error::Error;
use crate::field::quote;
use crate::names::GroupVersion;
use crate::schema::{StructId, StructuralSchema, schema};

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Protobuf.
    Protobuf,
}

/// The kind that an endpoint expects, in its version.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
}

impl Expected<'_> {
    /// Returns whether the endpoint accepts bodies of this group and version. `pods/eviction`
    /// accepts policy/v1beta1 too, although no endpoint serves it
    /// (`EvictionREST.AcceptsGroupVersion`).
    pub fn accepts(&self, group: &str, version: &str) -> bool {
        let eviction = (self.group, self.kind, group, version) == ("policy", "Eviction", "policy", "v1beta1");
        eviction || (self.group, self.version) == (group, version)
    }
}

/// Kinds that moved to another group and have one internal type with the kind there: (old group,
/// kind, new group).
const MOVED_KINDS: [(&str, &str, &str); 7] = [
    ("apps", "Scale", "autoscaling"),
    ("extensions", "DaemonSet", "apps"),
    ("extensions", "Deployment", "apps"),
    ("extensions", "Ingress", "networking.k8s.io"),
    ("extensions", "NetworkPolicy", "networking.k8s.io"),
    ("extensions", "ReplicaSet", "apps"),
    ("extensions", "Scale", "autoscaling"),
];

/// Returns whether a kind of `group` has the same internal type as the kind of that name in group
/// `other`, so that one converts to the other.
pub fn is_same_internal_kind(group: &str, kind: &str, other: &str) -> bool {
    group == other || kind == "Event" || MOVED_KINDS.contains(&(group, kind, other))
}

/// The groups with a scheme of their own, in which no kind of another group is registered.
const OWN_SCHEMES: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// A decoded body.
#[derive(Debug)]
pub struct DecodedBody {
    /// Normalized, with the body's own `kind` and `apiVersion`.
    pub value: Value,
    /// Messages about unknown and duplicate fields.
    pub strict: Vec<String>,
    /// The body's group and version; they may differ from the endpoint's where a kind has several.
    pub group: String,
    /// The body's version.
    pub version: String,
}

/// Decodes the body of a request for a built-in kind.
///
/// # Errors
/// [`Error::BadRequest`], always.
pub fn decode(format: Format, body: &[u8], expected: Expected<'_>) -> Result<DecodedBody, Error> {
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
        // Protobuf treats a malformed one as empty.
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
    let Some(type_id) = body_is.type_id(expected) else {
        return Err(if !body_is.is_unserved(expected) {
            refuse(&not_registered(&body_is.kind, &body_is.api_version(), scheme_of(expected.group)))
        } else if body_is.fits(expected) {
            version_mismatch(&body_is.group, &body_is.version, expected)
        } else {
            // The Go package of such a version has its name.
            refuse(&no_conversion(&body_is.version, &body_is.kind, expected, endpoint))
        });
    };
    let decoded = if endpoint == Some(type_id) {
        decoded
    } else {
        read(format, body, Some(type_id)).map_err(|error| unrecognized(&error))?.1
    };
    let Decoded { mut value, strict } = decoded.map_err(|error| refuse(&error))?;
    if !body_is.fits(expected) {
        let known = schema().get(type_id);
        let package = known.package.rsplit('.').next().unwrap_or_default();
        return Err(refuse(&no_conversion(package, known.name, expected, endpoint)));
    }
    value["apiVersion"] = body_is.api_version().into();
    value["kind"] = body_is.kind.as_str().into();
    Ok(DecodedBody { value, strict, group: body_is.group, version: body_is.version })
}

/// Decodes a custom resource.
///
/// # Errors
/// 400, with kube-apiserver's message.
pub fn decode_custom(
    format: Format,
    body: &[u8],
    expected: Expected<'_>,
    schema: &StructuralSchema,
) -> Result<DecodedBody, Error> {
    let unrecognized = |error: &dyn std::fmt::Display| {
        let summary = summary(body);
        Error::BadRequest(format!(
            "the object provided is unrecognized (must be of type {}): {error} ({summary})",
            expected.kind
        ))
    };
    let (meta, decoded) = match format {
        Format::Protobuf => return Err(Error::UnsupportedMediaType(ONLY_TEXT.to_owned())),
        Format::Json | Format::Yaml => read(format, body, None).map_err(|error| unrecognized(&error))?,
    };
    let refuse = |error: &dyn std::fmt::Display| {
        Error::BadRequest(format!(
            "{} in version {:?} cannot be handled as a {}: {error}",
            expected.kind, expected.version, expected.kind
        ))
    };
    if split_api_version(&meta.api_version).is_none() {
        return Err(unrecognized(&format!("unexpected GroupVersion string: {}", meta.api_version)));
    }
    let meta = decoded.as_ref().map_or(meta, |decoded| exact_meta(&decoded.value));
    let version = split_api_version(&meta.api_version).filter(|_| !meta.kind.is_empty());
    let Some((group, version)) = version else {
        let text = String::from_utf8_lossy(body);
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{text}'")));
    };
    let conform = |mut decoded: Decoded| match meta.kind == expected.kind {
        true => structural::conform(decoded, schema),
        // The schema of another kind is unknown; validation rejects the kind.
        false => structural::coerce_root(&mut decoded).map(|()| decoded),
    };
    let decoded = decoded.and_then(conform).map_err(|error| refuse(&error))?;
    Ok(DecodedBody { value: decoded.value, strict: decoded.strict, group, version })
}

/// Returns the kind and version of an object without a Go type: the members with exactly these
/// names, which all later code reads as well. Names in other letter case are accepted only if a Go
/// struct is decoded.
fn exact_meta(object: &Value) -> TypeMeta {
    let text = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    TypeMeta { api_version: text("apiVersion"), kind: text("kind") }
}

/// Returns the kind and version in a body; None if they cannot be read.
pub fn type_meta(format: Format, body: &[u8]) -> Option<TypeMeta> {
    read(format, body, None).ok().map(|(meta, _)| meta)
}

/// The media types of bodies of custom resources.
const ONLY_TEXT: &str = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";

/// Decodes options from a body. They may have any version, and their errors have no prefix.
///
/// # Errors
/// [`Error::BadRequest`], always.
pub fn decode_options(format: Format, body: &[u8], kind: &str) -> Result<Value, Error> {
    let bare = |error: DecodeError| Error::BadRequest(error.to_string());
    let (meta, decoded) = read(format, body, schema().kind("", "v1", kind)).map_err(bare)?;
    if split_api_version(&meta.api_version).is_none() {
        return Err(Error::BadRequest(format!("unexpected GroupVersion string: {}", meta.api_version)));
    }
    if !meta.kind.is_empty() && meta.kind != kind {
        let version = if meta.api_version.is_empty() { "meta.k8s.io/v1" } else { &meta.api_version };
        return Err(Error::BadRequest(not_registered(&meta.kind, version, scheme_of(""))));
    }
    decoded.map(|decoded| decoded.value).map_err(bare)
}

/// Returns the error for a decoded body of a version that the endpoint does not accept.
pub fn version_mismatch(group: &str, version: &str, expected: Expected<'_>) -> Error {
    let is = GroupVersion::new(group, version);
    let wanted = GroupVersion::new(expected.group, expected.version);
    Error::BadRequest(format!(
        "the API version in the data ({is}) does not match the expected API version ({wanted})"
    ))
}

fn no_conversion(package: &str, kind: &str, expected: Expected<'_>, endpoint: Option<StructId>) -> String {
    let internal = internal_package(expected, endpoint);
    format!("converting ({package}.{kind}) to ({internal}.{}): unknown conversion", expected.kind)
}

fn not_registered(kind: &str, version: &str, scheme: &str) -> String {
    let (kind, version) = (quote(kind), quote(version));
    format!("no kind {kind} is registered for version {version} in scheme {scheme:?}")
}

/// Returns the source location at which kube-apiserver declares the scheme of a group; its messages
/// contain it.
fn scheme_of(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        _ => "pkg/runtime/scheme.go:111",
    }
}

/// Returns the messages of field validation as warnings. Each key that a YAML document repeats has
/// a warning of its own, whereas an error lists them in one message.
pub fn warnings(strict: &[String]) -> Vec<String> {
    let lines = strict.iter().flat_map(|message| {
        message.strip_prefix(yaml::REPEATED_KEYS).unwrap_or(message).split('\n').map(str::trim)
    });
    lines.map(str::to_owned).collect()
}

type Read = (TypeMeta, Result<Decoded, DecodeError>);

/// Decodes the body's type meta, and the body as a type, which may differ from its own. Fails if
/// the body's kind cannot be determined.
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

/// The kind of a body, with defaults for missing parts.
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

    /// Returns whether the body converts to the endpoint's kind.
    fn fits(&self, expected: Expected<'_>) -> bool {
        self.kind == expected.kind && is_same_internal_kind(&self.group, &self.kind, expected.group)
    }

    fn type_id(&self, expected: Expected<'_>) -> Option<StructId> {
        schema().kind(&self.group, &self.version, &self.kind).filter(|_| self.is_in_scheme_of(expected))
    }

    fn is_unserved(&self, expected: Expected<'_>) -> bool {
        schema().is_unserved(&self.group, &self.version, &self.kind) && self.is_in_scheme_of(expected)
    }

    /// Returns whether the body's kind is registered in the scheme that the endpoint decodes with.
    fn is_in_scheme_of(&self, expected: Expected<'_>) -> bool {
        let scheme = |group: &str| OWN_SCHEMES.iter().position(|own| *own == group);
        scheme(&self.group) == scheme(expected.group) || schema().is_known_everywhere(&self.kind)
    }
}

fn split_api_version(text: &str) -> Option<(String, String)> {
    match text.split_once('/') {
        None => Some((String::new(), text.to_owned())),
        Some((group, version)) if !version.contains('/') => Some((group.to_owned(), version.to_owned())),
        Some(_) => None,
    }
}

/// Returns the name of the Go package of the server's internal type. It is the part before the
/// version in the package of the versioned type: `core` for `io.k8s.api.core.v1`.
fn internal_package(expected: Expected<'_>, endpoint: Option<StructId>) -> &str {
    let package = endpoint.map_or(expected.group, |id| schema().get(id).package);
    package.rsplit('.').nth(1).unwrap_or_default()
}

/// Returns the beginning of a body for error messages: as text if it looks like JSON, otherwise in
/// hexadecimal.
fn summary(body: &[u8]) -> String {
    const MAX_QUOTED: usize = 30;
    let shown = &body[..body.len().min(MAX_QUOTED)];
    let text = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > MAX_QUOTED { text + " ..." } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG_MAP: Expected<'static> = Expected { group: "", version: "v1", kind: "ConfigMap" };

    fn message(format: Format, body: &[u8], expected: Expected<'_>) -> String {
        decode(format, body, expected).map_or_else(|error| error.to_string(), |body| body.value.to_string())
    }

    #[test]
    fn refusals_have_the_real_servers_messages() {
        let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): ";
        for (format, body, want) in [
            (Format::Json, &b""[..], format!("{unrecognized}couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)")),
            (Format::Json, b"hello", format!("{unrecognized}couldn't get version/kind; json parse error: invalid character 'h' looking for beginning of value (68656c6c6f)")),
            (Format::Json, br#"{"apiVersion":"v1","kind":"ConfigMap","a"}"#, format!("{unrecognized}couldn't get version/kind; json parse error: invalid character '}}' after object key ({{\"apiVersion\":\"v1\",\"kind\":\"Con ...)")),
            (Format::Json, br#"{"apiVersion":"a/b/c"}"#, format!("{unrecognized}unexpected GroupVersion string: a/b/c ({{\"apiVersion\":\"a/b/c\"}})")),
            (Format::Json, br#"{"apiVersion":"v1/"}"#, r#"ConfigMap in version "" cannot be handled as a ConfigMap: Object 'apiVersion' is missing in '{"apiVersion":"v1/"}'"#.to_owned()),
            (Format::Json, br#"{"kind":"Widget","metadata":5}"#, r#"Widget in version "v1" cannot be handled as a ConfigMap: no kind "Widget" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#.to_owned()),
            (Format::Json, br#"{"apiVersion":"nope.io/v1","kind":"ConfigMap"}"#, r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "nope.io/v1" in scheme "pkg/runtime/scheme.go:111""#.to_owned()),
            (Format::Json, br#"{"kind":"Secret"}"#, r#"Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"#.to_owned()),
            (Format::Json, br#"{"kind":"Pod","spec":5}"#, r#"Pod in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field Pod.spec of type v1.PodSpec"#.to_owned()),
            (Format::Yaml, b"a: b: c", format!("{unrecognized}yaml: mapping values are not allowed in this context (613a20623a2063)")),
            (Format::Yaml, b"data: {k: 1}", r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"#.to_owned()),
            (Format::Protobuf, b"", format!("{unrecognized}empty data (<empty>)")),
            (Format::Protobuf, b"k8s\0\x12\x01\xff", r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF"#.to_owned()),
        ] {
            assert_eq!(message(format, body, CONFIG_MAP), want);
        }
    }

    #[test]
    fn kind_and_version_of_a_custom_resource_are_its_members_of_exactly_these_names() {
        let schema = StructuralSchema::read(serde_json::json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }))
        .expect("a structural schema");
        let expected = Expected { group: "g", version: "v1", kind: "Widget" };
        let unrecognized = |text: &str| {
            let shown = summary(text.as_bytes());
            format!(
                "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{text}' ({shown})"
            )
        };
        for (text, want) in [
            (r#"{"apiVersion":"g/v2","kind":"Widget","apiversion":"g/v1"}"#, Ok(("g/v2", "Widget"))),
            (
                r#"{"apiversion":"g/v2","apiVersion":"g/v1","kind":"Widget","KIND":"Other"}"#,
                Ok(("g/v1", "Widget")),
            ),
            (
                r#"{"apiVersion":"g/v1","Kind":"Widget"}"#,
                Err(unrecognized(r#"{"apiVersion":"g/v1","Kind":"Widget"}"#)),
            ),
            // The version, which is not that of the path, is refused later.
            (r#"{"ApiVersion":"g/v1","kind":"Widget"}"#, Ok(("", "Widget"))),
        ] {
            for format in [Format::Json, Format::Yaml] {
                let read = decode_custom(format, text.as_bytes(), expected, &schema);
                let read = read.map(|body| {
                    let said = body.value["apiVersion"].as_str().unwrap_or_default().to_owned();
                    let checked = format!("{}/{}", body.group, body.version);
                    assert_eq!(said, checked.trim_matches('/'), "what is checked is what is kept");
                    (said, body.value["kind"].as_str().unwrap_or_default().to_owned())
                });
                let want = want.clone().map(|(version, kind)| (version.to_owned(), kind.to_owned()));
                assert_eq!(read.map_err(|error| error.to_string()), want, "{text}");
            }
        }
    }

    #[test]
    fn bodies_of_unserved_versions_get_the_version_mismatch_error() {
        let expected = |group, version, kind| Expected { group, version, kind };
        let budget = expected("policy", "v1", "PodDisruptionBudget");
        let deployment = expected("apps", "v1", "Deployment");
        let definition = expected("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let mismatch = |is: &str, wanted: &str| {
            format!("the API version in the data ({is}) does not match the expected API version ({wanted})")
        };
        let refused = |kind: &str, version: &str, as_kind: &str, why: &str| {
            format!("{kind} in version {version:?} cannot be handled as a {as_kind}: {why}")
        };
        let unknown = |kind: &str, version: &str| {
            format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        for (expected, api_version, kind, want) in [
            (budget, "policy/v1beta1", "PodDisruptionBudget", mismatch("policy/v1beta1", "policy/v1")),
            (deployment, "extensions/v1beta1", "Deployment", mismatch("extensions/v1beta1", "apps/v1")),
            (deployment, "apps/v1beta1", "Deployment", mismatch("apps/v1beta1", "apps/v1")),
            (deployment, "apps/v1beta2", "", mismatch("apps/v1beta2", "apps/v1")),
            (
                expected("networking.k8s.io", "v1", "Ingress"),
                "extensions/v1beta1",
                "Ingress",
                mismatch("extensions/v1beta1", "networking.k8s.io/v1"),
            ),
            (
                expected("autoscaling", "v1", "Scale"),
                "apps/v1beta2",
                "Scale",
                mismatch("apps/v1beta2", "autoscaling/v1"),
            ),
            (
                definition,
                "apiextensions.k8s.io/v1beta1",
                "CustomResourceDefinition",
                mismatch("apiextensions.k8s.io/v1beta1", "apiextensions.k8s.io/v1"),
            ),
            (
                budget,
                "extensions/v1beta1",
                "Deployment",
                refused(
                    "Deployment",
                    "v1beta1",
                    "PodDisruptionBudget",
                    "converting (v1beta1.Deployment) to (policy.PodDisruptionBudget): unknown conversion",
                ),
            ),
            (
                expected("autoscaling", "v2", "HorizontalPodAutoscaler"),
                "autoscaling/v2beta2",
                "HorizontalPodAutoscaler",
                refused(
                    "HorizontalPodAutoscaler",
                    "v2beta2",
                    "HorizontalPodAutoscaler",
                    &unknown("HorizontalPodAutoscaler", "autoscaling/v2beta2"),
                ),
            ),
            (
                budget,
                "policy/v1beta1",
                "PodSecurityPolicy",
                refused(
                    "PodSecurityPolicy",
                    "v1beta1",
                    "PodDisruptionBudget",
                    &unknown("PodSecurityPolicy", "policy/v1beta1"),
                ),
            ),
            (
                definition,
                "v1",
                "Secret",
                refused(
                    "Secret",
                    "v1",
                    "CustomResourceDefinition",
                    &unknown("Secret", "v1")
                        .replace("pkg/runtime/scheme.go:111", scheme_of("apiextensions.k8s.io")),
                ),
            ),
            (
                CONFIG_MAP,
                "apiextensions.k8s.io/v1beta1",
                "CustomResourceDefinition",
                refused(
                    "CustomResourceDefinition",
                    "v1beta1",
                    "ConfigMap",
                    &unknown("CustomResourceDefinition", "apiextensions.k8s.io/v1beta1"),
                ),
            ),
        ] {
            let body = serde_json::json!({"apiVersion": api_version, "kind": kind}).to_string();
            assert_eq!(message(Format::Json, body.as_bytes(), expected), want);
        }
    }

    #[test]
    fn an_eviction_may_be_of_version_v1beta1() {
        let eviction = Expected { group: "policy", version: "v1", kind: "Eviction" };
        let body = br#"{"apiVersion":"policy/v1beta1","kind":"Eviction"}"#;
        let body = decode(Format::Json, body, eviction).expect("a known version");
        for (expected, group, version, want) in [
            (eviction, body.group.as_str(), body.version.as_str(), true),
            (eviction, "policy", "v1", true),
            (eviction, "apps", "v1beta1", false),
            (Expected { kind: "PodDisruptionBudget", ..eviction }, "policy", "v1beta1", false),
        ] {
            assert_eq!(expected.accepts(group, version), want, "{} {group}/{version}", expected.kind);
        }
    }

    #[test]
    fn missing_kind_and_version_default_to_the_endpoints() {
        let want = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#;
        for (format, body) in [
            (Format::Json, &b"null"[..]),
            (Format::Json, br#"{"Kind":"ConfigMap","apiVersion":"/"}"#),
            (Format::Yaml, b""),
            (Format::Yaml, b"apiVersion: v1"),
            (Format::Protobuf, b"k8s\0\x12\0"),
        ] {
            assert_eq!(message(format, body, CONFIG_MAP), want, "{body:?}");
        }
    }

    #[test]
    fn kinds_of_several_versions_fit() {
        let v2 = Expected { group: "autoscaling", version: "v2", kind: "HorizontalPodAutoscaler" };
        let body = decode(Format::Json, br#"{"apiVersion":"autoscaling/v1"}"#, v2).expect("another version");
        assert_eq!((body.group.as_str(), body.version.as_str()), ("autoscaling", "v1"));
        let event = Expected { group: "events.k8s.io", version: "v1", kind: "Event" };
        let body =
            decode(Format::Json, br#"{"apiVersion":"v1","metadata":{}}"#, event).expect("the other group");
        assert_eq!(body.group, "");
    }

    #[test]
    fn options_come_in_any_version() {
        for (body, want) in [
            (r#"{"apiVersion":"policy/v1","kind":"DeleteOptions","orphanDependents":true}"#, ""),
            (r#"{"apiVersion":"nope.io/v9"}"#, ""),
            ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
            (r#"{"apiVersion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c"),
            (
                r#"{"kind":"Secret"}"#,
                r#"no kind "Secret" is registered for version "meta.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111""#,
            ),
            (
                r#"{"dryRun":"All"}"#,
                "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string",
            ),
        ] {
            let error = decode_options(Format::Json, body.as_bytes(), "DeleteOptions").err();
            assert_eq!(error.map(|e| e.to_string()).unwrap_or_default(), want, "{body}");
        }
    }

    #[test]
    fn repeated_keys_of_yaml_are_warnings_of_their_own() {
        let body =
            decode(Format::Yaml, b"data: {a: b, a: c}\nx: 1\ndata: {k: v}\n", CONFIG_MAP).expect("a body");
        let want = [
            "line 1: key \"a\" already set in map",
            "line 3: key \"data\" already set in map",
            "unknown field \"x\"",
        ];
        assert_eq!(warnings(&body.strict), want);
    }

    #[test]
    fn errors_in_options_have_no_prefix() {
        for (body, want) in [
            (r#"{"apiVersion":"apps/v1","propagationPolicy":"Orphan"}"#, ""),
            (
                r#"{"kind":"Foo"}"#,
                r#"no kind "Foo" is registered for version "meta.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111""#,
            ),
            (
                r#"{"gracePeriodSeconds":"x"}"#,
                "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
        ] {
            let read = decode_options(Format::Json, body.as_bytes(), "DeleteOptions");
            assert_eq!(read.err().map(|e| e.to_string()).unwrap_or_default(), want, "{body}");
        }
    }
}
