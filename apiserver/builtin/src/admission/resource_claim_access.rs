//! The access of schedulers and drivers to parts of a ResourceClaim's status: whoever may write the
//! status needs permission on `resourceclaims/binding` to change what is allocated and for whom,
//! and on `resourceclaims/driver` to change what a driver reports about its devices.
//!
//! kube-apiserver checks this in the strategy of the status, with its validation; so here it is
//! among the first of the second pass.
//!
//! Source: KEP-5055 (`DRAResourceClaimGranularStatusAuthorization`), and
//! `k8s.io/kubernetes/pkg/registry/resource/utils.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::error::Error;
use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apiserver::access::UserInfo;
use coracle_apiserver::access::authenticate::{NODE_NAME, split_service_account_username};
use coracle_apiserver::access::authorize::{Authorizer, RequestAttributes, ResourceTarget, Target};
use coracle_apiserver::admission::json::{items, text};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::Value;

const GROUP: &str = "resource.k8s.io";
const RESOURCE: &str = "resourceclaims";

/// The check of those who write the status of claims.
pub(super) struct ResourceClaimAccess {
    pub(super) authorizer: Arc<Authorizer>,
}

impl AdmissionPlugin for ResourceClaimAccess {
    fn validate(&self, attributes: &AdmissionAttributes<'_>, _cluster: &dyn Cluster) -> Result<()> {
        let concerned = attributes.operation == Operation::Update
            && attributes.subresource == "status"
            && attributes.is_any(GROUP, RESOURCE);
        let Some(old) = attributes.old_object.filter(|_| concerned) else { return Ok(()) };
        let (new, old) = (&attributes.object["status"], &old["status"]);
        let mut errors = Errors::new();
        self.binding(attributes, new, old, &mut errors);
        // What is reported about devices is dropped with their allocation.
        if !new["allocation"].is_null() {
            self.devices(attributes, new, old, &mut errors);
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::invalid(&attributes.kind.group_kind(), attributes.shown_name(), errors))
    }
}

impl ResourceClaimAccess {
    fn binding(&self, attributes: &AdmissionAttributes<'_>, new: &Value, old: &Value, errors: &mut Errors) {
        if ["allocation", "reservedFor"].iter().all(|member| new[*member] == old[*member]) {
            return;
        }
        let verb = attributes.verb.as_str();
        let target = ResourceTarget { subresource: "binding", ..CLAIMS };
        if let Err(refusal) = self.check(attributes.user, verb, target) {
            let allocation = Field::root(attributes.object).walk("status.allocation");
            errors.push(allocation.forbidden(format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb={} permission: {refusal}",
                quote(verb)
            )));
        }
    }

    fn devices(&self, attributes: &AdmissionAttributes<'_>, new: &Value, old: &Value, errors: &mut Errors) {
        let verb = attributes.verb.as_str();
        let arbitrary = format!("arbitrary-node:{verb}");
        let verbs = match allocated_node(&new["allocation"]) {
            Some(node) if runs_on(attributes.user, node) => {
                vec![format!("associated-node:{verb}"), arbitrary]
            }
            _ => vec![arbitrary],
        };
        for driver in changed_drivers(items(&new["devices"]), items(&old["devices"])) {
            let namespace = attributes.namespace;
            let target = ResourceTarget { subresource: "driver", namespace, name: driver, ..CLAIMS };
            let refused = |verb: &String| self.check(attributes.user, verb, target).err();
            // One of the verbs is enough, and the first is reported.
            let refusals: Option<Vec<Error>> = verbs.iter().map(refused).collect();
            if let Some(refusal) = refusals.and_then(|all| all.into_iter().next()) {
                let devices = Field::root(attributes.object).walk("status.devices");
                errors.push(devices.forbidden(format!(
                    "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {refusal}",
                    verbs.join(" ")
                )));
            }
        }
    }

    fn check(&self, user: &UserInfo, verb: &str, target: ResourceTarget<'_>) -> Result<()> {
        self.authorizer.check(user, &RequestAttributes { verb, target: Target::Resource(target) })
    }
}

const CLAIMS: ResourceTarget<'_> =
    ResourceTarget { group: GROUP, resource: RESOURCE, subresource: "", namespace: "", name: "" };

/// Returns the drivers whose reports about devices were added, removed or changed, sorted.
fn changed_drivers<'a>(new: &'a [Value], old: &'a [Value]) -> BTreeSet<&'a str> {
    let key = |device: &'a Value| ["driver", "pool", "device", "shareID"].map(|name| text(&device[name]));
    let by_key = |devices: &'a [Value]| devices.iter().map(|device| (key(device), device)).collect();
    let (new, old): (Reports<'a>, Reports<'a>) = (by_key(new), by_key(old));
    let differing = |these: &Reports<'a>, those: &Reports<'a>| -> Vec<&'a str> {
        let changed = these.iter().filter(|(key, device)| those.get(*key) != Some(device));
        changed.map(|([driver, ..], _)| *driver).collect()
    };
    differing(&new, &old).into_iter().chain(differing(&old, &new)).collect()
}

type Reports<'a> = BTreeMap<[&'a str; 4], &'a Value>;

/// Returns the name of the node that an allocation is for, if its selector has exactly this shape.
fn allocated_node(allocation: &Value) -> Option<&str> {
    let [term] = items(&allocation["nodeSelector"]["nodeSelectorTerms"]) else { return None };
    let [field] = items(&term["matchFields"]) else { return None };
    let is_name = items(&term["matchExpressions"]).is_empty()
        && field["key"] == "metadata.name"
        && field["operator"] == "In";
    match items(&field["values"]) {
        [node] if is_name => node.as_str(),
        _ => None,
    }
}

/// Returns `true` if a user is the service account of a pod on the node.
fn runs_on(user: &UserInfo, node: &str) -> bool {
    let is_service_account = split_service_account_username(&user.name).is_some();
    is_service_account && user.extra.get(NODE_NAME).is_some_and(|nodes| *nodes == [node])
}

#[cfg(test)]
mod tests {
    use coracle_apimachinery::field::FieldError;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    use super::*;
    use crate::rbac;

    const ACCOUNT: &str = "system:serviceaccount:d:driver";

    /// Updates the status of a claim in the namespace d as a user with permission on one verb of
    /// one subresource, and returns the texts of its causes, or "ok".
    fn updated(user: UserInfo, (verb, subresource): (&str, &str), new: Value, old: Value) -> Vec<String> {
        let resource = format!("resourceclaims/{subresource}");
        let rules = json!([{"verbs": [verb], "apiGroups": [GROUP], "resources": [resource]}]);
        let stored = rbac::testing::World::of([
            ("clusterroles", json!({"metadata": {"name": "r"}, "rules": rules})),
            (
                "clusterrolebindings",
                json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
                    "subjects": [{"kind": "User", "name": user.name, "apiGroup": "rbac.authorization.k8s.io"}]}),
            ),
        ]);
        let claim =
            |status: Value| json!({"kind": "ResourceClaim", "metadata": {"name": "c"}, "status": status});
        let mut request = Request::new(GROUP, RESOURCE, "d", claim(new)).update(claim(old)).of("status");
        request.user = user;
        let plugin = ResourceClaimAccess { authorizer: stored.authorizer() };
        match request.validate(&plugin, &World::default()) {
            Ok(()) => vec!["ok".to_owned()],
            Err(Error::Invalid { errors, .. }) => errors.iter().map(FieldError::body).collect(),
            Err(error) => panic!("{error}"),
        }
    }

    fn allocation() -> Value {
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        json!({"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}})
    }

    fn with_devices(reports: &[(&str, &str, &str)]) -> Value {
        let report = |(driver, device, data): &(&str, &str, &str)| json!({"driver": driver, "pool": "p", "device": device, "data": {"v": data}});
        json!({"allocation": allocation(), "devices": reports.iter().map(report).collect::<Vec<_>>()})
    }

    #[test]
    fn an_allocation_needs_permission_to_bind() {
        let alice = || UserInfo::new("alice", &[]);
        let refused = "Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: resourceclaims.resource.k8s.io is forbidden: User \"alice\" cannot update resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
        let reserved = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]});
        for (rule, new, old, want) in [
            (("update", "binding"), json!({"allocation": allocation()}), json!({}), "ok"),
            (("update", "binding"), reserved.clone(), json!({}), "ok"),
            (("patch", "binding"), json!({"allocation": allocation()}), json!({}), refused),
            (("update", "driver"), reserved.clone(), json!({}), refused),
            (("get", "status"), json!({}), reserved.clone(), refused),
            (("get", "status"), reserved.clone(), reserved, "ok"),
        ] {
            assert_eq!(updated(alice(), rule, new.clone(), old), [want], "{rule:?} {new}");
        }
    }

    #[test]
    fn what_a_driver_reports_needs_permission_for_the_driver() {
        let on_node = |node: &str| {
            let mut user = UserInfo::new(ACCOUNT, &[]);
            user.extra.insert(NODE_NAME.to_owned(), vec![node.to_owned()]);
            user
        };
        let (associated, arbitrary) =
            (("associated-node:update", "driver"), ("arbitrary-node:update", "driver"));
        let refused = |verbs: &str, verb: &str, driver: &str| {
            format!(
                "Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: resourceclaims.resource.k8s.io \"{driver}\" is forbidden: User \"{ACCOUNT}\" cannot {verb} resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"d\""
            )
        };
        let elsewhere = |driver: &str| refused("arbitrary-node:update", "arbitrary-node:update", driver);
        let (none, one) = (with_devices(&[]), with_devices(&[("a.io", "x", "1")]));
        let ok = || vec!["ok".to_owned()];
        assert_eq!(updated(on_node("n1"), associated, one.clone(), none.clone()), ok());
        assert_eq!(updated(on_node("n2"), associated, one.clone(), none.clone()), [elsewhere("a.io")]);
        assert_eq!(updated(on_node("n2"), arbitrary, one.clone(), none.clone()), ok());
        assert_eq!(updated(on_node("n1"), arbitrary, one.clone(), none.clone()), ok());
        let both = "associated-node:update arbitrary-node:update";
        let of_node = refused(both, "associated-node:update", "a.io");
        assert_eq!(updated(on_node("n1"), ("update", "driver"), none, one.clone()), [of_node]);
        // Only the drivers whose reports change matter, in their order.
        let two = with_devices(&[("c.io", "z", "1"), ("a.io", "x", "1"), ("b.io", "y", "1")]);
        assert_eq!(updated(on_node("n2"), associated, two, one), [elsewhere("b.io"), elsewhere("c.io")]);
    }
}
