//! The spec of a Job, in a Job and in a CronJob's template.
//!
//! Start at [`validate`]; the rules of Jobs alone (selector, immutable fields) are in
//! [`super::job`].

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::strategy::defaulting::{Object, fill, member};
use coracle_apimachinery::validation::{content, numbers, printed};
use serde_json::{Value, json};

use super::indexes;
use crate::apps::workload;
use crate::pod_spec;

/// The limits of an indexed Job, and those of one with more completions than [`MANY_COMPLETIONS`]
/// and a backoff limit per index.
const MAX_PARALLELISM: i64 = 100_000;
const MAX_FAILED_INDEXES: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const MAX_PARALLELISM_OF_MANY: i64 = 10_000;
const MAX_FAILED_INDEXES_OF_MANY: i64 = 10_000;

const MAX_MANAGED_BY: usize = 63;
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_POD_CONDITIONS: usize = 20;
const MAX_SUCCEEDED_INDEXES: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Returns `true` if the completion mode is `Indexed`.
pub fn is_indexed(spec: &Field<'_>) -> bool {
    spec.get("completionMode").str() == "Indexed"
}

/// Sets the defaults that a CronJob's template gets too.
pub fn default_parts(spec: &mut Object) {
    pod_spec::default_pod_template(member(spec, "template"));
    let rules = spec.get_mut("podFailurePolicy").and_then(|policy| policy.get_mut("rules"));
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        let patterns = rule.get_mut("onPodConditions").and_then(Value::as_array_mut);
        for pattern in patterns.into_iter().flatten().filter_map(Value::as_object_mut) {
            if pattern.get("status").is_none_or(|status| status == "") {
                pattern.insert("status".into(), "True".into());
            }
        }
    }
}

/// Sets the defaults of a Job's spec.
pub fn default(spec: &mut Object) {
    default_parts(spec);
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".into(), json!(1));
    }
    let backoff = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    let replacement = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    fill(
        spec,
        [
            ("parallelism", json!(1)),
            ("backoffLimit", json!(backoff)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("podReplacementPolicy", json!(replacement)),
            ("manualSelector", json!(false)),
        ],
    );
}

/// Validates the spec; `old_template` is the former pod template.
pub fn validate(spec: &Field<'_>, old_template: Option<&Field<'_>>, errors: &mut Errors) {
    validate_numbers(spec, errors);
    let manager = spec.get("managedBy");
    if manager.exists() {
        validate_manager(&manager, errors);
    }
    validate_completion_mode(spec, errors);
    if spec.get("podFailurePolicy").exists() {
        validate_failure_policy(spec, errors);
    }
    let success = spec.get("successPolicy");
    if success.exists() {
        if is_indexed(spec) {
            validate_success_policy(spec, &success, errors);
        } else {
            errors.push(printed::invalid(
                &success,
                "batch.SuccessPolicy",
                "requires indexed completion mode",
            ));
        }
    }
    validate_replacement_policy(spec, errors);
    let template = spec.get("template");
    pod_spec::validate_pod_template(&template, &workload::template_options(old_template), errors);
    validate_restart_policy(spec, &template.walk("spec.restartPolicy"), errors);
}

fn validate_numbers(spec: &Field<'_>, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        numbers::not_negative(&spec.get(name), errors);
    }
    let per_index = spec.get("backoffLimitPerIndex");
    errors.push_if(spec.get("maxFailedIndexes").exists() && !per_index.exists(), || {
        per_index.required("when maxFailedIndexes is specified")
    });
}

fn validate_manager(manager: &Field<'_>, errors: &mut Errors) {
    const PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
    let in_path = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    match manager.str().split_once('/') {
        _ if manager.is_empty() => errors.push(manager.required("")),
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            for error in content::dns1123_subdomain(host) {
                errors.push(manager.invalid_value(host, error));
            }
            errors.push_if(!path.bytes().all(in_path), || {
                manager.invalid_value(path, content::regex_error("Invalid path", PATH, &[]))
            });
        }
        _ => errors.push(manager.invalid(r#"must be a domain-prefixed path (such as "acme.io/foo")"#)),
    }
    errors.push_if(manager.len() > MAX_MANAGED_BY, || manager.too_long(MAX_MANAGED_BY));
}

fn validate_completion_mode(spec: &Field<'_>, errors: &mut Errors) {
    let mode = spec.get("completionMode");
    match mode.str() {
        "Indexed" => validate_indexed(spec, errors),
        "NonIndexed" => refuse_indexes(spec, errors),
        _ if !mode.exists() => refuse_indexes(spec, errors),
        _ => errors.push(mode.not_supported(&["NonIndexed", "Indexed"])),
    }
}

fn refuse_indexes(spec: &Field<'_>, errors: &mut Errors) {
    for field in [spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")] {
        errors.push_if(field.exists(), || field.invalid("requires indexed completion mode"));
    }
}

fn validate_indexed(spec: &Field<'_>, errors: &mut Errors) {
    let (completions, parallelism) = (spec.get("completions"), spec.get("parallelism"));
    let failed = spec.get("maxFailedIndexes");
    let mode = " when completion mode is Indexed";
    errors.push_if(!completions.exists(), || completions.required("when completion mode is Indexed"));
    at_most(MAX_PARALLELISM, &parallelism, mode, errors);
    errors.push_if(completions.exists() && failed.int() > completions.int(), || {
        failed.invalid("must be less than or equal to completions")
    });
    at_most(MAX_FAILED_INDEXES, &failed, "", errors);
    let many = completions.int().is_some_and(|number| number > MANY_COMPLETIONS);
    if many && spec.get("backoffLimitPerIndex").exists() {
        let when =
            format!(" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
        errors.push_if(!failed.exists(), || {
            failed.required(format!("must be specified when completions is above {MANY_COMPLETIONS}"))
        });
        at_most(MAX_PARALLELISM_OF_MANY, &parallelism, &when, errors);
        at_most(MAX_FAILED_INDEXES_OF_MANY, &failed, &when, errors);
    }
}

fn at_most(limit: i64, field: &Field<'_>, when: &str, errors: &mut Errors) {
    errors.push_if(field.int().is_some_and(|number| number > limit), || {
        field.invalid(format!("must be less than or equal to {limit}{when}"))
    });
}

fn validate_failure_policy(spec: &Field<'_>, errors: &mut Errors) {
    let rules = spec.walk("podFailurePolicy.rules");
    errors.push_if(rules.len() > MAX_RULES, || rules.too_many(rules.len(), MAX_RULES));
    let lists = ["containers", "initContainers"];
    let containers: Vec<&str> = lists
        .iter()
        .flat_map(|list| spec.walk("template.spec").get(list).items())
        .map(|container| container.get("name").str())
        .collect();
    for rule in rules.items() {
        validate_failure_rule(spec, &rule, &containers, errors);
    }
}

fn validate_failure_rule(spec: &Field<'_>, rule: &Field<'_>, containers: &[&str], errors: &mut Errors) {
    let action = rule.get("action");
    match action.str() {
        "" => errors.push(action.required(format!("valid values: {}", go_list(&ACTIONS)))),
        "FailIndex" => errors.push_if(!spec.get("backoffLimitPerIndex").exists(), || {
            action.invalid("requires the backoffLimitPerIndex to be set")
        }),
        _ => not_one_of(&action, &ACTIONS, errors),
    }
    let (exit_codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
    if exit_codes.exists() {
        validate_exit_codes(&exit_codes, containers, errors);
    }
    if !conditions.is_empty() {
        validate_pod_conditions(&conditions, errors);
    }
    match (exit_codes.exists(), !conditions.is_empty()) {
        (true, true) => errors.push(
            rule.invalid("specifying both OnExitCodes and OnPodConditions is not supported").without_value(),
        ),
        (false, false) => errors.push(
            rule.invalid("specifying one of OnExitCodes and OnPodConditions is required").without_value(),
        ),
        _ => {}
    }
}

fn validate_exit_codes(exit_codes: &Field<'_>, containers: &[&str], errors: &mut Errors) {
    let operator = exit_codes.get("operator");
    match operator.str() {
        "" => errors.push(operator.required(format!("valid values: {}", go_list(&OPERATORS)))),
        _ => not_one_of(&operator, &OPERATORS, errors),
    }
    let container = exit_codes.get("containerName");
    errors.push_if(container.exists() && !containers.contains(&container.str()), || {
        container.invalid("must be one of the container or initContainer names in the pod template")
    });
    let values = exit_codes.get("values");
    let shown = || values.value().cloned().unwrap_or_default();
    match values.len() {
        0 => errors.push(values.invalid_value(shown(), "at least one value is required")),
        len => errors.push_if(len > MAX_EXIT_CODES, || values.too_many(len, MAX_EXIT_CODES)),
    }
    let mut seen = HashSet::new();
    let mut last = None;
    let mut ordered = true;
    for value in values.items() {
        errors.push_if(operator.str() == "In" && value.int() == Some(0), || {
            value.invalid("must not be 0 for the In operator")
        });
        errors.push_if(!seen.insert(value.int()), || value.duplicate());
        ordered &= last <= value.int();
        last = value.int();
    }
    errors.push_if(!ordered, || values.invalid("must be ordered"));
}

fn validate_pod_conditions(conditions: &Field<'_>, errors: &mut Errors) {
    errors.push_if(conditions.len() > MAX_POD_CONDITIONS, || {
        conditions.too_many(conditions.len(), MAX_POD_CONDITIONS)
    });
    for pattern in conditions.items() {
        let (kind, status) = (pattern.get("type"), pattern.get("status"));
        errors.invalid_each(&kind, content::qualified_name(kind.str()));
        match status.str() {
            "" => errors.push(status.required(format!("valid values: {}", go_list(&STATUSES)))),
            _ => not_one_of(&status, &STATUSES, errors),
        }
    }
}

fn not_one_of(field: &Field<'_>, supported: &[&str], errors: &mut Errors) {
    errors.push_if(!supported.contains(&field.str()), || field.not_supported(supported));
}

/// Formats a list as Go's `%q` prints it.
fn go_list(values: &[&str]) -> String {
    format!("[{}]", values.iter().map(|value| quote(value)).collect::<Vec<_>>().join(" "))
}

fn validate_success_policy(spec: &Field<'_>, policy: &Field<'_>, errors: &mut Errors) {
    let rules = policy.get("rules");
    errors.push_if(rules.is_empty(), || {
        rules.required("at least one rules must be specified when the successPolicy is specified")
    });
    errors.push_if(rules.len() > MAX_RULES, || rules.too_many(rules.len(), MAX_RULES));
    let completions = spec.get("completions").int().unwrap_or(0);
    for rule in rules.items() {
        validate_success_rule(&rule, completions, errors);
    }
}

fn validate_success_rule(rule: &Field<'_>, completions: i64, errors: &mut Errors) {
    let (count, succeeded) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
    errors.push_if(!count.exists() && !succeeded.exists(), || {
        rule.required("at least one of succeededCount or succeededIndexes must be specified")
    });
    let mut total = 0;
    if succeeded.exists() {
        errors.push_if(succeeded.len() > MAX_SUCCEEDED_INDEXES, || succeeded.too_long(MAX_SUCCEEDED_INDEXES));
        match indexes::count(succeeded.str(), completions) {
            Ok(count) => total = count,
            Err(error) => {
                errors.push(succeeded.invalid(format!("error parsing succeededIndexes: {error}")));
            }
        }
    }
    if let Some(number) = count.int() {
        numbers::not_negative(&count, errors);
        errors.push_if(number > completions, || {
            count.invalid(format!(
                "must be less than or equal to {completions} (the number of specified completions)"
            ))
        });
        errors.push_if(succeeded.exists() && number > total, || {
            count.invalid(format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            ))
        });
    }
}

fn validate_replacement_policy(spec: &Field<'_>, errors: &mut Errors) {
    let policy = spec.get("podReplacementPolicy");
    let supported: &[&str] =
        if spec.get("podFailurePolicy").exists() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if policy.exists() {
        not_one_of(&policy, supported, errors);
    }
}

fn validate_restart_policy(spec: &Field<'_>, policy: &Field<'_>, errors: &mut Errors) {
    match policy.str() {
        "" | "Always" => errors.push(policy.required(r#"valid values: "OnFailure", "Never""#)),
        "Never" => {}
        "OnFailure" => errors.push_if(spec.get("podFailurePolicy").exists(), || {
            policy.invalid(r#"only "Never" is supported when podFailurePolicy is specified"#)
        }),
        _ => errors.push(policy.not_supported(&["OnFailure", "Never"])),
    }
}

/// Returns texts for `Warning` headers.
pub fn warnings(spec: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let above = |name: &str, limit: i64| spec.get(name).int().is_some_and(|number| number > limit);
    if is_indexed(spec)
        && above("completions", MANY_COMPLETIONS)
        && above("parallelism", MAX_PARALLELISM_OF_MANY)
    {
        warnings.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
            spec.path()
        ));
    }
    warnings.extend(pod_spec::pod_template_warnings(&spec.get("template")));
    warnings
}
