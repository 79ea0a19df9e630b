//! `extension-apiserver-authentication`: by what an extension API server authenticates the users of requests that the front proxy
//! passes on to it, and clients with certificates.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::registry::{Registry, Target};
use crate::{Error, Result};

/// The common name of the front proxy's certificate.
const FRONT_PROXY: &str = "front-proxy-client";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Creates or updates the ConfigMap.
///
/// - `client_ca`: the PEM text of the authority of client certificates;
/// - `front_proxy_ca`: that of the front proxy's.
///
/// # Errors
/// Those of the store.
pub async fn publish_authentication(
    registry: &Registry,
    client_ca: &str,
    front_proxy_ca: &str,
) -> Result<()> {
    let texts = |list: &[&str]| Value::String(json!(list).to_string());
    let data = json!({
        "client-ca-file": client_ca,
        "requestheader-allowed-names": texts(&[FRONT_PROXY]),
        "requestheader-client-ca-file": front_proxy_ca,
        "requestheader-extra-headers-prefix": texts(&["X-Remote-Extra-"]),
        "requestheader-group-headers": texts(&["X-Remote-Group"]),
        "requestheader-uid-headers": texts(&["X-Remote-Uid"]),
        "requestheader-username-headers": texts(&["X-Remote-User"]),
    });
    let info = registry.find("", "v1", "configmaps").ok_or(Error::UnknownResource)?;
    match Cluster::get(registry, &info.group_resource, NAMESPACE, NAME)? {
        Some(stored) if stored["data"] == data => Ok(()),
        Some(_) => {
            let target = Target { info, namespace: NAMESPACE.to_owned(), name: NAME.to_owned() };
            registry
                .rewrite(&target, false, |stored| {
                    let mut stored = stored.clone();
                    stored["data"] = data.clone();
                    Ok(stored)
                })
                .await
        }
        None => {
            let metadata = json!({"name": NAME, "namespace": NAMESPACE});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            registry.create_as_server(object).await
        }
    }
}
