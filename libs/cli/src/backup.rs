//! `coracle backup`: the download of a backup from a running control plane.

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Seek, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use coracle_apiserver::serve::BACKUP_PATH;
use coracle_storage::backup;
use coracle_storage::backup::{BackupError, Summary};
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use tempfile::NamedTempFile;

use crate::kubeconfig_client::client;
use crate::process::unreachable;
use crate::run::Signals;

/// Timeout for the start of the response, and then for each piece of it.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of an error's text that are reported.
const MAX_ERROR: usize = 2 << 10;

/// Saves a backup in a file, which is replaced if it is a backup already. Until it is complete and
/// checked it has another name, and only its owner may read it.
///
/// # Errors
/// The control plane cannot be reached or refuses, the file cannot be written, or a signal came.
/// The file is then as it was.
pub async fn download(kubeconfig: Option<&Path>, to: &Path) -> Result<Summary> {
    let mut signals = Signals::new()?;
    tokio::select! {
        saved = save(kubeconfig, to) => saved,
        _ = signals.next() => bail!("interrupted"),
    }
}

async fn save(kubeconfig: Option<&Path>, to: &Path) -> Result<Summary> {
    let name = to.display().to_string();
    let directory = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    check_target(to).with_context(|| name.clone())?;
    // Made with mode 0600, and removed unless it is renamed.
    let mut unfinished =
        NamedTempFile::with_prefix_in(".coracle-backup-", directory).with_context(|| name.clone())?;
    let (client, url) = client(kubeconfig, STALL_TIMEOUT).await?;
    receive(&client, &url, &mut unfinished).await?;
    unfinished.as_file().sync_all().with_context(|| name.clone())?;
    unfinished.rewind().with_context(|| name.clone())?;
    let summary = backup::verify(BufReader::new(unfinished.as_file())).context("the server's response")?;
    unfinished.persist(to).with_context(|| name.clone())?;
    File::open(directory).and_then(|directory| directory.sync_all()).with_context(|| name)?;
    Ok(summary)
}

/// Refuses to replace anything except another backup, such as a device, a link, or a file of another
/// program.
fn check_target(to: &Path) -> Result<()> {
    match fs::symlink_metadata(to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(metadata) => {
            ensure!(metadata.is_file(), "it exists and is not a regular file");
            ensure!(metadata.len() == 0 || is_backup(to)?, "it exists and is not a backup");
            Ok(())
        }
    }
}

/// Returns `true` if a file begins as a backup does, whether or not it is complete.
fn is_backup(path: &Path) -> std::io::Result<bool> {
    let reader = backup::Reader::new(BufReader::new(File::open(path)?));
    Ok(!matches!(reader, Err(BackupError::Foreign)))
}

/// Writes the server's response into a file.
async fn receive(client: &Client, url: &str, to: &mut NamedTempFile) -> Result<()> {
    let request = Request::get(BACKUP_PATH).body(Body::empty())?;
    let response = tokio::time::timeout(STALL_TIMEOUT, client.send(request)).await;
    let response = response.with_context(|| format!("{url} does not answer"))?;
    let (head, mut body) = response.map_err(|error| unreachable(url, error))?.into_parts();
    let mut refusal = Vec::new();
    while let Some(frame) =
        tokio::time::timeout(STALL_TIMEOUT, body.frame()).await.context("the server does not continue")?
    {
        let Ok(data) = frame.context("the backup is cut short")?.into_data() else { continue };
        if head.status.is_success() {
            to.write_all(&data)?;
        } else if refusal.len() < MAX_ERROR {
            refusal.extend_from_slice(&data);
        }
    }
    if !head.status.is_success() {
        let text = String::from_utf8_lossy(&refusal);
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or(text.trim()).to_owned();
        bail!("the server refuses the backup: {} {message}", head.status.as_u16());
    }
    Ok(())
}
