//! ServiceAccount.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::strategy::{Context, Strategy};
use serde_json::{Value, json};

const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// The strategy of ServiceAccount.
pub struct ServiceAccountStrategy;

impl Strategy for ServiceAccountStrategy {
    fn prepare_for_create(&self, account: &mut Value, _: &Context<'_>) {
        keep_names_of_secrets(account);
    }

    fn prepare_for_update(&self, account: &mut Value, _: &Value, _: &Context<'_>) {
        keep_names_of_secrets(account);
    }

    fn warnings(&self, account: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let has = |account: &Field<'_>| {
            account.walk("metadata.annotations").get(ENFORCE_MOUNTABLE_SECRETS).exists()
        };
        if !has(account) || old.is_some_and(has) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{ENFORCE_MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        )]
    }
}

/// Removes all but the name from references to secrets: secrets are in the account's namespace.
fn keep_names_of_secrets(account: &mut Value) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        *secret = secret.get("name").map_or(json!({}), |name| json!({"name": name}));
    }
}
