//! The document of a kubeconfig, as a value: its text is in [`file`](super::file).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_apimachinery::codec::yaml;
use serde_json::{Map, Value, json};

use crate::{Access, Name};

/// The lists of a document.
const LISTS: [&str; 3] = ["clusters", "contexts", "users"];

/// The name of the extension that marks the clusters of this program.
const MARK: &str = "coracle.dev";

/// Builds a kubeconfig of one cluster, with all data inline, so that copies of it work anywhere on
/// this machine.
pub fn document(name: &Name, access: &Access) -> String {
    let entries = Entries::new(name, access);
    text(&json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name.as_str(),
        "clusters": [entries.cluster], "contexts": [entries.context], "users": [entries.user],
    }))
}

/// Builds a kubeconfig of a server alone, to be combined with the credentials of a user.
pub fn document_without_user(name: &Name, server: &str, ca_pem: &str) -> String {
    let cluster = json!({"server": server, "certificate-authority-data": STANDARD.encode(ca_pem)});
    let name = name.as_str();
    text(&json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": ""}}], "users": [],
    }))
}

/// Formats a document.
pub fn text(document: &Value) -> String {
    String::from_utf8_lossy(&yaml::from_json(document)).into_owned()
}

/// The entries of a cluster in the three lists.
struct Entries {
    cluster: Value,
    context: Value,
    user: Value,
}

impl Entries {
    fn new(name: &Name, access: &Access) -> Entries {
        let [ca, certificate, key] =
            [access.ca_pem, access.certificate_pem, access.key_pem].map(|pem| STANDARD.encode(pem));
        let name = name.as_str();
        let mark = json!({"name": MARK, "extension": {"provider": "coracle"}});
        let cluster =
            json!({"server": access.server, "certificate-authority-data": ca, "extensions": [mark]});
        Entries {
            cluster: json!({"name": name, "cluster": cluster}),
            context: json!({"name": name, "context": {"cluster": name, "user": name}}),
            user: json!({"name": name, "user": {"client-certificate-data": certificate, "client-key-data": key}}),
        }
    }
}

/// A document with a cluster in it.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) document: Value,
    /// The context that was current, if it was another.
    pub(crate) previous_context: Option<String>,
}

/// Puts a cluster, its user and its context into a document and makes the context current. Entries
/// of that name are replaced if this program wrote them, except that the context keeps what a user
/// added to it, such as a namespace.
///
/// # Errors
/// The error for a document that is not a kubeconfig, or has entries of that name by another
/// program.
pub(crate) fn merged(document: Value, name: &Name, access: &Access) -> Result<Merged, String> {
    let mut root = match document {
        Value::Null => Map::new(),
        Value::Object(root) => root,
        _ => return Err("it is no map".to_owned()),
    };
    let is_known = root.is_empty() || LISTS.iter().any(|list| root.contains_key(*list));
    for (member, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        match root.get(member) {
            // Readers take a missing one for granted.
            None if is_known => drop(root.insert(member.to_owned(), json!(value))),
            given if given.and_then(Value::as_str) == Some(value) => {}
            _ => return Err(format!("its {member} is not {value}")),
        }
    }
    let entries = Entries::new(name, access);
    let is_ours = find(&mut root, "clusters", name)?.is_some_and(|entry| is_marked(entry));
    for (list, mut new) in LISTS.into_iter().zip([entries.cluster, entries.context, entries.user]) {
        match find(&mut root, list, name)? {
            Some(_) if !is_ours => {
                return Err(format!("another program wrote {name} in its {list}; use another --name"));
            }
            Some(old) => {
                let set = new.get_mut("context").and_then(Value::as_object_mut);
                if let (Some(kept), Some(set)) = (old.get("context").and_then(Value::as_object), set) {
                    let kept =
                        kept.iter().filter(|(member, _)| !["cluster", "user"].contains(&member.as_str()));
                    set.extend(kept.map(|(member, value)| (member.clone(), value.clone())));
                }
                *old = new;
            }
            None => {
                if let Some(entries) = root[list].as_array_mut() {
                    entries.push(new);
                }
            }
        }
    }
    let previous = root.insert("current-context".to_owned(), json!(name.as_str()));
    let is_other = |context: &String| !context.is_empty() && context != name.as_str();
    let previous_context = previous.and_then(|context| context.as_str().map(str::to_owned)).filter(is_other);
    Ok(Merged { document: Value::Object(root), previous_context })
}

/// Returns a document without a cluster, its user and its context, or `None` if this program did
/// not write such a cluster. If the removed context was the current one, there is no current one
/// afterwards. A context that a user pointed to another cluster stays.
///
/// # Errors
/// The reason for which the document is not a kubeconfig.
pub(crate) fn removed(document: Value, name: &Name) -> Result<Option<Value>, String> {
    let mut root = match document {
        Value::Null => return Ok(None),
        Value::Object(root) => root,
        _ => return Err("it is no map".to_owned()),
    };
    if !find(&mut root, "clusters", name)?.is_some_and(|entry| is_marked(entry)) {
        return Ok(None);
    }
    let is_of_cluster = |context: &Value| context["context"]["cluster"] == name.as_str();
    let is_kept = find(&mut root, "contexts", name)?.is_some_and(|context| !is_of_cluster(context));
    for list in LISTS {
        find(&mut root, list, name)?;
        if list == "contexts" && is_kept {
            continue;
        }
        if let Some(entries) = root.get_mut(list).and_then(Value::as_array_mut) {
            entries.retain(|entry| entry["name"] != name.as_str());
        }
    }
    if !is_kept && root.get("current-context").is_some_and(|current| current == name.as_str()) {
        root.insert("current-context".to_owned(), json!(""));
    }
    Ok(Some(Value::Object(root)))
}

/// Finds the entry of a name in a list. Creates the list if it is missing.
///
/// # Errors
/// The value is not a list of maps, or several entries have the name.
fn find<'a>(
    root: &'a mut Map<String, Value>,
    list: &str,
    name: &Name,
) -> Result<Option<&'a mut Value>, String> {
    let entries = root.entry(list).or_insert(Value::Null);
    if entries.is_null() {
        *entries = json!([]);
    }
    let entries = entries.as_array_mut().ok_or_else(|| format!("its {list} are no list"))?;
    if !entries.iter().all(Value::is_object) {
        return Err(format!("its {list} are not all maps"));
    }
    let mut of_name = entries.iter_mut().filter(|entry| entry["name"] == name.as_str());
    match (of_name.next(), of_name.next()) {
        (found, None) => Ok(found),
        _ => Err(format!("its {list} have several {name}")),
    }
}

/// Returns `true` if this program wrote the entry of a cluster.
fn is_marked(entry: &Value) -> bool {
    let extensions = entry["cluster"]["extensions"].as_array();
    extensions.is_some_and(|extensions| extensions.iter().any(|extension| extension["name"] == MARK))
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
    extensions:
    - extension:
        provider: coracle
      name: coracle.dev
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
        let name = "a".parse().unwrap();
        assert_eq!(document(&name, &ACCESS), want);
        for empty in [Value::Null, json!({}), json!({"users": []})] {
            assert_eq!(text(&merged(empty, &name, &ACCESS).unwrap().document), want);
        }
    }

    #[test]
    fn what_others_wrote_remains() {
        let prod = json!({"name": "prod", "cluster": {"server": "https://prod", "x": [1]}});
        let mark = json!([{"name": MARK, "extension": {}}]);
        let old =
            json!({"name": "coracle", "cluster": {"server": "https://old", "x": 1, "extensions": mark}});
        let context = json!({"name": "coracle", "context": {"cluster": "old", "namespace": "mine"}});
        let merged = merge(json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true}, "current-context": "prod",
            "clusters": [old, prod, prod], "contexts": [context], "users": null,
        }))
        .unwrap();
        assert_eq!(merged.previous_context.as_deref(), Some("prod"));
        let document = merged.document;
        assert_eq!(document["preferences"], json!({"colors": true}));
        assert_eq!(document["current-context"], "coracle");
        assert_eq!(document["clusters"][0], Entries::new(&Name::default(), &ACCESS).cluster);
        assert_eq!(document["clusters"][1], prod);
        assert_eq!(document["clusters"][2], prod);
        let context = json!({"cluster": "coracle", "user": "coracle", "namespace": "mine"});
        assert_eq!(document["contexts"], json!([{"name": "coracle", "context": context}]));
        assert_eq!(document["users"][0]["user"]["client-key-data"], "a2V5");
        // Once more changes nothing, and there is no other context to return to.
        let again = merge(document.clone()).unwrap();
        assert_eq!((again.document, again.previous_context), (document, None));
    }

    #[test]
    fn a_name_that_another_program_uses_is_refused() {
        let ours = json!({"name": "coracle", "cluster": {"extensions": [{"name": MARK}]}});
        let theirs = json!({"name": "coracle", "cluster": {"extensions": [{"name": "kind"}]}});
        for (clusters, users, want) in [
            (json!([theirs]), json!([]), "another program wrote coracle in its clusters; use another --name"),
            (
                json!([]),
                json!([{"name": "coracle"}]),
                "another program wrote coracle in its users; use another --name",
            ),
            (json!([ours, theirs]), json!([]), "its clusters have several coracle"),
            (
                json!([ours]),
                json!([{"name": "coracle"}, {"name": "coracle"}]),
                "its users have several coracle",
            ),
        ] {
            let document = json!({"clusters": clusters, "users": users});
            assert_eq!(merge(document.clone()).expect_err("refused"), want, "{document}");
        }
    }

    #[test]
    fn the_entries_of_a_cluster_are_removed_and_no_others() {
        let name = Name::default();
        let others = json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true}, "current-context": "prod",
            "clusters": [{"name": "prod", "cluster": {"server": "https://prod"}}],
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "prod"}}],
            "users": [{"name": "prod", "user": {"token": "a"}}],
        });
        let with_ours = merge(others.clone()).unwrap().document;
        let mut left = others.clone();
        left["current-context"] = json!("");
        assert_eq!(removed(with_ours.clone(), &name).unwrap(), Some(left.clone()));
        assert_eq!(removed(left, &name), Ok(None), "once more");
        let mut with_other_current = with_ours.clone();
        with_other_current["current-context"] = json!("prod");
        assert_eq!(removed(with_other_current, &name).unwrap(), Some(others));
        assert_eq!(removed(with_ours.clone(), &"other".parse().unwrap()), Ok(None));
        // A context of our name that a user pointed elsewhere.
        let mut pointed = with_ours.clone();
        pointed["contexts"][1]["context"]["cluster"] = json!("prod");
        let left = removed(pointed.clone(), &name).unwrap().unwrap();
        assert_eq!((&left["contexts"], &left["current-context"]), (&pointed["contexts"], &json!("coracle")));
        assert_eq!(left["clusters"].as_array().map(Vec::len), Some(1));
        // A user alone of the file is missing.
        let mut partial = with_ours;
        partial["users"] = Value::Null;
        assert_eq!(removed(partial, &name).unwrap().unwrap()["users"], json!([]));
    }

    #[test]
    fn the_entries_of_another_program_are_not_removed() {
        let name = Name::default();
        let theirs =
            json!({"clusters": [{"name": "coracle", "cluster": {"extensions": [{"name": "kind"}]}}]});
        for document in [Value::Null, json!({}), json!({"users": [{"name": "coracle"}]}), theirs] {
            assert_eq!(removed(document.clone(), &name), Ok(None), "{document}");
        }
        let ours = json!({"name": "coracle", "cluster": {"extensions": [{"name": MARK}]}});
        for (document, want) in [
            (json!([]), "it is no map"),
            (json!({"clusters": 1}), "its clusters are no list"),
            (json!({"clusters": [ours, ours]}), "its clusters have several coracle"),
            (json!({"clusters": [ours], "users": ["a"]}), "its users are not all maps"),
        ] {
            assert_eq!(removed(document.clone(), &name).expect_err("refused"), want, "{document}");
        }
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
