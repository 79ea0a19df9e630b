//! OpenAPI documents: `/openapi/v3` and its documents, and `/openapi/v2`.
//!
//! A document is generated on the first request, from the schema table and the served resources,
//! and cached as bytes. The index contains a hash of each without generating it: the hash of a
//! document's sources. When the list changes, documents whose sources did not change are kept.
//!
//! Start at [`OpenApi::respond`]; schemas are generated in [`schemas`], operations in [`paths`].

mod common_members;
mod custom;
mod paths;
mod protobuf;
mod schemas;
mod swagger;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use jiff::{Span, Timestamp, tz::TimeZone};
use serde_json::{Map, Value, json};

use super::conditional::{respond_empty, revalidates};
use crate::aggregator::{RemoteDocument, SwaggerPart};
use crate::names::Text;
use crate::request::negotiate::{self, Clause};
use crate::request::options::Query;
use crate::resource_info::{ResourceInfo, ResourceTable};
use crate::schema::{Descriptions, TypeRef};
use common_members::{info, security_schemes};
use schemas::{META, Schemas, reference};
use swagger::{Swagger, part_of};

/// A digest of the documents of the built-in kinds and of an example of a custom kind. It makes the
/// hash of a document change if another version of this server generates another document from the
/// same source, and stay the same otherwise.
const DIGEST: &str = include_str!("digest.txt");

const JSON: &str = "application/json";
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// The media types of the documents, by their subtypes.
const OFFERS_V2: [(&str, &str); 3] = [
    ("json", JSON),
    ("com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF_V2),
    ("com.github.proto-openapi.spec.v2.v1.0+protobuf", PROTOBUF_V2),
];
const OFFERS_V3: [(&str, &str); 3] = [
    ("json", JSON),
    ("com.github.proto-openapi.spec.v3.v1.0+protobuf", PROTOBUF_V3),
    ("com.github.proto-openapi.spec.v3@v1.0+protobuf", PROTOBUF_V3),
];

/// The documents of one state of the served resources.
pub(super) struct OpenApi {
    documents: BTreeMap<String, Arc<Document>>,
    /// The documents of aggregated servers.
    remote: Vec<Arc<RemoteDocument>>,
    swagger: Encoded,
    swagger_hash: OnceLock<String>,
}

/// A document of version 3.
struct Document {
    source: Source,
    hash: OnceLock<String>,
    encoded: Encoded,
    /// Its contribution to the document of version 2.
    part: OnceLock<SwaggerPart>,
}

/// A document's bytes, generated on the first request.
#[derive(Default)]
struct Encoded {
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

/// The source of a document.
#[derive(Debug)]
enum Source {
    /// `/api`
    Versions,
    /// `/apis`
    Groups,
    Group(Text),
    Version {
        group: Text,
        version: Text,
        resources: Vec<Arc<ResourceInfo>>,
        custom: bool,
    },
    /// `/version`
    CodeVersion,
    OpenIdConfiguration,
    OpenIdKeys,
}

impl OpenApi {
    /// Creates the documents of the resources. It keeps the documents of `before` that are
    /// unchanged.
    ///
    /// - `remote`: the documents of other servers.
    pub(super) fn new(
        table: &ResourceTable,
        remote: &[Arc<RemoteDocument>],
        before: Option<&OpenApi>,
    ) -> OpenApi {
        let mut sources = vec![
            ("api".to_owned(), Source::Versions),
            ("apis".to_owned(), Source::Groups),
            ("version".to_owned(), Source::CodeVersion),
            (".well-known/openid-configuration".to_owned(), Source::OpenIdConfiguration),
            ("openid/v1/jwks".to_owned(), Source::OpenIdKeys),
        ];
        for group in table.groups() {
            if !group.name.is_empty() && !group.custom {
                sources.push((format!("apis/{}", group.name), Source::Group(group.name.clone())));
            }
            for version in &group.versions {
                let key = match &*group.name {
                    "" => format!("api/{}", version.name),
                    name => format!("apis/{name}/{}", version.name),
                };
                let source = Source::Version {
                    group: group.name.clone(),
                    version: version.name.clone(),
                    resources: version.resources.clone(),
                    custom: group.custom,
                };
                sources.push((key, source));
            }
        }
        let kept = |key: &str, source: &Source| {
            before
                .and_then(|before| before.documents.get(key))
                .filter(|document| document.source.is_same(source))
        };
        let documents = sources.into_iter().map(|(key, source)| {
            let document = match kept(&key, &source) {
                Some(document) => document.clone(),
                None => Arc::new(Document {
                    source,
                    hash: OnceLock::new(),
                    encoded: Encoded::default(),
                    part: OnceLock::new(),
                }),
            };
            (key, document)
        });
        OpenApi {
            documents: documents.collect(),
            remote: remote.to_vec(),
            swagger: Encoded::default(),
            swagger_hash: OnceLock::new(),
        }
    }

    /// Serves the paths below `/openapi`, for any method; None for other paths.
    pub(super) fn respond(
        &self,
        method: &Method,
        path: &str,
        query: &Query,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Option<Response<Bytes>> {
        match path.strip_prefix("/openapi/")? {
            "v3" => Some(self.index()),
            "v2" => Some(self.swagger(method, headers)),
            rest => {
                let key = rest.strip_prefix("v3/")?;
                Some(match self.documents.get(key) {
                    Some(document) => document.respond(key, method, query, headers, now),
                    None => respond_empty(StatusCode::NOT_FOUND),
                })
            }
        }
    }

    /// Returns whether the response to a path is already generated. Generating it takes long.
    pub(super) fn is_generated(&self, path: &str, headers: &HeaderMap) -> bool {
        let is_json = |offers: &[(&str, &'static str)]| {
            accepted(headers, offers).is_none_or(|media_type| media_type == JSON)
        };
        match path.strip_prefix("/openapi/") {
            Some("v3") => self.documents.values().all(|document| document.hash.get().is_some()),
            Some("v2") => self.swagger_hash.get().is_some() && self.swagger.is_encoded(is_json(&OFFERS_V2)),
            Some(rest) => {
                rest.strip_prefix("v3/").and_then(|key| self.documents.get(key)).is_none_or(|document| {
                    document.hash.get().is_some() && document.encoded.is_encoded(is_json(&OFFERS_V3))
                })
            }
            None => true,
        }
    }

    fn index(&self) -> Response<Bytes> {
        let url = |url: &str| json!({"serverRelativeURL": url});
        let local = self.documents.iter().map(|(key, document)| (key.clone(), url(&document.url(key))));
        let remote =
            self.remote.iter().filter_map(|remote| Some((remote.path.clone(), url(remote.url.as_deref()?))));
        // This server's own documents replace aggregated ones of the same path.
        let paths: BTreeMap<String, Value> = remote.chain(local).collect();
        let mut response = Response::new(Bytes::from(json!({"paths": paths}).to_string()));
        // kube-apiserver's value, which clients therefore accept.
        set(&mut response, header::CONTENT_TYPE, "text/plain; charset=utf-8");
        response
    }

    fn swagger(&self, method: &Method, headers: &HeaderMap) -> Response<Bytes> {
        let made = || {
            let texts = OnceLock::new();
            let texts = || texts.get_or_init(Descriptions::parse);
            let mut swagger = Swagger::default();
            for document in self.documents.values() {
                let part = || part_of(document.source.document(texts()));
                swagger.add(document.part.get_or_init(part));
            }
            for part in self.remote.iter().filter_map(|remote| remote.swagger.as_deref()) {
                swagger.add_remote(part);
            }
            swagger.finish()
        };
        let mut response = match accepted(headers, &OFFERS_V2) {
            None => respond_empty(StatusCode::NOT_ACCEPTABLE),
            Some(media_type) => {
                let json = self.swagger.json(made);
                let hash = self.swagger_hash.get_or_init(|| digest(&[json]));
                let body = match media_type {
                    JSON => json,
                    // It is generated from the JSON text, since this form is requested rarely.
                    _ => self.swagger.protobuf(|| protobuf::swagger(json)),
                };
                respond_tagged(method, headers, media_type, hash, body)
            }
        };
        set(&mut response, header::VARY, "Accept");
        response
    }
}

impl Document {
    fn hash(&self) -> &str {
        self.hash.get_or_init(|| digest(&[DIGEST.as_bytes(), self.source.fingerprint().as_bytes()]))
    }

    fn url(&self, key: &str) -> String {
        format!("/openapi/v3/{key}?hash={}", self.hash())
    }

    fn respond(
        &self,
        key: &str,
        method: &Method,
        query: &Query,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Response<Bytes> {
        let made = || self.source.document(&Descriptions::parse());
        let mut response = match accepted(headers, &OFFERS_V3) {
            None => respond_empty(StatusCode::NOT_ACCEPTABLE),
            Some(media_type) => match query.first("hash").filter(|hash| !hash.is_empty()) {
                Some(hash) if hash != self.hash() => {
                    let mut response = respond_empty(StatusCode::MOVED_PERMANENTLY);
                    set(&mut response, header::LOCATION, &self.url(key));
                    set(&mut response, header::CONTENT_TYPE, media_type);
                    set(&mut response, header::ETAG, &format!("\"{}\"", self.hash()));
                    response
                }
                hash => {
                    let body = match media_type {
                        JSON => self.encoded.json(|| made().to_string()),
                        _ => self.encoded.protobuf(|| protobuf::openapi(&made())),
                    };
                    let mut response = respond_tagged(method, headers, media_type, self.hash(), body);
                    if hash.is_some() {
                        set(&mut response, header::CACHE_CONTROL, "public, immutable");
                        set(&mut response, header::EXPIRES, &in_a_year(now));
                    }
                    response
                }
            },
        };
        set(&mut response, header::VARY, "Accept");
        response
    }
}

impl Encoded {
    fn json(&self, made: impl FnOnce() -> String) -> &Bytes {
        self.json.get_or_init(|| made().into())
    }

    fn is_encoded(&self, as_json: bool) -> bool {
        if as_json { self.json.get().is_some() } else { self.protobuf.get().is_some() }
    }

    fn protobuf(&self, made: impl FnOnce() -> Vec<u8>) -> &Bytes {
        self.protobuf.get_or_init(|| made().into())
    }
}

impl Source {
    /// Returns whether both sources give the same document. Resources in the same `Arc` are equal
    /// without a comparison.
    fn is_same(&self, other: &Source) -> bool {
        match (self, other) {
            (
                Source::Version { group, version, resources, custom },
                Source::Version { group: g, version: v, resources: r, custom: c },
            ) => {
                let same = |(a, b): (&Arc<ResourceInfo>, &Arc<ResourceInfo>)| Arc::ptr_eq(a, b) || a == b;
                (group, version, custom) == (g, v, c)
                    && resources.len() == r.len()
                    && resources.iter().zip(r).all(same)
            }
            (Source::Group(a), Source::Group(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Returns the text to hash. Built-in kinds do not change while the server runs; [`DIGEST`]
    /// covers changes between two versions of the server.
    fn fingerprint(&self) -> String {
        let mut text = format!("{self:?}");
        if let Source::Version { resources, custom: true, .. } = self {
            for info in resources {
                let ResourceInfo { kind, list_kind, singular, namespaced, verbs, subresources, .. } = &**info;
                text.push_str(&format!(
                    "{kind} {list_kind} {singular} {namespaced} {verbs:?} {subresources:?}"
                ));
                if let TypeRef::Structural(schema) = &info.type_ref {
                    text.push_str(&schema.document().to_string());
                }
            }
        }
        text
    }

    fn document(&self, texts: &Descriptions) -> Value {
        let string = json!({"type": "string"});
        let meta = |name: &str| reference(&format!("{META}.{name}"));
        let single_get =
            |path: &str, tag: &str, text: &str, id: &str, media_types: &[&str], answer: &Value| {
                Map::from_iter([(path.to_owned(), paths::single_get(tag, text, id, media_types, answer))])
            };
        let mut home = None;
        let mut known = Map::new();
        let mut authenticated = true;
        let mut info = self::info();
        let paths = match self {
            Source::Versions => {
                let answer = meta("APIVersions");
                let text = "get available API versions";
                single_get("/api/", "core", text, "getCoreAPIVersions", paths::FORMATS, &answer)
            }
            Source::Groups => {
                let answer = meta("APIGroupList");
                single_get(
                    "/apis/",
                    "apis",
                    "get available API versions",
                    "getAPIVersions",
                    paths::FORMATS,
                    &answer,
                )
            }
            Source::Group(group) => {
                let (path, tag) = (format!("/apis/{group}/"), paths::tag(group, None));
                let id = format!("get{}APIGroup", paths::group_id(group));
                single_get(&path, &tag, "get information of a group", &id, paths::FORMATS, &meta("APIGroup"))
            }
            Source::Version { group, version, resources, custom } => {
                home = Some((&**group, &**version));
                known = custom::schemas(group, version, resources, texts);
                authenticated = !custom;
                if *custom {
                    info = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
                }
                paths::of_version(group, version, resources, *custom)
            }
            Source::CodeVersion => {
                let answer = reference("io.k8s.apimachinery.pkg.version.Info");
                let text = "get the version information for this server";
                single_get("/version/", "version", text, "getCodeVersion", &[JSON], &answer)
            }
            Source::OpenIdConfiguration => {
                let text =
                    "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'";
                let id = "getServiceAccountIssuerOpenIDConfiguration";
                single_get("/.well-known/openid-configuration/", "WellKnown", text, id, &[JSON], &string)
            }
            Source::OpenIdKeys => {
                let text = "get service account issuer OpenID JSON Web Key Set (contains public token \
                            verification keys)";
                let id = "getServiceAccountIssuerOpenIDKeyset";
                single_get("/openid/v1/jwks/", "openid", text, id, &["application/jwk-set+json"], &string)
            }
        };
        let mut document = json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {}});
        let schemas = Schemas::of(&document, known, home, texts);
        if !schemas.is_empty() {
            document["components"]["schemas"] = schemas.into();
        }
        if authenticated {
            document["components"]["securitySchemes"] = security_schemes();
        }
        document
    }
}

/// Returns the first offered media type, in the order of the client's preferences. An offer is
/// identified by its subtype.
fn accepted(headers: &HeaderMap, offers: &[(&str, &'static str)]) -> Option<&'static str> {
    let clauses = negotiate::clauses(headers);
    if clauses.is_empty() {
        return offers.first().map(|(_, media_type)| *media_type);
    }
    let takes = |clause: &Clause<'_>, subtype: &str| {
        let (kind, accepted) = clause.media_type.split_once('/').unwrap_or((clause.media_type, ""));
        matches!(kind, "*" | "application") && (accepted == "*" || accepted == subtype)
    };
    let offered = |clause: &Clause<'_>| offers.iter().find(|(subtype, _)| takes(clause, subtype));
    clauses.iter().find_map(offered).map(|(_, media_type)| *media_type)
}

/// Returns the whole document, or 304 if the client has it.
fn respond_tagged(
    method: &Method,
    headers: &HeaderMap,
    media_type: &str,
    hash: &str,
    body: &Bytes,
) -> Response<Bytes> {
    let etag = format!("\"{hash}\"");
    let mut response = if matches!(*method, Method::GET | Method::HEAD) && revalidates(headers, &etag) {
        respond_empty(StatusCode::NOT_MODIFIED)
    } else {
        let mut response = Response::new(body.clone());
        set(&mut response, header::CONTENT_TYPE, media_type);
        response
    };
    set(&mut response, header::ETAG, &etag);
    response
}

fn set(response: &mut Response<Bytes>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn in_a_year(now: Timestamp) -> String {
    let later = now.to_zoned(TimeZone::UTC).saturating_add(Span::new().years(1));
    later.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()
}

/// Returns the hash of the parts: SHA-512 in upper-case hexadecimal, like all hashes of these
/// documents.
pub(super) fn digest(parts: &[&[u8]]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA512);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}
