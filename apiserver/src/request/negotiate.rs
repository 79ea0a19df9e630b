//! Which form a body has and which form an answer shall have.
//!
//! Source: RFC 9110 content negotiation as the real server narrows it; API concepts, "Alternate representations".

use http::{HeaderMap, header};

use super::options::Query;
use crate::{Error, Result};

/// An encoding of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

const FORMATS: [Format; 3] = [Format::Json, Format::Yaml, Format::Protobuf];
const ALL: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl Format {
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

    /// The form of a request's body. No Content-Type is JSON.
    pub fn of_body(headers: &HeaderMap) -> Result<Format> {
        let content_type = match headers.get(header::CONTENT_TYPE) {
            None => return Ok(Format::Json),
            Some(value) => value.to_str().unwrap_or("?"),
        };
        if content_type.is_empty() {
            return Ok(Format::Json);
        }
        Format::from_media_type(media_type(content_type)).ok_or_else(|| {
            Error::UnsupportedMediaType(format!(
                "the body of the request was in an unknown format - accepted media types include: {ALL}"
            ))
        })
    }
}

/// A media type without its parameters.
pub fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or("").trim()
}

/// Another shape of the answer than the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    None,
    Table(MetaVersion),
    PartialObject(MetaVersion),
    PartialObjectList(MetaVersion),
}

/// The version of group `meta.k8s.io` that a transformed answer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1beta1,
}

impl MetaVersion {
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// How the client wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    pub format: Format,
    pub transform: Transform,
    /// Indented, for human eyes.
    pub pretty: bool,
}

impl Accept {
    pub const JSON: Accept = Accept { format: Format::Json, transform: Transform::None, pretty: false };

    /// Chooses the form of an answer. `watch` only widens the text of the refusal.
    ///
    /// # Errors
    /// [`Error::Status`] 406 where no known media type is accepted, [`Error::NotAcceptable`] where only its parameters fail.
    pub fn negotiate(headers: &HeaderMap, query: &Query, watch: bool) -> Result<Accept> {
        let mut accepted = Vec::new();
        for value in headers.get_all(header::ACCEPT) {
            accepted.extend(value.to_str().unwrap_or("").split(',').map(str::trim).filter(|s| !s.is_empty()));
        }
        let pretty = is_human(headers, query);
        if accepted.is_empty() {
            return Ok(Accept { pretty, ..Accept::JSON });
        }
        let known = |clause: &&str| {
            let media = media_type(clause);
            media == "*/*" || FORMATS.iter().any(|f| f.media_type() == media)
        };
        if !accepted.iter().any(|c| known(&c)) {
            let streams = if watch {
                ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
            } else {
                ""
            };
            return Err(Error::Status(Box::new(crate::error::Status {
                code: 406,
                reason: "NotAcceptable",
                message: format!("406: Not Acceptable\n\nAvailable representations: {ALL}{streams}"),
                details: Some(serde_json::json!({})),
                continue_token: None,
            })));
        }
        let mut clauses: Vec<Clause<'_>> = accepted.iter().map(|text| Clause::parse(text)).collect();
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        for clause in &clauses {
            for format in FORMATS {
                if clause.matches(format)
                    && let Some(transform) = clause.transform(format)
                {
                    return Ok(Accept {
                        format,
                        transform,
                        pretty: pretty || clause.param("pretty") == Some("1"),
                    });
                }
            }
        }
        Err(Error::NotAcceptable(format!("only the following media types are accepted: {ALL}")))
    }
}

/// Browsers and command-line fetchers get indented answers, unless they ask otherwise.
fn is_human(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(value) = query.first("pretty") {
        return matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True");
    }
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla"].iter().any(|human| agent.starts_with(human))
}

/// One media range of an Accept header.
struct Clause<'a> {
    media_type: &'a str,
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
                clause.quality = value.parse().unwrap_or(1.0);
            } else {
                clause.params.push((key, value));
            }
        }
        clause
    }

    fn param(&self, name: &str) -> Option<&'a str> {
        self.params.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn matches(&self, format: Format) -> bool {
        matches!(self.media_type, "*/*" | "application/*") || self.media_type == format.media_type()
    }

    /// The shape asked for; None if this format does not give it.
    fn transform(&self, format: Format) -> Option<Transform> {
        if self.param("stream").is_some_and(|s| !s.is_empty() && (s != "watch" || format == Format::Yaml)) {
            return None;
        }
        let (kind, group, version) = (self.param("as"), self.param("g"), self.param("v"));
        if kind.is_none() && group.is_none() && version.is_none() {
            return Some(Transform::None);
        }
        let version = match (group, version) {
            (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1beta1,
            _ => return None,
        };
        match kind {
            Some("Table") if format != Format::Protobuf => Some(Transform::Table(version)),
            Some("PartialObjectMetadata") => Some(Transform::PartialObject(version)),
            Some("PartialObjectMetadataList") => Some(Transform::PartialObjectList(version)),
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
        Accept::negotiate(&headers, &Query::parse(""), false)
    }

    #[test]
    fn choices() {
        let table = Transform::Table(MetaVersion::V1);
        for (header, format, transform) in [
            ("application/json", Format::Json, Transform::None),
            ("*/*;q=0.1,application/yaml", Format::Yaml, Transform::None),
            ("text/html, application/json;q=0.5", Format::Json, Transform::None),
            ("application/vnd.kubernetes.protobuf,application/json", Format::Protobuf, Transform::None),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Format::Json, table),
            ("application/json;as=Table;g=meta.k8s.io;v=v9,application/json", Format::Json, Transform::None),
        ] {
            let got = accept(header).expect(header);
            assert_eq!((got.format, got.transform), (format, transform), "{header}");
        }
    }

    #[test]
    fn refusals() {
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
