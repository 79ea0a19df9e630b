//! The document of a kubeconfig, as a value: its text is in [`file`](super::file).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_apimachinery::codec::yaml;
use serde_json::{Map, Value, json};

use crate::{Access, Name};

/// A kubeconfig of one cluster, with all data inline, so that copies of it work anywhere on this machine.
pub fn document(name: &Name, access: &Access) -> String {
    let merged = merged(Value::Null, name, access).map(|merged| merged.document).unwrap_or_default();
    text(&merged)
}

/// The text of a document.
pub(crate) fn text(document: &Value) -> String {
    String::from_utf8_lossy(&yaml::from_json(document)).into_owned()
}

/// A document with a cluster in it.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) document: Value,
    /// The context that was current, if it was another.
    pub(crate) previous_context: Option<String>,
}

/// Puts a cluster, its user and its context into a document and makes the context current. Entries of that name are replaced, except
/// that the context keeps what a user added to it, such as a namespace.
///
/// # Errors
/// What is wrong with a document that is no kubeconfig.
pub(crate) fn merged(document: Value, name: &Name, access: &Access) -> Result<Merged, String> {
    let mut root = match document {
        Value::Null => Map::from_iter([("apiVersion".into(), json!("v1")), ("kind".into(), json!("Config"))]),
        Value::Object(root) => root,
        _ => return Err("it is no map".to_owned()),
    };
    for (member, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        if root.get(member).and_then(Value::as_str) != Some(value) {
            return Err(format!("its {member} is not {value}"));
        }
    }
    let [ca, certificate, key] =
        [access.ca_pem, access.certificate_pem, access.key_pem].map(|pem| STANDARD.encode(pem));
    let name = name.as_str();
    *entry(&mut root, "clusters", "cluster", name)? =
        json!({"server": access.server, "certificate-authority-data": ca});
    *entry(&mut root, "users", "user", name)? =
        json!({"client-certificate-data": certificate, "client-key-data": key});
    let context = entry(&mut root, "contexts", "context", name)?;
    if !context.is_object() {
        *context = json!({});
    }
    context["cluster"] = json!(name);
    context["user"] = json!(name);
    let previous = root.insert("current-context".to_owned(), json!(name));
    let is_other = |context: &String| !context.is_empty() && context != name;
    let previous_context = previous.and_then(|context| context.as_str().map(str::to_owned)).filter(is_other);
    Ok(Merged { document: Value::Object(root), previous_context })
}

/// The value of the entry of a name in a list, which is appended if there is none. Of several, the first is kept, which is the one
/// that kubectl uses.
fn entry<'a>(
    root: &'a mut Map<String, Value>,
    list: &str,
    member: &str,
    name: &str,
) -> Result<&'a mut Value, String> {
    let entries = root.entry(list).or_insert(Value::Null);
    if entries.is_null() {
        *entries = json!([]);
    }
    let entries = entries.as_array_mut().ok_or_else(|| format!("its {list} are no list"))?;
    if !entries.iter().all(Value::is_object) {
        return Err(format!("its {list} are not all maps"));
    }
    let mut is_found = false;
    entries.retain(|entry| entry["name"] != name || !std::mem::replace(&mut is_found, true));
    if !is_found {
        entries.push(json!({"name": name}));
    }
    let found = entries.iter_mut().find(|entry| entry["name"] == name);
    found.map(|entry| &mut entry[member]).ok_or_else(|| format!("its {list} have no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: Access = Access {
        server: "https://127.0.0.1:1",
        ca_pem: "ca",
        certificate_pem: "certificate",
        key_pem: "key",
    };

    fn merge(document: Value) -> Result<Merged, String> {
        merged(document, &Name::default(), &ACCESS)
    }

    #[test]
    fn a_document_of_its_own_has_all_that_a_client_needs() {
        let want = "\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: Y2E=
    server: https://127.0.0.1:1
  name: a
contexts:
- context:
    cluster: a
    user: a
  name: a
current-context: a
kind: Config
users:
- name: a
  user:
    client-certificate-data: Y2VydGlmaWNhdGU=
    client-key-data: a2V5
";
        assert_eq!(document(&"a".parse().unwrap(), &ACCESS), want);
    }

    #[test]
    fn what_others_wrote_remains() {
        let prod = json!({"name": "prod", "cluster": {"server": "https://prod", "x": [1]}});
        let old = json!({"name": "coracle", "cluster": {"server": "https://old", "insecure-skip-tls-verify": true}});
        let context = json!({"name": "coracle", "context": {"cluster": "old", "namespace": "mine"}});
        let merged = merge(json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true}, "current-context": "prod",
            "clusters": [old, prod, old], "contexts": [context], "users": null,
        }))
        .unwrap();
        assert_eq!(merged.previous_context.as_deref(), Some("prod"));
        let document = merged.document;
        assert_eq!(document["preferences"], json!({"colors": true}));
        assert_eq!(document["current-context"], "coracle");
        let ours = json!({"server": "https://127.0.0.1:1", "certificate-authority-data": "Y2E="});
        assert_eq!(document["clusters"], json!([{"name": "coracle", "cluster": ours}, prod]));
        let context = json!({"cluster": "coracle", "user": "coracle", "namespace": "mine"});
        assert_eq!(document["contexts"], json!([{"name": "coracle", "context": context}]));
        assert_eq!(document["users"][0]["user"]["client-key-data"], "a2V5");
        // Once more changes nothing, and there is no other context to return to.
        let again = merge(document.clone()).unwrap();
        assert_eq!((again.document, again.previous_context), (document, None));
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused() {
        let config = |member: &str, value: Value| {
            let mut config = json!({"apiVersion": "v1", "kind": "Config"});
            config[member] = value;
            config
        };
        for (document, want) in [
            (json!([]), "it is no map"),
            (json!("text"), "it is no map"),
            (json!({}), "its apiVersion is not v1"),
            (json!({"replicas": 1}), "its apiVersion is not v1"),
            (json!({"apiVersion": "v1", "kind": "Pod"}), "its kind is not Config"),
            (config("apiVersion", json!("v2")), "its apiVersion is not v1"),
            (config("clusters", json!({})), "its clusters are no list"),
            (config("users", json!(["a"])), "its users are not all maps"),
        ] {
            assert_eq!(merge(document.clone()).expect_err("refused"), want, "{document}");
        }
    }
}
