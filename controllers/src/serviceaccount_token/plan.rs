//! The content of a token secret, and the claims of the token.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use serde_json::{Value, json};

use super::{ACCOUNT_NAME, ACCOUNT_UID};

const TYPE: &str = "kubernetes.io/service-account-token";
/// The issuer of legacy tokens, which have no expiry and no audience.
const ISSUER: &str = "kubernetes/serviceaccount";

const TOKEN: &str = "token";
const CERTIFICATES: &str = "ca.crt";
const NAMESPACE: &str = "namespace";

/// Returns `true` if a Secret is a token Secret of an account.
pub fn is_token(secret: &Secret, account: &str) -> bool {
    let annotations = secret.metadata.annotations.as_ref();
    secret.type_.as_deref() == Some(TYPE)
        && annotations
            .and_then(|annotations| annotations.get(ACCOUNT_NAME))
            .is_some_and(|name| name == account)
}

/// Returns the Secret with its missing content. Returns `None` if the content is complete, or if
/// the token cannot be signed.
pub fn fill(
    secret: &Secret,
    account: &ServiceAccount,
    certificates: Option<&str>,
    sign: &dyn Fn(&Value) -> Option<String>,
) -> Option<Secret> {
    let has =
        |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map_or(&[][..], |b| b.0.as_slice());
    let mut missing = Vec::new();
    if let Some(certificates) = certificates.filter(|pem| has(CERTIFICATES) != pem.as_bytes()) {
        missing.push((CERTIFICATES, certificates.to_owned()));
    }
    if has(NAMESPACE).is_empty() {
        missing.push((NAMESPACE, secret.metadata.namespace.clone().unwrap_or_default()));
    }
    if has(TOKEN).is_empty() {
        missing.push((TOKEN, sign(&claims(secret, account))?));
    }
    if missing.is_empty() {
        return None;
    }
    let mut filled = secret.clone();
    let data = filled.data.get_or_insert_default();
    data.extend(missing.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))));
    let annotations = filled.metadata.annotations.get_or_insert_default();
    for (key, value) in [(ACCOUNT_NAME, &account.metadata.name), (ACCOUNT_UID, &account.metadata.uid)] {
        annotations.insert(key.to_owned(), value.clone().unwrap_or_default());
    }
    Some(filled)
}

fn claims(secret: &Secret, account: &ServiceAccount) -> Value {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&account.metadata.namespace), text(&account.metadata.name));
    json!({
        "iss": ISSUER,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": text(&secret.metadata.name),
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": text(&account.metadata.uid),
    })
}

/// Returns the account without its reference to a Secret, or `None` if it has no such reference.
pub fn without_reference(account: &ServiceAccount, secret: &str) -> Option<ServiceAccount> {
    let mut without = account.clone();
    let references = without.secrets.as_mut()?;
    let before = references.len();
    references.retain(|reference| reference.name.as_deref() != Some(secret));
    (references.len() < before).then_some(without)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;
    use std::collections::BTreeMap;

    fn account() -> ServiceAccount {
        let mut account = ServiceAccount::default();
        account.metadata.namespace = Some("ns".to_owned());
        account.metadata.name = Some("bot".to_owned());
        account.metadata.uid = Some("u".to_owned());
        account
    }

    fn secret(r#type: &str, data: &[(&str, &str)]) -> Secret {
        let mut secret = Secret { type_: Some(r#type.to_owned()), ..Secret::default() };
        secret.metadata.namespace = Some("ns".to_owned());
        secret.metadata.name = Some("s".to_owned());
        secret.metadata.annotations = Some(BTreeMap::from([(ACCOUNT_NAME.to_owned(), "bot".to_owned())]));
        let bytes = |(key, text): &(&str, &str)| ((*key).to_owned(), ByteString((*text).into()));
        secret.data = Some(data.iter().map(bytes).collect());
        secret
    }

    #[test]
    fn secrets_get_what_they_lack() {
        let sign = |claims: &Value| Some(format!("signed {}", claims["sub"].as_str().unwrap()));
        let full = [("ca.crt", "ca"), ("namespace", "ns"), ("token", "signed system:serviceaccount:ns:bot")];
        for (case, data, want) in [
            ("nothing there", &[][..], Some(&full[..])),
            ("all there", &full[..], None),
            (
                "other certificates, another token",
                &[("ca.crt", "old"), ("namespace", "ns"), ("token", "t")],
                Some(&[("ca.crt", "ca"), ("namespace", "ns"), ("token", "t")]),
            ),
            ("another key", &[("x", "y")], Some(&[full[0], full[1], full[2], ("x", "y")])),
        ] {
            let filled = fill(&secret(TYPE, data), &account(), Some("ca"), &sign);
            let got = filled.as_ref().map(|filled| filled.data.clone().unwrap());
            let want = want.map(|want| secret(TYPE, want).data.unwrap());
            assert_eq!(got, want, "{case}");
            if let Some(filled) = filled {
                assert_eq!(filled.metadata.annotations.unwrap()[ACCOUNT_UID], "u", "{case}");
            }
        }
        assert_eq!(fill(&secret(TYPE, &[]), &account(), None, &|_| None), None, "no signature");
    }

    #[test]
    fn only_secrets_of_the_type_are_touched() {
        assert!(is_token(&secret(TYPE, &[]), "bot"));
        assert!(!is_token(&secret(TYPE, &[]), "other"));
        assert!(!is_token(&secret("Opaque", &[]), "bot"));
    }

    #[test]
    fn references_are_removed_with_their_secrets() {
        let mut account = account();
        assert_eq!(without_reference(&account, "s"), None);
        let named = |name: &str| ObjectReference { name: Some(name.to_owned()), ..Default::default() };
        account.secrets = Some(vec![named("s"), named("t")]);
        assert_eq!(without_reference(&account, "s").unwrap().secrets, Some(vec![named("t")]));
        assert_eq!(without_reference(&account, "x"), None);
    }
}
