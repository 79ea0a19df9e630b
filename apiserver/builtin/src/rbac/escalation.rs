//! Privilege escalation prevention of RBAC.
//!
//! A user who writes a role must hold all its rules, or the verb `escalate` on it; a user who
//! writes a binding must hold all rules of the role, or the verb `bind` on it. kube-apiserver
//! checks this in the storage of the RBAC kinds, after the mutating admission plugins and before
//! validation; so here it is the last plugin of the chain's first pass.

use std::collections::HashSet;
use std::sync::Arc;

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::quote;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::access::authenticate::MASTERS;
use coracle_apiserver::access::authorize::{
    Authorizer, RequestAttributes, ResourceTarget, Target, aggregate,
};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::Value;

use super::authorizer::RbacAuthorizer;
use super::coverage::{CoverageLimits, TooManySteps, missing};
use super::index::{GROUP, Kind};
use super::rules::{PolicyRule, quoted};

pub struct EscalationCheck {
    pub authorizer: Arc<Authorizer>,
    pub rbac: Arc<RbacAuthorizer>,
}

impl AdmissionPlugin for EscalationCheck {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, _cluster: &dyn Cluster) -> Result<()> {
        let Some(kind) = Kind::of(attributes.resource) else { return Ok(()) };
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !writes || attributes.user.is_in(MASTERS) || is_only_mutating_gc_fields(attributes) {
            return Ok(());
        }
        match kind {
            Kind::Role | Kind::ClusterRole => self.role(attributes),
            Kind::RoleBinding | Kind::ClusterRoleBinding => self.binding(attributes),
        }
    }
}

impl EscalationCheck {
    fn role(&self, attributes: &AdmissionAttributes<'_>) -> Result<()> {
        let resource = &attributes.resource.resource;
        if self.may(attributes, "escalate", GROUP, resource, attributes.name) {
            return Ok(());
        }
        self.holds(attributes, &PolicyRule::of_role(attributes.object))?;
        let aggregates = |role: &Value| {
            role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty())
        };
        let everything = [PolicyRule::all_resources(), PolicyRule::all_paths()];
        if (aggregates(attributes.object) || attributes.old_object.is_some_and(aggregates))
            && self.holds(attributes, &everything).is_err()
        {
            let detail = "must have cluster-admin privileges to use the aggregationRule";
            return Err(Error::forbidden(attributes.resource, object_name(attributes), detail));
        }
        Ok(())
    }

    fn binding(&self, attributes: &AdmissionAttributes<'_>) -> Result<()> {
        let reference = &attributes.object["roleRef"];
        let text = |name: &str| reference[name].as_str().unwrap_or("");
        let (kind, name) = (text("kind"), text("name"));
        let Some(role) = Kind::of_role(kind) else {
            return Err(Error::Unclassified(format!("unsupported role reference kind: {}", quote(kind))));
        };
        let resource = format!("{}s", role.singular());
        if self.may(attributes, "bind", text("apiGroup"), &resource, name) {
            return Ok(());
        }
        if role == Kind::Role && attributes.namespace.is_empty() {
            return Err(Error::bad_request("Namespace parameter required."));
        }
        match self.rbac.rules_of_role(role, attributes.namespace, name) {
            Some(rules) => self.holds(attributes, &rules),
            // kube-apiserver names the resource that is being written, not the role's.
            None => Err(Error::not_found(attributes.resource, name)),
        }
    }

    fn may(
        &self,
        attributes: &AdmissionAttributes<'_>,
        verb: &str,
        group: &str,
        resource: &str,
        name: &str,
    ) -> bool {
        let target =
            ResourceTarget { group, resource, subresource: "", namespace: attributes.namespace, name };
        let request = RequestAttributes { verb, target: Target::Resource(target) };
        self.authorizer.check(attributes.user, &request).is_ok()
    }

    fn holds(&self, attributes: &AdmissionAttributes<'_>, rules: &[PolicyRule]) -> Result<()> {
        let user = attributes.user;
        let (owned, unresolved) = self.rbac.bound_rules(user, attributes.namespace);
        // A role that is bound many times counts once.
        let mut seen = HashSet::new();
        let owned = owned.iter().filter(|rules| seen.insert(Arc::as_ptr(rules).cast::<PolicyRule>()));
        let who = format!("user {} (groups={})", quote(&user.name), quoted(&user.groups));
        let mut detail = match missing(owned.flat_map(|rules| rules.iter()), rules, CoverageLimits::STANDARD)
        {
            Ok(none) if none.is_empty() => return Ok(()),
            Ok(missing) => format!(
                "{who} is attempting to grant RBAC permissions not currently held:\n{}",
                missing.describe()
            ),
            Err(TooManySteps) => format!(
                "{who} is attempting to grant RBAC permissions that are too many to be compared with those currently held"
            ),
        };
        if !unresolved.is_empty() {
            let not_found: Vec<Error> =
                unresolved.iter().map(|role| Error::not_found(attributes.resource, &role.name)).collect();
            detail.push_str(&format!("; resolution errors: [{}]", aggregate(&not_found)));
        }
        Err(Error::forbidden(attributes.resource, object_name(attributes), detail))
    }
}

fn object_name<'a>(attributes: &'a AdmissionAttributes<'_>) -> &'a str {
    attributes.object["metadata"]["name"].as_str().unwrap_or("")
}

/// Returns `true` if an update only changes finalizers and owner references. The garbage collector
/// may always do that.
fn is_only_mutating_gc_fields(attributes: &AdmissionAttributes<'_>) -> bool {
    let Some(old) = attributes.old_object else { return false };
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for name in ["ownerReferences", "finalizers", "managedFields", "selfLink"] {
                metadata.remove(name);
            }
        }
        object
    };
    without(attributes.object) == without(old)
}

#[cfg(test)]
mod tests {
    use coracle_apiserver::access::UserInfo;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    use super::*;
    use crate::rbac;

    fn check(rules: Value, resource: &str, object: Value, old: Option<Value>) -> Result<()> {
        let metadata = |name: &str| json!({"name": name, "namespace": "ns"});
        let stored = rbac::testing::World::of([
            ("roles", json!({"metadata": metadata("own"), "rules": rules})),
            (
                "roles",
                json!({"metadata": metadata("secrets"),
                "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]}]}),
            ),
            (
                "rolebindings",
                json!({"metadata": metadata("b"), "roleRef": {"kind": "Role", "name": "own"},
                "subjects": [{"kind": "User", "name": "alice"}]}),
            ),
        ]);
        let mut request = Request::new(GROUP, resource, "ns", object);
        request.user = UserInfo::new("alice", &["devs", "system:authenticated"]);
        if let Some(old) = old {
            request = request.update(old);
        }
        let check = EscalationCheck { authorizer: stored.authorizer(), rbac: stored.refreshed().clone() };
        request.admit(&check, &World::default())
    }

    #[test]
    fn rules_that_the_user_does_not_hold_cannot_be_granted() {
        let configmaps = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]});
        let secrets = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]});
        let role = |rules: Value| json!({"metadata": {"name": "r"}, "rules": rules});
        let binds = |kind: &str, name: &str| {
            json!({"metadata": {"name": "rb"},
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name}})
        };
        let refused = |resource: &str, name: &str| {
            format!(
                "403 {resource}.{GROUP} \"{name}\" is forbidden: user \"alice\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}}"
            )
        };
        let verb = |verb: &str, name: &str| json!({"verbs": [verb], "apiGroups": [GROUP], "resources": ["roles"], "resourceNames": [name]});
        for (case, own, resource, object, old, want) in [
            ("what is held", json!([configmaps]), "roles", role(json!([configmaps])), None, "ok".to_owned()),
            (
                "what is not",
                json!([configmaps]),
                "roles",
                role(json!([secrets, configmaps])),
                None,
                refused("roles", "r"),
            ),
            (
                "escalate",
                json!([verb("escalate", "r")]),
                "roles",
                role(json!([secrets])),
                None,
                "ok".to_owned(),
            ),
            (
                "a label on a role that holds more",
                json!([]),
                "roles",
                json!({"metadata": {"name": "r", "labels": {"a": "b"}}, "rules": [secrets]}),
                Some(role(json!([secrets]))),
                refused("roles", "r"),
            ),
            (
                "a finalizer goes",
                json!([]),
                "roles",
                role(json!([secrets])),
                Some(json!({"metadata": {"name": "r", "finalizers": ["x"]}, "rules": [secrets]})),
                "ok".to_owned(),
            ),
            (
                "a binding to more",
                json!([]),
                "rolebindings",
                binds("Role", "secrets"),
                None,
                refused("rolebindings", "rb"),
            ),
            (
                "bind",
                json!([verb("bind", "secrets")]),
                "rolebindings",
                binds("Role", "secrets"),
                None,
                "ok".to_owned(),
            ),
            (
                "a binding to what is held",
                json!([secrets]),
                "rolebindings",
                binds("Role", "secrets"),
                None,
                "ok".to_owned(),
            ),
            (
                "a missing role",
                json!([]),
                "rolebindings",
                binds("ClusterRole", "x"),
                None,
                format!("404 rolebindings.{GROUP} \"x\" not found"),
            ),
            (
                "no kind of role",
                json!([]),
                "rolebindings",
                binds("Thing", "x"),
                None,
                "500 unsupported role reference kind: \"Thing\"".to_owned(),
            ),
        ] {
            let got = check(own, resource, object, old)
                .map_or_else(|e| format!("{} {e}", e.code()), |()| "ok".into());
            assert_eq!(got, want, "{case}");
        }
    }
}
