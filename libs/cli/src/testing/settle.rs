//! `coracle settle`: waits until nothing is left to happen.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use coracle_testing_api::{SettleRequest, Settled};

use super::Endpoints;

/// The time that the server has to respond, beside that which it waits.
const READ_TIMEOUT: Duration = Duration::from_secs(3600 + 10);

/// Waits until a control plane has settled, and prints how long that took.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// The control plane does not settle in time, cannot be reached or refuses, or standard output
/// cannot be written.
pub async fn settle(kubeconfig: Option<&Path>, request: &SettleRequest) -> Result<()> {
    let settled: Settled = Endpoints::new(kubeconfig, READ_TIMEOUT).await?.post("settle", request).await?;
    let Settled { took, resource_version, .. } = settled;
    writeln!(io::stdout(), "settled after {took} at resourceVersion {resource_version}")
        .context("standard output")
}
