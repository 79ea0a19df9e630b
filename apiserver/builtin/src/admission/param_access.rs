//! The access of users to the parameters of the policies that they write: without it, the messages
//! of a policy would show what its author must not read.
//!
//! kube-apiserver checks this in the strategies of the policies and bindings, after the validation
//! of an object and before the validating plugins; so here it is the first of the second pass.
//!
//! Source: `authz.go` below `k8s.io/kubernetes/pkg/registry/admissionregistration`.

use std::sync::Arc;

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::error::Error;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::access::UserInfo;
use coracle_apiserver::access::authenticate::MASTERS;
use coracle_apiserver::access::authorize::{Authorizer, RequestAttributes, ResourceTarget, Target};
use coracle_apiserver::admission::json::text;
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::Value;

const GROUP: &str = "admissionregistration.k8s.io";

/// The check of those who write policies and bindings.
pub(super) struct ParamAccess {
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) resources: Arc<SharedResourceTable>,
}

/// A kind of parameters, as far as it is known.
struct ParamKind<'a> {
    kind: &'a Value,
    /// The group; None if the `apiVersion` cannot be parsed.
    group: Option<&'a str>,
    /// The resource; None if there is none of the kind.
    resource: Option<String>,
}

impl AdmissionPlugin for ParamAccess {
    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let concerned = writes && attributes.subresource.is_empty() && attributes.resource.group == GROUP;
        if !concerned || attributes.user.is_in(MASTERS) {
            return Ok(());
        }
        match attributes.resource.resource.as_str() {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => self.policy(attributes),
            "validatingadmissionpolicybindings" => {
                self.binding(attributes, "validatingadmissionpolicies", cluster)
            }
            "mutatingadmissionpolicybindings" => {
                self.binding(attributes, "mutatingadmissionpolicies", cluster)
            }
            _ => Ok(()),
        }
    }
}

impl ParamAccess {
    fn policy(&self, attributes: &AdmissionAttributes<'_>) -> Result<()> {
        let kind = &attributes.object["spec"]["paramKind"];
        if kind.is_null() || attributes.old_object.is_some_and(|old| old["spec"]["paramKind"] == *kind) {
            return Ok(());
        }
        let known = self.resolve(kind);
        let target = ResourceTarget { namespace: "*", name: "*", ..known.target() };
        if self.may(attributes.user, "get", target) {
            return Ok(());
        }
        let (user, name, version) =
            (printed(attributes.user), text(&kind["kind"]), text(&kind["apiVersion"]));
        let detail = format!(
            "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={name}, apiVersion={version})"
        );
        Err(refusal(attributes, "paramKind", detail))
    }

    fn binding(
        &self,
        attributes: &AdmissionAttributes<'_>,
        policies: &str,
        cluster: &dyn Cluster,
    ) -> Result<()> {
        let spec = &attributes.object["spec"];
        let reference = &spec["paramRef"];
        if reference.is_null()
            || attributes.old_object.is_some_and(|old| is_same_reference(spec, &old["spec"]))
        {
            return Ok(());
        }
        let (policy_name, name) = (text(&spec["policyName"]), text(&reference["name"]));
        let policy = cluster.get(&GroupResource::new(GROUP, policies), "", policy_name)?;
        let kind = policy.as_ref().map(|policy| &policy["spec"]["paramKind"]).filter(|kind| !kind.is_null());
        let known = kind.map(|kind| self.resolve(kind));
        let everything = ResourceTarget { group: "*", resource: "*", ..ResourceTarget::default() };
        let target = known.as_ref().map_or(everything, ParamKind::target);
        let verb = if name.is_empty() { "list" } else { "get" };
        if self.may(
            attributes.user,
            verb,
            ResourceTarget { namespace: text(&reference["namespace"]), name, ..target },
        ) {
            return Ok(());
        }
        let user = printed(attributes.user);
        let all = format!(
            "and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
        );
        let determine = "to determine minimum required permissions";
        let detail = match known {
            _ if policy.is_none() => format!("unable to get policy {policy_name} {determine} {all}"),
            Some(known) if known.group.is_none() => {
                format!("unable to parse paramKind {} {determine} {all}", known.printed())
            }
            Some(known) if known.resource.is_none() => {
                format!("unable to resolve paramKind {} {determine} {all}", known.printed())
            }
            // kube-apiserver confuses them in the text for mutating policies.
            _ if policies.starts_with("mutating") => {
                format!(
                    "user {verb} does not have \"{user}\" permission on the object referenced by paramRef"
                )
            }
            _ => format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            ),
        };
        Err(refusal(attributes, "paramRef", detail))
    }

    fn may(&self, user: &UserInfo, verb: &str, target: ResourceTarget<'_>) -> bool {
        self.authorizer.check(user, &RequestAttributes { verb, target: Target::Resource(target) }).is_ok()
    }

    fn resolve<'a>(&self, kind: &'a Value) -> ParamKind<'a> {
        let version = text(&kind["apiVersion"]);
        let group = match version.split_once('/') {
            None => Some(""),
            Some((group, version)) => Some(group).filter(|_| !version.contains('/')),
        };
        let resources = self.resources.load();
        let of_kind = resources.of_kind(version, text(&kind["kind"]));
        ParamKind { kind, group, resource: of_kind.map(|info| info.plural.to_string()) }
    }
}

impl ParamKind<'_> {
    /// Returns the resource to read; everything, as far as it is not known.
    fn target(&self) -> ResourceTarget<'_> {
        let resource = self.resource.as_deref().unwrap_or("*");
        ResourceTarget { group: self.group.unwrap_or("*"), resource, ..ResourceTarget::default() }
    }

    /// Formats the reference as Go prints it.
    fn printed(&self) -> String {
        format!("&{{{} {}}}", text(&self.kind["apiVersion"]), text(&self.kind["kind"]))
    }
}

/// Returns `true` if a binding has the reference that it had. kube-apiserver compares pointers, so
/// that a reference with a selector or a `parameterNotFoundAction` is always another one.
fn is_same_reference(new: &Value, old: &Value) -> bool {
    let has_pointers =
        ["selector", "parameterNotFoundAction"].iter().any(|name| !new["paramRef"][*name].is_null());
    !has_pointers && new["paramRef"] == old["paramRef"] && new["policyName"] == old["policyName"]
}

fn refusal(attributes: &AdmissionAttributes<'_>, member: &str, detail: String) -> Error {
    let mut errors = Errors::new();
    let spec = Field::root(attributes.object).get("spec");
    errors.push(spec.get(member).forbidden(detail));
    Error::invalid(&attributes.kind.group_kind(), attributes.shown_name(), errors)
}

/// Formats a user as Go prints it.
fn printed(user: &UserInfo) -> String {
    let UserInfo { name, uid, groups, extra } = user;
    let list = |values: &[String]| format!("[{}]", values.join(" "));
    let extra: Vec<String> = extra.iter().map(|(key, values)| format!("{key}:{}", list(values))).collect();
    format!("&{{{name} {uid} {} map[{}]}}", list(groups), extra.join(" "))
}

#[cfg(test)]
mod tests {
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    use super::*;
    use crate::rbac;

    /// Writes an object as a user who may get all ConfigMaps, and nothing else.
    fn written(resource: &str, spec: Value, old: Option<Value>) -> String {
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]);
        let stored = rbac::testing::World::of([
            ("clusterroles", json!({"metadata": {"name": "all"}, "rules": rules})),
            (
                "clusterrolebindings",
                json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "all"},
                "subjects": [{"kind": "User", "name": "alice"}]}),
            ),
        ]);
        let policy = |name: &str, version: &str, kind: &str| json!({"metadata": {"name": name}, "spec": {"paramKind": {"apiVersion": version, "kind": kind}}});
        let policies = resource.replace("bindings", "s").replace("policys", "policies");
        let world = World::default()
            .with(GROUP, &policies, policy("secret", "v1", "Secret"))
            .with(GROUP, &policies, policy("open", "v1", "ConfigMap"))
            .with(GROUP, &policies, policy("other", "x.io/v1", "Foo"));
        let object = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
        let mut request = Request::new(GROUP, resource, "", object(spec));
        request.user = UserInfo::new("alice", &["devs"]);
        if let Some(old) = old {
            request = request.update(object(old));
        }
        let resources = SharedResourceTable::new(coracle_resources::built_in());
        let plugin = ParamAccess { authorizer: stored.authorizer(), resources };
        request.run(&plugin, &world).map_or_else(
            |error| error.split_once(": spec.").map_or(error.clone(), |(_, cause)| cause.to_owned()),
            |_| "ok".to_owned(),
        )
    }

    #[test]
    fn parameters_of_a_policy_must_be_readable() {
        let kind = |version: &str, kind: &str| json!({"paramKind": {"apiVersion": version, "kind": kind}});
        let refused = |kind: &str, version: &str| {
            format!(
                "paramKind: Forbidden: user &{{alice  [devs] map[]}} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion={version})"
            )
        };
        for resource in ["validatingadmissionpolicies", "mutatingadmissionpolicies"] {
            for (spec, old, want) in [
                (json!({}), None, "ok".to_owned()),
                (kind("v1", "ConfigMap"), None, "ok".to_owned()),
                (kind("v1", "Secret"), None, refused("Secret", "v1")),
                (kind("x.io/v1", "Foo"), None, refused("Foo", "x.io/v1")),
                (kind("v1", "Secret"), Some(kind("v1", "Secret")), "ok".to_owned()),
                (kind("v1", "Secret"), Some(kind("v1", "ConfigMap")), refused("Secret", "v1")),
            ] {
                assert_eq!(written(resource, spec.clone(), old), want, "{resource} {spec}");
            }
        }
    }

    #[test]
    fn the_parameter_of_a_binding_must_be_readable() {
        let binding = |policy: &str, reference: Value| json!({"policyName": policy, "paramRef": reference});
        let named = json!({"name": "p", "namespace": "ns"});
        let user = "user &{alice  [devs] map[]} does not have";
        let all = "permission for all groups, versions and resources";
        let determine = "to determine minimum required permissions and";
        for (spec, old, want) in [
            (binding("secret", json!(null)), None, "ok".to_owned()),
            (binding("open", named.clone()), None, "ok".to_owned()),
            (
                binding("secret", named.clone()),
                None,
                format!("{user} \"get\" permission on the object referenced by paramRef"),
            ),
            (
                binding("open", json!({"selector": {}})),
                None,
                format!("{user} \"list\" permission on the object referenced by paramRef"),
            ),
            (
                binding("none", named.clone()),
                None,
                format!("unable to get policy none {determine} {user} \"get\" {all}"),
            ),
            (
                binding("other", named.clone()),
                None,
                format!("unable to resolve paramKind &{{x.io/v1 Foo}} {determine} {user} \"get\" {all}"),
            ),
            (binding("secret", named.clone()), Some(binding("secret", named.clone())), "ok".to_owned()),
            (
                binding("secret", json!({"name": "p", "parameterNotFoundAction": "Deny"})),
                Some(binding("secret", json!({"name": "p", "parameterNotFoundAction": "Deny"}))),
                format!("{user} \"get\" permission on the object referenced by paramRef"),
            ),
        ] {
            let got = written("validatingadmissionpolicybindings", spec.clone(), old);
            assert_eq!(got.trim_start_matches("paramRef: Forbidden: "), want, "{spec}");
        }
        let got = written("mutatingadmissionpolicybindings", binding("secret", named), None);
        let confused = "user get does not have \"&{alice  [devs] map[]}\" permission on the object referenced by paramRef";
        assert_eq!(got.trim_start_matches("paramRef: Forbidden: "), confused);
    }

    #[test]
    fn users_are_printed_as_by_go() {
        let mut user = UserInfo::new("u", &["a", "b"]);
        user.uid = "1".to_owned();
        user.extra.insert("k".to_owned(), vec!["v".to_owned(), "w".to_owned()]);
        assert_eq!(printed(&user), "&{u 1 [a b] map[k:[v w]]}");
    }
}
