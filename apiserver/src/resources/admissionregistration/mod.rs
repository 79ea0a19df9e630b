//! Strategies of the group admissionregistration.k8s.io, one file a kind.
//!
//! [`webhooks`] is shared by the two kinds of webhook configuration, [`policies`] by the policies, and [`rules`], the
//! requests they match, by all. Expressions are validated as text only: they are not compiled.

pub mod mutating_admission_policy;
pub mod mutating_admission_policy_binding;
pub mod mutating_webhook_configuration;
mod policies;
mod rules;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
mod webhooks;

#[cfg(test)]
mod tests;
