//! Service account tokens: what they claim, and whether the claims still hold.
//!
//! A token is as good as its account and the object it is bound to: once either is deleted, or another of the same name, the
//! token is refused. One that is terminating counts as deleted a minute after its time.
//!
//! The tokens that secrets hold are older: they have neither an end nor an audience, and are good as long as their secret holds
//! them.
//!
//! Source: KEP-1205 (bound tokens), KEP-4193 (node and credential ids), KEP-2799 (tokens in secrets).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::authenticate::{
    CREDENTIAL_ID, TokenAuthenticator, UserInfo, Verdict, service_account_groups, service_account_username,
};
use super::jwt::SigningKey;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::names::GroupResource;
use crate::object_meta::ObjectMeta;

/// Who issues the tokens, and for whom, unless a request names an audience.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// Who issues the tokens that secrets hold.
const SECRETS_ISSUER: &str = "kubernetes/serviceaccount";
/// Times in tokens and objects are taken this exactly, in seconds: as long as clocks may differ.
const LEEWAY: i64 = 60;
/// A secret with this label holds a token that is no longer good.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

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
        let is_held = claims["iss"] == SECRETS_ISSUER;
        let own: Vec<String> = match is_held {
            true => vec![ISSUER.to_owned()],
            false => texts(&claims["aud"]),
        };
        // Both lists are as long as clients make them.
        let known: HashSet<&String> = own.iter().collect();
        let common: Vec<String> = audiences.iter().filter(|a| known.contains(a)).cloned().collect();
        if common.is_empty() {
            return Verdict::Refused(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&own),
                quoted(audiences)
            ));
        }
        let user = match is_held {
            true => self.user_of_held(token, &claims),
            false => self.user(&claims),
        };
        match user {
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
        if now.saturating_add(LEEWAY) < time("nbf") {
            return Err("service account token is not valid yet".to_owned());
        }
        if now.saturating_sub(LEEWAY) > time("exp") {
            return Err("service account token has expired".to_owned());
        }
        if now.saturating_add(LEEWAY) < time("iat") {
            return Err("service account token is issued in the future".to_owned());
        }
        let own = &claims["kubernetes.io"];
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let namespace = text(&own["namespace"]);
        let (name, uid) = (text(&own["serviceaccount"]["name"]), text(&own["serviceaccount"]["uid"]));
        let resource = GroupResource::new("", "serviceaccounts");
        let Some(account) = self.stored(&resource, &namespace, &name)? else {
            return Err(format!("serviceaccounts {} not found", crate::field::quote(&name)));
        };
        if account.uid() != uid {
            return Err(format!("service account UID ({}) does not match claim ({uid})", account.uid()));
        }
        if is_deleted(&account, now) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
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

    /// The user of a token that a secret holds.
    fn user_of_held(&self, token: &str, claims: &Value) -> Result<UserInfo, String> {
        let claim =
            |name: &str| claims[format!("kubernetes.io/serviceaccount/{name}")].as_str().unwrap_or("");
        let (namespace, name) = (claim("namespace"), claim("service-account.name"));
        let (uid, secret_name) = (claim("service-account.uid"), claim("secret.name"));
        if claims["sub"] != service_account_username(namespace, name).as_str() {
            return Err("sub claim is invalid".to_owned());
        }
        let get =
            |resource: &str, name: &str| self.stored(&GroupResource::new("", resource), namespace, name);
        let is_going = |object: &Value| !object.meta_str("deletionTimestamp").is_empty();
        let secret = get("secrets", secret_name)?.filter(|secret| !is_going(secret));
        let Some(secret) = secret else { return Err("Token has been invalidated".to_owned()) };
        if secret["data"]["token"] != STANDARD.encode(token).as_str() {
            return Err("Token does not match server's copy".to_owned());
        }
        let Some(account) = get("serviceaccounts", name)? else {
            return Err(format!("serviceaccounts {} not found", crate::field::quote(name)));
        };
        if is_going(&account) {
            return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
        }
        if account.uid() != uid {
            return Err(format!("ServiceAccount UID ({}) does not match claim ({uid})", account.uid()));
        }
        let invalid_since = secret["metadata"]["labels"][INVALID_SINCE].as_str();
        if invalid_since.is_some_and(|since| !since.is_empty()) {
            return Err(format!(
                "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked \
                 invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
                 '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            ));
        }
        let user = UserInfo {
            name: service_account_username(namespace, name),
            uid: uid.to_owned(),
            groups: service_account_groups(namespace),
            extra: BTreeMap::new(),
        };
        Ok(user.authenticated())
    }

    fn stored(&self, resource: &GroupResource, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        self.cluster.get(resource, namespace, name).map_err(|error| error.to_string())
    }

    fn check_bound(&self, kind: Bound, namespace: &str, reference: &Value) -> Result<(), String> {
        let invalidated = || "service account token has been invalidated".to_owned();
        let namespace = if kind == Bound::Node { "" } else { namespace };
        let name = reference["name"].as_str().unwrap_or("");
        let object = self.stored(&kind.resource(), namespace, name)?.ok_or_else(invalidated)?;
        let claimed = reference["uid"].as_str().unwrap_or("");
        if object.uid() != claimed {
            let kind = kind.member();
            let uid = object.uid();
            return Err(format!(
                "{kind} UID ({uid}) does not match service account {kind} ref claim ({claimed})"
            ));
        }
        if is_deleted(&object, (self.clock)().as_second()) { Err(invalidated()) } else { Ok(()) }
    }
}

/// Whether an object was to be deleted by now, though it may still be there.
fn is_deleted(object: &Value, now: i64) -> bool {
    let deleted: Option<jiff::Timestamp> = object.meta_str("deletionTimestamp").parse().ok();
    deleted.is_some_and(|deleted| deleted.as_second() < now.saturating_sub(LEEWAY))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::World;

    /// A secret of an account, a token for it, and what becomes of them.
    #[test]
    fn tokens_in_secrets_are_good_while_their_secrets_hold_them() {
        let key = Arc::new(SigningKey::ephemeral().unwrap());
        let claims = json!({
            "iss": SECRETS_ISSUER, "sub": "system:serviceaccount:ns:bot",
            "kubernetes.io/serviceaccount/namespace": "ns", "kubernetes.io/serviceaccount/secret.name": "s",
            "kubernetes.io/serviceaccount/service-account.name": "bot",
            "kubernetes.io/serviceaccount/service-account.uid": "u",
        });
        let token = key.sign(&claims).unwrap();
        let account = |uid: &str| json!({"metadata": {"namespace": "ns", "name": "bot", "uid": uid}});
        let secret = |token: &str| json!({"metadata": {"namespace": "ns", "name": "s"}, "data": {"token": STANDARD.encode(token)}});
        let mut going = secret(&token);
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let mut invalid = secret(&token);
        invalid["metadata"]["labels"] = json!({INVALID_SINCE: "2026-01-01"});
        for (case, secret, account, want) in [
            ("good", Some(secret(&token)), Some(account("u")), Ok("system:serviceaccount:ns:bot")),
            ("without its secret", None, Some(account("u")), Err("Token has been invalidated")),
            ("secret on its way out", Some(going), Some(account("u")), Err("Token has been invalidated")),
            (
                "another token",
                Some(secret("t")),
                Some(account("u")),
                Err("Token does not match server's copy"),
            ),
            ("without its account", Some(secret(&token)), None, Err("serviceaccounts \"bot\" not found")),
            (
                "another account of the name",
                Some(secret(&token)),
                Some(account("v")),
                Err("ServiceAccount UID (v) does not match claim (u)"),
            ),
            (
                "marked",
                Some(invalid),
                Some(account("u")),
                Err(
                    "the token in secret ns/s for service account ns/bot has been marked invalid. Use tokens from the \
                     TokenRequest API or manually created secret-based tokens, or remove the \
                     'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token",
                ),
            ),
        ] {
            let mut world = World::default();
            for (resource, object) in [("secrets", secret), ("serviceaccounts", account)] {
                if let Some(object) = object {
                    world = world.with("", resource, object);
                }
            }
            let tokens = ServiceAccountTokens {
                key: key.clone(),
                cluster: Arc::new(world),
                clock: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
            };
            let got = match tokens.authenticate(&token, &[ISSUER.to_owned()]) {
                Verdict::Known { user, .. } => Ok(user.name.clone()),
                Verdict::Refused(why) => Err(why),
                Verdict::Unknown => Err("unknown".to_owned()),
            };
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{case}");
        }
    }

    #[test]
    fn tokens_end_with_their_account_and_bound_object() {
        let key = Arc::new(SigningKey::ephemeral().unwrap());
        let at = |seconds: i64| jiff::Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let object = |namespace: &str, name: &str, uid: &str, deleted: Option<i64>| {
            let mut object = json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}});
            if let Some(seconds) = deleted {
                object["metadata"]["deletionTimestamp"] = at(seconds).to_string().into();
            }
            object
        };
        let account = |deleted| object("ns", "bot", "a", deleted);
        let pod = |deleted| object("ns", "p", "b", deleted);
        let invalidated = Err("service account token has been invalidated");
        for (case, account, bound, now, want) in [
            ("good", account(None), None, 0, Ok(())),
            ("bound to a pod", account(None), Some((Bound::Pod, pod(None))), 0, Ok(())),
            ("the account is just terminating", account(Some(-60)), None, 0, Ok(())),
            (
                "the account is terminating",
                account(Some(-61)),
                None,
                0,
                Err("service account ns/bot has been deleted"),
            ),
            ("the pod ends in its time", account(None), Some((Bound::Pod, pod(Some(30)))), 89, Ok(())),
            ("the pod is past its time", account(None), Some((Bound::Pod, pod(Some(30)))), 91, invalidated),
            (
                "the secret is terminating",
                account(None),
                Some((Bound::Secret, object("ns", "s", "c", Some(-61)))),
                0,
                invalidated,
            ),
            (
                "the node is terminating",
                account(None),
                Some((Bound::Node, object("", "n", "d", Some(-61)))),
                0,
                invalidated,
            ),
            ("in the last minute", account(None), None, 3660, Ok(())),
            ("expired", account(None), None, 3661, Err("service account token has expired")),
            ("the clock is a minute behind", account(None), None, -60, Ok(())),
            (
                "the clock is further behind",
                account(None),
                None,
                -61,
                Err("service account token is not valid yet"),
            ),
        ] {
            let audiences = [ISSUER.to_owned()];
            let token = key
                .sign(&claims(&Request {
                    account: &account,
                    bound: bound.as_ref().map(|(kind, object)| (*kind, object)),
                    node: None,
                    audiences: &audiences,
                    issued: at(0).as_second(),
                    lifetime: 3600,
                }))
                .unwrap();
            let mut world = World::default().with("", "serviceaccounts", account);
            if let Some((kind, object)) = bound {
                world = world.with("", &kind.resource().resource, object);
            }
            let tokens = ServiceAccountTokens {
                key: key.clone(),
                cluster: Arc::new(world),
                clock: Arc::new(move || at(now)),
            };
            let got = match tokens.authenticate(&token, &audiences) {
                Verdict::Known { .. } => Ok(()),
                Verdict::Refused(why) => Err(why),
                Verdict::Unknown => Err("unknown".to_owned()),
            };
            assert_eq!(got, want.map_err(str::to_owned), "{case}");
        }
    }
}
