//! The shared parts of admission policies and their bindings: conditions, variables, parameters.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::content;
use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_apimachinery::validation::labels::{SelectorOptions, validate_label_selector};

use coracle_cel::Type;

use super::rules::{FAILURE_POLICIES, validate_enum, validate_match_resources};

const MAX_MATCH_CONDITIONS: usize = 64;

/// Reserved words of CEL, which cannot be names.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Validates the fields that both kinds of policy share: failure policy, parameters, match
/// constraints, conditions, variables.
pub fn validate_policy(policy: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let spec = policy.get("spec");
    let failure = spec.get("failurePolicy");
    errors.push_if(!failure.exists(), || failure.required(""));
    validate_enum(&failure, &FAILURE_POLICIES, errors);
    let params = spec.get("paramKind");
    if params.exists() {
        validate_param_kind(&params, errors);
    }
    let constraints = spec.get("matchConstraints");
    if constraints.exists() {
        validate_match_resources(&constraints, errors);
        let rules = constraints.get("resourceRules");
        errors.push_if(rules.is_empty(), || rules.required(""));
    } else {
        errors.push(constraints.required(""));
    }
    let unchanged = |old: &Field<'_>| {
        ["paramKind", "matchConditions"]
            .iter()
            .all(|name| old.get("spec").get(name).value() == spec.get(name).value())
    };
    if !old.is_some_and(unchanged) {
        validate_match_conditions(&spec.get("matchConditions"), &PolicyEnv::new(params.exists()), errors);
    }
}

/// Validates the variables of a policy, and declares them for the expressions after them. Without
/// any, or without its expression, nothing is declared.
pub fn validate_variables(spec: &Field<'_>, env: PolicyEnv, errors: &mut Errors) -> PolicyEnv {
    let variables = spec.get("variables");
    if variables.is_empty() {
        return env;
    }
    let mut env = env.with_variables();
    for variable in variables.items() {
        let (name, expression) = (variable.get("name"), variable.get("expression"));
        if is_blank(&name) {
            errors.push(name.required("name is not specified"));
        } else {
            errors.push_if(!is_identifier(name.str()), || name.invalid("must be a valid CEL identifier"));
        }
        if is_blank(&expression) {
            errors.push(expression.required("expression is not specified"));
            continue;
        }
        let ty =
            env.check(&expression, &[], errors).map_or(Type::Dyn, |program| program.output_type().clone());
        env.add_variable(name.str(), ty);
    }
    env
}

/// Returns whether a text is empty or white space only.
pub fn is_blank(field: &Field<'_>) -> bool {
    field.str().trim().is_empty()
}

fn is_identifier(name: &str) -> bool {
    let head = |c: char| c == '_' || c.is_ascii_alphabetic();
    name.starts_with(head) && name.chars().all(|c| head(c) || c.is_ascii_digit()) && !RESERVED.contains(&name)
}

/// Validates the match conditions of a policy or webhook.
pub fn validate_match_conditions(conditions: &Field<'_>, env: &PolicyEnv, errors: &mut Errors) {
    errors.push_if(conditions.len() > MAX_MATCH_CONDITIONS, || {
        conditions.too_many(conditions.len(), MAX_MATCH_CONDITIONS)
    });
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        let (name, expression) = (condition.get("name"), condition.get("expression"));
        errors.push_if(is_blank(&expression), || expression.required(""));
        env.check(&expression, &[Type::Bool], errors);
        if name.is_empty() {
            errors.push(name.required(""));
            continue;
        }
        errors.invalid_each(&name, content::qualified_name(name.str()));
        errors.push_if(!seen.insert(name.str()), || name.duplicate());
    }
}

fn validate_param_kind(params: &Field<'_>, errors: &mut Errors) {
    let (version, kind) = (params.get("apiVersion"), params.get("kind"));
    match version.str().split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(version.required("")),
        [only] => validate_version(&version, only, errors),
        [group, number] => {
            let found = content::dns1123_subdomain(group);
            errors.push_if(!group.is_empty() && !found.is_empty(), || {
                version.invalid_value(*group, found.join(","))
            });
            validate_version(&version, number, errors);
        }
        _ => errors.push(version.invalid(format!("unexpected GroupVersion string: {}", version.str()))),
    }
    let found = content::dns1035_label(&kind.str().to_lowercase());
    if kind.is_empty() {
        errors.push(kind.required(""));
    } else if !found.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", found.join(","));
        errors.push(kind.invalid(detail));
    }
}

fn validate_version(field: &Field<'_>, version: &str, errors: &mut Errors) {
    let found = content::dns1035_label(version);
    if version.is_empty() {
        errors.push(field.invalid("version must be specified"));
    } else if !found.is_empty() {
        errors.push(field.invalid_value(version, found.join(",")));
    }
}

/// Validates the fields that the bindings of both kinds of policy share.
pub fn validate_binding(spec: &Field<'_>, errors: &mut Errors) {
    let policy = spec.get("policyName");
    if policy.is_empty() {
        errors.push(policy.required(""));
    } else {
        errors.invalid_each(&policy, content::dns1123_subdomain(policy.str()));
    }
    let params = spec.get("paramRef");
    if params.exists() {
        validate_param_ref(&params, errors);
    }
    let resources = spec.get("matchResources");
    if resources.exists() {
        validate_match_resources(&resources, errors);
    }
}

fn validate_param_ref(params: &Field<'_>, errors: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (params.get("name"), params.get("selector"));
    let both = !name.is_empty() && selector.exists();
    if !name.is_empty() {
        errors.invalid_each(&name, content::path_segment(name.str()));
    }
    errors.push_if(both, || name.forbidden(EXCLUSIVE));
    validate_label_selector(&selector, SelectorOptions::default(), errors);
    errors.push_if(both, || selector.forbidden(EXCLUSIVE));
    errors.push_if(name.is_empty() && !selector.exists(), || {
        params.required("one of name or selector must be specified")
    });
    let action = params.get("parameterNotFoundAction");
    if action.is_empty() {
        errors.push(action.required(""));
    } else {
        validate_enum(&action, &["Deny", "Allow"], errors);
    }
}
