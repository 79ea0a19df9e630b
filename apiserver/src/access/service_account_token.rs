//! Service account tokens: what they claim, and whether the claims still hold.
//!
//! A token is as good as its account and the object it is bound to: once either is gone, or another of the same name, the
//! token is refused.
//!
//! Source: KEP-1205 (bound tokens), KEP-4193 (node and credential ids).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::authenticate::{
    CREDENTIAL_ID, TokenAuthenticator, UserInfo, Verdict, service_account_groups, service_account_username,
};
use super::jwt::SigningKey;
use crate::admission::Cluster;
use crate::names::GroupResource;
use crate::registry::{Clock, ObjectMeta};

/// Who issues the tokens, and for whom, unless a request names an audience.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// An object a token is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Pod,
    Secret,
    Node,
}

impl Bound {
    fn member(self) -> &'static str {
        match self {
            Bound::Pod => "pod",
            Bound::Secret => "secret",
            Bound::Node => "node",
        }
    }

    fn resource(self) -> GroupResource {
        GroupResource::new("", &format!("{}s", self.member()))
    }
}

/// What a new token shall say.
pub struct Request<'a> {
    pub account: &'a Value,
    pub bound: Option<(Bound, &'a Value)>,
    /// The node of a bound pod; its uid is empty if there is no such node.
    pub node: Option<(&'a str, &'a str)>,
    pub audiences: &'a [String],
    /// Seconds since 1970.
    pub issued: i64,
    pub lifetime: i64,
}

/// The claims of a new token.
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
    json!({
        "aud": request.audiences,
        "exp": request.issued + request.lifetime,
        "iat": request.issued,
        "iss": ISSUER,
        "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": kubernetes,
        "nbf": request.issued,
        "sub": service_account_username(account.namespace(), account.name()),
    })
}

/// Knows the users of service account tokens.
pub struct ServiceAccountTokens {
    pub key: Arc<SigningKey>,
    pub cluster: Arc<dyn Cluster + Send + Sync>,
    pub clock: Clock,
}

impl TokenAuthenticator for ServiceAccountTokens {
    fn authenticate(&self, token: &str, audiences: &[String]) -> Verdict {
        let Some(claims) = self.key.verify(token) else { return Verdict::Unknown };
        let own: Vec<String> = texts(&claims["aud"]);
        let common: Vec<String> = audiences.iter().filter(|a| own.contains(a)).cloned().collect();
        if common.is_empty() {
            return Verdict::Refused(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&own),
                quoted(audiences)
            ));
        }
        match self.user(&claims) {
            Ok(user) => Verdict::Known { user: Arc::new(user), audiences: common },
            Err(why) => Verdict::Refused(why),
        }
    }
}

impl ServiceAccountTokens {
    /// The user of claims that still hold.
    fn user(&self, claims: &Value) -> Result<UserInfo, String> {
        let now = (self.clock)().as_second();
        let time = |name: &str| claims[name].as_i64().unwrap_or(0);
        if time("exp") <= now {
            return Err("service account token has expired".to_owned());
        }
        if time("nbf") > now {
            return Err("service account token is not valid yet".to_owned());
        }
        let own = &claims["kubernetes.io"];
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let namespace = text(&own["namespace"]);
        let (name, uid) = (text(&own["serviceaccount"]["name"]), text(&own["serviceaccount"]["uid"]));
        let resource = GroupResource::new("", "serviceaccounts");
        let Some(account) = self.cluster.get(&resource, &namespace, &name) else {
            return Err(format!("serviceaccounts {} not found", crate::field::quote(&name)));
        };
        if account.uid() != uid {
            return Err(format!("service account UID ({}) does not match claim ({uid})", account.uid()));
        }
        let mut user = UserInfo {
            name: service_account_username(&namespace, &name),
            uid,
            groups: service_account_groups(&namespace),
            extra: BTreeMap::new(),
        };
        let mut note = |key: &str, value: String| {
            user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
        };
        for kind in [Bound::Secret, Bound::Pod, Bound::Node] {
            let reference = &own[kind.member()];
            if reference.is_null() {
                continue;
            }
            // Of a pod's token the node is only a remark.
            if kind != Bound::Node || own["pod"].is_null() {
                self.check_bound(kind, &namespace, reference)?;
            }
            if kind != Bound::Secret {
                note(&format!("{}-name", kind.member()), text(&reference["name"]));
                if !reference["uid"].is_null() {
                    note(&format!("{}-uid", kind.member()), text(&reference["uid"]));
                }
            }
        }
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", text(&claims["jti"]))]);
        Ok(user.authenticated())
    }

    fn check_bound(&self, kind: Bound, namespace: &str, reference: &Value) -> Result<(), String> {
        let invalidated = || "service account token has been invalidated".to_owned();
        let namespace = if kind == Bound::Node { "" } else { namespace };
        let name = reference["name"].as_str().unwrap_or("");
        let object = self.cluster.get(&kind.resource(), namespace, name).ok_or_else(invalidated)?;
        let claimed = reference["uid"].as_str().unwrap_or("");
        if object.uid() != claimed {
            let mut kind = kind.member().to_owned();
            if let Some(first) = kind.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            return Err(format!(
                "{kind} UID ({}) does not match service account {} ref claim ({claimed})",
                object.uid(),
                kind.to_lowercase()
            ));
        }
        let deleted: Option<jiff::Timestamp> = object.meta_str("deletionTimestamp").parse().ok();
        match deleted {
            Some(deleted) if deleted < (self.clock)() => Err(invalidated()),
            _ => Ok(()),
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// As Go prints a list of quoted strings.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|t| crate::field::quote(t)).collect();
    format!("[{}]", texts.join(" "))
}
