//! FlowSchema: the priority level of the requests it matches.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{keep_metadata, object_at};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::{content, printed};
use serde_json::{Value, json};

use super::{mandatory_spec, validate_conditions};

const DEFAULT_PRECEDENCE: i64 = 1000;
const MAX_PRECEDENCE: i64 = 10_000;
const DISTINGUISHERS: [&str; 2] = ["ByNamespace", "ByUser"];
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// Each kind of subject with its member, in the order in which they are checked.
const SUBJECTS: [(&str, &str); 3] =
    [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

/// The strategy of FlowSchema.
pub struct FlowSchemaStrategy;

impl Strategy for FlowSchemaStrategy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object_at(object, "spec") else { return };
        if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0) == 0 {
            spec.insert("matchingPrecedence".into(), json!(DEFAULT_PRECEDENCE));
        }
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let (name, spec) = (object.walk("metadata.name").str(), object.get("spec"));
        validate_spec(name, &spec, errors);
        if let Some(wanted) = mandatory_spec("FlowSchema", name)
            && spec.value() != Some(&wanted)
        {
            let detail = format!("spec of '{name}' must equal the fixed value");
            errors.push(printed::invalid(&spec, "flowcontrol.FlowSchemaSpec", &detail));
        }
        validate_conditions(&object.get("status"), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        validate_conditions(&object.get("status"), errors);
    }
}

fn validate_spec(name: &str, spec: &Field<'_>, errors: &mut Errors) {
    let precedence = spec.get("matchingPrecedence");
    let number = precedence.int().unwrap_or(0);
    errors.push_if(number <= 0, || precedence.invalid("must be a positive value"));
    errors.push_if(number > MAX_PRECEDENCE, || {
        precedence.invalid(format!("must not be greater than {MAX_PRECEDENCE}"))
    });
    errors.push_if(number == 1 && name != "exempt", || {
        precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1")
    });
    let method = spec.get("distinguisherMethod");
    let kind = method.get("type");
    errors.push_if(method.exists() && !DISTINGUISHERS.contains(&kind.str()), || {
        let shown = printed::internal("flowcontrol.FlowDistinguisherMethod", method.value());
        kind.not_supported(&DISTINGUISHERS).with_bad_value_text(shown)
    });
    let level = spec.walk("priorityLevelConfiguration.name");
    if level.is_empty() {
        errors.push(level.required("must reference a priority level"));
    } else {
        errors.invalid_each(&level, content::dns1123_subdomain(level.str()));
    }
    for rule in spec.get("rules").items() {
        validate_rule(&rule, errors);
    }
}

fn validate_rule(rule: &Field<'_>, errors: &mut Errors) {
    let subjects = rule.get("subjects");
    errors.push_if(subjects.is_empty(), || subjects.required("subjects must contain at least one value"));
    for subject in subjects.items() {
        validate_subject(&subject, errors);
    }
    let (resources, urls) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
    errors.push_if(resources.is_empty() && urls.is_empty(), || {
        rule.required("at least one of resourceRules and nonResourceRules has to be non-empty")
    });
    for rule in resources.items() {
        validate_resource_rule(&rule, errors);
    }
    for rule in urls.items() {
        validate_url_rule(&rule, errors);
    }
}

fn validate_subject(subject: &Field<'_>, errors: &mut Errors) {
    let kind = subject.get("kind");
    let Some((kind, member)) = SUBJECTS.iter().find(|(known, _)| *known == kind.str()) else {
        return errors.push(kind.not_supported(&["Group", "ServiceAccount", "User"]));
    };
    let described = subject.get(member);
    if !described.exists() {
        errors.push(described.required(format!("{member} is required when subject kind is '{kind}'")));
    } else {
        validate_described(member, &described, errors);
    }
    for (other, member) in SUBJECTS.iter().filter(|(other, _)| other != kind) {
        let field = subject.get(member);
        errors.push_if(field.exists(), || {
            field.forbidden(format!("{member} is forbidden when subject kind is not '{other}'"))
        });
    }
}

fn validate_described(member: &str, described: &Field<'_>, errors: &mut Errors) {
    let name = described.get("name");
    errors.push_if(name.is_empty(), || name.required(""));
    if member != "serviceAccount" {
        return;
    }
    if !name.is_empty() && name.str() != "*" {
        errors.invalid_each(&name, content::dns1123_subdomain(name.str()));
    }
    let namespace = described.get("namespace");
    if namespace.is_empty() {
        errors.push(namespace.required("must specify namespace for service account"));
    } else {
        errors.invalid_each(&namespace, content::dns1123_label(namespace.str()));
    }
}

fn has_all(list: &Field<'_>) -> bool {
    list.items().any(|item| item.str() == "*")
}

/// Validates a list that must not be empty, and may contain `*` only as its single item.
fn validate_list(list: &Field<'_>, none: &str, noun: &str, errors: &mut Errors) {
    errors.push_if(list.is_empty(), || list.required(none));
    errors.push_if(list.len() > 1 && has_all(list), || {
        list.invalid(format!("if '*' is present, must not specify other {noun}"))
    });
}

fn validate_verbs(verbs: &Field<'_>, errors: &mut Errors) {
    validate_list(verbs, "verbs must contain at least one value", "verbs", errors);
    let known = has_all(verbs) || verbs.items().all(|verb| VERBS.contains(&verb.str()));
    errors.push_if(!known, || verbs.not_supported(&VERBS));
}

fn validate_resource_rule(rule: &Field<'_>, errors: &mut Errors) {
    validate_verbs(&rule.get("verbs"), errors);
    let none = "resource rules must supply at least one api group";
    validate_list(&rule.get("apiGroups"), none, "api groups", errors);
    let none = "resource rules must supply at least one resource";
    validate_list(&rule.get("resources"), none, "resources", errors);
    let namespaces = rule.get("namespaces");
    if !(namespaces.is_empty() && rule.get("clusterScope").bool()) {
        let none = "resource rules that are not cluster scoped must supply at least one namespace";
        validate_list(&namespaces, none, "namespaces", errors);
    }
    if !has_all(&namespaces) {
        for namespace in namespaces.items() {
            for error in content::dns1123_label(namespace.str()) {
                errors.push(
                    namespace.invalid(format!(
                        "each member of this list must be '*' or a DNS-1123 label; {error}"
                    )),
                );
            }
        }
    }
}

fn validate_url_rule(rule: &Field<'_>, errors: &mut Errors) {
    validate_verbs(&rule.get("verbs"), errors);
    let urls = rule.get("nonResourceURLs");
    let none = "nonResourceURLs must contain at least one value";
    validate_list(&urls, none, "non-resource URLs", errors);
    if !has_all(&urls) {
        for url in urls.items() {
            errors.extend(url_error(url.str()).map(|error| url.invalid(error)));
        }
    }
}

fn url_error(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}
