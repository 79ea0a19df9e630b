//! Strategies of the group admissionregistration.k8s.io, one file a kind.
//!
//! [`webhooks`] is shared by the two kinds of webhook configuration, [`policies`] by the policies,
//! and [`rules`], the requests they match, by all. Expressions are validated as text only: they are
//! not compiled.

pub mod mutating_admission_policy;
pub mod mutating_admission_policy_binding;
pub mod mutating_webhook_configuration;
mod policies;
mod rules;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
mod webhooks;

pub use mutating_admission_policy::MutatingAdmissionPolicyStrategy;
pub use mutating_admission_policy_binding::MutatingAdmissionPolicyBindingStrategy;
pub use mutating_webhook_configuration::MutatingWebhookConfigurationStrategy;
pub use validating_admission_policy::ValidatingAdmissionPolicyStrategy;
pub use validating_admission_policy_binding::ValidatingAdmissionPolicyBindingStrategy;
pub use validating_webhook_configuration::ValidatingWebhookConfigurationStrategy;

#[cfg(test)]
mod tests;
