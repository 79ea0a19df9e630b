//! The variable `authorizer`: checks of what the user of the request, or a service account, may do.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library/authz.go`.

use std::sync::Arc;

use coracle_cel::{EvalError, Host, Value};

use crate::access::UserInfo;
use crate::access::authenticate::{service_account_groups, service_account_username};
use crate::access::authorize::{Authorizer, Decision, RequestAttributes, ResourceTarget, Target};

#[derive(Clone)]
struct Caller {
    authorizer: Arc<Authorizer>,
    user: Arc<UserInfo>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.user.name)
    }
}

/// A step of a check; the names of the types are upstream's.
#[derive(Clone, Debug)]
enum Check {
    Authorizer(Caller),
    Path(Caller, String),
    Group(Caller, String),
    Resource(Caller, ResourceCheck),
    Decision(Decision),
}

#[derive(Clone, Debug, Default)]
pub struct ResourceCheck {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

/// Returns the variable `authorizer`.
pub fn authorizer<'a>(authorizer: &Arc<Authorizer>, user: &Arc<UserInfo>) -> Value<'a> {
    let caller = Caller { authorizer: authorizer.clone(), user: user.clone() };
    Value::Host(Arc::new(Check::Authorizer(caller)))
}

/// Returns the variable `authorizer.requestResource`.
pub fn request_resource<'a>(
    authorizer: &Arc<Authorizer>,
    user: &Arc<UserInfo>,
    resource: ResourceCheck,
) -> Value<'a> {
    let caller = Caller { authorizer: authorizer.clone(), user: user.clone() };
    Value::Host(Arc::new(Check::Resource(caller, resource)))
}

impl Caller {
    fn decide(&self, verb: &str, target: Target<'_>) -> Check {
        Check::Decision(self.authorizer.decide(&self.user, &RequestAttributes { verb, target }))
    }
}

impl Host for Check {
    fn type_name(&self) -> &'static str {
        match self {
            Check::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Check::Path(..) => "kubernetes.authorization.PathCheck",
            Check::Group(..) => "kubernetes.authorization.GroupCheck",
            Check::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Check::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    fn size(&self) -> usize {
        match self {
            Check::Authorizer(_) => 0,
            Check::Path(_, text) | Check::Group(_, text) => text.len(),
            Check::Resource(_, check) => {
                let ResourceCheck { group, resource, subresource, namespace, name } = check;
                [group, resource, subresource, namespace, name].into_iter().map(String::len).sum()
            }
            Check::Decision(decision) => decision.reason.len(),
        }
    }

    fn call(&self, function: &str, args: &[Value<'_>]) -> Result<Value<'static>, EvalError> {
        let texts: Vec<&str> = args
            .iter()
            .filter_map(|arg| match arg {
                Value::String(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let next = match (self, function, texts.as_slice()) {
            (Check::Authorizer(caller), "path", [path]) => Check::Path(caller.clone(), (*path).to_owned()),
            (Check::Authorizer(caller), "group", [group]) => {
                Check::Group(caller.clone(), (*group).to_owned())
            }
            (Check::Authorizer(caller), "serviceAccount", [namespace, name]) => {
                let user = UserInfo {
                    groups: service_account_groups(namespace),
                    ..UserInfo::new(&service_account_username(namespace, name), &[])
                };
                let user = user.authenticated();
                Check::Authorizer(Caller { authorizer: caller.authorizer.clone(), user: Arc::new(user) })
            }
            (Check::Group(caller, group), "resource", [resource]) => {
                let (group, resource) = (group.clone(), (*resource).to_owned());
                Check::Resource(caller.clone(), ResourceCheck { group, resource, ..ResourceCheck::default() })
            }
            (Check::Resource(caller, resource), "subresource" | "namespace" | "name", [text]) => {
                let mut resource = resource.clone();
                let text = (*text).to_owned();
                match function {
                    "subresource" => resource.subresource = text,
                    "namespace" => resource.namespace = text,
                    _ => resource.name = text,
                }
                Check::Resource(caller.clone(), resource)
            }
            // Selectors restrict what is asked for; RBAC does not look at them.
            (Check::Resource(..), "fieldSelector" | "labelSelector", [_]) => self.clone(),
            (Check::Resource(caller, resource), "check", [verb]) => caller.decide(
                verb,
                Target::Resource(ResourceTarget {
                    group: &resource.group,
                    resource: &resource.resource,
                    subresource: &resource.subresource,
                    namespace: &resource.namespace,
                    name: &resource.name,
                }),
            ),
            (Check::Path(caller, path), "check", [verb]) => caller.decide(verb, Target::Path(path)),
            (Check::Decision(decision), "allowed", []) => return Ok(Value::Bool(decision.allowed)),
            (Check::Decision(decision), "reason", []) => return Ok(Value::text(decision.reason.as_str())),
            (Check::Decision(_), "errored", []) => return Ok(Value::Bool(false)),
            (Check::Decision(_), "error", []) => return Ok(Value::text("")),
            _ => return Err(EvalError::NoSuchOverload),
        };
        Ok(Value::Host(Arc::new(next)))
    }
}
