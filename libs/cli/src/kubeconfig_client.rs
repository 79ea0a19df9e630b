//! The client of a kubeconfig.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// Returns a client of the server that a kubeconfig names, and the server's URL.
///
/// - `file`: the kubeconfig; None for kubectl's
/// - `read_timeout`: the time for which the server may send nothing
///
/// # Errors
/// The file does not exist, or it does not describe a client.
pub async fn client(file: Option<&Path>, read_timeout: Duration) -> Result<(Client, String)> {
    let (name, kubeconfig) = (name_of(file), read(file)?);
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| plain(error, &name))?;
    config.read_timeout = Some(read_timeout);
    // A refusal of the server is reported at once.
    config.default_retry = false;
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Ok((Client::try_from(config).context(name)?, url))
}

/// Reads a kubeconfig; None for kubectl's. Paths in it are absolute.
///
/// # Errors
/// The file does not exist, or is not a kubeconfig.
pub fn read(file: Option<&Path>) -> Result<Kubeconfig> {
    let kubeconfig = match file {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    kubeconfig.map_err(|error| plain(error, &name_of(file)))
}

fn name_of(file: Option<&Path>) -> String {
    file.map_or_else(|| "kubeconfig".to_owned(), |file| file.display().to_string())
}

/// Converts an error to one with a readable message, with the next step if there is one.
fn plain(error: KubeconfigError, name: &str) -> Error {
    const NEXT: &str = "start a control plane with coracle up, or name a file with --kubeconfig";
    match error {
        KubeconfigError::ReadConfig(error, path) => match error.kind() {
            ErrorKind::NotFound => anyhow!("{} does not exist: {NEXT}", path.display()),
            _ => anyhow!("{}: {error}", path.display()),
        },
        KubeconfigError::CurrentContextNotSet => anyhow!("{name}: no context is current: {NEXT}"),
        // As after `coracle down`.
        KubeconfigError::LoadContext(context) if context.is_empty() => {
            anyhow!("{name}: no context is current: {NEXT}")
        }
        KubeconfigError::LoadContext(context) => {
            anyhow!("{name}: the context {context:?} does not exist: {NEXT}")
        }
        KubeconfigError::LoadClusterOfContext(context) => {
            anyhow!("{name}: the cluster of the context {context:?} does not exist: {NEXT}")
        }
        error => anyhow!("{name}: {error}"),
    }
}
