//! MutatingAdmissionPolicy.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_cel::Type;
use serde_json::Value;

use super::policies::{is_blank, validate_policy, validate_variables};
use super::rules::{REINVOCATION_POLICIES, validate_enum, validate_mutating_operations};
use super::validating_admission_policy::default_policy;
use super::webhooks::name_warnings;

/// Each type of patch with the member that holds it.
const PATCHES: [(&str, &str); 2] = [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];

/// The strategy of MutatingAdmissionPolicy.
pub struct MutatingAdmissionPolicyStrategy;

impl Strategy for MutatingAdmissionPolicyStrategy {
    fn default(&self, object: &mut Value) {
        default_policy(object);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate(object, None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate(object, Some(old), errors);
    }

    fn warnings(&self, object: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        name_warnings(object)
    }
}

fn validate(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let spec = object.get("spec");
    validate_policy(object, old, errors);
    validate_mutating_operations(&spec.get("matchConstraints"), errors);
    let env = PolicyEnv::new(spec.get("paramKind").exists()).with_patch_types();
    let env = validate_variables(&spec, env, errors);
    let mutations = spec.get("mutations");
    errors.push_if(mutations.is_empty(), || mutations.required("mutations must contain at least one item"));
    for mutation in mutations.items() {
        validate_mutation(&mutation, &env, errors);
    }
    let reinvocation = spec.get("reinvocationPolicy");
    if reinvocation.is_empty() {
        errors.push(reinvocation.required(""));
    } else {
        validate_enum(&reinvocation, &REINVOCATION_POLICIES, errors);
    }
}

fn validate_mutation(mutation: &Field<'_>, env: &PolicyEnv, errors: &mut Errors) {
    let kind = mutation.get("patchType");
    if kind.is_empty() {
        return errors.push(kind.required(""));
    }
    if !PATCH_TYPES.contains(&kind.str()) {
        return errors.push(kind.not_supported(&PATCH_TYPES));
    }
    let (of_type, others): (Vec<_>, Vec<_>) = PATCHES.iter().partition(|(name, _)| *name == kind.str());
    for (_, member) in of_type {
        let patch = mutation.get(member);
        let expression = patch.get("expression");
        if !patch.exists() {
            errors.push(patch.required(format!("must be specified when patchType is {}", kind.str())));
        } else if is_blank(&expression) {
            errors.push(expression.required(""));
        } else {
            let wanted = match kind.str() {
                "JSONPatch" => Type::list(Type::Object("JSONPatch".into())),
                _ => Type::Object("Object".into()),
            };
            env.check(&expression, &[wanted], errors);
        }
    }
    for (_, member) in others {
        let patch = mutation.get(member);
        errors.push_if(patch.exists(), || {
            let detail = format!("must not be specified when patchType is {}", kind.str());
            patch.invalid_value(format!("{{{member}}}"), detail)
        });
    }
}
