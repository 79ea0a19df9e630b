//! Loops that reach desired state, written on the Kubernetes API only: they would run unchanged against any cluster.
//!
//! One folder a controller, named as kube-controller-manager names it. Start at [`run`].

pub mod serviceaccount;

use kube::Client;

/// Runs the selected controllers until the future is dropped. `is_selected` is asked with kube-controller-manager's names.
pub async fn run(client: Client, is_selected: impl Fn(&str) -> bool) {
    if is_selected(serviceaccount::NAME) {
        serviceaccount::run(client).await;
    } else {
        // Nothing to do, for ever.
        std::future::pending().await
    }
}
