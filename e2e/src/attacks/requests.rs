//! The material of attacks: repetition, and hostile requests.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::http::Endpoint;

/// An attack that runs until it is dropped.
pub type Attack = BoxFuture<'static, ()>;

/// The pause of an attacker after a failure.
const PAUSE: Duration = Duration::from_millis(20);

/// The namespace of the attackers' objects.
pub const NAMESPACE: &str = "attacked";

/// Returns the path of the ConfigMaps that are attacked.
pub fn config_maps() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

/// Runs `many` instances of a future concurrently, and starts each again when it ends.
pub async fn repeat_concurrently<F: Future<Output = Result<()>>>(many: usize, begin: impl Fn() -> F) {
    let again = async |rest: bool| {
        if rest {
            sleep(PAUSE).await;
        }
        // The outcome is ignored.
        let _ = begin().await;
    };
    let mut running: FuturesUnordered<_> = (0..many).map(|_| again(false)).collect();
    while running.next().await.is_some() {
        running.push(again(true));
    }
}

/// A hostile request: method (TABLE for a GET as a Table), path, Content-Type, body.
pub type HostileRequest = (&'static str, String, &'static str, Bytes);

/// Sends the requests repeatedly, over `connections` connections.
pub async fn requests(endpoint: Endpoint, connections: usize, make: fn() -> Vec<HostileRequest>) {
    let requests = make();
    repeat_concurrently(connections, || async {
        let mut connection = endpoint.connect().await?;
        for (method, path, content_type, body) in requests.iter().cycle() {
            let (method, accept) = match *method {
                "TABLE" => ("GET", Some(TABLE)),
                method => (method, None),
            };
            let headers = [("content-type", Some(*content_type)), ("accept", accept)];
            connection.call(method, path, &headers, Some(body.clone())).await?;
            sleep(PAUSE).await;
        }
        Ok(())
    })
    .await;
}

/// The media type of objects.
pub const JSON: &str = "application/json";
/// The media type of Tables.
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The media type of JSON patches.
pub const JSON_PATCH: &str = "application/json-patch+json";

/// Encodes an object as a body.
pub fn json_body(value: &Value) -> Bytes {
    value.to_string().into()
}

/// Builds a request that creates a ConfigMap.
pub fn config_map(name: &str, data: Value) -> HostileRequest {
    ("POST", config_maps(), JSON, json_body(&json!({"metadata": {"name": name}, "data": data})))
}
