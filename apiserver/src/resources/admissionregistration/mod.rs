//! Strategies of the group admissionregistration.k8s.io, one file a kind.
//!
//! What the two kinds of webhook configuration share is in [`webhooks`], what the policies share in [`policies`], and what
//! all say about the requests they are for in [`rules`]. Expressions are looked at as text only: whether they compile is
//! for whoever evaluates them.

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
