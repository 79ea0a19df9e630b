//! Attacks by expressions and paths that administrators have installed: policies, the rules of a
//! custom resource, and its columns.
//!
//! An administrator who installs them may make a mistake; whoever may write the objects that they
//! see can use it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::requests::{HostileRequest, JSON, NAMESPACE, config_map, json_body};

const GROUP: &str = "attacks.example.com";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// The name of a policy and its expression. The policy applies to the ConfigMap with the same name.
type Policy = (&'static str, String);

fn policies() -> [Policy; 4] {
    let long = "object.data.long";
    let each = |inner: &str| {
        (0..4).fold(inner.to_owned(), |inner, at| format!("lists.range(100).all(i{at}, {inner})"))
    };
    let clauses = "%s".repeat(500);
    let values = vec!["object"; 500].join(", ");
    [
        ("shared-compared", shared(40, "v40 == v40")),
        ("shared-formatted", shared(40, "'%s'.format([v40]) != ''")),
        ("found-for-nothing", each("''.findAll('') == ['']")),
        (
            "joined-and-formatted",
            format!(
                "lists.range(1000).map(i, {long}).join({long}).size() + '{clauses}'.format([{values}]).size() > 0"
            ),
        ),
    ]
}

/// Returns a value that contains another one twice, which contains another one twice, and so on.
fn shared(levels: usize, then: &str) -> String {
    let nested = (0..levels).rev().fold(then.to_owned(), |then, level| {
        format!("optional.of([v{level}, v{level}]).optMap(v{}, {then}).value()", level + 1)
    });
    format!("optional.of(dyn('x')).optMap(v0, {nested}).value()")
}

/// Builds the objects that the administrator has installed, with their paths.
pub fn fixtures() -> Vec<(String, Value)> {
    let mut fixtures = vec![definition()];
    for (name, expression) in policies() {
        let policy = json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
                }],
            },
            "matchConditions": [{"name": "name", "expression": format!("object.metadata.name == '{name}'")}],
            "variables": [{"name": "holds", "expression": expression}],
            "validations": [{"expression": "variables.holds"}, {"expression": "variables.holds || true"}],
        }});
        let binding = json!({
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        fixtures.push((format!("{ADMISSION}/validatingadmissionpolicies"), policy));
        fixtures.push((format!("{ADMISSION}/validatingadmissionpolicybindings"), binding));
    }
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    let role = json!({
        "metadata": {"name": "mazes"},
        "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}],
    });
    let binding = json!({
        "metadata": {"name": "mazes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mazes"},
        "subjects": [{"kind": "User", "name": "developer", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    fixtures.push((format!("{rbac}/roles"), role));
    fixtures.push((format!("{rbac}/rolebindings"), binding));
    fixtures
}

/// Builds a custom resource with a column whose results multiply, and a rule whose texts do.
fn definition() -> (String, Value) {
    let formatted = format!("'{}'.format([{}]).size() > 0", "%s".repeat(8), ["self.s"; 8].join(", "));
    let rule = format!("!has(self.l) || self.l.all(a, self.l.all(b, {formatted}))");
    let columns: Vec<Value> = (0..10)
        .map(|i| json!({"name": format!("c{i}"), "type": "string", "jsonPath": ".spec..a..a..a..a..a"}))
        .collect();
    let spec = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "l": {"type": "array", "maxItems": 200, "items": {"type": "integer"}},
            "s": {"type": "string"},
        },
        "x-kubernetes-validations": [{"rule": rule}],
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    });
    let definition = json!({
        "metadata": {"name": format!("mazes.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": [version],
            "names": {"plural": "mazes", "singular": "maze", "kind": "Maze", "listKind": "MazeList"},
        },
    });
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(), definition)
}

/// Builds a ConfigMap for each of the policies.
pub fn policy_requests() -> Vec<HostileRequest> {
    let long = json!({"long": "x".repeat(50_000)});
    policies().iter().map(|(name, _)| config_map(name, long.clone())).collect()
}

fn mazes() -> String {
    format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/mazes")
}

fn maze(name: &str, spec: Value) -> HostileRequest {
    let maze = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Maze", "metadata": {"name": name}, "spec": spec});
    ("POST", mazes(), JSON, json_body(&maze))
}

/// Builds objects with a rule that prints them repeatedly.
pub fn rule_requests() -> Vec<HostileRequest> {
    vec![maze("printed", json!({"l": vec![1; 200], "s": "x".repeat(50_000)}))]
}

/// Builds requests for tables of a deep object.
pub fn column_requests() -> Vec<HostileRequest> {
    let deep = (0..90).fold(json!(1), |inner, _| json!({"a": inner}));
    let mut requests = vec![maze("deep", deep)];
    requests.extend((0..20).map(|_| ("TABLE", mazes(), JSON, Bytes::new())));
    requests
}
