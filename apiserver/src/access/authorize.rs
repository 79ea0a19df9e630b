//! Authorization: whether a user may perform a request.
//!
//! Members of `system:masters` may do everything. For all other users a [`RuleResolver`] decides.
//!
//! Start at [`Authorizer::check`]; [`Authorizer::decide`] also returns the reason.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::authenticate::{MASTERS, UserInfo};
use crate::error::Error;
use crate::field::quote;
use crate::names::GroupResource;
use crate::request::RequestInfo;

/// The attributes of a request that authorization decides by.
#[derive(Clone, Copy, Debug)]
pub struct RequestAttributes<'a> {
    /// An API verb (`get`, `list`, `deletecollection`, ...), or for paths the HTTP method in lower
    /// case.
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
    /// Returns the namespace of the request; empty for cluster scope.
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

/// The rules of all users in a namespace or in the cluster.
///
/// Source: `Authorizer` and `RuleResolver` in k8s.io/apiserver's `pkg/authorization/authorizer`.
pub trait RuleResolver: Send + Sync {
    /// Takes up what was written so far. The decisions about a request follow one call of this, at
    /// its start, by a thread of normal priority: others may be waiting for the same rules. Before
    /// the first decision there may be nothing to take up: it reads the rules.
    fn refresh(&self);

    /// Decides about a request by what was written before the last [`refresh`](Self::refresh). A
    /// denial has its reason; a permission has one if it `is_explained`.
    fn authorize(&self, user: &UserInfo, request: &RequestAttributes<'_>, is_explained: bool) -> Decision;

    /// Returns the rules that apply to a user in a namespace, up to a text of `max_bytes`.
    fn rules_for(&self, user: &UserInfo, namespace: &str, max_bytes: usize) -> UserRules;
}

/// The rules that apply to a user in a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserRules {
    /// The rules as objects with the members `verbs`, `apiGroups`, `resources`, `resourceNames` and
    /// `nonResourceURLs`; empty ones are left out.
    pub rules: Vec<Value>,
    /// Whether there are more rules.
    pub is_truncated: bool,
    /// The errors of rules that cannot be resolved; empty if there are none.
    pub evaluation_error: String,
}

/// Authorizes requests by rules that change while requests are served.
pub struct Authorizer {
    /// None: everything is allowed.
    resolver: Option<Arc<dyn RuleResolver>>,
}

impl Authorizer {
    /// Creates an authorizer that asks `resolver` about all users except the members of
    /// `system:masters`.
    pub fn new(resolver: Arc<dyn RuleResolver>) -> Authorizer {
        Authorizer { resolver: Some(resolver) }
    }

    /// Creates an authorizer that allows everything.
    pub fn always_allow() -> Authorizer {
        Authorizer { resolver: None }
    }

    /// Takes up the rules that were written so far, once any were needed. Also for users who need
    /// none, so that what is to be taken up never gets large.
    pub fn refresh(&self) {
        if let Some(resolver) = &self.resolver {
            resolver.refresh();
        }
    }

    fn authorize(&self, user: &UserInfo, request: &RequestAttributes<'_>, is_explained: bool) -> Decision {
        match &self.resolver {
            Some(resolver) if !user.is_in(MASTERS) => resolver.authorize(user, request, is_explained),
            _ => Decision { allowed: true, reason: String::new() },
        }
    }

    /// Requires that a user is allowed to make a request.
    ///
    /// # Errors
    /// [`Error::Forbidden`] with kube-apiserver's message, if the user is not allowed.
    pub fn check(&self, user: &UserInfo, request: &RequestAttributes<'_>) -> Result<(), Error> {
        match self.authorize(user, request, false) {
            Decision { allowed: true, .. } => Ok(()),
            Decision { reason, .. } => Err(forbidden(user, request, &reason)),
        }
    }

    /// Decides about a request, with the reason.
    pub fn decide(&self, user: &UserInfo, request: &RequestAttributes<'_>) -> Decision {
        self.authorize(user, request, true)
    }

    /// Returns the rules that apply to a user in a namespace, up to a text of `max_bytes`.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str, max_bytes: usize) -> UserRules {
        match &self.resolver {
            Some(resolver) => resolver.rules_for(user, namespace, max_bytes),
            None => UserRules {
                rules: vec![
                    json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
                    json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
                ],
                ..UserRules::default()
            },
        }
    }
}

/// Joins errors to one text: a single error as it is, several as `[a, b]`, without duplicates.
pub fn aggregate<T: ToString>(errors: &[T]) -> String {
    let mut seen = HashSet::new();
    let texts = errors.iter().map(T::to_string).filter(|text| seen.insert(text.clone()));
    let texts: Vec<String> = texts.collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Creates the 403 response, which names the denied request.
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
    use crate::testing;

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
        for (case, authorizer, groups, want) in [
            ("masters", testing::always_deny(), vec![MASTERS], true),
            ("nobody", testing::always_deny(), vec![], false),
            ("always", Authorizer::always_allow(), vec![], true),
        ] {
            let user = UserInfo::new("x", &groups);
            let decision = Decision { allowed: want, reason: String::new() };
            assert_eq!(authorizer.decide(&user, &request), decision, "{case}");
            assert_eq!(authorizer.check(&user, &request).is_ok(), want, "{case}");
        }
    }
}
