//! The claims of a new token.

use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apiserver::access::authenticate::service_account_username;
use serde_json::{Value, json};

/// An object that a token is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundObject {
    /// A pod.
    Pod,
    /// A secret.
    Secret,
    /// A node.
    Node,
}

impl BoundObject {
    /// Returns the member of the claims that names the object.
    pub(super) fn member(self) -> &'static str {
        match self {
            BoundObject::Pod => "pod",
            BoundObject::Secret => "secret",
            BoundObject::Node => "node",
        }
    }

    /// Returns the resource of the object.
    pub(super) fn resource(self) -> GroupResource {
        GroupResource::new("", &format!("{}s", self.member()))
    }
}

/// The parameters of a new token.
pub struct Request<'a> {
    /// The issuer.
    pub issuer: &'a str,
    /// The ServiceAccount object.
    pub account: &'a Value,
    /// The object that the token is bound to.
    pub bound: Option<(BoundObject, &'a Value)>,
    /// The node of a bound pod; its uid is empty if the node does not exist.
    pub node: Option<(&'a str, &'a str)>,
    /// The audiences.
    pub audiences: &'a [String],
    /// Seconds since 1970.
    pub issued: i64,
    /// Seconds until the expiration.
    pub lifetime: i64,
    /// Seconds after which a use of the token is stale; None if it expires when it was asked to.
    pub warn_after: Option<i64>,
}

/// Builds the claims of a new token.
pub fn claims(request: &Request<'_>) -> Value {
    let reference = |object: &Value| json!({"name": object.name(), "uid": object.uid()});
    let account = request.account;
    let mut kubernetes = json!({"namespace": account.namespace(), "serviceaccount": reference(account)});
    if let Some((kind, object)) = request.bound {
        kubernetes[kind.member()] = reference(object);
    }
    if let Some((name, uid)) = request.node {
        kubernetes["node"] = json!({"name": name});
        if !uid.is_empty() {
            kubernetes["node"]["uid"] = uid.into();
        }
    }
    if let Some(seconds) = request.warn_after {
        kubernetes["warnafter"] = (request.issued + seconds).into();
    }
    json!({
        "aud": request.audiences,
        "exp": request.issued + request.lifetime,
        "iat": request.issued,
        "iss": request.issuer,
        "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": kubernetes,
        "nbf": request.issued,
        "sub": service_account_username(account.namespace(), account.name()),
    })
}
