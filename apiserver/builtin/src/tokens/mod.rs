//! Service account tokens: their claims, and whether the claims are still valid.
//!
//! A token is valid as long as its service account and the object it is bound to exist: once either
//! is deleted, or replaced by another one of the same name, the token is rejected. A terminating
//! object counts as deleted one minute after its deletionTimestamp.
//!
//! Legacy tokens are stored in secrets: they have neither an expiration nor an audience, and are
//! valid as long as their secret holds them.
//!
//! Source: KEP-1205 (bound tokens), KEP-4193 (node and credential ids), KEP-2799 (legacy tokens).

mod claims;
mod legacy_use;
mod request;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apiserver::access::authenticate::{
    CREDENTIAL_ID, TokenAuthenticator, TokenOutcome, UserInfo, service_account_groups,
    service_account_username,
};
use coracle_apiserver::access::jwt::SigningKey;
use coracle_apiserver::serve::ActionDeclaration;
use coracle_clock::Clock;
use serde_json::Value;

use claims::BoundObject;
use legacy_use::Attempts;
pub use legacy_use::RecordTokenUse;

/// The POST that asks for a token.
pub static ACTIONS: [ActionDeclaration; 1] = [ActionDeclaration {
    group: "",
    resource: "serviceaccounts",
    subresource: "token",
    action: request::request_token,
}];

/// The issuer of legacy tokens.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// The tolerance, in seconds, for the times of tokens and objects, since clocks differ.
const LEEWAY: i64 = 60;
/// A secret with this label holds an invalidated token.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Authenticates service account tokens.
pub struct ServiceAccountTokens {
    key: Arc<SigningKey>,
    cluster: Arc<dyn RecordTokenUse>,
    clock: Clock,
    legacy_uses: Attempts,
}

impl TokenAuthenticator for ServiceAccountTokens {
    fn authenticate(&self, token: &str, audiences: &[String]) -> TokenOutcome {
        let Some(claims) = self.key.verify(token) else { return TokenOutcome::Unrecognized };
        let is_held = claims["iss"] == LEGACY_ISSUER;
        let own: Vec<String> = match is_held {
            true => self.key.issuers().to_vec(),
            false if self.key.issuers().iter().any(|issuer| claims["iss"] == issuer.as_str()) => {
                texts(&claims["aud"])
            }
            false => return TokenOutcome::Unrecognized,
        };
        // Clients control the length of both lists.
        let known: HashSet<&String> = own.iter().collect();
        let common: Vec<String> = audiences.iter().filter(|a| known.contains(a)).cloned().collect();
        if common.is_empty() {
            return TokenOutcome::Invalid(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&own),
                quoted(audiences)
            ));
        }
        let user = match is_held {
            true => self.user_of_legacy_token(token, &claims),
            false => self.user(&claims),
        };
        match user {
            Ok(user) => TokenOutcome::Authenticated { user: Arc::new(user), audiences: common },
            Err(why) => TokenOutcome::Invalid(why),
        }
    }
}

impl ServiceAccountTokens {
    /// Creates an authenticator of the tokens that a key verifies, for the accounts of a cluster.
    pub fn new(key: Arc<SigningKey>, cluster: Arc<dyn RecordTokenUse>, clock: Clock) -> Self {
        Self { key, cluster, clock, legacy_uses: Attempts::default() }
    }

    /// Returns the user of claims that are still valid.
    fn user(&self, claims: &Value) -> Result<UserInfo, String> {
        let now = self.clock.now().as_second();
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
            return Err(format!("serviceaccounts {} not found", coracle_apimachinery::field::quote(&name)));
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
        for kind in [BoundObject::Secret, BoundObject::Pod, BoundObject::Node] {
            let reference = &own[kind.member()];
            if reference.is_null() {
                continue;
            }
            // The node of a pod's token is informational.
            if kind != BoundObject::Node || own["pod"].is_null() {
                self.check_bound(kind, &namespace, reference)?;
            }
            if kind != BoundObject::Secret {
                note(&format!("{}-name", kind.member()), text(&reference["name"]));
                if !reference["uid"].is_null() {
                    note(&format!("{}-uid", kind.member()), text(&reference["uid"]));
                }
            }
        }
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", text(&claims["jti"]))]);
        Ok(user.authenticated())
    }

    /// Returns the user of a legacy token.
    fn user_of_legacy_token(&self, token: &str, claims: &Value) -> Result<UserInfo, String> {
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
            return Err(format!("serviceaccounts {} not found", coracle_apimachinery::field::quote(name)));
        };
        if is_going(&account) {
            return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
        }
        if account.uid() != uid {
            return Err(format!("ServiceAccount UID ({}) does not match claim ({uid})", account.uid()));
        }
        self.legacy_uses.record(&self.cluster, &secret, self.clock.now());
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

    fn check_bound(&self, kind: BoundObject, namespace: &str, reference: &Value) -> Result<(), String> {
        let invalidated = || "service account token has been invalidated".to_owned();
        let namespace = if kind == BoundObject::Node { "" } else { namespace };
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
        if is_deleted(&object, self.clock.now().as_second()) { Err(invalidated()) } else { Ok(()) }
    }
}

/// Returns `true` if the deletionTimestamp of an object has passed by more than the leeway.
fn is_deleted(object: &Value, now: i64) -> bool {
    let deleted: Option<jiff::Timestamp> = object.meta_str("deletionTimestamp").parse().ok();
    deleted.is_some_and(|deleted| deleted.as_second() < now.saturating_sub(LEEWAY))
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// Formats a list of quoted strings as Go prints it.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|t| coracle_apimachinery::field::quote(t)).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::claims::{Request, claims};
    use super::*;
    use coracle_apiserver::access::jwt::ISSUER;
    use coracle_apiserver::admission::testing::World;
    use serde_json::json;

    /// Checks, for each secret of a service account and a token for it, whether the token is valid.
    #[test]
    fn legacy_tokens_are_valid_while_their_secret_holds_them() {
        let key = Arc::new(SigningKey::ephemeral().unwrap());
        let claims = json!({
            "iss": LEGACY_ISSUER, "sub": "system:serviceaccount:ns:bot",
            "kubernetes.io/serviceaccount/namespace": "ns", "kubernetes.io/serviceaccount/secret.name": "s",
            "kubernetes.io/serviceaccount/service-account.name": "bot",
            "kubernetes.io/serviceaccount/service-account.uid": "u",
        });
        let token = key.sign(&claims).unwrap();
        let account = |uid: &str| json!({"metadata": {"namespace": "ns", "name": "bot", "uid": uid}});
        let secret = |token: &str| json!({"metadata": {"namespace": "ns", "name": "s"}, "data": {"token": STANDARD.encode(token)}});
        let mut terminating = secret(&token);
        terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let mut invalid = secret(&token);
        invalid["metadata"]["labels"] = json!({INVALID_SINCE: "2026-01-01"});
        for (case, secret, account, want) in [
            ("good", Some(secret(&token)), Some(account("u")), Ok("system:serviceaccount:ns:bot")),
            ("without its secret", None, Some(account("u")), Err("Token has been invalidated")),
            (
                "secret on its way out",
                Some(terminating),
                Some(account("u")),
                Err("Token has been invalidated"),
            ),
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
            let tokens = ServiceAccountTokens::new(
                key.clone(),
                Arc::new(world),
                Clock::mock(jiff::Timestamp::UNIX_EPOCH).0,
            );
            let got = match tokens.authenticate(&token, &[ISSUER.to_owned()]) {
                TokenOutcome::Authenticated { user, .. } => Ok(user.name.clone()),
                TokenOutcome::Invalid(why) => Err(why),
                TokenOutcome::Unrecognized => Err("unknown".to_owned()),
            };
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{case}");
        }
    }

    #[test]
    fn tokens_are_invalid_once_their_account_or_bound_object_is_deleted() {
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
            ("bound to a pod", account(None), Some((BoundObject::Pod, pod(None))), 0, Ok(())),
            ("the account is just terminating", account(Some(-60)), None, 0, Ok(())),
            (
                "the account is terminating",
                account(Some(-61)),
                None,
                0,
                Err("service account ns/bot has been deleted"),
            ),
            ("the pod ends in its time", account(None), Some((BoundObject::Pod, pod(Some(30)))), 89, Ok(())),
            (
                "the pod is past its time",
                account(None),
                Some((BoundObject::Pod, pod(Some(30)))),
                91,
                invalidated,
            ),
            (
                "the secret is terminating",
                account(None),
                Some((BoundObject::Secret, object("ns", "s", "c", Some(-61)))),
                0,
                invalidated,
            ),
            (
                "the node is terminating",
                account(None),
                Some((BoundObject::Node, object("", "n", "d", Some(-61)))),
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
                    issuer: ISSUER,
                    account: &account,
                    bound: bound.as_ref().map(|(kind, object)| (*kind, object)),
                    node: None,
                    audiences: &audiences,
                    issued: at(0).as_second(),
                    lifetime: 3600,
                    warn_after: None,
                }))
                .unwrap();
            let mut world = World::default().with("", "serviceaccounts", account);
            if let Some((kind, object)) = bound {
                world = world.with("", &kind.resource().resource, object);
            }
            let tokens = ServiceAccountTokens::new(key.clone(), Arc::new(world), Clock::mock(at(now)).0);
            let got = match tokens.authenticate(&token, &audiences) {
                TokenOutcome::Authenticated { .. } => Ok(()),
                TokenOutcome::Invalid(why) => Err(why),
                TokenOutcome::Unrecognized => Err("unknown".to_owned()),
            };
            assert_eq!(got, want.map_err(str::to_owned), "{case}");
        }
    }
}
