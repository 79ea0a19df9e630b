//! `extension-apiserver-authentication`: by what an extension API server authenticates the users of
//! requests that the front proxy passes on to it, and clients with certificates.

use coracle_apimachinery::Result;
use coracle_apiserver::registry::Registry;
use serde_json::{Value, json};

/// The common name of the front proxy's certificate.
const FRONT_PROXY: &str = "front-proxy-client";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Creates or updates the ConfigMap.
///
/// - `client_ca`: the PEM text of the authorities of client certificates;
/// - `front_proxy_ca`: that of the front proxy's.
///
/// # Errors
/// The errors of the store.
pub async fn publish_authentication(
    registry: &Registry,
    client_ca: &str,
    front_proxy_ca: &str,
) -> Result<()> {
    let texts = |list: &[&str]| Value::String(json!(list).to_string());
    let data = |front_proxy_cas: &str| {
        json!({
            "client-ca-file": client_ca,
            "requestheader-allowed-names": texts(&[FRONT_PROXY]),
            "requestheader-client-ca-file": front_proxy_cas,
            "requestheader-extra-headers-prefix": texts(&["X-Remote-Extra-"]),
            "requestheader-group-headers": texts(&["X-Remote-Group"]),
            "requestheader-uid-headers": texts(&["X-Remote-Uid"]),
            "requestheader-username-headers": texts(&["X-Remote-User"]),
        })
    };
    // Each server that shares the store has a front proxy of its own.
    let has_others = registry.store.has_other_writers();
    let updated = move |stored: &Value| {
        let known = stored["data"]["requestheader-client-ca-file"].as_str().filter(|_| has_others);
        data(&with_authority(known.unwrap_or_default(), front_proxy_ca))
    };
    let metadata = json!({"name": NAME, "namespace": NAMESPACE});
    let data = updated(&Value::Null);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    registry.publish(object, |stored| stored["data"] = updated(stored)).await
}

/// Adds the authority of this server to the PEM texts of those of the servers that started last.
fn with_authority(known: &str, own: &str) -> String {
    /// More than servers share a store. Those of earlier starts are of no use.
    const MAX: usize = 8;
    const END: &str = "-----END CERTIFICATE-----";
    if known.contains(own.trim()) {
        return known.to_owned();
    }
    let mut others: Vec<&str> =
        known.split_inclusive(END).map(str::trim).filter(|text| text.ends_with(END)).collect();
    let excess = (others.len() + 1).saturating_sub(MAX);
    others.drain(..excess);
    others.iter().map(|text| format!("{text}\n")).chain([own.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authorities_of_other_servers_stay() {
        let pem = |name: usize| format!("-----BEGIN CERTIFICATE-----\n{name}x\n-----END CERTIFICATE-----\n");
        let mut all = with_authority("", &pem(0));
        assert_eq!(all, pem(0));
        for server in 1..20 {
            all = with_authority(&all, &pem(server));
            assert_eq!(with_authority(&all, &pem(server)), all, "once");
            assert!(all.contains(&pem(server)) && all.contains(&pem(server - 1)));
        }
        assert_eq!(all.matches("END").count(), 8);
    }
}
