//! The requests to a cluster, bounded in number, size and time.
#![expect(
    clippy::disallowed_methods,
    reason = "the deadlines protect the caller, and go by the machine's time"
)]

use std::pin::Pin;
use std::time::Duration;

use http::Request;
use http::header::ACCEPT;
use kube::Client;
use kube::error::DiscoveryError;
use serde_json::Value;
use tokio::time::timeout;

use crate::object::{has_rule, needs_content, rank};
use crate::problems::{Findings, Problems};
use crate::resource::{Resource, listable};

/// The time until it is known what the server serves.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(2);
/// The time for all objects after that.
const READ_DEADLINE: Duration = Duration::from_secs(3);
/// The time for all explanations.
const EXPLAIN_DEADLINE: Duration = Duration::from_secs(1);
/// The time of one request: a conversion webhook that does not respond leaves time for other kinds.
const REQUEST_DEADLINE: Duration = Duration::from_secs(1);
/// The objects of one response.
const LIMIT: usize = 500;
/// The responses that are read of a resource.
const MAX_PAGES: usize = 10;

/// The endpoint of a Coracle server that explains an object.
const WHY: &str = "/coracle/v1alpha1/why";
const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The cluster does not report anything.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its resources cannot be discovered.
    #[error(transparent)]
    Discovery(#[from] kube::Error),
    /// It does not respond.
    #[error("the server does not respond within {} s", DISCOVERY_DEADLINE.as_secs())]
    Timeout,
}

/// Reads the objects of a cluster that are not ready, and their events, within 6 seconds. What
/// cannot be read until then, or for other reasons, is named in the report.
///
/// - `namespace`: the namespace of the objects; None for all objects
///
/// # Errors
/// The server cannot be reached, or does not say what it serves.
pub fn collect(
    client: Client,
    namespace: Option<String>,
) -> impl Future<Output = Result<Problems, Error>> + Send {
    // In a box, so that no crate that waits for it compiles all of it.
    let collect: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
        let discovery = async {
            let core = client.list_core_api_versions_aggregated().await?;
            let groups = client.list_api_groups_aggregated().await?;
            let resources = listable(core.items.into_iter().chain(groups.items));
            match resources.iter().any(|resource| resource.group.is_empty()) {
                true => Ok(resources),
                // A server without aggregated discovery must not be taken for one without problems.
                false => Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup("v1".to_owned()))),
            }
        };
        let resources = timeout(DISCOVERY_DEADLINE, discovery).await.map_err(|_| Error::Timeout)??;
        let mut findings = Findings::default();
        let reader = Reader { client: &client, namespace: namespace.as_deref() };
        let read = timeout(READ_DEADLINE, reader.read(resources, &mut findings)).await;
        if read.is_err() {
            findings.add_note(&format!("what takes longer than {} s", READ_DEADLINE.as_secs()));
        }
        // A server of another kind has no explanations, and one that is late needs none.
        let _ = timeout(EXPLAIN_DEADLINE, explain(&client, &mut findings)).await;
        Ok(findings.report())
    });
    collect
}

/// The reader of the objects of a cluster, or of one of its namespaces.
struct Reader<'a> {
    client: &'a Client,
    namespace: Option<&'a str>,
}

impl Reader<'_> {
    /// Reads everything, in the order of importance: a deadline may end it.
    async fn read(&self, mut resources: Vec<Resource>, findings: &mut Findings) {
        resources.retain(|resource| resource.is_namespaced || self.namespace.is_none());
        let (events, resources): (Vec<_>, Vec<_>) =
            resources.into_iter().partition(|resource| resource.plural == "events");
        let (mut known, others): (Vec<_>, Vec<_>) = resources.into_iter().partition(has_rule);
        known.sort_by_key(rank);
        for resource in &known {
            self.read_objects(resource, findings).await;
        }
        for resource in events.iter().filter(|events| events.group.is_empty()) {
            let name = resource.qualified();
            // Of many events the warnings are not to be missed.
            for (selector, is_noted) in [("type%3DWarning", true), ("type%21%3DWarning", false)] {
                let query = format!("&fieldSelector={selector}");
                let read = self.read_pages(resource, &query, JSON, |event| findings.add_event(event)).await;
                if let Err(why) = read
                    && is_noted
                {
                    findings.add_note(&format!("{name}: {why}"));
                }
            }
        }
        for resource in &others {
            self.read_objects(resource, findings).await;
        }
    }

    /// Reads the objects of a resource.
    async fn read_objects(&self, resource: &Resource, findings: &mut Findings) {
        let accept = if needs_content(resource) { JSON } else { METADATA };
        let add = |object: &Value| findings.add_object(resource, object);
        if let Err(why) = self.read_pages(resource, "", accept, add).await {
            findings.add_note(&format!("{}: {why}", resource.qualified()));
        }
    }

    /// Reads the items of a list, page by page.
    ///
    /// # Errors
    /// The reason for which not all are read.
    async fn read_pages(
        &self,
        resource: &Resource,
        query: &str,
        accept: &str,
        mut add: impl FnMut(&Value),
    ) -> Result<(), String> {
        let mut next = String::new();
        for _ in 0..MAX_PAGES {
            let path = format!("{}?limit={LIMIT}{query}{next}", resource.path(self.namespace));
            let page = timeout(REQUEST_DEADLINE, get(self.client, &path, accept)).await;
            let page = page.map_err(|_| format!("no response within {} s", REQUEST_DEADLINE.as_secs()))?;
            let page = page.map_err(|error| match error {
                kube::Error::Api(status) => status.message.clone(),
                error => error.to_string(),
            })?;
            page["items"].as_array().into_iter().flatten().for_each(&mut add);
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => {
                    let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
                    next = format!("&continue={token}");
                }
                _ => return Ok(()),
            }
        }
        Err(format!("all but the first {}", LIMIT * MAX_PAGES))
    }
}

/// Asks the server to explain the first objects, if it is a Coracle.
async fn explain(client: &Client, findings: &mut Findings) {
    for query in findings.queries() {
        let Ok(explanation) = get(client, &format!("{WHY}?{query}"), JSON).await else { return };
        // The reason why an object is not deleted precedes the reason why it is not ready.
        if let Some(sentence) = explanation["answers"][0]["sentence"].as_str() {
            findings.add_explanation(sentence);
        }
    }
}

async fn get(client: &Client, path: &str, accept: &str) -> kube::Result<Value> {
    let request = Request::get(path).header(ACCEPT, accept).body(Vec::new());
    client.request(request.map_err(kube::Error::HttpError)?).await
}
