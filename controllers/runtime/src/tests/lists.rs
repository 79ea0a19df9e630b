//! An API of empty lists, each of which ends when the test releases it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use coracle_clock::{Clock, MockClock};
use http::{Request, Response, Uri};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use crate::Context;
use crate::metrics::Metrics;

/// The lists that were requested and those that end, by the plural of their resources.
#[derive(Clone, Default)]
pub struct Lists {
    requested: Arc<Mutex<BTreeMap<String, usize>>>,
    released: watch::Sender<Vec<&'static str>>,
}

impl Lists {
    /// Creates a context with this API.
    pub fn context<S>(&self, settings: S) -> (Context<S>, MockClock) {
        let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        let lists = self.clone();
        let api = tower::service_fn(move |request: Request<Body>| {
            let (lists, uri) = (lists.clone(), request.uri().clone());
            async move { Ok::<_, Infallible>(lists.respond(&uri).await) }
        });
        let metrics = Metrics::new(prometheus::Registry::new());
        (Context::new(Client::new(api, "default"), clock, metrics, settings), mock)
    }

    /// Lets the lists of a resource end, so that caches of it are synced.
    pub fn release(&self, plural: &'static str) {
        self.released.send_modify(|released| released.push(plural));
    }

    /// Returns the number of lists of a resource that were requested.
    pub fn requested(&self, plural: &str) -> usize {
        self.requested.lock().get(plural).copied().unwrap_or_default()
    }

    async fn respond(&self, uri: &Uri) -> Response<Body> {
        if !uri.query().unwrap_or_default().contains("sendInitialEvents=true") {
            // A watch without events.
            std::future::pending::<()>().await;
        }
        let plural = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        *self.requested.lock().entry(plural.clone()).or_default() += 1;
        // The sender is a field of `self`, so that it is not dropped.
        let _ =
            self.released.subscribe().wait_for(|released| released.iter().any(|name| *name == plural)).await;
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let metadata = json!({"resourceVersion": "1", "annotations": annotations});
        let end =
            json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Any", "metadata": metadata}});
        Response::new(Body::from(format!("{end}\n").into_bytes()))
    }
}
