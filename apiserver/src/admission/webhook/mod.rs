//! Admission webhooks: MutatingAdmissionWebhook and ValidatingAdmissionWebhook.
//!
//! | file | owns |
//! | --- | --- |
//! | `configuration.rs` | the webhooks of a stored configuration |
//! | `review.rs` | the AdmissionReview that is sent |
//! | `response.rs` | the AdmissionReview that comes back: its checks, and what a denial is reported as |
//! | `call.rs` | the call of one webhook, and what its failure means |
//! | `mutating.rs`, `validating.rs` | the plugins |
//!
//! Webhooks that mutate are called one after the other, those that validate at once. A call that fails, by whatever an operator's
//! server does, ends in the failure policy within the webhook's timeout; the request holds no lock meanwhile.
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

/// What both plugins work with.
#[derive(Clone)]
pub struct WebhookContext {
    /// The resources of now, for equivalent versions.
    pub resources: Arc<SharedResourceTable>,
    /// The clients of webhooks.
    pub clients: Arc<ClientManager>,
    /// What is counted of webhooks and policies.
    pub metrics: Arc<AdmissionMetrics>,
}
