//! RoleBinding, and the rules that it shares with ClusterRoleBinding: the role reference and the
//! subjects.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::{content, member, printed};
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The strategy of RoleBinding.
pub struct RoleBindingStrategy;

impl Strategy for RoleBindingStrategy {
    fn default(&self, binding: &mut Value) {
        default_binding(binding);
    }

    fn validate(&self, binding: &Field<'_>, errors: &mut Errors) {
        validate_binding(binding, true, errors);
    }

    fn validate_update(&self, binding: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(binding, errors);
        validate_same_role(binding, old, errors);
    }
}

/// Defaults the role reference and the subjects of a binding.
pub fn default_binding(binding: &mut Value) {
    let default_group = |reference: &mut Value| {
        if reference["apiGroup"].as_str().unwrap_or("").is_empty() {
            reference["apiGroup"] = json!(GROUP);
        }
    };
    default_group(&mut binding["roleRef"]);
    for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            default_group(subject);
        }
    }
}

/// Validates a binding.
pub fn validate_binding(binding: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    let role = binding.get("roleRef");
    let (group, kind) = (role.get("apiGroup"), role.get("kind"));
    validate_group(&group, GROUP, errors);
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    errors.push_if(!kinds.contains(&kind.str()), || kind.not_supported(kinds));
    member::required_and(&role.get("name"), content::path_segment, errors);
    for subject in binding.get("subjects").items() {
        validate_subject(&subject, namespaced, errors);
    }
}

fn validate_group(group: &Field<'_>, expected: &str, errors: &mut Errors) {
    errors.push_if(group.str() != expected, || group.not_supported(&[expected]));
}

fn validate_subject(subject: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    let (kind, name, group) = (subject.get("kind"), subject.get("name"), subject.get("apiGroup"));
    member::required(&name, errors);
    match kind.str() {
        "ServiceAccount" => {
            member::if_any(&name, content::dns1123_subdomain, errors);
            validate_group(&group, "", errors);
            if !namespaced {
                member::required(&subject.get("namespace"), errors);
            }
        }
        "User" | "Group" => validate_group(&group, GROUP, errors),
        _ => errors.push(kind.not_supported(&["ServiceAccount", "User", "Group"])),
    }
}

/// Requires an unchanged role. The role of a binding is immutable; another role needs a new
/// binding.
pub fn validate_same_role(binding: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (role, was) = (binding.get("roleRef"), old.get("roleRef"));
    let changed = ["apiGroup", "kind", "name"].iter().any(|m| role.get(m).str() != was.get(m).str());
    errors.push_if(changed, || printed::invalid(&role, "rbac.RoleRef", "cannot change roleRef"));
}
