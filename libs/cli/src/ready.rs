//! `coracle ready`: whether a running control plane is ready.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;

use crate::kubeconfig_client::client;
use crate::process::unreachable;

/// The timeout of the server's response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests `/readyz`; returns the URL of a server that is ready.
///
/// # Errors
/// There is no kubeconfig yet, the server cannot be reached, or it is not ready: the names of the
/// failed checks.
pub async fn check(kubeconfig: Option<&Path>) -> Result<String> {
    let (client, url) = client(kubeconfig, TIMEOUT).await?;
    let request = async {
        let response = client.send(Request::get("/readyz").body(Body::empty())?).await;
        let (head, body) = response.map_err(|error| unreachable(&url, error))?.into_parts();
        let text = body.collect().await.context("the response is cut short")?.to_bytes();
        anyhow::Ok((head.status, String::from_utf8_lossy(&text).into_owned()))
    };
    let response = tokio::time::timeout(TIMEOUT, request).await;
    let (status, text) = response.with_context(|| format!("{url} does not answer"))??;
    if !status.is_success() {
        let failed: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
        bail!("{url} is not ready: {} {}", status.as_u16(), failed.join(", "));
    }
    Ok(url)
}
