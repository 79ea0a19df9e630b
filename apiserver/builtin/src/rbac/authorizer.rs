//! The authorizer: decides by the stored roles and bindings.

use coracle_apimachinery::resource_info::ResourceTable;
use coracle_apiserver::access::UserInfo;
use coracle_apiserver::access::authorize::{Decision, RequestAttributes, RuleResolver, UserRules};
use coracle_apiserver::registry::ObjectIndex;
use coracle_storage::Store;

use super::index::{Kind, PolicyRules, RoleRef, not_found};
use super::informer::{RbacInformer, RbacSnapshot};

/// Authorizes requests by the roles and bindings in a store.
pub struct RbacAuthorizer {
    informer: RbacInformer,
}

impl RbacAuthorizer {
    /// Creates an authorizer by the roles and bindings in a store.
    ///
    /// - `table`: has the buckets in which they are stored.
    pub fn new(store: Store<ObjectIndex>, table: &ResourceTable) -> RbacAuthorizer {
        RbacAuthorizer { informer: RbacInformer::new(store, table) }
    }

    /// Returns the current roles and bindings, for a store that continues with the objects and the
    /// history of this one.
    pub fn snapshot(&self) -> RbacSnapshot {
        self.informer.snapshot()
    }

    /// Creates an authorizer that continues with roles and bindings that were read before. The
    /// objects of its store are as old as these, or newer.
    ///
    /// - `table`: has the buckets in which they are stored.
    pub fn resume(
        snapshot: RbacSnapshot,
        store: Store<ObjectIndex>,
        table: &ResourceTable,
    ) -> RbacAuthorizer {
        RbacAuthorizer { informer: RbacInformer::resume(snapshot, store, table) }
    }

    /// Returns the rules of each binding that applies to the user in a namespace, and the bound
    /// roles that do not exist.
    pub(super) fn bound_rules(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRules>, Vec<RoleRef>) {
        self.informer.index().rules_for(user, namespace)
    }

    /// Returns the rules of a role; for a `Role`, of the one in `namespace`.
    pub(super) fn rules_of_role(&self, kind: Kind, namespace: &str, name: &str) -> Option<PolicyRules> {
        self.informer.index().rules_of_role(kind, namespace, name).cloned()
    }
}

impl RuleResolver for RbacAuthorizer {
    fn refresh(&self) {
        self.informer.refresh();
    }

    fn authorize(&self, user: &UserInfo, request: &RequestAttributes<'_>, is_explained: bool) -> Decision {
        match self.informer.index().find(user, request) {
            Ok(grant) if is_explained => {
                Decision { allowed: true, reason: format!("RBAC: allowed by {grant}") }
            }
            Ok(_) => Decision { allowed: true, reason: String::new() },
            Err(unresolved) if unresolved.is_empty() => Decision::default(),
            Err(unresolved) => {
                Decision { allowed: false, reason: format!("RBAC: {}", not_found(&unresolved)) }
            }
        }
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str, max_bytes: usize) -> UserRules {
        let (bound, unresolved) = self.bound_rules(user, namespace);
        let mut found = UserRules::default();
        let mut bytes = 0;
        for rule in bound.iter().flat_map(|rules| rules.iter()) {
            bytes += rule.size();
            if bytes > max_bytes {
                found.is_truncated = true;
                break;
            }
            found.rules.push(rule.to_value());
        }
        if !unresolved.is_empty() {
            found.evaluation_error = not_found(&unresolved);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use coracle_apimachinery::names::GroupResource;
    use coracle_apiserver::access::authorize::{ResourceTarget, Target};
    use serde_json::{Value, json};

    use super::*;
    use crate::rbac::index::{GROUP, UNRESOLVED};
    use crate::rbac::testing::World;

    fn role(kind: &str, namespace: &str, name: &str, rules: Value) -> Value {
        json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}, "rules": rules})
    }

    fn binding(kind: &str, namespace: &str, name: &str, role: (&str, &str), subjects: Value) -> Value {
        json!({"kind": kind, "metadata": {"namespace": namespace, "name": name},
               "roleRef": {"apiGroup": GROUP, "kind": role.0, "name": role.1}, "subjects": subjects})
    }

    fn world(objects: &[Value]) -> World {
        let world = World::default();
        for object in objects {
            world.put(&plural(object), object.clone());
        }
        world
    }

    fn plural(object: &Value) -> String {
        format!("{}s", object["kind"].as_str().expect("a kind").to_lowercase())
    }

    fn get<'a>(namespace: &'a str, resource: &'a str) -> RequestAttributes<'a> {
        let target = ResourceTarget { resource, namespace, ..ResourceTarget::default() };
        RequestAttributes { verb: "get", target: Target::Resource(target) }
    }

    #[test]
    fn decisions_have_reasons() {
        let pods = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let nodes = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]);
        let user = |name: &str| json!([{"kind": "User", "name": name}]);
        let world = world(&[
            role("Role", "ns", "pods", pods.clone()),
            role("ClusterRole", "", "pods", pods),
            role("ClusterRole", "", "nodes", nodes),
            binding("RoleBinding", "ns", "b", ("Role", "pods"), user("alice")),
            binding(
                "RoleBinding",
                "ns",
                "c",
                ("ClusterRole", "pods"),
                json!([{"kind": "Group", "name": "devs"}]),
            ),
            binding(
                "ClusterRoleBinding",
                "",
                "d",
                ("ClusterRole", "nodes"),
                json!([
                {"kind": "User", "name": "x"}, {"kind": "ServiceAccount", "name": "robot", "namespace": "ns"}]),
            ),
            binding(
                "RoleBinding",
                "ns",
                "e",
                ("ClusterRole", "pods"),
                json!([{"kind": "ServiceAccount", "name": "local"}]),
            ),
            binding("ClusterRoleBinding", "", "f", ("ClusterRole", "gone"), user("mia")),
            binding("RoleBinding", "ns", "g", ("Role", "gone"), user("mia")),
        ]);
        for (user, groups, request, want) in [
            (
                "alice",
                vec![],
                get("ns", "pods"),
                r#"+RBAC: allowed by RoleBinding "b/ns" of Role "pods" to User "alice""#,
            ),
            ("alice", vec![], get("other", "pods"), "-"),
            ("alice", vec![], get("", "pods"), "-"),
            (
                "bob",
                vec!["devs"],
                get("ns", "pods"),
                r#"+RBAC: allowed by RoleBinding "c/ns" of ClusterRole "pods" to Group "devs""#,
            ),
            ("bob", vec!["devs"], get("ns", "nodes"), "-"),
            (
                "system:serviceaccount:ns:robot",
                vec![],
                get("", "nodes"),
                r#"+RBAC: allowed by ClusterRoleBinding "d" of ClusterRole "nodes" to ServiceAccount "robot/ns""#,
            ),
            (
                "system:serviceaccount:ns:local",
                vec![],
                get("ns", "pods"),
                r#"+RBAC: allowed by RoleBinding "e/ns" of ClusterRole "pods" to ServiceAccount "local/ns""#,
            ),
            (
                "mia",
                vec![],
                get("", "pods"),
                r#"-RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#,
            ),
            (
                "mia",
                vec![],
                get("ns", "pods"),
                r#"-RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]"#,
            ),
        ] {
            let decision = world.authorize(&UserInfo::new(user, &groups), &request, true);
            let got = format!("{}{}", if decision.allowed { '+' } else { '-' }, decision.reason);
            assert_eq!(got, want, "{user} {request:?}");
        }
    }

    #[test]
    fn changes_take_effect() {
        let pods = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let bound = |name: &str| {
            binding("RoleBinding", "ns", "b", ("Role", "r"), json!([{"kind": "User", "name": name}]))
        };
        let world = world(&[role("Role", "ns", "r", pods), bound("alice")]);
        let may = |name: &str| world.authorize(&UserInfo::new(name, &[]), &get("ns", "pods"), true).allowed;
        assert_eq!((may("alice"), may("bob")), (true, false));
        world.put("rolebindings", bound("bob"));
        assert_eq!((may("alice"), may("bob")), (false, true));
        world.put("roles", role("Role", "ns", "r", json!([])));
        assert!(!may("bob"));
        world.delete("rolebindings", "ns", "b");
        assert_eq!(world.authorize(&UserInfo::new("bob", &[]), &get("ns", "pods"), true).reason, "");
        assert_eq!(Kind::of(&GroupResource::new("", "rolebindings")), None, "of another group");
        assert_eq!(world.refreshed().bound_rules(&UserInfo::new("bob", &[]), "ns"), (vec![], vec![]));
    }

    /// Checks that subjects and groups are evaluated once: their number was a product of two lists
    /// that clients control.
    #[test]
    fn bindings_subjects_and_groups_are_evaluated_once() {
        let names =
            |prefix: &str, count: usize| (0..count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
        let subjects = |names: Vec<String>| {
            names.into_iter().map(|name| json!({"kind": "Group", "name": name})).collect::<Value>()
        };
        let rules: Value = names("n", 10_000)
            .into_iter()
            .map(
                |n| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [n]}),
            )
            .collect();
        let mut objects = vec![role("Role", "ns", "r", rules)];
        for name in names("b", 2_000) {
            objects.push(binding(
                "RoleBinding",
                "ns",
                &name,
                ("Role", "r"),
                subjects(vec!["same".to_owned()]),
            ));
        }
        objects.push(binding("RoleBinding", "ns", "wide", ("Role", "r"), subjects(names("g", 20_000))));
        for name in names("m", 2_000) {
            objects.push(binding(
                "RoleBinding",
                "ns",
                &name,
                ("Role", &"x".repeat(1000)),
                subjects(vec!["same".to_owned()]),
            ));
            objects.push(binding(
                "RoleBinding",
                "ns",
                &format!("{name}-"),
                ("Role", &format!("{name}{}", "x".repeat(1000))),
                subjects(vec!["same".to_owned()]),
            ));
        }
        let world = world(&objects);
        let groups =
            |names: Vec<String>| UserInfo { name: "u".to_owned(), groups: names, ..UserInfo::default() };
        // Reads the store.
        world.refreshed().bound_rules(&UserInfo::default(), "ns");
        let started = std::time::Instant::now();
        for (case, user) in [
            ("bound to one role by many bindings", groups(vec!["same".to_owned()])),
            ("in many groups", groups(names("h", 100_000))),
            ("in one group many times", groups(vec!["same".to_owned(); 100_000])),
            ("many groups, many subjects", groups(names("g", 20_000))),
        ] {
            let decision = world.authorize(&user, &get("ns", "pods"), true);
            assert!(!decision.allowed, "{case}");
            assert!(decision.reason.len() < 2 * UNRESOLVED, "{case}: {} bytes", decision.reason.len());
        }
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    }
}
