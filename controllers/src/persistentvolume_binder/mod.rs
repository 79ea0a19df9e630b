//! persistentvolume-binder-controller: binds claims to volumes, and provisions and reclaims
//! volumes.
//!
//! Two state machines, of claims and of volumes, and two loops for what in-tree plugins do:
//! - [`claims`]: an unbound claim is bound to a volume, gets one provisioned, or waits; a bound one
//!   is kept so, or is lost;
//! - [`volumes`]: a volume is available, bound or released, and marked with who has to delete what
//!   is behind it (KEP-2644);
//! - [`in_tree`]: `kubernetes.io/host-path` provisions, deletes and recycles. What other
//!   provisioners do is left to them.
//!
//! [`coracle_volumes::search`] finds a volume for a claim, [`coracle_volumes::bind`] decides how
//! both change. Everything is reconciled again every 15 seconds, for not all that matters makes an
//! event.

mod claims;
mod in_tree;
mod metrics;
mod volumes;
mod writer;

use std::time::Duration;

use coracle_controller_runtime::{Part, run_all, start_part};
use coracle_volumes::provisioner::provision;

use crate::settings::{Context, Settings};

pub const NAME: &str = "persistentvolume-binder-controller";

/// The component of the events.
const COMPONENT: &str = "persistentvolume-controller";

/// kube-controller-manager's `--pvclaimbinder-sync-period`.
const RESYNC: Duration = Duration::from_secs(15);

/// Runs until the future is dropped.
///
/// # Panics
/// If one of the loops does.
pub async fn run(context: Context, ready: impl FnOnce() + Send + 'static) {
    metrics::show_inventory(&context);
    let parts: [Part<Settings>; 4] = [
        start_part::<_, claims::ClaimController>,
        start_part::<_, volumes::VolumeController>,
        start_part::<_, provision::ProvisionController<in_tree::HostPath>>,
        start_part::<_, in_tree::reclaim::ReclaimController>,
    ];
    run_all(context, &parts, ready).await;
}
