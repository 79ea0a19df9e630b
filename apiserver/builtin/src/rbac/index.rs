//! Index: roles and bindings by their subjects.
//!
//! The index holds parsed rules. A decision visits only the bindings with the user or one of the
//! user's groups as a subject: cluster role bindings first, then the namespace's role bindings,
//! each in name order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use coracle_apimachinery::field::quote;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::access::authenticate::{UserInfo, service_account_username};
use coracle_apiserver::access::authorize::{RequestAttributes, aggregate};
use serde_json::Value;

use super::rules::PolicyRule;

/// The API group.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// The kinds of RBAC objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Role.
    Role,
    /// ClusterRole.
    ClusterRole,
    /// RoleBinding.
    RoleBinding,
    /// ClusterRoleBinding.
    ClusterRoleBinding,
}

impl Kind {
    /// Returns the kind of a resource; None if it is not one of RBAC.
    pub fn of(resource: &GroupResource) -> Option<Kind> {
        if resource.group != GROUP {
            return None;
        }
        match resource.resource.as_str() {
            "roles" => Some(Kind::Role),
            "clusterroles" => Some(Kind::ClusterRole),
            "rolebindings" => Some(Kind::RoleBinding),
            "clusterrolebindings" => Some(Kind::ClusterRoleBinding),
            _ => None,
        }
    }

    /// Returns the kind of role that a `roleRef.kind` names.
    pub fn of_role(kind: &str) -> Option<Kind> {
        match kind {
            "Role" => Some(Kind::Role),
            "ClusterRole" => Some(Kind::ClusterRole),
            _ => None,
        }
    }

    /// Returns the name of the kind in objects.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Role => "Role",
            Kind::ClusterRole => "ClusterRole",
            Kind::RoleBinding => "RoleBinding",
            Kind::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// Returns the singular name of the resource.
    pub fn singular(self) -> &'static str {
        match self {
            Kind::Role => "role",
            Kind::ClusterRole => "clusterrole",
            Kind::RoleBinding => "rolebinding",
            Kind::ClusterRoleBinding => "clusterrolebinding",
        }
    }
}

/// A `roleRef`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleRef {
    /// Role or ClusterRole.
    pub kind: Kind,
    /// The name of the role.
    pub name: String,
}

impl RoleRef {
    /// Formats the error for a role that does not exist.
    pub fn not_found(&self) -> String {
        format!("{}.{GROUP} {} not found", self.kind.singular(), quote(&self.name))
    }
}

/// Formats the errors for bound roles that do not exist.
pub fn not_found(unresolved: &[RoleRef]) -> String {
    aggregate(&unresolved.iter().map(RoleRef::not_found).collect::<Vec<_>>())
}

/// Bytes of names of missing roles that are reported for one decision. A user may be bound to any
/// number of them.
pub(super) const UNRESOLVED: usize = 64 * 1024;

/// The rules of one role, shared with readers that hold no lock.
pub type PolicyRules = Arc<[PolicyRule]>;

/// All roles and bindings. Those of cluster scope are stored under the namespace `""`. Clones share
/// what neither changes.
#[derive(Clone, Debug, Default)]
pub struct RbacIndex {
    scopes: HashMap<String, Arc<Scope>>,
}

#[derive(Clone, Debug, Default)]
struct Scope {
    roles: HashMap<String, PolicyRules>,
    bindings: BTreeMap<String, Arc<Binding>>,
    by_user: HashMap<String, BindingsBySubject>,
    by_group: HashMap<String, BindingsBySubject>,
}

/// The names of the bindings with a user or group as a subject, each with the index of the first
/// such subject.
type BindingsBySubject = BTreeMap<String, usize>;

#[derive(Debug)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Subject {
    principal: Principal,
    /// As decisions print it: `User "alice"`, `ServiceAccount "robot/ns"`.
    description: String,
}

#[derive(Debug)]
enum Principal {
    User(String),
    Group(String),
}

/// The binding that allowed a request: `RoleBinding "b/ns" of Role "r" to User "u"`.
#[derive(Debug)]
pub struct Grant<'a> {
    namespace: &'a str,
    name: &'a str,
    binding: &'a Binding,
    subject: &'a Subject,
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = &self.binding.role;
        if self.namespace.is_empty() {
            write!(f, "ClusterRoleBinding {}", quote(self.name))?;
        } else {
            write!(f, "RoleBinding {}", quote(&format!("{}/{}", self.name, self.namespace)))?;
        }
        write!(f, " of {} {} to {}", role.kind.name(), quote(&role.name), self.subject.description)
    }
}

/// An RBAC object, parsed for the index.
#[derive(Debug)]
pub struct RbacObject {
    kind: Kind,
    namespace: String,
    name: String,
    content: Content,
}

#[derive(Debug)]
enum Content {
    PolicyRules(PolicyRules),
    /// None if its `roleRef` has an unknown kind.
    Binding(Option<Binding>),
}

impl RbacObject {
    /// Parses an object of a kind.
    pub fn of(kind: Kind, object: &Value) -> RbacObject {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or("").to_owned();
        let namespace = text("namespace");
        let content = match kind {
            Kind::Role | Kind::ClusterRole => Content::PolicyRules(PolicyRule::of_role(object).into()),
            Kind::RoleBinding | Kind::ClusterRoleBinding => Content::Binding(Binding::of(object, &namespace)),
        };
        RbacObject { kind, name: text("name"), namespace, content }
    }
}

impl RbacIndex {
    /// Adds an object, or replaces the one of its kind and name.
    pub fn upsert(&mut self, RbacObject { kind, namespace, name, content }: RbacObject) {
        match content {
            Content::PolicyRules(rules) => {
                self.scope(namespace).roles.insert(name, rules);
            }
            Content::Binding(binding) => {
                self.remove(kind, &namespace, &name);
                if let Some(binding) = binding {
                    self.scope(namespace).bind(&name, binding);
                }
            }
        }
    }

    fn scope(&mut self, namespace: String) -> &mut Scope {
        Arc::make_mut(self.scopes.entry(namespace).or_default())
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        let Some(scope) = self.scopes.get_mut(namespace).filter(|scope| scope.has(kind, name)) else {
            return;
        };
        let scope = Arc::make_mut(scope);
        match kind {
            Kind::Role | Kind::ClusterRole => {
                scope.roles.remove(name);
            }
            Kind::RoleBinding | Kind::ClusterRoleBinding => scope.unbind(name),
        }
        if scope.roles.is_empty() && scope.bindings.is_empty() {
            self.scopes.remove(namespace);
        }
    }

    /// Returns the grant that allows the request. If none does, the error has the bound roles that
    /// do not exist.
    pub fn find<'a>(
        &'a self,
        user: &UserInfo,
        request: &RequestAttributes<'_>,
    ) -> Result<Grant<'a>, Vec<RoleRef>> {
        let mut unresolved = Unresolved::default();
        // A role that is bound many times is evaluated once.
        let mut seen = HashSet::new();
        for grant in self.grants(user, request.namespace()) {
            let role = &grant.binding.role;
            match self.rules_of_role(role.kind, grant.namespace, &role.name) {
                Some(rules) if !seen.insert(Arc::as_ptr(rules).cast::<PolicyRule>()) => {}
                Some(rules) if rules.iter().any(|rule| rule.allows(request)) => return Ok(grant),
                Some(_) => {}
                None => unresolved.add(role),
            }
        }
        Err(unresolved.roles)
    }

    /// Returns the rules of each binding that applies to the user in a namespace, and the bound
    /// roles that do not exist.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRules>, Vec<RoleRef>) {
        let (mut rules, mut unresolved) = (Vec::new(), Unresolved::default());
        for grant in self.grants(user, namespace) {
            let role = &grant.binding.role;
            match self.rules_of_role(role.kind, grant.namespace, &role.name) {
                Some(found) => rules.push(found.clone()),
                None => unresolved.add(role),
            }
        }
        (rules, unresolved.roles)
    }

    /// Returns the rules of a role; for a `Role`, of the one in `namespace`.
    pub fn rules_of_role(&self, kind: Kind, namespace: &str, name: &str) -> Option<&PolicyRules> {
        let namespace = if kind == Kind::Role { namespace } else { "" };
        self.scopes.get(namespace)?.roles.get(name)
    }

    /// Iterates over the bindings that apply to the user.
    fn grants<'a>(&'a self, user: &UserInfo, namespace: &str) -> impl Iterator<Item = Grant<'a>> {
        let local = (!namespace.is_empty()).then_some(namespace);
        let scopes = std::iter::once("").chain(local).filter_map(|n| self.scopes.get_key_value(n));
        scopes.flat_map(|(namespace, scope)| scope.grants(namespace, user)).collect::<Vec<_>>().into_iter()
    }
}

/// Bound roles that do not exist: each once, as far as their names fit into the limit.
#[derive(Default)]
struct Unresolved<'a> {
    seen: HashSet<&'a RoleRef>,
    roles: Vec<RoleRef>,
    bytes: usize,
}

impl<'a> Unresolved<'a> {
    fn add(&mut self, role: &'a RoleRef) {
        let bytes = self.bytes + role.name.len();
        if bytes <= UNRESOLVED && self.seen.insert(role) {
            self.bytes = bytes;
            self.roles.push(role.clone());
        }
    }
}

impl Scope {
    fn has(&self, kind: Kind, name: &str) -> bool {
        match kind {
            Kind::Role | Kind::ClusterRole => self.roles.contains_key(name),
            Kind::RoleBinding | Kind::ClusterRoleBinding => self.bindings.contains_key(name),
        }
    }

    fn bind(&mut self, name: &str, binding: Binding) {
        for (index, subject) in binding.subjects.iter().enumerate() {
            let concerned = match &subject.principal {
                Principal::User(user) => self.by_user.entry(user.clone()).or_default(),
                Principal::Group(group) => self.by_group.entry(group.clone()).or_default(),
            };
            concerned.entry(name.to_owned()).or_insert(index);
        }
        self.bindings.insert(name.to_owned(), Arc::new(binding));
    }

    fn unbind(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            let (index, key) = match &subject.principal {
                Principal::User(user) => (&mut self.by_user, user),
                Principal::Group(group) => (&mut self.by_group, group),
            };
            if let Some(concerned) = index.get_mut(key) {
                concerned.remove(name);
                if concerned.is_empty() {
                    index.remove(key);
                }
            }
        }
    }

    fn grants<'a>(&'a self, namespace: &'a str, user: &UserInfo) -> Vec<Grant<'a>> {
        // Each group once: a review may repeat a group.
        let groups: HashSet<&str> = user.groups.iter().map(String::as_str).collect();
        let of_groups = groups.into_iter().filter_map(|group| self.by_group.get(group));
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, index) in self.by_user.get(&user.name).into_iter().chain(of_groups).flatten() {
            first.entry(name).and_modify(|known| *known = (*known).min(*index)).or_insert(*index);
        }
        let grant = |(name, index): (&str, usize)| {
            let (name, binding) = self.bindings.get_key_value(name)?;
            Some(Grant { namespace, name, binding, subject: binding.subjects.get(index)? })
        };
        first.into_iter().filter_map(grant).collect()
    }
}

impl Binding {
    /// Reads a binding; returns None if its `roleRef` has an unknown kind, which validation
    /// rejects.
    fn of(object: &Value, namespace: &str) -> Option<Binding> {
        let reference = &object["roleRef"];
        let kind = Kind::of_role(reference["kind"].as_str()?)?;
        let name = reference["name"].as_str()?.to_owned();
        let subjects = object["subjects"].as_array().map_or(&[][..], Vec::as_slice);
        Some(Binding {
            role: RoleRef { kind, name },
            subjects: subjects.iter().filter_map(|s| Subject::of(s, namespace)).collect(),
        })
    }
}

impl Subject {
    /// Reads a subject; returns None if it matches no user: an unknown kind, or a service account
    /// without a namespace.
    fn of(subject: &Value, binding_namespace: &str) -> Option<Subject> {
        let kind = subject["kind"].as_str()?;
        let name = subject["name"].as_str()?;
        let (principal, shown) = match kind {
            "User" => (Principal::User(name.to_owned()), name.to_owned()),
            "Group" => (Principal::Group(name.to_owned()), name.to_owned()),
            "ServiceAccount" => {
                let namespace =
                    subject["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(binding_namespace);
                if namespace.is_empty() {
                    return None;
                }
                (Principal::User(service_account_username(namespace, name)), format!("{name}/{namespace}"))
            }
            _ => return None,
        };
        Some(Subject { principal, description: format!("{kind} {}", quote(&shown)) })
    }
}
