//! Reviews: SubjectAccessReview and its variants, SelfSubjectReview and TokenReview.
//!
//! They are questions: the posted object is answered with its status, and nothing is stored.

use coracle_apimachinery::codec::body::Expected;
use coracle_apimachinery::field::{Errors, Field, Path};
use coracle_apimachinery::names::GroupKind;
use coracle_apimachinery::schema::structural::object_meta;
use coracle_apimachinery::selector::{FieldSelector, LabelSelector};
use coracle_apimachinery::validation::content::{label_value, qualified_name};
use coracle_apimachinery::{Error, Result, codec};
use coracle_apiserver::access::authenticate::{Authenticator, UserInfo};
use coracle_apiserver::access::authorize::{
    Authorizer, Decision, RequestAttributes, ResourceTarget, Target, UserRules,
};
use coracle_apiserver::registry::deletion::rfc3339;
use coracle_apiserver::registry::{Outcome, Payload};
use coracle_apiserver::serve::{Action, ActionDeclaration, ActionRequest};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::rbac::rules::strings;

/// The resources for which a POST is a question.
pub static ACTIONS: [ActionDeclaration; 6] = [
    review("authorization.k8s.io", "selfsubjectaccessreviews", |request| {
        answer(request, |request, review| {
            self_subject_access_review(request.authorizer, request.caller.user, review)
        })
    }),
    review("authorization.k8s.io", "subjectaccessreviews", |request| {
        answer(request, |request, review| subject_access_review(request.authorizer, review))
    }),
    review("authorization.k8s.io", "localsubjectaccessreviews", |request| {
        answer(request, |request, review| local_subject_access_review(request.authorizer, review))
    }),
    review("authorization.k8s.io", "selfsubjectrulesreviews", |request| {
        answer(request, |request, review| {
            self_subject_rules_review(request.authorizer, request.caller.user, &review)
        })
    }),
    review("authentication.k8s.io", "selfsubjectreviews", |request| {
        answer(request, |request, _| {
            Ok(self_subject_review(request.caller.user, &rfc3339(request.registry.now())))
        })
    }),
    review("authentication.k8s.io", "tokenreviews", |request| {
        answer(request, |request, review| token_review(request.authenticator, review))
    }),
];

const fn review(group: &'static str, resource: &'static str, action: Action) -> ActionDeclaration {
    ActionDeclaration { group, resource, subresource: "", action }
}

type Answer = fn(&ActionRequest<'_>, Value) -> Result<Value>;

/// Decodes a review, and answers with the object and its status. Nothing is stored.
fn answer(request: ActionRequest<'_>, answer: Answer) -> BoxFuture<'_, Result<Outcome>> {
    Box::pin(async move {
        let ActionRequest { registry, target, options, caller, .. } = &request;
        let info = &target.info;
        let expected = Expected { group: &info.group, version: &info.version, kind: &info.kind };
        let mut review = request.decode(expected)?;
        caller.audit.log_request_object(&review, &info.type_ref);
        registry.track_new(info, &options.field_manager, *caller, &mut review);
        registry.admit_subresource(target, "", &mut review, *caller, options).await?;
        let value = answer(&request, review)?;
        let payload = Payload::Object { value, type_ref: info.type_ref.clone() };
        Ok(Outcome { code: 201, payload })
    })
}

const GROUP: &str = "authorization.k8s.io";

/// Bytes of rules that a `SelfSubjectRulesReview` lists; a longer list is marked as incomplete.
const MAX_RULES: usize = 4 << 20;

/// Answers a `SubjectAccessReview`: whether the user in the spec is allowed.
fn subject_access_review(authorizer: &Authorizer, review: Value) -> Result<Value> {
    let mut errors = Errors::new();
    validate_spec(&review, true, &mut errors);
    validate_metadata(&review, &[], "must be empty", &mut errors);
    into_result(errors)?;
    let user = subject(&review["spec"]);
    Ok(evaluate(authorizer, &user, review))
}

/// Answers a `LocalSubjectAccessReview`: the same, in the namespace of the review, which must be
/// that of the request.
fn local_subject_access_review(authorizer: &Authorizer, review: Value) -> Result<Value> {
    let mut errors = Errors::new();
    validate_spec(&review, true, &mut errors);
    validate_metadata(&review, &["namespace"], "must be empty except for namespace", &mut errors);
    let spec = Field::root(&review).get("spec");
    let requested = spec.walk("resourceAttributes.namespace");
    if spec.get("resourceAttributes").exists()
        && requested.str() != review["metadata"]["namespace"].as_str().unwrap_or("")
    {
        errors.push(requested.invalid_value(requested.str(), "must match metadata.namespace"));
    }
    if spec.get("nonResourceAttributes").exists() {
        let path = spec.get("nonResourceAttributes");
        errors.push(path.invalid_value(go_non_resource(&path), "disallowed on this kind of request"));
    }
    into_result(errors)?;
    let user = subject(&review["spec"]);
    Ok(evaluate(authorizer, &user, review))
}

/// Answers a `SelfSubjectAccessReview`: whether the calling user is allowed.
fn self_subject_access_review(authorizer: &Authorizer, user: &UserInfo, review: Value) -> Result<Value> {
    let mut errors = Errors::new();
    validate_spec(&review, false, &mut errors);
    validate_metadata(&review, &[], "must be empty", &mut errors);
    into_result(errors)?;
    Ok(evaluate(authorizer, user, review))
}

/// Answers a `SelfSubjectRulesReview`: the rules of the calling user in a namespace.
fn self_subject_rules_review(authorizer: &Authorizer, user: &UserInfo, review: &Value) -> Result<Value> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or("");
    if namespace.is_empty() {
        return Err(Error::bad_request("no namespace on request"));
    }
    let UserRules { rules, is_truncated, evaluation_error } =
        authorizer.rules_for(user, namespace, MAX_RULES);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in &rules {
        let pick = |names: &[&str]| {
            let members = names.iter().filter_map(|n| Some(((*n).to_owned(), rule.get(*n)?.clone())));
            Value::Object(members.collect())
        };
        if rule.get("resources").is_some() {
            resources.push(pick(&["verbs", "apiGroups", "resources", "resourceNames"]));
        }
        if rule.get("nonResourceURLs").is_some() {
            paths.push(pick(&["verbs", "nonResourceURLs"]));
        }
    }
    let mut status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": is_truncated});
    let mut problems = Vec::new();
    if is_truncated {
        problems.push("there are too many rules to list them all".to_owned());
    }
    if !evaluation_error.is_empty() {
        problems.push(evaluation_error);
    }
    if !problems.is_empty() {
        status["evaluationError"] = problems.join(", ").into();
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {},
        "status": status,
    }))
}

/// Answers a `SelfSubjectReview`: the calling user. `now` is the current time in RFC 3339.
fn self_subject_review(user: &UserInfo, now: &str) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": now},
        "status": {"userInfo": user.to_value()},
    })
}

/// Answers a `TokenReview`: the user of a token, and the audiences it is valid for.
fn token_review(authenticator: &Authenticator, mut review: Value) -> Result<Value> {
    let token = review["spec"]["token"].as_str().unwrap_or("");
    if token.is_empty() {
        return Err(Error::bad_request("token is required for TokenReview in authentication"));
    }
    let requested: Vec<String> =
        serde_json::from_value(review["spec"]["audiences"].clone()).unwrap_or_default();
    let audiences = if requested.is_empty() { authenticator.audiences().to_vec() } else { requested };
    review["status"] = match authenticator.token(token, &audiences) {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user.to_value(), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    };
    Ok(review)
}

fn evaluate(authorizer: &Authorizer, user: &UserInfo, mut review: Value) -> Value {
    let spec = &review["spec"];
    let text = |attributes: &'static str, name: &str| spec[attributes][name].as_str().unwrap_or("");
    let attribute = |name| text("resourceAttributes", name);
    let (verb, target) = if spec["resourceAttributes"].is_object() {
        let target = ResourceTarget {
            group: attribute("group"),
            resource: attribute("resource"),
            subresource: attribute("subresource"),
            namespace: attribute("namespace"),
            name: attribute("name"),
        };
        (attribute("verb"), Target::Resource(target))
    } else {
        (text("nonResourceAttributes", "verb"), Target::Path(text("nonResourceAttributes", "path")))
    };
    let Decision { allowed, reason } = authorizer.decide(user, &RequestAttributes { verb, target });
    let problems = selector_problems(&spec["resourceAttributes"]);
    let mut status = Map::new();
    status.insert("allowed".into(), allowed.into());
    if !reason.is_empty() {
        status.insert("reason".into(), reason.into());
    }
    if !problems.is_empty() {
        status.insert("evaluationError".into(), problems.join("; ").into());
    }
    if let Some(review) = review.as_object_mut() {
        review.insert("status".into(), status.into());
    }
    review
}

/// Reads the user in a spec.
fn subject(spec: &Value) -> UserInfo {
    let text = |name: &str| spec[name].as_str().unwrap_or("").to_owned();
    let list = |value: &Value| strings(value).map(str::to_owned).collect::<Vec<_>>();
    let extra = spec["extra"].as_object().into_iter().flatten();
    UserInfo {
        name: text("user"),
        uid: text("uid"),
        groups: list(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), list(values))).collect(),
    }
}

fn into_result(errors: Errors) -> Result<()> {
    // kube-apiserver leaves out the kind here.
    if errors.is_empty() { Ok(()) } else { Err(Error::invalid(&GroupKind::new(GROUP, ""), "", errors)) }
}

fn validate_spec(review: &Value, with_subject: bool, errors: &mut Errors) {
    let spec = Field::root(review).get("spec");
    let (resource, path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    if resource.exists() && path.exists() {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.push(path.invalid_value(go_non_resource(&path), detail));
    }
    if !resource.exists() && !path.exists() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(resource.invalid_value(Value::Null, detail));
    }
    if with_subject && spec.get("user").is_empty() && spec.get("groups").is_empty() {
        errors.push(spec.get("user").invalid_value("", "at least one of user or group must be specified"));
    }
    validate_selector(&resource.get("fieldSelector"), errors, validate_field_requirement);
    validate_selector(&resource.get("labelSelector"), errors, validate_label_requirement);
}

/// Formats the attributes with the field names of Go, since the Go struct has no JSON tags.
fn go_non_resource(attributes: &Field<'_>) -> Value {
    json!({"Path": attributes.get("path").str(), "Verb": attributes.get("verb").str()})
}

fn validate_metadata(review: &Value, allowed: &[&str], detail: &str, errors: &mut Errors) {
    let metadata = Field::at(review.get("metadata"), Path::of("metadata"));
    let filled = |key: &str| key != "managedFields" && !allowed.contains(&key);
    if metadata.entries().any(|(key, field)| filled(key) && !field.is_empty()) {
        let shown = metadata.value().map(|value| {
            let mut text = Vec::new();
            codec::json::write(value, &object_meta().into(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        errors.push(metadata.invalid(detail).with_bad_value_text(shown.unwrap_or_default()));
    }
}

fn validate_selector(
    selector: &Field<'_>,
    errors: &mut Errors,
    validate_requirement: fn(&Field<'_>, &mut Errors),
) {
    if !selector.exists() {
        return;
    }
    let (raw, requirements) = (selector.get("rawSelector"), selector.get("requirements"));
    if !raw.is_empty() && !requirements.is_empty() {
        errors.push(raw.invalid("may not specified at the same time as requirements"));
    }
    if raw.is_empty() && requirements.is_empty() {
        let path = selector.path();
        let detail = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(requirements.required(detail));
    }
    requirements.items().for_each(|requirement| validate_requirement(&requirement, errors));
}

/// Validates the values of a requirement. Unknown operators are accepted: newer clients may use
/// operators that this server does not support.
fn validate_values(requirement: &Field<'_>, errors: &mut Errors) {
    let values = requirement.get("values");
    match requirement.get("operator").str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(values.forbidden(detail));
        }
        _ => {}
    }
}

fn validate_field_requirement(requirement: &Field<'_>, errors: &mut Errors) {
    let key = requirement.get("key");
    errors.push_if(key.is_empty(), || key.required("must be specified"));
    validate_values(requirement, errors);
}

fn validate_label_requirement(requirement: &Field<'_>, errors: &mut Errors) {
    validate_values(requirement, errors);
    let key = requirement.get("key");
    errors.extend(qualified_name(key.str()).into_iter().map(|problem| key.invalid_value(key.str(), problem)));
    for value in requirement.get("values").items() {
        errors.extend(label_value(value.str()).into_iter().map(|problem| value.invalid(problem)));
    }
}

/// Returns the errors in selectors. RBAC ignores selectors, but reports these errors.
fn selector_problems(attributes: &Value) -> Vec<String> {
    let field = |requirement: &Value| {
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        matches!(requirement["operator"].as_str(), Some("In" | "NotIn")) && values == 1
    };
    let label = |requirement: &Value| {
        matches!(requirement["operator"].as_str(), Some("In" | "NotIn" | "Exists" | "DoesNotExist"))
    };
    let field_raw = |text: &str| FieldSelector::parse(text).is_ok();
    let label_raw = |text: &str| LabelSelector::parse(text).is_ok();
    [
        selector_problem("fieldSelector", &attributes["fieldSelector"], field_raw, field),
        selector_problem("labelSelector", &attributes["labelSelector"], label_raw, label),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn selector_problem(
    name: &str,
    selector: &Value,
    raw_is_good: impl Fn(&str) -> bool,
    is_good: impl Fn(&Value) -> bool,
) -> Option<String> {
    let raw = selector["rawSelector"].as_str().unwrap_or("");
    let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
    let good = requirements.iter().filter(|r| is_good(r)).count();
    let how = match (good, requirements.len()) {
        (0, 0) if raw.is_empty() || raw_is_good(raw) => return None,
        (0, _) => "ignored",
        (good, all) if good == all => return None,
        _ => "partially ignored",
    };
    Some(format!("spec.resourceAttributes.{name} {how} due to parse error"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::rbac::testing::World;

    fn authorizer() -> Arc<Authorizer> {
        let roles = World::of([
            (
                "roles",
                json!({"metadata": {"name": "reader", "namespace": "ns"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            ),
            (
                "rolebindings",
                json!({"metadata": {"name": "read", "namespace": "ns"},
            "roleRef": {"kind": "Role", "name": "reader"}, "subjects": [{"kind": "User", "name": "carol"}]}),
            ),
            (
                "clusterroles",
                json!({"metadata": {"name": "paths"},
            "rules": [{"verbs": ["get"], "nonResourceURLs": ["/api"]}]}),
            ),
            (
                "clusterrolebindings",
                json!({"metadata": {"name": "all"},
            "roleRef": {"kind": "ClusterRole", "name": "paths"},
            "subjects": [{"kind": "Group", "name": "system:authenticated"}]}),
            ),
            (
                "rolebindings",
                json!({"metadata": {"name": "dangling", "namespace": "other"},
            "roleRef": {"kind": "Role", "name": "gone"}, "subjects": [{"kind": "User", "name": "carol"}]}),
            ),
        ]);
        roles.authorizer()
    }

    #[test]
    fn subject_access_reviews_report_the_decision() {
        let pods = json!({"verb": "get", "resource": "pods", "namespace": "ns"});
        let with = |name: &str, value: Value| {
            let mut attributes = pods.clone();
            attributes[name] = value;
            attributes
        };
        for (spec, want) in [
            (
                json!({"user": "carol", "resourceAttributes": pods}),
                json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"read/ns\" of Role \"reader\" to User \"carol\""}),
            ),
            (
                json!({"user": "carol", "resourceAttributes": with("namespace", json!("x"))}),
                json!({"allowed": false}),
            ),
            (
                json!({"user": "x", "groups": ["system:masters"], "resourceAttributes": pods}),
                json!({"allowed": true}),
            ),
            (
                json!({"groups": ["system:authenticated"], "nonResourceAttributes": {"path": "/api", "verb": "get"}}),
                json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"paths\" to Group \"system:authenticated\""}),
            ),
            (
                json!({"user": "dan", "resourceAttributes": with("labelSelector", json!({"requirements": [{"key": "a", "operator": "Is"}]}))}),
                json!({"allowed": false, "evaluationError": "spec.resourceAttributes.labelSelector ignored due to parse error"}),
            ),
            (
                json!({"user": "dan", "resourceAttributes": with("fieldSelector", json!({"requirements": [
                {"key": "a", "operator": "In", "values": ["b"]}, {"key": "a", "operator": "Exists"}]}))}),
                json!({"allowed": false, "evaluationError": "spec.resourceAttributes.fieldSelector partially ignored due to parse error"}),
            ),
        ] {
            let answer = subject_access_review(&authorizer(), json!({"spec": spec, "metadata": {}}))
                .expect("an answer");
            assert_eq!(answer, json!({"spec": spec, "metadata": {}, "status": want}));
        }
    }

    #[test]
    fn invalid_reviews_are_refused() {
        let review_of = |review: Value| subject_access_review(&authorizer(), review);
        let local = |review: Value| local_subject_access_review(&authorizer(), review);
        let pods = json!({"verb": "get", "resource": "pods"});
        for (got, want) in [
            (
                review_of(json!({"spec": {"user": "x"}})),
                r#".authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#,
            ),
            (
                review_of(json!({"spec": {"resourceAttributes": pods}})),
                r#".authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified"#,
            ),
            (
                review_of(
                    json!({"spec": {"user": "x", "resourceAttributes": pods, "nonResourceAttributes": {"path": "/", "verb": "get"}}}),
                ),
                r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: cannot be specified in combination with resourceAttributes"#,
            ),
            (
                review_of(
                    json!({"metadata": {"name": "x"}, "spec": {"user": "x", "resourceAttributes": pods}}),
                ),
                r#".authorization.k8s.io "" is invalid: metadata: Invalid value: {"name":"x"}: must be empty"#,
            ),
            (
                review_of(
                    json!({"spec": {"user": "x", "resourceAttributes": {"fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "", "operator": "In"}]}, "labelSelector": {}}}}),
                ),
                r#".authorization.k8s.io "" is invalid: [spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements, spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified, spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required]"#,
            ),
            (
                local(json!({"metadata": {"namespace": "ns"}, "spec": {"resourceAttributes": pods}})),
                r#".authorization.k8s.io "" is invalid: [spec.user: Invalid value: "": at least one of user or group must be specified, spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace]"#,
            ),
            (
                local(
                    json!({"metadata": {"namespace": "ns"}, "spec": {"user": "d", "nonResourceAttributes": {"path": "/x", "verb": "get"}}}),
                ),
                r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request"#,
            ),
        ] {
            assert_eq!(got.expect_err(want).to_string(), want);
        }
    }

    #[test]
    fn a_self_subject_rules_review_lists_the_callers_rules() {
        let carol = UserInfo::new("carol", &["system:authenticated"]);
        let review = |namespace: &str| json!({"spec": {"namespace": namespace}});
        let status = |namespace| {
            self_subject_rules_review(&authorizer(), &carol, &review(namespace)).map(|a| a["status"].clone())
        };
        let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/api"]}]);
        assert_eq!(
            status("ns").expect("an answer"),
            json!({"resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
                   "nonResourceRules": paths, "incomplete": false})
        );
        assert_eq!(
            status("other").expect("an answer"),
            json!({"resourceRules": [], "nonResourceRules": paths, "incomplete": false,
                   "evaluationError": "role.rbac.authorization.k8s.io \"gone\" not found"})
        );
        assert_eq!(status("").expect_err("no namespace").to_string(), "no namespace on request");
    }

    #[test]
    fn a_self_subject_review_returns_the_caller() {
        let alice = UserInfo { uid: "u".to_owned(), ..UserInfo::new("alice", &["devs"]) };
        let answer = self_subject_review(&alice, "2026-01-02T03:04:05Z");
        assert_eq!(
            answer["status"]["userInfo"],
            json!({"username": "alice", "uid": "u", "groups": ["devs"]})
        );
    }

    #[test]
    fn too_many_rules_are_not_all_listed() {
        let roles = World::default();
        let names: Vec<String> = (0..100_000).map(|i| format!("name-{i}")).collect();
        let rules =
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names}]);
        roles.put("clusterroles", json!({"metadata": {"name": "wide"}, "rules": rules}));
        // Each binding adds its rules again.
        for i in 0..100 {
            roles.put(
                "clusterrolebindings",
                json!({"metadata": {"name": format!("b{i}")},
                       "roleRef": {"kind": "ClusterRole", "name": "wide"}, "subjects": [{"kind": "User", "name": "carol"}]}),
            );
        }
        let carol = UserInfo::new("carol", &[]);
        let review = json!({"spec": {"namespace": "ns"}});
        let answer = self_subject_rules_review(&roles.authorizer(), &carol, &review).expect("an answer");
        assert_eq!(answer["status"]["resourceRules"].as_array().map(Vec::len), Some(3));
        assert_eq!(answer["status"]["incomplete"], true);
        assert_eq!(answer["status"]["evaluationError"], "there are too many rules to list them all");
    }
}
