//! `coracle problems`: the objects that are not ready, and their events.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use coracle_problems::{Error, collect};

use crate::cli::ProblemsFlags;
use crate::kubeconfig_client::client;
use crate::output;
use crate::process::unreachable;

/// Longer than `collect` waits.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints the problems of the control plane that a kubeconfig names. As a text, that there are none
/// is printed on standard error.
///
/// - `kubeconfig`: None for kubectl's.
///
/// # Errors
/// The control plane cannot be reached or refuses.
pub async fn print(kubeconfig: Option<&Path>, flags: &ProblemsFlags) -> Result<()> {
    let (client, url) = client(kubeconfig, READ_TIMEOUT).await?;
    let problems = collect(client, flags.namespace.clone()).await.map_err(|error| match error {
        Error::Discovery(error) => unreachable(&url, error),
        Error::Timeout => anyhow::Error::from(error).context(url.clone()),
    })?;
    let text = flags.output.format(&problems, ToString::to_string)?;
    if text.is_empty() {
        eprintln!("No problems found.");
    }
    output::write(&text);
    Ok(())
}
