//! Rules: `RuleWithOperations` and `NamedRuleWithOperations` of admissionregistration.k8s.io/v1.

use serde_json::Value;

use crate::admission::json::{items, text};
use crate::admission::{AdmissionAttributes, Operation};

/// The requests that a configuration is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    /// The names of objects; an empty list matches any name. Only policies have names.
    names: Vec<String>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

impl Rule {
    /// Reads a rule.
    pub fn read(rule: &Value) -> Rule {
        let list = |member: &str| items(&rule[member]).iter().map(|item| text(item).to_owned()).collect();
        Rule {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            names: list("resourceNames"),
            scope: match text(&rule["scope"]) {
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    /// Returns `true` if the rule matches the request, with the given group, version and plural in
    /// place of those of its resource.
    pub fn matches(
        &self,
        attributes: &AdmissionAttributes<'_>,
        (group, version, resource): (&str, &str, &str),
    ) -> bool {
        let subresource = attributes.subresource;
        let names_resource = |rule: &String| {
            let (own, part) = rule.split_once('/').unwrap_or((rule, ""));
            (own == "*" || own == resource) && (part == "*" || part == subresource)
        };
        self.matches_scope(attributes)
            && has(&self.operations, operation_name(attributes.operation))
            && has(&self.groups, group)
            && has(&self.versions, version)
            && self.resources.iter().any(names_resource)
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }

    /// Checks the scope. A Namespace is a cluster-scoped object, though requests for it are
    /// requests in it.
    fn matches_scope(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        let is_namespaced = !attributes.namespace.is_empty() && !attributes.is_any("", "namespaces");
        match self.scope {
            Scope::All => true,
            Scope::Cluster => !is_namespaced,
            Scope::Namespaced => is_namespaced,
        }
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// Returns the operation as rules and reviews name it.
pub(crate) fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::Request;
    use serde_json::json;

    #[test]
    fn rules_match_by_group_version_resource_operation_scope_and_name() {
        let pods = || Request::new("", "pods", "ns", json!({"kind": "Pod", "metadata": {"name": "p"}}));
        let node = || Request::new("", "nodes", "", json!({"kind": "Node", "metadata": {"name": "n"}}));
        let namespace =
            || Request::new("", "namespaces", "", json!({"kind": "Namespace", "metadata": {"name": "n"}}));
        let rule = |changes: Value| {
            let mut rule =
                json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"], "operations": ["*"]});
            for (member, value) in changes.as_object().into_iter().flatten() {
                rule[member] = value.clone();
            }
            Rule::read(&rule)
        };
        for (case, request, changes, want) in [
            ("all", pods(), json!({}), true),
            ("another group", pods(), json!({"apiGroups": ["apps"]}), false),
            ("any group", pods(), json!({"apiGroups": ["*"]}), true),
            ("another version", pods(), json!({"apiVersions": ["v2"]}), false),
            ("another resource", pods(), json!({"resources": ["secrets"]}), false),
            ("its operation", pods(), json!({"operations": ["CREATE"]}), true),
            ("another operation", pods(), json!({"operations": ["UPDATE", "DELETE"]}), false),
            ("* is no subresource", pods().of("status"), json!({}), false),
            ("pods is no subresource", pods().of("status"), json!({"resources": ["pods"]}), false),
            ("its subresource", pods().of("status"), json!({"resources": ["pods/status"]}), true),
            ("any of its subresources", pods().of("status"), json!({"resources": ["pods/*"]}), true),
            ("the object by pods/*", pods(), json!({"resources": ["pods/*"]}), true),
            ("that subresource of any", pods().of("status"), json!({"resources": ["*/status"]}), true),
            ("everything", pods().of("status"), json!({"resources": ["*/*"]}), true),
            ("namespaced", pods(), json!({"scope": "Namespaced"}), true),
            ("not of the cluster", pods(), json!({"scope": "Cluster"}), false),
            ("of the cluster", node(), json!({"scope": "Cluster"}), true),
            ("not namespaced", node(), json!({"scope": "Namespaced"}), false),
            ("a namespace", namespace(), json!({"scope": "Cluster"}), true),
            ("a namespace is not namespaced", namespace(), json!({"scope": "Namespaced"}), false),
            ("its name", pods(), json!({"resourceNames": ["x", "p"]}), true),
            ("another name", pods(), json!({"resourceNames": ["x"]}), false),
        ] {
            let mut request = request;
            let resource = request.resource.clone();
            let attributes = request.attributes();
            let names = (resource.group.as_str(), "v1", resource.resource.as_str());
            assert_eq!(rule(changes).matches(&attributes, names), want, "{case}");
        }
    }
}
