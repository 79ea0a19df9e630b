//! Content negotiation: the format of a request's body and the representation of its response.
//!
//! Source: RFC 9110 content negotiation as kube-apiserver narrows it; API concepts, "Alternate
//! representations".

use http::{HeaderMap, header};

use super::options::Query;
pub use crate::codec::body::Format;
use crate::{Error, Result};

/// All formats of bodies and responses, in the order in which `*/*` prefers them.
pub const FORMATS: [Format; 3] = [Format::Json, Format::Yaml, Format::Protobuf];
const STREAMS: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const ALL: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl Format {
    /// Returns the media type in `Content-Type` and `Accept`.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
            Format::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    fn from_media_type(media_type: &str) -> Option<Format> {
        FORMATS.into_iter().find(|f| f.media_type().eq_ignore_ascii_case(media_type))
    }

    /// Returns the format of a request's body; JSON without a `Content-Type`.
    ///
    /// # Errors
    /// [`Error::UnsupportedMediaType`] for another media type, or for parameters that cannot be
    /// parsed.
    pub fn of_body(headers: &HeaderMap) -> Result<Format> {
        let content_type = match headers.get(header::CONTENT_TYPE) {
            None => return Ok(Format::Json),
            Some(value) => value.to_str().unwrap_or("?"),
        };
        if content_type.is_empty() {
            return Ok(Format::Json);
        }
        let known = Format::from_media_type(media_type(content_type));
        known.filter(|_| has_parameters(content_type)).ok_or_else(|| {
            Error::UnsupportedMediaType(format!(
                "the body of the request was in an unknown format - accepted media types include: {ALL}"
            ))
        })
    }
}

/// Returns whether the text after a media type is a list of parameters; a semicolon may end it.
fn has_parameters(content_type: &str) -> bool {
    let Some((_, parameters)) = content_type.trim_end().split_once(';') else { return true };
    let ended = parameters.strip_suffix(';').unwrap_or(parameters);
    parameters.is_empty() || ended.split(';').all(|p| p.trim().find('=').is_some_and(|at| at > 0))
}

/// Returns a media type without its parameters.
pub fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or("").trim()
}

/// The kind of the response: the requested object's own, or one of group `meta.k8s.io` made from
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// The object or list itself.
    None,
    /// A `Table` for people: `as=Table`.
    Table(MetaVersion),
    /// The metadata of one object: `as=PartialObjectMetadata`.
    PartialObject(MetaVersion),
    /// The metadata of a list's objects: `as=PartialObjectMetadataList`.
    PartialObjectList(MetaVersion),
}

/// The version of group `meta.k8s.io` of a transformed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`.
    V1,
    /// `meta.k8s.io/v1beta1`.
    V1beta1,
}

impl MetaVersion {
    /// Returns the `apiVersion` of the response.
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The representation of a response, negotiated from the `Accept` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The serialization format.
    pub format: Format,
    /// The kind of the response.
    pub transform: Transform,
    /// Whether JSON is indented, for people.
    pub pretty: bool,
}

/// The representations that an endpoint offers besides JSON, YAML and the metadata of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Tables. Endpoints that evaluate an object without storing it, such as access reviews, have
    /// none.
    pub tables: bool,
    /// Protobuf of whole objects, which custom resources do not have.
    pub protobuf: bool,
}

impl Accept {
    /// JSON of the object itself, not indented.
    pub const JSON: Accept = Accept { format: Format::Json, transform: Transform::None, pretty: false };

    /// Chooses the representation of a response.
    ///
    /// - `watchable`: whether the endpoint also serves watches. It only adds their media types to
    ///   the text of the error.
    ///
    /// # Errors
    /// [`Error::Status`] 406 where no known media type is accepted, [`Error::NotAcceptable`] where
    /// only its parameters fail.
    pub fn negotiate(
        headers: &HeaderMap,
        query: &Query,
        watchable: bool,
        offered: Offered,
    ) -> Result<Accept> {
        let clauses = clauses(headers);
        let streams: &[&str] = if watchable { &STREAMS } else { &[] };
        // Paths of custom resources are not routed by media types.
        if offered.protobuf {
            route(&clauses, &FORMATS.map(Format::media_type), streams)?;
        }
        let pretty = is_human(headers, query);
        let chosen = choose(&clauses, |clause, format| {
            let transform = clause.transform(format)?;
            let is_possible = match transform {
                Transform::None => offered.protobuf || format != Format::Protobuf,
                Transform::Table(_) => offered.tables,
                _ => true,
            };
            is_possible.then(|| (transform, clause.is_pretty()))
        })?;
        Ok(match chosen {
            None => Accept { pretty, ..Accept::JSON },
            Some((format, (transform, asked))) => Accept { format, transform, pretty: pretty || asked },
        })
    }

    /// Returns the representation of a watch.
    ///
    /// # Errors
    /// [`Error::NotAcceptable`] for YAML, which has no framing of single events. A format that the
    /// client prefers less is not taken instead.
    pub fn of_stream(self) -> Result<Accept> {
        match self.format {
            Format::Json | Format::Protobuf => Ok(self),
            Format::Yaml => {
                let text = format!("only the following media types are accepted: {}", STREAMS.join(", "));
                Err(Error::NotAcceptable(text))
            }
        }
    }

    /// Chooses the representation of a Status. It is never transformed; where the client accepts no
    /// format, it is indented JSON.
    pub fn of_errors(headers: &HeaderMap, query: &Query) -> Accept {
        let plain = |clause: &Clause<'_>, format| {
            (clause.transform(format)? == Transform::None).then(|| clause.is_pretty())
        };
        let human = is_human(headers, query);
        match choose(&clauses(headers), plain) {
            Ok(None) => Accept { pretty: human, ..Accept::JSON },
            Ok(Some((format, asked))) => Accept { format, pretty: human || asked, ..Accept::JSON },
            Err(_) => Accept { pretty: true, ..Accept::JSON },
        }
    }
}

/// Returns the media ranges of the first `Accept` header, in kube-apiserver's order: those of
/// higher quality, and those that are more specific, move forward past their neighbours. An empty
/// list accepts everything.
///
/// Source: `ParseAccept` of goautoneg, whose comparison is not a strict order.
pub fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let value = headers.get(header::ACCEPT).map(|value| value.to_str().unwrap_or("?").trim());
    let given = value.filter(|value| !value.is_empty());
    let mut clauses: Vec<Clause<'_>> =
        given.into_iter().flat_map(|value| value.split(',')).map(Clause::parse).collect();
    clauses.truncate(MAX_CLAUSES);
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && clauses[at].precedes(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

/// The largest number of media ranges that are considered.
const MAX_CLAUSES: usize = 100;

/// Checks as upstream's router does, without parameters, that some media range names one of these
/// media types. `more` are further ones, only listed in the error.
///
/// # Errors
/// [`Error::Status`] 406.
pub fn route(clauses: &[Clause<'_>], media_types: &[&str], more: &[&str]) -> Result<()> {
    let known = |clause: &Clause<'_>| clause.media_type == "*/*" || media_types.contains(&clause.media_type);
    if clauses.is_empty() || clauses.iter().any(known) {
        return Ok(());
    }
    Err(Error::Status(Box::new(crate::error::Status {
        code: 406,
        reason: "NotAcceptable".into(),
        message: format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            [media_types, more].concat().join(", ")
        ),
        details: Some(serde_json::json!({})),
        continue_token: None,
    })))
}

/// Chooses the first media range and format for which `shape` returns a value; None if the client
/// sent no `Accept`.
///
/// # Errors
/// [`Error::NotAcceptable`] if there is none.
pub fn choose<'a, T>(
    clauses: &[Clause<'a>],
    shape: impl Fn(&Clause<'a>, Format) -> Option<T>,
) -> Result<Option<(Format, T)>> {
    if clauses.is_empty() {
        return Ok(None);
    }
    let matches = |clause: &Clause<'a>| {
        let fitting = FORMATS.into_iter().filter(|format| clause.matches(*format));
        fitting.filter_map(|format| Some((format, shape(clause, format)?))).next()
    };
    let rejection = || Error::NotAcceptable(format!("only the following media types are accepted: {ALL}"));
    clauses.iter().find_map(matches).map(Some).ok_or_else(rejection)
}

/// Returns whether the response is indented: according to `pretty` in the query, and by default for
/// browsers, curl and Wget.
pub fn is_human(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(value) = query.first("pretty").filter(|value| !value.is_empty()) {
        return matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True");
    }
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|human| agent.starts_with(human))
}

/// One media range of an Accept header.
pub struct Clause<'a> {
    /// The type and subtype, without parameters; `*` matches any.
    pub media_type: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f64,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';');
        let media_type = parts.next().unwrap_or("").trim();
        let mut clause = Clause { media_type, params: Vec::new(), quality: 1.0 };
        for part in parts {
            let Some((key, value)) = part.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim());
            if key == "q" {
                clause.quality = value.parse().unwrap_or(0.0);
            } else if !value.contains('=') {
                clause.params.push((key, value));
            }
        }
        clause
    }

    fn param(&self, name: &str) -> Option<&'a str> {
        self.params.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// Returns the group, version and kind of the requested transformation, which are the
    /// parameters `g`, `v` and `as`; None if there is no such parameter.
    pub fn shape(&self) -> Option<(&'a str, &'a str, &'a str)> {
        let shape = ["g", "v", "as"].map(|name| self.param(name));
        if shape == [None; 3] {
            return None;
        }
        let [group, version, kind] = shape.map(Option::unwrap_or_default);
        Some((group, version, kind))
    }

    fn is_pretty(&self) -> bool {
        self.param("pretty") == Some("1")
    }

    fn matches(&self, format: Format) -> bool {
        matches!(self.media_type, "*" | "*/*" | "application/*") || self.media_type == format.media_type()
    }

    /// Returns whether this media range moves forward past `other`.
    fn precedes(&self, other: &Clause<'_>) -> bool {
        let is_any_type = |clause: &Clause<'_>| clause.media_type.starts_with('*');
        let is_any_subtype = |clause: &Clause<'_>| clause.media_type.ends_with('*');
        self.quality > other.quality
            || !is_any_type(self) && is_any_type(other)
            || !is_any_subtype(self) && is_any_subtype(other)
    }

    /// Returns whether the format supports the stream of the media range, and no server version is
    /// requested.
    pub fn allows(&self, format: Format) -> bool {
        let stream = self.param("stream").unwrap_or_default();
        (stream.is_empty() || stream == "watch" && format != Format::Yaml)
            && self.param("sv").is_none_or(str::is_empty)
    }

    /// Returns the requested transformation; None if this format does not support it.
    fn transform(&self, format: Format) -> Option<Transform> {
        if !self.allows(format) {
            return None;
        }
        let Some((group, version, kind)) = self.shape() else { return Some(Transform::None) };
        let version = match (group, version) {
            ("meta.k8s.io", "v1") => MetaVersion::V1,
            ("meta.k8s.io", "v1beta1") => MetaVersion::V1beta1,
            _ => return None,
        };
        match kind {
            "Table" if format != Format::Protobuf => Some(Transform::Table(version)),
            "PartialObjectMetadata" => Some(Transform::PartialObject(version)),
            "PartialObjectMetadataList" => Some(Transform::PartialObjectList(version)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> Result<Accept> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().expect("a header value"));
        Accept::negotiate(&headers, &Query::parse(""), false, Offered { tables: true, protobuf: true })
    }

    #[test]
    fn the_best_acceptable_representation_is_chosen() {
        let table = Transform::Table(MetaVersion::V1);
        for (header, format, transform) in [
            ("application/json", Format::Json, Transform::None),
            ("*/*;q=0.1,application/yaml", Format::Yaml, Transform::None),
            ("text/html, application/json;q=0.5", Format::Json, Transform::None),
            ("application/vnd.kubernetes.protobuf,application/json", Format::Protobuf, Transform::None),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Format::Json, table),
            ("*/*,application/yaml", Format::Yaml, Transform::None),
            ("*/*;q=0.9,application/yaml;q=0.5", Format::Yaml, Transform::None),
            ("application/yaml;q=0.5,*/*;q=0.9", Format::Json, Transform::None),
            ("application/json;q=x,application/yaml;q=0.1", Format::Yaml, Transform::None),
            ("application/json;sv=v2,application/yaml", Format::Yaml, Transform::None),
            ("application/json;as=Table;g=meta.k8s.io;v=v9,application/json", Format::Json, Transform::None),
        ] {
            let got = accept(header).expect(header);
            assert_eq!((got.format, got.transform), (format, transform), "{header}");
        }
    }

    #[test]
    fn endpoints_without_tables_reject_them() {
        for (header, want) in [
            ("application/json;as=Table;v=v1;g=meta.k8s.io", None),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml", Some(Format::Yaml)),
            ("application/json", Some(Format::Json)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, header.parse().expect("a header value"));
            let got = Accept::negotiate(
                &headers,
                &Query::parse(""),
                false,
                Offered { tables: false, protobuf: true },
            );
            match (got, want) {
                (Ok(accept), Some(format)) => {
                    assert_eq!((accept.format, accept.transform), (format, Transform::None), "{header}")
                }
                (Err(Error::NotAcceptable(_)), None) => {}
                (got, _) => panic!("{header}: {got:?}"),
            }
        }
    }

    #[test]
    fn error_responses_and_streams_negotiate_their_own_representation() {
        for (header, format, pretty) in [
            ("application/yaml", Format::Yaml, false),
            ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Format::Json, true),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Format::Json, false),
            ("text/html", Format::Json, true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, header.parse().expect("a header value"));
            let got = Accept::of_errors(&headers, &Query::parse(""));
            assert_eq!((got.format, got.pretty), (format, pretty), "{header}");
        }
        for (format, is_possible) in [(Format::Json, true), (Format::Protobuf, true), (Format::Yaml, false)] {
            let accept = Accept { format, ..Accept::JSON };
            assert_eq!(accept.of_stream().ok(), is_possible.then_some(accept), "{format:?}");
        }
    }

    #[test]
    fn unknown_and_malformed_content_types_are_rejected() {
        for (text, known) in [
            ("application/json; charset=utf-8", true),
            ("application/json;", true),
            ("application/json;;", false),
            ("application/json; charset", false),
            ("text/plain", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, text.parse().expect("a header value"));
            assert_eq!(Format::of_body(&headers).is_ok(), known, "{text}");
        }
    }

    #[test]
    fn unacceptable_media_types_and_parameters_are_rejected() {
        for header in ["text/html", "application/*", "application/xml, text/plain"] {
            assert!(matches!(accept(header), Err(Error::Status(_))), "{header}");
        }
        for header in [
            "application/json;as=Nope;g=meta.k8s.io;v=v1",
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        ] {
            assert!(matches!(accept(header), Err(Error::NotAcceptable(_))), "{header}");
        }
    }
}
