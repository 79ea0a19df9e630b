//! The client of a kubeconfig.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A client of the server that a kubeconfig names, and the server's URL.
///
/// - `file`: the kubeconfig; None for kubectl's;
/// - `read_timeout`: for how long the server may send nothing.
///
/// # Errors
/// There is no such file, or it does not describe a client.
pub async fn client(file: Option<&Path>, read_timeout: Duration) -> Result<(Client, String)> {
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
