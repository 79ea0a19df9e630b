//! The OpenAPI documents of aggregated servers: the location of version 3, and version 2 as a
//! whole.
//!
//! They are fetched when an APIService changes, and every minute. A failed fetch is retried in the
//! next round, and the previous documents stay. No request waits for them: discovery merges the
//! documents that have been fetched.
//!
//! Source: kube-aggregator's `openapiv3/aggregator` and `openapi/aggregator`.
#![expect(clippy::disallowed_methods, reason = "a deadline of a call to another server protects this one")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use coracle_storage::{Revision, Watcher};
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http::{StatusCode, header};

use super::download::download;
use super::swagger::SwaggerPart;
use super::{GROUP, PLURAL, RemoteApi, RemoteApis};
use crate::codec::DecodeError;
use crate::codec::json::for_each_member;
use crate::names::GroupResource;
use crate::registry::{ObjectIndex, Registry};
use crate::timers::{OPENAPI_BATCH, OPENAPI_REFRESH};
use crate::webhook::HttpClient;

/// The interval at which documents are fetched again.
const INTERVAL: Duration = Duration::from_secs(60);
/// The time during which further changes of APIServices are batched with the first one.
const SETTLE: Duration = Duration::from_millis(200);
/// Timeout for fetching a document.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The number of servers that are queried concurrently.
const MAX_CONCURRENT: usize = 4;
/// The largest sizes of the index of version 3 and of the document of version 2, in bytes.
const MAX_INDEX: usize = 1 << 20;
const MAX_SWAGGER: usize = 8 << 20;

/// The documents of one group and version.
#[derive(Debug, PartialEq)]
pub struct RemoteDocument {
    /// `apis/GROUP/VERSION`
    pub path: String,
    /// The URL of the document of version 3, relative to the server; with its hash.
    pub url: Option<String>,
    /// The part of the server's document of version 2 that is about this group and version.
    pub swagger: Option<Arc<SwaggerPart>>,
}

/// The documents of all, in the order of their priorities.
#[derive(Debug, Default)]
pub struct RemoteDocuments(ArcSwap<Vec<Arc<RemoteDocument>>>);

impl RemoteDocuments {
    /// Returns those that a fork begins with.
    pub fn fork(&self) -> RemoteDocuments {
        RemoteDocuments(ArcSwap::new(self.load()))
    }

    /// Returns the current documents.
    pub fn load(&self) -> Arc<Vec<Arc<RemoteDocument>>> {
        self.0.load_full()
    }

    fn replace(&self, documents: Vec<Arc<RemoteDocument>>) {
        if *self.load() != documents {
            self.0.store(Arc::new(documents));
        }
    }
}

/// Maintains the documents.
pub struct OpenApiController {
    registry: Arc<Registry>,
    apis: RemoteApis,
    documents: Arc<RemoteDocuments>,
    /// The servers of the last round.
    asked: Arc<[RemoteApi]>,
    /// The last fetched documents, by the name of the APIService.
    known: HashMap<String, Known>,
}

#[derive(Clone)]
struct Known {
    /// The ETag of the document of version 2.
    etag: Option<String>,
    document: Arc<RemoteDocument>,
}

impl OpenApiController {
    /// Creates the controller.
    ///
    /// - `documents`: receives the documents of the aggregated servers.
    pub fn new(registry: Arc<Registry>, documents: Arc<RemoteDocuments>) -> OpenApiController {
        let (asked, known) = (Arc::new([]), HashMap::new());
        OpenApiController { registry, apis: RemoteApis::default(), documents, asked, known }
    }

    /// Follows the documents until the future is dropped.
    pub fn run(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut work = None;
            loop {
                let revision = self.registry.store.revision();
                self.fetch_all().await;
                drop(work.take());
                let clock = self.registry.clock();
                let changed = clock.timeout(OPENAPI_REFRESH.after(INTERVAL), self.changed(revision)).await;
                // The work of a change continues until the end of the next fetch.
                let pause = changed.is_ok().then(|| clock.sleep(OPENAPI_BATCH.after(SETTLE)));
                drop(changed);
                if let Some(pause) = pause {
                    work = Some(pause.await);
                }
            }
        })
    }

    /// Waits until the APIServices that have a service differ from those of the last round. It
    /// reads their changes after a revision.
    ///
    /// Returns the watch that has read the change. While the caller keeps it, the change counts as
    /// not handled yet.
    async fn changed(&self, revision: Revision) -> Option<Watcher<ObjectIndex>> {
        let bucket: Arc<str> = GroupResource::new(GROUP, PLURAL).to_string().into();
        // If history has been compacted since, there was a change.
        let mut changes = self.registry.store.watch(&bucket, revision).ok()?;
        while changes.next().await.is_ok() {
            match self.apis.load(&*self.registry) {
                Ok(apis) if apis == self.asked => {}
                _ => break,
            }
        }
        Some(changes)
    }

    async fn fetch_all(&mut self) {
        let apis = match self.apis.load(&*self.registry) {
            Ok(apis) => apis,
            Err(error) => {
                tracing::warn!(%error, "the APIServices cannot be read");
                return;
            }
        };
        self.asked = apis.clone();
        let mut available: Vec<&RemoteApi> = apis.iter().filter(|api| api.is_available).collect();
        available.sort_by_key(|api| (-api.priorities.0, &api.group, -api.priorities.1, &api.version));
        let fetched = available.into_iter().map(|api| {
            let known = self.known.get(&api.name).cloned();
            let registry = &self.registry;
            async move { (api.name.clone(), fetch(registry, api, known).await) }
        });
        let fetched: Vec<(String, Known)> =
            stream::iter(fetched.collect::<Vec<_>>()).buffered(MAX_CONCURRENT).collect().await;
        self.documents.replace(fetched.iter().map(|(_, known)| known.document.clone()).collect());
        self.known = fetched.into_iter().collect();
    }
}

/// Fetches the documents of a server; returns the known ones if it does not respond or they have
/// not changed.
async fn fetch(registry: &Registry, api: &RemoteApi, known: Option<Known>) -> Known {
    let path = api.path().trim_start_matches('/').to_owned();
    let known = known.filter(|known| known.document.path == path).unwrap_or_else(|| Known {
        etag: None,
        document: Arc::new(RemoteDocument { path: path.clone(), url: None, swagger: None }),
    });
    let Ok(client) = registry.webhook_clients().service_client(&api.service, &api.tls, registry) else {
        return known;
    };
    let service = &api.service;
    let base = format!("https://{}.{}.svc:{}", service.name, service.namespace, service.port);
    let index = tokio::time::timeout(TIMEOUT, find_document(&client, &base, &path)).await;
    let url = format!("{base}/openapi/v2");
    let swagger = download(&client, &url, known.etag.as_deref(), MAX_SWAGGER);
    let swagger = tokio::time::timeout(TIMEOUT, swagger).await;
    let url = match index {
        Ok(Some(url)) => url,
        _ => known.document.url.clone(),
    };
    let (etag, swagger) = match swagger {
        Ok(Ok(found)) if found.status == StatusCode::OK => match read_part(found.body, &path).await {
            Ok(part) => {
                let etag = found.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
                (etag.map(str::to_owned), Some(Arc::new(part)))
            }
            Err(error) => {
                tracing::warn!(name = %api.name, %error, "the OpenAPI document cannot be read");
                (known.etag, known.document.swagger.clone())
            }
        },
        Ok(Ok(found)) if found.status == StatusCode::NOT_FOUND => (None, None),
        _ => (known.etag, known.document.swagger.clone()),
    };
    let document = RemoteDocument { path, url, swagger };
    // An unchanged document keeps its identity, so that nothing is generated again.
    let document = if document == *known.document { known.document } else { Arc::new(document) };
    Known { etag, document }
}

/// Returns the URL of the document for OpenAPI version 3; None if the server does not respond,
/// `Some(None)` if it has no such document.
async fn find_document(client: &HttpClient, base: &str, path: &str) -> Option<Option<String>> {
    let found = download(client, &format!("{base}/openapi/v3"), None, MAX_INDEX).await.ok()?;
    if found.status == StatusCode::NOT_FOUND {
        return Some(None);
    }
    let url = find_url(&found.body.ok()?, path).ok()?;
    // A server names its own documents only.
    let is_own = |url: &String| url.split('?').next() == Some(format!("/openapi/v3/{path}").as_str());
    Some(url.filter(is_own))
}

/// Returns the URL of a document in an index, without decoding the other entries.
fn find_url(index: &[u8], path: &str) -> Result<Option<String>, DecodeError> {
    let member = |text, wanted: &str| {
        let mut found: &[u8] = b"null";
        for_each_member(text, |name, text| {
            if name == wanted {
                found = text;
            }
        })
        .map(|()| found)
    };
    let url = member(member(member(index, "paths")?, path)?, "serverRelativeURL")?;
    Ok(serde_json::from_slice(url).ok())
}

/// Reads a document on a thread that may take long.
async fn read_part(body: Result<Bytes, String>, path: &str) -> Result<SwaggerPart, String> {
    let (body, path) = (body?, path.to_owned());
    let read = tokio::task::spawn_blocking(move || SwaggerPart::read(&body, &path)).await;
    read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_document_is_found_in_the_index() {
        let index = br#"{"x":[{"":0}],"paths":{"api":{"serverRelativeURL":"/a"},"apis/g/v1":{"x":1,"serverRelativeURL":"/b"}}}"#;
        for (path, want) in [("apis/g/v1", Some("/b")), ("api", Some("/a")), ("apis/g/v2", None)] {
            assert_eq!(find_url(index, path), Ok(want.map(str::to_owned)), "{path}");
        }
        assert!(find_url(b"{", "api").is_err());
        assert_eq!(find_url(br#"{"paths":[]}"#, "api"), Ok(None));
    }
}
