//! The commands that use the endpoints for tests of a running control plane.

pub mod clock;
pub mod diff;
pub mod fork;
pub mod log;
pub mod settle;
pub mod ui;
pub mod why;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use coracle_testing_api::PREFIX;
use http::{Method, Request, header};
use kube::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kubeconfig_client::client;
use crate::process::unreachable;

/// The endpoints for tests of a control plane.
struct Endpoints {
    client: Client,
    url: String,
}

impl Endpoints {
    /// Returns the endpoints of the control plane that a kubeconfig names; None for kubectl's.
    ///
    /// - `read_timeout`: the time for which the server may send nothing
    ///
    /// # Errors
    /// The kubeconfig does not describe a client.
    async fn new(kubeconfig: Option<&Path>, read_timeout: Duration) -> Result<Endpoints> {
        let (client, url) = client(kubeconfig, read_timeout).await?;
        Ok(Endpoints { client, url })
    }

    /// Reads from an endpoint.
    ///
    /// # Errors
    /// The control plane cannot be reached, refuses or has no such endpoint.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.send(Request::get(format!("{PREFIX}{path}")).body(Vec::new())?).await
    }

    /// Posts to an endpoint.
    ///
    /// # Errors
    /// The control plane cannot be reached, refuses or has no such endpoint.
    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        let request = Request::builder().method(Method::POST).uri(format!("{PREFIX}{path}"));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(serde_json::to_vec(body)?)?).await
    }

    /// Deletes what is at an endpoint.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get).
    async fn delete(&self, path: &str) -> Result<()> {
        self.send::<Value>(Request::delete(format!("{PREFIX}{path}")).body(Vec::new())?).await.map(drop)
    }

    async fn send<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> Result<T> {
        match self.client.request::<T>(request).await {
            Ok(answer) => Ok(answer),
            // The 404 of an existing endpoint names the missing object.
            Err(kube::Error::Api(status)) if status.code == 404 && !is_named(&status.message) => bail!(
                "{} has no such endpoint for tests: it is no Coracle, another version, or was started with --testing-api=false",
                self.url
            ),
            Err(kube::Error::Api(status)) => bail!("{}", status.message),
            Err(error) => Err(unreachable(&self.url, error)),
        }
    }
}

/// Returns `true` if the message of a 404 comes from an endpoint, and not from a server without the
/// endpoint.
fn is_named(message: &str) -> bool {
    ["fork ", "nothing is known of "].iter().any(|beginning| message.starts_with(beginning))
}
