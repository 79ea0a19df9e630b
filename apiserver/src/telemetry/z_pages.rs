//! Pages about the process: `/statusz`, with its age and its versions, and `/flagz`, with its
//! flags.
//!
//! They are texts for people; a client that asks for a kind of the group `config.k8s.io` gets an
//! object in JSON or YAML.
//!
//! Source: KEP-4827, KEP-4828; `pkg/server/statusz` and `pkg/server/flagz` of `k8s.io/apiserver`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use jiff::Timestamp;
use serde::Serialize;

use crate::codec::yaml;
use crate::request::negotiate::{Clause, Format, clauses, is_human};
use crate::request::options::Query;
use crate::{Error, Result};

const STATUSZ: &str = "/statusz";
const FLAGZ: &str = "/flagz";
/// The name that kube-apiserver has in these pages.
const COMPONENT: &str = "apiserver";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees \
                       and is for debugging purposes only.";
/// The group of the kinds, and its versions; the second one is deprecated.
const GROUP: &str = "config.k8s.io";
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// The content of the pages.
pub struct ZPages {
    started: Timestamp,
    binary_version: &'static str,
    emulation_version: &'static str,
    paths: Vec<String>,
    flags: BTreeMap<String, String>,
}

/// The representation of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Representation {
    Text,
    Object { format: Format, version: &'static str },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    kind: &'a str,
    api_version: String,
    metadata: Metadata,
}

#[derive(Serialize)]
struct Metadata {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Statusz<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    start_time: String,
    uptime_seconds: i64,
    go_version: &'static str,
    binary_version: &'a str,
    emulation_version: &'a str,
    paths: &'a [String],
}

#[derive(Serialize)]
struct Flagz<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    flags: &'a BTreeMap<String, String>,
}

impl ZPages {
    /// The paths of the pages.
    pub const PATHS: [&'static str; 2] = [FLAGZ, STATUSZ];

    /// Creates the pages.
    ///
    /// - `started`: the time at which the server was started
    /// - `version`: the version of Kubernetes, such as `v1.36.2+coracle`
    /// - `paths`: the paths of the server; the page lists the first segment of those for debugging
    /// - `flags`: the values of the flags, by their names
    pub fn new(
        started: Timestamp,
        version: &'static str,
        paths: impl IntoIterator<Item = String>,
        flags: BTreeMap<String, String>,
    ) -> ZPages {
        let binary_version = version.trim_start_matches('v');
        let binary_version = binary_version.split('+').next().unwrap_or(binary_version);
        let emulation_version = binary_version.rsplit_once('.').map_or(binary_version, |(minor, _)| minor);
        let roots: BTreeSet<String> = paths
            .into_iter()
            .filter_map(|path| Some(format!("/{}", path.split('/').nth(1)?)))
            .filter(|root| !["/apis", "/api", "/openid", "/openapi", "/.well-known", "/"].contains(&&**root))
            .collect();
        ZPages { started, binary_version, emulation_version, paths: roots.into_iter().collect(), flags }
    }

    /// Responds to a request for one of the pages; None for any other path.
    pub fn respond(
        &self,
        path: &str,
        headers: &HeaderMap,
        query: &Query,
        now: Timestamp,
    ) -> Option<Result<Response<Bytes>>> {
        let kind = match path {
            STATUSZ => "Statusz",
            FLAGZ => "Flagz",
            _ => return None,
        };
        Some(Representation::negotiate(headers, kind).and_then(|representation| match representation {
            Representation::Text => {
                let text = if kind == "Statusz" { self.status_text(now) } else { self.flags_text() };
                let page = &path[1..];
                let body = format!("\n{COMPONENT} {page}\n{WARNING}\n{text}");
                Ok(response("text/plain; charset=utf-8".to_owned(), body))
            }
            Representation::Object { format, version } => {
                let head = Head {
                    kind,
                    api_version: format!("{GROUP}/{version}"),
                    metadata: Metadata { name: COMPONENT },
                };
                let is_pretty = is_human(headers, query);
                let body = match kind {
                    "Statusz" => encode(&self.status(head, now), format, is_pretty),
                    _ => encode(&Flagz { head, flags: &self.flags }, format, is_pretty),
                }?;
                let media_type = format!("{};g={GROUP};v={version};as={kind}", format.media_type());
                let mut response = response(media_type, body);
                if version != VERSIONS[0] {
                    let page = &path[1..];
                    let warning = format!(
                        r#"299 - "This version of the {page} endpoint is deprecated. Please use a newer version.""#
                    );
                    response.headers_mut().extend(
                        HeaderValue::try_from(warning).ok().map(|warning| (header::WARNING, warning)),
                    );
                }
                Ok(response)
            }
        }))
    }

    fn uptime(&self, now: Timestamp) -> i64 {
        now.duration_since(self.started).as_secs().max(0)
    }

    fn status<'a>(&'a self, head: Head<'a>, now: Timestamp) -> Statusz<'a> {
        Statusz {
            head,
            start_time: self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            uptime_seconds: self.uptime(now),
            go_version: "",
            binary_version: self.binary_version,
            emulation_version: self.emulation_version,
            paths: &self.paths,
        }
    }

    fn status_text(&self, now: Timestamp) -> String {
        let up = self.uptime(now);
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        format!(
            "\nStarted: {}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nGo version: \nBinary version: {}\n\
             Emulation version: {}\nPaths: {}\n",
            self.started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            self.binary_version,
            self.emulation_version,
            self.paths.join(" "),
        )
    }

    fn flags_text(&self) -> String {
        self.flags.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name}: {value}");
            text
        })
    }
}

impl Representation {
    /// Chooses the representation of a page: text, unless the client asks for the kind.
    fn negotiate(headers: &HeaderMap, kind: &str) -> Result<Representation> {
        let clauses = clauses(headers);
        if clauses.is_empty() {
            return Ok(Representation::Text);
        }
        let of = |clause: &Clause<'_>| Representation::of(clause, kind);
        clauses.iter().find_map(of).ok_or_else(|| {
            Error::NotAcceptable(
                "only the following media types are accepted: application/json, application/yaml, text/plain"
                    .to_owned(),
            )
        })
    }

    fn of(clause: &Clause<'_>, kind: &str) -> Option<Representation> {
        match clause.shape() {
            None => {
                matches!(clause.media_type, "*/*" | "text/*" | "text/plain").then_some(Representation::Text)
            }
            Some((GROUP, version, asked)) if asked == kind => {
                let version = VERSIONS.into_iter().find(|known| *known == version)?;
                let formats = [Format::Json, Format::Yaml];
                let format = formats.into_iter().find(|format| {
                    matches!(clause.media_type, "*/*" | "application/*")
                        || clause.media_type == format.media_type()
                })?;
                Some(Representation::Object { format, version })
            }
            Some(_) => None,
        }
    }
}

fn encode(object: &impl Serialize, format: Format, is_pretty: bool) -> Result<String> {
    let text = match format {
        Format::Yaml => serde_json::to_value(object)
            .map(|value| String::from_utf8_lossy(&yaml::from_json(&value)).into_owned()),
        _ if is_pretty => serde_json::to_string_pretty(object),
        _ => serde_json::to_string(object).map(|text| text + "\n"),
    };
    text.map_err(|error| Error::Internal(error.to_string()))
}

fn response(content_type: String, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    let content_type = HeaderValue::try_from(content_type).ok();
    response.headers_mut().extend(content_type.map(|value| (header::CONTENT_TYPE, value)));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> ZPages {
        let paths = ["/api/v1", "/livez", "/livez/ping", "/metrics", "/openid/v1/jwks"];
        let flags = [("data-dir", "./data"), ("nodes", "3")];
        ZPages::new(
            Timestamp::from_second(1_700_000_000).expect("a time"),
            "v1.36.2+coracle",
            paths.map(str::to_owned),
            flags.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        )
    }

    fn get(path: &str, accept: &str) -> (String, String) {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(header::ACCEPT, accept.parse().expect("a value"));
        }
        let now = Timestamp::from_second(1_700_003_725).expect("a time");
        match pages().respond(path, &headers, &Query::default(), now).expect("a page") {
            Ok(response) => {
                let content_type = &response.headers()[header::CONTENT_TYPE];
                let body = String::from_utf8_lossy(response.body()).into_owned();
                (content_type.to_str().expect("text").to_owned(), body)
            }
            Err(error) => (error.status().code.to_string(), error.to_string()),
        }
    }

    #[test]
    fn pages_are_texts_for_people() {
        let text = "text/plain; charset=utf-8";
        for accept in ["", "application/json, */*", "text/plain"] {
            let (content_type, body) = get("/statusz", accept);
            assert_eq!(content_type, text);
            let want = format!(
                "\napiserver statusz\n{WARNING}\n\nStarted: Tue Nov 14 22:13:20 UTC 2023\nUp: 1 hr 02 min 05 sec\n\
                 Go version: \nBinary version: 1.36.2\nEmulation version: 1.36\nPaths: /livez /metrics\n"
            );
            assert_eq!(body, want);
        }
        let want = format!("\napiserver flagz\n{WARNING}\ndata-dir: ./data\nnodes: 3\n");
        assert_eq!(get("/flagz", ""), (text.to_owned(), want));
        let (headers, query) = (HeaderMap::new(), Query::default());
        assert!(pages().respond("/flagz/", &headers, &query, Timestamp::UNIX_EPOCH).is_none());
    }

    #[test]
    fn clients_may_ask_for_objects() {
        let (content_type, body) = get("/statusz", "application/json;g=config.k8s.io;v=v1beta1;as=Statusz");
        assert_eq!(content_type, "application/json;g=config.k8s.io;v=v1beta1;as=Statusz");
        assert_eq!(
            body,
            "{\"kind\":\"Statusz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\"metadata\":{\"name\":\"apiserver\"},\
             \"startTime\":\"2023-11-14T22:13:20Z\",\"uptimeSeconds\":3725,\"goVersion\":\"\",\
             \"binaryVersion\":\"1.36.2\",\"emulationVersion\":\"1.36\",\"paths\":[\"/livez\",\"/metrics\"]}\n"
        );
        let (content_type, body) = get("/flagz", "application/yaml;g=config.k8s.io;v=v1alpha1;as=Flagz");
        assert_eq!(content_type, "application/yaml;g=config.k8s.io;v=v1alpha1;as=Flagz");
        assert_eq!(
            body,
            "apiVersion: config.k8s.io/v1alpha1\nflags:\n  data-dir: ./data\n  nodes: \"3\"\nkind: Flagz\nmetadata:\n  name: apiserver\n"
        );
        for accept in [
            "application/json",
            "application/json;g=config.k8s.io;v=v1;as=Statusz",
            "text/plain;g=config.k8s.io;v=v1beta1;as=Statusz",
            "application/vnd.kubernetes.protobuf",
        ] {
            assert_eq!(get("/statusz", accept).0, "406", "{accept}");
        }
    }
}
