//! Authorization: whether a user may perform a request.
//!
//! Members of `system:masters` bypass RBAC. For all other users [`super::rbac`] decides, by the RBAC objects that the
//! registry has reported.
//!
//! Start at [`Authorizer::check`]; [`Authorizer::decide`] also returns the reason.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;

use super::authenticate::{MASTERS, UserInfo};
use super::rbac::{Kind, PolicyRules, RbacIndex, RbacObject, RoleRef};
use super::rules::PolicyRule;
use crate::error::Error;
use crate::field::quote;
use crate::names::GroupResource;
use crate::request::RequestInfo;

/// The attributes of a request that authorization decides by.
#[derive(Clone, Copy, Debug)]
pub struct RequestAttributes<'a> {
    /// An API verb (`get`, `list`, `deletecollection`, ...), or for paths the HTTP method in lower case.
    pub verb: &'a str,
    /// The resource or path.
    pub target: Target<'a>,
}

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A resource.
    Resource(ResourceTarget<'a>),
    /// A path outside the resources, such as `/healthz`.
    Path(&'a str),
}

/// A resource request. Attributes that do not apply are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceTarget<'a> {
    /// The API group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name; also the name that a field selector restricts a list or watch to.
    pub name: &'a str,
}

impl<'a> From<&'a RequestInfo> for RequestAttributes<'a> {
    fn from(info: &'a RequestInfo) -> RequestAttributes<'a> {
        match info {
            RequestInfo::Path { path, verb } => RequestAttributes { verb, target: Target::Path(path) },
            RequestInfo::Resource(r) => RequestAttributes {
                verb: r.verb.as_str(),
                target: Target::Resource(ResourceTarget {
                    group: &r.group,
                    resource: &r.resource,
                    subresource: &r.subresource,
                    namespace: &r.namespace,
                    name: &r.name,
                }),
            },
        }
    }
}

impl RequestAttributes<'_> {
    /// The namespace of the rules; empty for cluster scope.
    pub fn namespace(&self) -> &str {
        match &self.target {
            Target::Resource(r) => r.namespace,
            Target::Path(_) => "",
        }
    }
}

/// The decision about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The binding that allowed the request, or the errors if none did; may be empty.
    pub reason: String,
}

/// `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `RBAC`.
    Rbac,
    /// `AlwaysAllow`.
    AlwaysAllow,
}

/// Authorizes requests by RBAC rules that change while requests are served.
pub struct Authorizer {
    mode: Mode,
    index: RwLock<RbacIndex>,
}

impl Authorizer {
    /// An authorizer that knows no RBAC objects yet.
    pub fn new(mode: Mode) -> Authorizer {
        Authorizer { mode, index: RwLock::default() }
    }

    /// Whether objects of this resource must be reported with [`Authorizer::upsert`] and [`Authorizer::remove`].
    pub fn watches(resource: &GroupResource) -> bool {
        Kind::of(resource).is_some()
    }

    /// Records a written RBAC object; other objects are ignored.
    pub fn upsert(&self, resource: &GroupResource, object: &Value) {
        if let Some(kind) = Kind::of(resource) {
            // Parsed before the lock is taken.
            let entry = RbacObject::of(kind, object);
            self.change().upsert(entry);
        }
    }

    /// Records the deletion of an RBAC object; other objects are ignored.
    pub fn remove(&self, resource: &GroupResource, namespace: &str, name: &str) {
        if let Some(kind) = Kind::of(resource) {
            self.change().remove(kind, namespace, name);
        }
    }

    /// Replaces the whole index with these RBAC objects, atomically; other objects are ignored.
    pub fn replace<'a>(&self, objects: impl IntoIterator<Item = (&'a GroupResource, Value)>) {
        let mut index = RbacIndex::default();
        for (resource, object) in objects {
            if let Some(kind) = Kind::of(resource) {
                index.upsert(RbacObject::of(kind, &object));
            }
        }
        let old = std::mem::replace(&mut *self.change(), index);
        drop(old);
    }

    fn is_privileged(&self, user: &UserInfo) -> bool {
        self.mode == Mode::AlwaysAllow || user.is_in(MASTERS)
    }

    /// # Errors
    /// [`Error::Forbidden`] with the real server's message, if the user is not allowed.
    pub fn check(&self, user: &UserInfo, request: &RequestAttributes<'_>) -> Result<(), Error> {
        if self.is_privileged(user) {
            return Ok(());
        }
        let index = self.rules();
        match index.find(user, request) {
            Ok(_) => Ok(()),
            Err(unresolved) => Err(forbidden(user, request, &denial(&unresolved))),
        }
    }

    /// Decides about a request, with the reason.
    pub fn decide(&self, user: &UserInfo, request: &RequestAttributes<'_>) -> Decision {
        if self.is_privileged(user) {
            return Decision { allowed: true, reason: String::new() };
        }
        match self.rules().find(user, request) {
            Ok(grant) => Decision { allowed: true, reason: format!("RBAC: allowed by {grant}") },
            Err(unresolved) => Decision { allowed: false, reason: denial(&unresolved) },
        }
    }

    /// The rules of each binding that applies to the user in a namespace, and the bound roles that do not exist.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRules>, Vec<RoleRef>) {
        match self.mode {
            Mode::AlwaysAllow => {
                (vec![PolicyRules::from([PolicyRule::all_resources(), PolicyRule::all_paths()])], Vec::new())
            }
            Mode::Rbac => self.rules().rules_for(user, namespace),
        }
    }

    /// The rules of a role; for a `Role`, of the one in `namespace`.
    pub fn rules_of_role(&self, kind: Kind, namespace: &str, name: &str) -> Option<PolicyRules> {
        self.rules().rules_of_role(kind, namespace, name).cloned()
    }

    // After a panic elsewhere that held the lock the entries are still whole: each change is one map operation at a
    // time.
    fn rules(&self) -> RwLockReadGuard<'_, RbacIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, RbacIndex> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason of a denial, as far as the user may see it.
fn denial(unresolved: &[RoleRef]) -> String {
    if unresolved.is_empty() { String::new() } else { format!("RBAC: {}", not_found(unresolved)) }
}

/// The errors of bound roles that do not exist.
pub fn not_found(unresolved: &[RoleRef]) -> String {
    aggregate(&unresolved.iter().map(RoleRef::not_found).collect::<Vec<_>>())
}

/// Several errors as one text: one as it is, several as `[a, b]`, each once.
pub fn aggregate<T: ToString>(errors: &[T]) -> String {
    let mut seen = HashSet::new();
    let texts = errors.iter().map(T::to_string).filter(|text| seen.insert(text.clone()));
    let texts: Vec<String> = texts.collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// The 403 response, which names the denied request.
pub fn forbidden(user: &UserInfo, request: &RequestAttributes<'_>, reason: &str) -> Error {
    let verb = request.verb;
    let (tried, resource, name) = match request.target {
        Target::Path(path) => (format!("path {}", quote(path)), None, ""),
        Target::Resource(r) => {
            let scope = if r.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {}", quote(r.namespace))
            };
            let slash = if r.subresource.is_empty() { "" } else { "/" };
            let full = format!("{}{slash}{}", r.resource, r.subresource);
            let tried = format!("resource {} in API group {} {scope}", quote(&full), quote(r.group));
            (tried, Some(GroupResource::new(r.group, r.resource)), r.name)
        }
    };
    let text = format!("User {} cannot {verb} {tried}", quote(&user.name));
    // Keeps browsers from interpreting the response as HTML.
    let mut detail = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        detail.push_str(": ");
        detail.push_str(reason);
    }
    Error::Forbidden { resource, name: name.to_owned(), detail, causes: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_have_the_real_servers_messages() {
        let alice = UserInfo::new("alice", &[]);
        let pods = ResourceTarget { resource: "pods", ..ResourceTarget::default() };
        let resource = |target| Target::Resource(target);
        for (verb, target, want) in [
            (
                "list",
                resource(pods),
                r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the cluster scope"#,
            ),
            (
                "get",
                resource(ResourceTarget {
                    group: "apps",
                    resource: "deployments",
                    subresource: "scale",
                    namespace: "ns",
                    name: "d",
                }),
                r#"deployments.apps "d" is forbidden: User "alice" cannot get resource "deployments/scale" in API group "apps" in the namespace "ns""#,
            ),
            (
                "list",
                resource(ResourceTarget { namespace: "a&b<c>", ..pods }),
                r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "a&amp;b&lt;c&gt;""#,
            ),
            ("post", Target::Path("/metrics"), r#"forbidden: User "alice" cannot post path "/metrics""#),
        ] {
            let error = forbidden(&alice, &RequestAttributes { verb, target }, "");
            assert_eq!(error.to_string(), want);
        }
        let request = RequestAttributes { verb: "get", target: Target::Path("/x") };
        assert_eq!(
            forbidden(&alice, &request, "RBAC: r").to_string(),
            r#"forbidden: User "alice" cannot get path "/x": RBAC: r"#
        );
    }

    #[test]
    fn system_masters_and_always_allow_need_no_rules() {
        let request = RequestAttributes { verb: "get", target: Target::Path("/x") };
        for (case, mode, groups, want) in [
            ("masters", Mode::Rbac, vec![MASTERS], true),
            ("nobody", Mode::Rbac, vec![], false),
            ("always", Mode::AlwaysAllow, vec![], true),
        ] {
            let authorizer = Authorizer::new(mode);
            let user = UserInfo::new("x", &groups);
            let decision = Decision { allowed: want, reason: String::new() };
            assert_eq!(authorizer.decide(&user, &request), decision, "{case}");
            assert_eq!(authorizer.check(&user, &request).is_ok(), want, "{case}");
        }
    }
}
