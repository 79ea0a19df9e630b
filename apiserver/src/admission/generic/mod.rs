//! The shared parts of admission webhooks and admission policies: matching of requests, conversion
//! of objects to the matched version, and the configurations, parsed once for each change.
//!
//! | file | owns |
//! | --- | --- |
//! | `rules.rs` | rules: groups, versions, resources, operations, scope, names |
//! | `matching.rs` | rules with their match policy and selectors, against a request |
//! | `versioned.rs` | the objects of a request in the version of a match, and back |
//! | `options.rs` | the options of a request |
//! | `source.rs` | the parsed configurations, current as of each request |
//! | `reinvocation.rs` | the plugins to call again for an object that later plugins changed |
//!
//! Start at [`MatchCriteria::matches`].
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/generic`, `predicates`,
//! `plugin/policy/matching`.

mod matching;
mod options;
mod reinvocation;
mod rules;
mod source;
mod versioned;

pub use matching::{Invocation, MatchCriteria, MatchPolicy};
pub use options::operation_options;
pub use reinvocation::{PluginReinvocation, ReinvocationContext};
pub use rules::Rule;
pub(crate) use rules::operation_name;
pub use source::Source;
pub use versioned::VersionedObjects;

use super::AdmissionAttributes;

/// The kinds that no policy is called for, nor a webhook: a wrong one could not be corrected
/// otherwise.
const POLICIES: [&str; 4] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// The kinds that no webhook is called for either.
const WEBHOOKS: [&str; 2] = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];

/// Returns `true` if the request is for a policy or a binding of one. Policies cannot match such a
/// request.
///
/// Source: `isExcludedFromAPIHooks`.
pub fn is_policy(attributes: &AdmissionAttributes<'_>) -> bool {
    configures(attributes, &POLICIES)
}

/// Returns `true` if the request is for a configuration of webhooks or policies. Webhooks cannot
/// match such a request.
///
/// Source: `rules.IsExemptAdmissionConfigurationResource`.
pub fn is_exempt(attributes: &AdmissionAttributes<'_>) -> bool {
    is_policy(attributes) || configures(attributes, &WEBHOOKS)
}

fn configures(attributes: &AdmissionAttributes<'_>, kinds: &[&str]) -> bool {
    attributes.resource.group == "admissionregistration.k8s.io"
        && kinds.contains(&attributes.resource.resource.as_str())
}
