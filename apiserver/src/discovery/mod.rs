//! Discovery: groups, versions and resources, OpenAPI documents, the server's version.
//!
//! All documents are generated from one [`ResourceTable`], the current one. They are generated on
//! the first request and cached until the table is replaced.
//!
//! Start at [`Discovery::respond`].

mod conditional;
mod documents;
mod openapi;
mod remote;
pub mod version;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use jiff::Timestamp;
use serde_json::Value;

use crate::aggregator::{RemoteDocument, RemoteDocuments, RemoteGroups, RemoteVersion};
use crate::request::negotiate::{self, Clause, Format};
use crate::request::options::Query;
use crate::resource_info::{ResourceTable, SharedResourceTable};
use crate::{Error, Result};
use conditional::respond_empty;
use openapi::OpenApi;

/// Serves all discovery paths.
pub struct Discovery {
    /// `HOST:PORT`, as clients reach the server.
    address: String,
    /// Paths of other handlers, for the index.
    other_paths: Vec<String>,
    resources: Arc<SharedResourceTable>,
    /// The groups of aggregated servers.
    remote: Arc<RemoteGroups>,
    /// Their OpenAPI documents.
    remote_documents: Arc<RemoteDocuments>,
    state: ArcSwap<State>,
}

/// The resources of one moment, with their documents.
struct State {
    table: Arc<ResourceTable>,
    remote: Arc<Vec<RemoteVersion>>,
    remote_documents: Arc<Vec<Arc<RemoteDocument>>>,
    openapi: OpenApi,
    core: Aggregated,
    groups: Aggregated,
}

/// An aggregated document in JSON, which takes a quarter of the parsed one's memory, and its hash.
#[derive(Default)]
struct Aggregated(OnceLock<(Bytes, String)>);

/// The negotiated form of a response.
struct NegotiatedForm {
    format: Format,
    /// The aggregated form.
    aggregated: bool,
    pretty: bool,
}

impl Discovery {
    /// Creates the discovery of a server.
    ///
    /// - `address`: `HOST:PORT`, as clients reach the server;
    /// - `other_paths`: paths of other handlers, such as health, for the index at `/`;
    /// - `resources`: the resources that the documents describe.
    pub fn new(
        address: impl Into<String>,
        other_paths: impl IntoIterator<Item = String>,
        resources: Arc<SharedResourceTable>,
    ) -> Discovery {
        let state = State::new(resources.load_full(), Arc::default(), Arc::default(), None);
        Discovery {
            address: address.into(),
            other_paths: other_paths.into_iter().collect(),
            resources,
            remote: Arc::default(),
            remote_documents: Arc::default(),
            state: ArcSwap::from_pointee(state),
        }
    }

    /// Returns the `HOST:PORT` of the server, as clients reach it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Adds the groups and documents of aggregated servers.
    #[must_use]
    pub fn with_remote(self, remote: Arc<RemoteGroups>, remote_documents: Arc<RemoteDocuments>) -> Discovery {
        Discovery { remote, remote_documents, ..self }
    }

    /// Returns the groups of other servers.
    pub fn remote_groups(&self) -> &Arc<RemoteGroups> {
        &self.remote
    }

    /// Returns whether the response to a request is already generated, or is fast to generate. An
    /// OpenAPI document takes long to generate.
    pub fn is_generated(&self, request: &Parts) -> bool {
        let path = request.uri.path();
        !path.starts_with("/openapi/") || self.state().openapi.is_generated(path, &request.headers)
    }

    /// Returns the documents of the current resources. If two requests generate them concurrently,
    /// one result is discarded.
    fn state(&self) -> Arc<State> {
        let before = self.state.load_full();
        let table = self.resources.load();
        let remote = self.remote.load();
        let documents = self.remote_documents.load();
        let is_same_remote =
            Arc::ptr_eq(&before.remote, &remote) || (before.remote.is_empty() && remote.is_empty());
        let has_same_documents = Arc::ptr_eq(&before.remote_documents, &documents)
            || (before.remote_documents.is_empty() && documents.is_empty());
        if Arc::ptr_eq(&before.table, &table) && is_same_remote && has_same_documents {
            return before;
        }
        let state = Arc::new(State::new(Arc::clone(&table), remote, documents, Some(&before)));
        self.state.store(state.clone());
        state
    }

    /// Serves the index, discovery, OpenAPI and the version; None for any other path. Two kinds of
    /// unknown paths are left to the caller: see [`Error::UnknownResource`] and
    /// [`Error::PageNotFound`], and [`Discovery::has_built_in_group`].
    pub fn respond(&self, request: &Parts, now: Timestamp) -> Option<Result<Response<Bytes>>> {
        let query = Query::parse(request.uri.query().unwrap_or_default());
        let path = request.uri.path();
        let (method, headers) = (&request.method, &request.headers);
        let state = self.state();
        if path.starts_with("/openapi/") {
            return state.openapi.respond(method, path, &query, headers, now).map(Ok);
        }
        let get_only = |answer: &dyn Fn() -> Result<Response<Bytes>>| {
            Some(if *method == Method::GET { answer() } else { Err(Error::MethodNotAllowed) })
        };
        // Behind a router, trailing slashes are ignored.
        let routed = path.trim_end_matches('/');
        match routed {
            "" if path == "/" => return Some(Ok(self.index(&state.table))),
            "/index.html" if path == routed => return Some(Ok(self.index(&state.table))),
            "/version" => {
                return get_only(&|| {
                    negotiate::route(&negotiate::clauses(headers), &[Format::Json.media_type()], &[])?;
                    Ok(json_response(version::body()))
                });
            }
            "/api" => {
                return get_only(&|| {
                    let negotiated = NegotiatedForm::of(headers, &query, true, true)?;
                    if negotiated.aggregated {
                        let made = || documents::aggregated(&state.table.groups()[..1]);
                        return state.core.respond(headers, &negotiated, made);
                    }
                    negotiated.write(&documents::versions(&state.table, &self.address))
                });
            }
            _ => {}
        }
        let segments: Vec<&str> = routed.strip_prefix('/')?.split('/').collect();
        match segments.as_slice() {
            ["apis"] if path == "/apis" || path == "/apis/" => {
                Some(self.groups(&state, path, headers, &query))
            }
            ["apis", group] => {
                let local = state.table.group(group).filter(|group| !group.name.is_empty());
                let document = match local {
                    Some(group) => documents::group(group),
                    None => remote::group(group, &state.remote)?,
                };
                let negotiated = NegotiatedForm::of(headers, &query, false, false);
                Some(negotiated.and_then(|negotiated| negotiated.write(&document)))
            }
            ["api", version] => self.version(&state, "", version, method, headers, &query),
            ["apis", group, version] if !group.is_empty() => {
                self.version(&state, group, version, method, headers, &query)
            }
            _ => None,
        }
    }

    /// Returns whether the group is built in, so that a path below it gets a 404 of its own. Below
    /// custom groups, unknown versions and resources get the 404 of an unknown page.
    pub fn has_built_in_group(&self, group: &str) -> bool {
        self.resources.load().group(group).is_some_and(|group| !group.custom)
    }

    fn index(&self, table: &ResourceTable) -> Response<Bytes> {
        json_response(documents::index(table, &self.other_paths))
    }

    fn groups(
        &self,
        state: &State,
        path: &str,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Response<Bytes>> {
        // The path with a slash belongs to another handler, which only has the plain form.
        let negotiated = NegotiatedForm::of(headers, query, path == "/apis", false)?;
        let groups = &state.table.groups()[1..];
        if negotiated.aggregated {
            return state.groups.respond(headers, &negotiated, || {
                let mut document = documents::aggregated(groups);
                remote::add_discovery(&mut document, &state.remote);
                document
            });
        }
        let mut document = documents::groups(groups);
        remote::add_groups(&mut document, &state.remote);
        negotiated.write(&document)
    }

    fn version(
        &self,
        state: &State,
        group: &str,
        version: &str,
        method: &Method,
        headers: &HeaderMap,
        query: &Query,
    ) -> Option<Result<Response<Bytes>>> {
        let group = state.table.group(group)?;
        let version = group.version(version)?;
        if !group.custom && *method != Method::GET {
            return Some(Err(Error::MethodNotAllowed));
        }
        let negotiated = NegotiatedForm::of(headers, query, false, !group.custom);
        Some(negotiated.and_then(|negotiated| negotiated.write(&documents::resources(group, version))))
    }
}

impl State {
    fn new(
        table: Arc<ResourceTable>,
        remote: Arc<Vec<RemoteVersion>>,
        remote_documents: Arc<Vec<Arc<RemoteDocument>>>,
        before: Option<&State>,
    ) -> State {
        let openapi = OpenApi::new(&table, &remote_documents, before.map(|before| &before.openapi));
        let (core, groups) = (Aggregated::default(), Aggregated::default());
        State { table, remote, remote_documents, openapi, core, groups }
    }
}

impl Aggregated {
    fn respond(
        &self,
        headers: &HeaderMap,
        negotiated: &NegotiatedForm,
        made: impl FnOnce() -> Value,
    ) -> Result<Response<Bytes>> {
        let (json, hash) = match self.0.get() {
            Some(known) => known,
            None => {
                let document = made();
                let hash = openapi::digest(&[document.to_string().as_bytes()]);
                let json = documents::encode(&document, Format::Json, false)?;
                self.0.get_or_init(|| (json, hash))
            }
        };
        let etag = format!("\"{hash}\"");
        let known = headers.get(header::IF_NONE_MATCH).is_some_and(|held| held.as_bytes() == etag.as_bytes());
        let mut response = match negotiated {
            _ if known => respond_empty(StatusCode::NOT_MODIFIED),
            NegotiatedForm { format: Format::Json, pretty: false, .. } => negotiated.written(json.clone()),
            _ => {
                let document: Value =
                    serde_json::from_slice(json).map_err(|error| Error::Internal(error.to_string()))?;
                negotiated.write(&document)?
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        if let Ok(etag) = HeaderValue::from_str(&etag) {
            headers.insert(header::ETAG, etag);
        }
        Ok(response)
    }
}

impl NegotiatedForm {
    /// Negotiates the form of a discovery response.
    ///
    /// - `aggregated`: the path has an aggregated form;
    /// - `routed`: a router checks the media types before the handler.
    fn of(headers: &HeaderMap, query: &Query, aggregated: bool, routed: bool) -> Result<NegotiatedForm> {
        let clauses = negotiate::clauses(headers);
        if routed {
            negotiate::route(&clauses, &negotiate::FORMATS.map(Format::media_type), &[])?;
        }
        let asks_for = |clause: &Clause<'_>, format, shape| {
            (clause.shape() == shape && clause.allows(format)).then_some(())
        };
        let plain = |clause: &Clause<'_>, format| asks_for(clause, format, None);
        let form = |clause: &Clause<'_>, format| {
            asks_for(clause, format, Some(("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")))
        };
        let pretty = negotiate::is_human(headers, query);
        // If any media range requests the aggregated form, the others are ignored.
        if aggregated && let Ok(Some((format, ()))) = negotiate::choose(&clauses, form) {
            return Ok(NegotiatedForm { format, aggregated: true, pretty });
        }
        let format = negotiate::choose(&clauses, plain)?.map_or(Format::Json, |(format, ())| format);
        Ok(NegotiatedForm { format, aggregated: false, pretty })
    }

    fn write(&self, document: &Value) -> Result<Response<Bytes>> {
        Ok(self.written(documents::encode(document, self.format, self.pretty)?))
    }

    /// Returns a response with an encoded document.
    fn written(&self, document: Bytes) -> Response<Bytes> {
        let mut response = Response::new(document);
        let media_type = self.format.media_type();
        let media_type = match self.aggregated {
            true => format!("{media_type};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            false => media_type.to_owned(),
        };
        if let Ok(media_type) = HeaderValue::from_str(&media_type) {
            response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        }
        response
    }
}

fn json_response(body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
