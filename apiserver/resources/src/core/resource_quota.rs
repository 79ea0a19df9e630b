//! ResourceQuota.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::immutable::IMMUTABLE;
use coracle_apimachinery::validation::{printed, resource_list};
use serde_json::Value;

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const EXCLUSIVE_SCOPES: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

/// The strategy of ResourceQuota.
pub struct ResourceQuotaStrategy;

impl Strategy for ResourceQuotaStrategy {
    fn default(&self, quota: &mut Value) {
        for list in ["/spec/hard", "/status/hard", "/status/used"] {
            resource_list::round_up(quota.pointer_mut(list));
        }
    }

    fn validate(&self, quota: &Field<'_>, errors: &mut Errors) {
        let spec = quota.get("spec");
        validate_amounts(&spec.get("hard"), errors);
        validate_scopes(&spec, errors);
        validate_scope_selector(&spec, errors);
    }

    fn validate_update(&self, quota: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(quota, errors);
        let scopes = quota.walk("spec.scopes");
        errors
            .push_if(names(&scopes) != names(&old.walk("spec.scopes")), || scopes.invalid_or_null(IMMUTABLE));
    }

    fn validate_status_update(&self, quota: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        validate_amounts(&quota.walk("status.hard"), errors);
        validate_amounts(&quota.walk("status.used"), errors);
    }

    fn warnings(&self, quota: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        if old.is_some() { Vec::new() } else { warnings(&quota.walk("spec.hard")) }
    }
}

/// Returns the names of the scopes as a sorted set.
fn names<'a>(scopes: &Field<'a>) -> Vec<&'a str> {
    let mut names: Vec<&str> = scopes.items().map(|scope| scope.str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn validate_amounts(list: &Field<'_>, errors: &mut Errors) {
    for (name, amount) in list.entries() {
        resource_list::validate_quota_name(name, &amount, errors);
        resource_list::validate_amount(name, &amount, errors);
    }
}

/// Returns `true` if a scope applies to a resource.
fn applies(scope: &str, resource: &str) -> bool {
    let pods = resource == "pods";
    let part =
        resource.strip_prefix("requests.").or_else(|| resource.strip_prefix("limits.")).unwrap_or(resource);
    match scope {
        "BestEffort" => pods,
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => pods || ["cpu", "memory"].contains(&part),
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&resource),
        _ => true,
    }
}

/// Iterates over the limited resources to which a scope does not apply.
fn foreign<'a>(spec: &Field<'a>, scope: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
    let limited = spec.get("hard").entries().map(|(name, _)| name);
    limited.filter(move |name| resource_list::is_standard_in_quota(name) && !applies(scope, name))
}

fn validate_scopes(spec: &Field<'_>, errors: &mut Errors) {
    let scopes = spec.get("scopes");
    for scope in names_in_order(&scopes) {
        errors.push_if(!SCOPES.contains(&scope), || scopes.invalid("unsupported scope"));
        for _ in foreign(spec, scope) {
            errors.push(scopes.invalid("unsupported scope applied to resource"));
        }
    }
    validate_exclusion(&scopes, &names(&scopes), errors);
}

fn names_in_order<'a>(scopes: &Field<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    scopes.items().map(|scope| scope.str())
}

fn validate_exclusion(scopes: &Field<'_>, present: &[&str], errors: &mut Errors) {
    for pair in EXCLUSIVE_SCOPES {
        errors.push_if(pair.iter().all(|scope| present.contains(scope)), || {
            scopes.invalid_or_null("conflicting scopes")
        });
    }
}

fn validate_scope_selector(spec: &Field<'_>, errors: &mut Errors) {
    const ONLY_EXISTS: [&str; 5] =
        ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];
    let selector = spec.get("scopeSelector");
    let expressions = selector.get("matchExpressions");
    let at = |field: &Field<'_>, name: &str| field.path().child(name);
    for expression in expressions.items() {
        let member = |name: &'static str| expression.get(name).with_path(at(&expressions, name));
        let (scope, operator, values) = (member("scopeName"), member("operator"), member("values"));
        errors.push_if(!SCOPES.contains(&scope.str()), || scope.invalid("unsupported scope"));
        for _ in foreign(spec, scope.str()) {
            let whole = selector.with_path(expressions.path().clone());
            errors.push(printed::invalid(
                &whole,
                "core.ScopeSelector",
                "unsupported scope applied to resource",
            ));
        }
        errors.push_if(ONLY_EXISTS.contains(&scope.str()) && operator.str() != "Exists", || {
            operator.invalid("must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
        });
        match operator.str() {
            "In" | "NotIn" => errors.push_if(values.is_empty(), || {
                values.required(
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                )
            }),
            "Exists" | "DoesNotExist" => errors.push_if(!values.is_empty(), || {
                values.invalid(
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                )
            }),
            _ => errors.push(operator.invalid("not a valid selector operator")),
        }
    }
    let present: Vec<&str> =
        expressions.items().map(|expression| expression.get("scopeName").str()).collect();
    let scopes = spec.get("scopes").with_path(at(&selector, "matchExpressions"));
    validate_exclusion(&scopes, &present, errors);
}

/// Warns about resources with requests that may exceed their limits.
fn warnings(hard: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (requests, limits) = (format!("requests.{resource}"), format!("limits.{resource}"));
        let name = match hard.get(&requests).exists() {
            true => &requests,
            false if ["cpu", "memory"].contains(&resource) => resource,
            false => continue,
        };
        let (request, limit) = (hard.get(name), hard.get(&limits));
        if request.exists()
            && limit.exists()
            && resource_list::amount(&request) > resource_list::amount(&limit)
        {
            warnings.push(format!(
                "ResourceQuota {name} ({}) should be less than {limits} ({})",
                request.str(),
                limit.str()
            ));
        }
    }
    warnings
}
