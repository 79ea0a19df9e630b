//! Admission webhooks: MutatingAdmissionWebhook and ValidatingAdmissionWebhook.
//!
//! | file | owns |
//! | --- | --- |
//! | `configuration.rs` | the webhooks of a stored configuration |
//! | `review.rs` | the AdmissionReview of the request |
//! | `response.rs` | the AdmissionReview of the response: its checks, and the error of a denial |
//! | `call.rs` | the call of one webhook, and the handling of its failure |
//! | `mutating.rs`, `validating.rs` | the plugins |
//!
//! Mutating webhooks are called one after the other, validating ones concurrently. A call that
//! fails for any reason is handled by the failure policy within the webhook's timeout; the request
//! holds no lock in the meantime.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook`.

mod call;
mod configuration;
mod mutating;
mod response;
mod review;
mod validating;

use std::sync::Arc;

pub use mutating::MutatingAdmissionWebhook;
pub use validating::ValidatingAdmissionWebhook;

use super::AdmissionMetrics;
use crate::resource_info::SharedResourceTable;
use crate::webhook::ClientManager;

/// The dependencies of both plugins.
#[derive(Clone)]
pub struct WebhookContext {
    /// The resources of now, for equivalent versions.
    pub resources: Arc<SharedResourceTable>,
    /// The clients of webhooks.
    pub clients: Arc<ClientManager>,
    /// The metrics of webhooks and policies.
    pub metrics: Arc<AdmissionMetrics>,
}
