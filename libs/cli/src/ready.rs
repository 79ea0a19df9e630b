//! `coracle ready`: whether a control plane that runs is ready. The server that a kubeconfig names, as a client.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::process::unreachable;

/// How long the server may take to respond.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests `/readyz`; returns the URL of a server that is ready.
///
/// # Errors
/// There is no kubeconfig yet, the server cannot be reached, or it is not ready: the names of the failed checks.
pub async fn check(kubeconfig: Option<&Path>) -> Result<String> {
    let (client, url) = client_of(kubeconfig, TIMEOUT).await?;
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

/// A client of the server that a kubeconfig names, and the server's URL.
///
/// - `file`: None for that of kubectl;
/// - `read_timeout`: the time for which the server may send nothing.
///
/// # Errors
/// The kubeconfig cannot be read, or names no server.
pub async fn client_of(file: Option<&Path>, read_timeout: Duration) -> Result<(Client, String)> {
    let name = file.map_or_else(|| "kubeconfig".to_owned(), |file| file.display().to_string());
    let kubeconfig = match file {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let kubeconfig = kubeconfig.with_context(|| name.clone())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(|| name.clone())?;
    config.read_timeout = Some(read_timeout);
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Ok((Client::try_from(config).context(name)?, url))
}
