//! `coracle settle`: waits until nothing is left to happen.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use coracle_testing_api::{SettleRequest, Settled};

use super::Endpoints;

use crate::output::say;

/// The time that the server has to respond, beside that which it waits.
const READ_TIMEOUT: Duration = Duration::from_secs(3600 + 10);

/// Waits until a control plane has settled, and prints how long that took.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// The control plane does not settle in time, cannot be reached or refuses.
pub async fn settle(kubeconfig: Option<&Path>, request: &SettleRequest) -> Result<()> {
    let settled: Settled = Endpoints::new(kubeconfig, READ_TIMEOUT).await?.post("settle", request).await?;
    let Settled { took, resource_version, .. } = settled;
    say!("settled after {took} at resourceVersion {resource_version}");
    Ok(())
}
