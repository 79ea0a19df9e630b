//! Bootstrap tokens: Secrets `bootstrap-token-ID` in kube-system, by which new nodes join a
//! cluster.

use std::collections::BTreeMap;

use coracle_controller_runtime::cache::ListScope;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// The namespace of the Secrets.
pub const NAMESPACE: &str = "kube-system";
/// The type of the Secrets.
const TYPE: &str = "bootstrap.kubernetes.io/token";
const NAME_PREFIX: &str = "bootstrap-token-";
/// The Secrets of that namespace and type, which never changes.
pub const SECRETS: ListScope =
    ListScope { namespace: Some(NAMESPACE), field_selector: Some("type=bootstrap.kubernetes.io/token") };

/// A token that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapToken {
    pub id: String,
    pub secret: String,
    /// Whether `cluster-info` is signed with it.
    pub signs: bool,
}

/// Returns `true` if a Secret contains a bootstrap token.
pub fn is_bootstrap_token(secret: &Secret) -> bool {
    secret.type_.as_deref() == Some(TYPE) && secret.metadata.namespace.as_deref() == Some(NAMESPACE)
}

/// Returns the time at which the token of a Secret expires, or `None` if it never expires. A time
/// that cannot be parsed counts as expired.
pub fn expiration(secret: &Secret) -> Option<Timestamp> {
    let text = text(secret.data.as_ref()?, "expiration").filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or(Timestamp::MIN))
}

impl BootstrapToken {
    /// Parses the token of a Secret; None if the Secret has another type, is incomplete or has
    /// expired.
    pub fn of(secret: &Secret, now: Timestamp) -> Option<BootstrapToken> {
        let data = secret.data.as_ref().filter(|_| is_bootstrap_token(secret))?;
        let id = text(data, "token-id").filter(|id| secret.name_any() == format!("{NAME_PREFIX}{id}"))?;
        let key = text(data, "token-secret").filter(|key| !key.is_empty())?;
        let is_expired = expiration(secret).is_some_and(|expiration| expiration <= now);
        let signs = text(data, "usage-bootstrap-signing") == Some("true");
        (!is_expired).then(|| BootstrapToken { id: id.to_owned(), secret: key.to_owned(), signs })
    }
}

fn text<'a>(data: &'a BTreeMap<String, ByteString>, key: &str) -> Option<&'a str> {
    std::str::from_utf8(&data.get(key)?.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_are_valid_until_they_expire() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let secret = |name: &str, key: &str, expiration: &str| -> Secret {
            let mut secret: Secret = serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": NAMESPACE}, "type": TYPE,
            }))
            .unwrap();
            let data = [
                ("token-id", "abcdef"),
                ("token-secret", key),
                ("expiration", expiration),
                ("usage-bootstrap-signing", "true"),
            ];
            let data = data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into())));
            secret.data = Some(data.collect());
            secret
        };
        for (case, name, key, expiration, want) in [
            ("for ever", "bootstrap-token-abcdef", "s", "", true),
            ("still valid", "bootstrap-token-abcdef", "s", "2026-01-01T00:00:01Z", true),
            ("expired", "bootstrap-token-abcdef", "s", "2026-01-01T00:00:00Z", false),
            ("unreadable", "bootstrap-token-abcdef", "s", "soon", false),
            ("of another name", "bootstrap-token-000000", "s", "", false),
            ("without a secret", "bootstrap-token-abcdef", "", "", false),
        ] {
            assert_eq!(BootstrapToken::of(&secret(name, key, expiration), now).is_some(), want, "{case}");
        }
    }
}
