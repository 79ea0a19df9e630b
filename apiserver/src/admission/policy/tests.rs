//! Both plugins, by tables of policies and requests.

use std::sync::Arc;

use futures::executor::block_on;
use serde_json::{Value, json};

use super::{MutatingAdmissionPolicy, PolicyContext, ValidatingAdmissionPolicy};
use crate::admission::AsyncAdmissionPlugin;
use crate::admission::testing::{Request, World};
use crate::resource_info::SharedResourceTable;
use crate::testing::always_deny;

const GROUP: &str = "admissionregistration.k8s.io";

fn context() -> PolicyContext {
    PolicyContext {
        resources: SharedResourceTable::new(coracle_resources::built_in()),
        authorizer: Arc::new(always_deny()),
        metrics: Arc::default(),
        excluded: &[],
    }
}

fn constraints() -> Value {
    json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]},
    ]})
}

fn world() -> World {
    World::default().with("", "namespaces", json!({"metadata": {"name": "ns", "labels": {"team": "a"}}}))
}

fn config_map(data: Value) -> Request {
    let object = json!({"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}, "data": data});
    let mut request = Request::new("", "configmaps", "ns", object);
    request.options.field_manager = "m".to_owned();
    request
}

/// Validates a request; returns the code and the message of a denial.
fn validated(spec: Value, actions: &[&str], mut request: Request) -> Option<(u16, String)> {
    let mut spec = spec;
    spec["matchConstraints"] = constraints();
    let world = world()
        .with(GROUP, "validatingadmissionpolicies", json!({"metadata": {"name": "p"}, "spec": spec}))
        .with(
            GROUP,
            "validatingadmissionpolicybindings",
            json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": actions}}),
        );
    let plugin = ValidatingAdmissionPolicy::new(context());
    let attributes = request.attributes();
    assert!(plugin.handles(&attributes, &world));
    let error = block_on(plugin.validate(&attributes, &world)).err()?;
    let message = error.to_string();
    let detail = message.split("denied request: ").nth(1).unwrap_or(&message).to_owned();
    Some((error.code(), detail))
}

#[test]
fn a_request_is_denied_by_the_first_validation_that_fails() {
    let one = |validation: Value| json!({"validations": [validation]});
    for (case, spec, want) in [
        ("it holds", one(json!({"expression": "object.data.a == '1'"})), None),
        (
            "it does not",
            one(json!({"expression": "object.data.a == '2'"})),
            Some((422, "failed expression: object.data.a == '2'")),
        ),
        ("a message", one(json!({"expression": "false", "message": "no"})), Some((422, "no"))),
        (
            "a made message",
            one(
                json!({"expression": "false", "messageExpression": "'a is ' + object.data.a", "reason": "Forbidden"}),
            ),
            Some((403, "a is 1")),
        ),
        (
            "a message that fails",
            one(
                json!({"expression": "false", "messageExpression": "object.data.nope", "message": "other", "reason": "RequestEntityTooLarge"}),
            ),
            Some((413, "other")),
        ),
        (
            "an error",
            one(json!({"expression": "object.data.nope == 'x'"})),
            Some((422, "expression 'object.data.nope == 'x'' resulted in error: no such key: nope")),
        ),
        (
            "an ignored error",
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.nope == 'x'"}]}),
            None,
        ),
        (
            "composed variables",
            json!({
                "variables": [{"name": "n", "expression": "object.data.size()"}, {"name": "m", "expression": "variables.n * 2"}],
                "validations": [{"expression": "variables.m > 5", "messageExpression": "string(variables.m)"}],
            }),
            Some((422, "4")),
        ),
        (
            "a condition that does not hold",
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'x'"}], "validations": [{"expression": "false"}]}),
            None,
        ),
        (
            "the namespace and the request",
            one(
                json!({"expression": "namespaceObject.metadata.labels.team == 'a' && request.operation == 'CREATE' && request.namespace == 'ns' && oldObject == null && !request.dryRun"}),
            ),
            None,
        ),
        (
            "the options",
            one(
                json!({"expression": "request.options.kind == 'CreateOptions' && request.options.fieldManager == 'm'"}),
            ),
            None,
        ),
        (
            "what the user may do",
            one(
                json!({"expression": "authorizer.group('').resource('pods').namespace('ns').check('get').allowed() || authorizer.requestResource.check('x').allowed()", "message": "may not"}),
            ),
            Some((422, "may not")),
        ),
        (
            "a missing parameter kind",
            json!({"paramKind": {"apiVersion": "a/v1", "kind": "K"}, "validations": [{"expression": "true"}]}),
            Some((
                422,
                "failed to configure policy: failed to find resource referenced by paramKind: 'a/v1, Kind=K'",
            )),
        ),
        (
            "one that may be missing",
            json!({"failurePolicy": "Ignore", "paramKind": {"apiVersion": "a/v1", "kind": "K"}, "validations": [{"expression": "false"}]}),
            None,
        ),
        (
            "the last variable of a name",
            json!({
                "variables": [{"name": "n", "expression": "1"}, {"name": "n", "expression": "2"}],
                "validations": [{"expression": "variables.n == 2"}],
            }),
            None,
        ),
        (
            "a variable that refers to itself",
            json!({
                "variables": [{"name": "n", "expression": "1"}, {"name": "n", "expression": "variables.n + 1"}],
                "validations": [{"expression": "variables.n == 2"}],
            }),
            Some((
                422,
                "expression 'variables.n == 2' resulted in error: composited variable \"n\" fails to evaluate: composited variable \"n\" refers to itself",
            )),
        ),
        (
            "a variable that may be absent",
            json!({
                "variables": [{"name": "n", "expression": "object.?data.a"}],
                "validations": [{"expression": "false", "messageExpression": "string(variables.n.orValue('-'))"}],
            }),
            Some((422, "1")),
        ),
    ] {
        let denied = validated(spec, &["Deny"], config_map(json!({"a": "1", "b": "2"})));
        let want = want.map(|(code, text): (u16, &str)| (code, text.to_owned()));
        assert_eq!(denied, want, "{case}");
    }
}

#[test]
fn nothing_else_counts_once_the_budget_is_spent() {
    let spent =
        "validation failed due to running out of cost budget, no further validation rules will be run";
    // 810,000 each; the limit of one is a million, that of all ten.
    let costly = json!({"expression": "object.data.a.contains(object.data.a)"});
    let failing = json!({"expression": "false", "message": "no"});
    let rules = |count: usize| {
        let all: Vec<Value> = std::iter::once(failing.clone()).chain(vec![costly.clone(); count]).collect();
        json!({"validations": all})
    };
    let denied = |spec: Value| validated(spec, &["Deny"], config_map(json!({"a": "x".repeat(9000)})));
    assert_eq!(denied(rules(2)), Some((422, "no".to_owned())));
    assert_eq!(denied(rules(40)), Some((422, spent.to_owned())));
    let talkative: Vec<Value> = std::iter::once(failing.clone())
        .chain(vec![json!({"expression": "true", "messageExpression": "string(object.data.a.contains(object.data.a))"}); 40])
        .collect();
    let failed = format!("failed messageExpression: {spent}");
    assert_eq!(denied(json!({"validations": talkative})), Some((422, failed)), "also of rules that hold");
    let mut ignoring = rules(40);
    ignoring["failurePolicy"] = json!("Ignore");
    assert_eq!(denied(ignoring), None, "the denial of the first one does not count either");
}

#[test]
fn an_audit_annotation_that_cannot_be_made_denies_whatever_the_actions_are() {
    let spec = |expression: &str, policy: &str| {
        let annotation = json!({"key": "k", "valueExpression": expression});
        json!({"auditAnnotations": [annotation], "failurePolicy": policy})
    };
    let number = "valueExpression 'dyn(1)' resulted in unsupported return type: int. Return type must be either string or null.";
    let missing = "expression 'object.data.nope' resulted in error: no such key: nope";
    for (expression, policy, want) in [
        ("dyn('x')", "Fail", None),
        ("null", "Fail", None),
        ("dyn(1)", "Fail", Some(number)),
        ("dyn(1)", "Ignore", Some(number)),
        ("object.data.nope", "Fail", Some(missing)),
        ("object.data.nope", "Ignore", None),
    ] {
        let denied = validated(spec(expression, policy), &["Audit"], config_map(json!({"a": "1"})));
        assert_eq!(denied, want.map(|want| (422, want.to_owned())), "{expression} {policy}");
    }
}

#[test]
fn without_the_action_deny_a_failure_warns() {
    let spec = json!({"validations": [{"expression": "false", "message": "no"}]});
    assert_eq!(validated(spec, &["Warn", "Audit"], config_map(json!({}))), None);
}

fn mutated(mutations: Value, data: Value) -> Result<Value, String> {
    mutated_by(json!({"mutations": mutations}), data)
}

fn world_mutated_by(mut spec: Value, reinvocation: &str) -> World {
    spec["matchConstraints"] = constraints();
    spec["reinvocationPolicy"] = reinvocation.into();
    world().with(GROUP, "mutatingadmissionpolicies", json!({"metadata": {"name": "p"}, "spec": spec})).with(
        GROUP,
        "mutatingadmissionpolicybindings",
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}}),
    )
}

fn mutated_by(spec: Value, data: Value) -> Result<Value, String> {
    let world = world_mutated_by(spec, "Never");
    let plugin = MutatingAdmissionPolicy::new(context());
    let mut request = config_map(data);
    let mut attributes = request.attributes();
    assert!(plugin.handles(&attributes, &world));
    block_on(plugin.admit(&mut attributes, &world)).map_err(|error| error.to_string())?;
    Ok(attributes.object.clone())
}

#[test]
fn mutations_are_applied_in_order() {
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let apply = |expression: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let object = mutated(
        json!([
            patch("[JSONPatch{op: 'add', path: '/data/b', value: 'by ' + object.metadata.name}]"),
            apply(
                "Object{metadata: Object.metadata{labels: {'touched': 'yes'}}, data: {'c': object.data.b}}"
            ),
        ]),
        json!({"a": "1"}),
    )
    .expect("mutated");
    assert_eq!(object["data"], json!({"a": "1", "b": "by c", "c": "by c"}));
    assert_eq!(object["metadata"]["labels"], json!({"touched": "yes"}));
    for (mutation, want) in [
        (
            patch("[JSONPatch{op: 'remove', path: '/data/x'}]"),
            "denied request: JSON Patch: error in remove for path: '/data/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            patch("[JSONPatch{op: 'test', path: '/spec/x', value: 'x'}]"),
            "denied request: JSON Patch: test operation does not apply: is missing path: /spec/x: missing value",
        ),
        (
            apply("Object{metadata: Object.other{name: 'x'}}"),
            "type mismatch: unexpected type name \"Object.other\", expected \"Object.metadata\"",
        ),
        (
            apply("Object{data: {'a': 1}}"),
            "error applying patch: failed to convert patch object to typed object: .data.a: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            apply("Object{spec: Object.spec{}}"),
            "error applying patch: failed to convert patch object to typed object: .spec: field not declared in schema",
        ),
        (
            apply(
                "Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: 'u', name: 'n'}], managedFields: [Object.metadata.managedFields{manager: 'm'}]}}",
            ),
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .metadata.managedFields",
        ),
    ] {
        let error = mutated(json!([mutation]), json!({"a": "1"})).expect_err("denied");
        assert!(error.contains("policy 'p' with binding 'b'") && error.contains(want), "{error}");
    }
}

#[test]
fn a_single_policy_is_invoked_again_if_needed() {
    for (policy, want) in [("IfNeeded", "xx"), ("Never", "x")] {
        let expression = "[JSONPatch{op: 'replace', path: '/data/a', value: object.data.a + 'x'}]";
        let mutations = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]);
        let world = world_mutated_by(json!({"mutations": mutations}), policy);
        let plugin = MutatingAdmissionPolicy::new(context());
        let mut request = config_map(json!({"a": ""}));
        let mut attributes = request.attributes();
        block_on(plugin.admit(&mut attributes, &world)).expect("admitted");
        assert!(attributes.reinvocation.begin_reinvoke());
        block_on(plugin.admit(&mut attributes, &world)).expect("admitted again");
        assert_eq!(attributes.object["data"]["a"], want, "{policy}");
    }
}

#[test]
fn a_test_that_does_not_hold_skips_its_mutation_alone() {
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let add = "JSONPatch{op: 'add', path: '/data/b', value: '2'}";
    for test in ["path: '/data/a', value: 'x'", "path: '/data/x', value: 'x'", "path: '/data', value: {}"] {
        let skipped = format!("[{add}, JSONPatch{{op: 'test', {test}}}]");
        let done = "[JSONPatch{op: 'add', path: '/data/c', value: '3'}]";
        let object = mutated(json!([patch(&skipped), patch(done)]), json!({"a": "1"})).expect(test);
        assert_eq!(object["data"], json!({"a": "1", "c": "3"}), "{test}");
    }
}

#[test]
fn a_failing_mutation_that_is_ignored_keeps_no_other_from_being_done() {
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let mutations = json!([
        patch("[JSONPatch{op: 'remove', path: '/data/x'}]"),
        patch("[JSONPatch{op: 'add', path: '/data/b', value: '2'}]"),
    ]);
    let ignoring = json!({"failurePolicy": "Ignore", "mutations": mutations});
    let object = mutated_by(ignoring, json!({"a": "1"})).expect("ignored");
    assert_eq!(object["data"], json!({"a": "1", "b": "2"}));
}

#[test]
fn conditions_are_evaluated_once_before_the_mutations_and_see_no_namespace() {
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let add = |key: &str| patch(&format!("[JSONPatch{{op: 'add', path: '/data/{key}', value: 'x'}}]"));
    for (condition, want) in [
        ("!('b' in object.data)", json!({"a": "1", "b": "x", "c": "x"})),
        ("namespaceObject == null", json!({"a": "1", "b": "x", "c": "x"})),
        ("has(namespaceObject.metadata)", json!({"a": "1"})),
    ] {
        let spec = json!({
            "matchConditions": [{"name": "c", "expression": condition}], "mutations": [add("b"), add("c")],
        });
        assert_eq!(mutated_by(spec, json!({"a": "1"})).expect(condition)["data"], want, "{condition}");
    }
}

/// Builds variables, each of which contains the one before it twice.
fn shared(levels: usize) -> Vec<Value> {
    let variable = |level: usize| match level {
        0 => json!({"name": "v0", "expression": "'x'"}),
        _ => {
            let before = level - 1;
            json!({"name": format!("v{level}"), "expression": format!("[variables.v{before}, variables.v{before}]")})
        }
    };
    (0..=levels).map(variable).collect()
}

#[test]
fn expressions_that_do_too_much_deny_in_time() {
    let all = |inner: &str| {
        (0..4).fold(inner.to_owned(), |inner, at| format!("lists.range(100).all(i{at}, {inner})"))
    };
    for expression in [
        "variables.v40 == variables.v40",
        "'%s'.format([variables.v40]) == ''",
        "variables.v40 == variables.v40 || true",
        &all("''.findAll('') == ['']"),
    ] {
        let spec = json!({"variables": shared(40), "validations": [{"expression": expression}]});
        let started = std::time::Instant::now();
        let (code, message) = validated(spec, &["Deny"], config_map(json!({}))).expect("a denial");
        assert_eq!(code, 422, "{message}");
        let limits = ["operation interrupted: ", "operation cancelled: actual cost limit exceeded"];
        assert!(limits.iter().any(|limit| message.contains(limit)), "{expression}: {message}");
        assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    }
}

#[test]
fn long_chains_of_variables_do_not_overflow_the_stack() {
    let variable = |level: usize| {
        let expression = if level == 0 { "'x'".to_owned() } else { format!("[variables.v{}]", level - 1) };
        json!({"name": format!("v{level}"), "expression": expression})
    };
    let variables: Vec<Value> = (0..4000).map(variable).collect();
    let read = |level: usize| json!({"expression": format!("variables.v{level} == variables.v{level}")});
    let spec = |validations: Vec<Value>| json!({"variables": variables, "validations": validations});
    // A chain of some length is fine; one that is read at once is nested too deep, one that is read
    // in parts gives a value that is.
    assert_eq!(validated(spec(vec![read(30)]), &["Deny"], config_map(json!({}))), None);
    for validations in [vec![read(3999)], (0..4000).step_by(30).map(read).collect()] {
        let (_, message) = validated(spec(validations), &["Deny"], config_map(json!({}))).expect("a denial");
        assert!(message.contains("operation interrupted: nesting limit exceeded"), "{message}");
    }
}

#[test]
fn a_patch_is_no_larger_than_its_limit() {
    let expression = "[JSONPatch{op: 'add', path: '/data', value: {'k': variables.v40}}]";
    let spec = json!({
        "variables": shared(40),
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    });
    let failed = mutated_by(spec, json!({})).expect_err("too large");
    assert!(failed.contains("operation interrupted: "), "{failed}");
}
