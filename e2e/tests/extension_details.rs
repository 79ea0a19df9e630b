//! Details of custom resources and policies that their users depend on, each as kube-apiserver
//! responds.

use anyhow::Result;
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::Connection;
use coracle_e2e::wait::until;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const THINGS: &str = "/apis/details.example.com/v1/namespaces/default/things";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

struct Client(Connection);

impl Client {
    /// Sends a request, and returns the code, the body and the warnings.
    async fn call(&mut self, method: &str, path: &str, body: Value) -> Result<(u16, Value, Vec<String>)> {
        let body = (!body.is_null()).then(|| Bytes::from(body.to_string()));
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let response = self.0.call(method, path, &[("Content-Type", Some(kind))], body).await?;
        let warnings = response.headers.get_all("warning").iter();
        let warnings = warnings.filter_map(|warning| Some(warning.to_str().ok()?.to_owned())).collect();
        Ok((response.status, serde_json::from_slice(&response.body)?, warnings))
    }

    async fn create(&mut self, path: &str, object: Value) -> Result<Value> {
        let (code, body, _) = self.call("POST", path, object).await?;
        anyhow::ensure!(code == 201, "{path}: {body}");
        Ok(body)
    }

    /// Waits until the things are served. Until then the response is a text.
    async fn until_served(&mut self) -> Result<()> {
        let code = async || Ok(self.0.call("GET", THINGS, &[], None).await?.status);
        until("the definition is served", code, |code| *code == 200).await.map(drop)
    }

    /// Returns the code and the message of a request that is refused.
    async fn refusal(&mut self, method: &str, path: &str, body: Value) -> Result<String> {
        let (code, body, _) = self.call(method, path, body).await?;
        Ok(format!("{code} {}", body["message"].as_str().unwrap_or_default()))
    }

    /// Creates a policy with its binding.
    async fn deny(&mut self, name: &str, rule: Value, expression: &str) -> Result<()> {
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]},
        });
        self.create(&format!("{POLICIES}/validatingadmissionpolicies"), policy).await?;
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        self.create(&format!("{POLICIES}/validatingadmissionpolicybindings"), binding).await.map(drop)
    }
}

fn rule(group: &str, resource: &str, operation: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": [operation]})
}

fn review(user: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {"verb": "get", "resource": "pods"}},
    })
}

fn config_map(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

fn definition(spec: &Value, scale: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.details.example.com"},
        "spec": {
            "group": "details.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"scale": scale},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

fn thing(spec: Value) -> Value {
    json!({
        "apiVersion": "details.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec,
    })
}

#[tokio::test]
async fn policies_see_what_a_request_has() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = Client(cluster.endpoint().await?.connect().await?);
    // Empty texts are left out, so that to compare them is an error.
    client.deny("absent", rule("", "persistentvolumes", "CREATE"), "request.subResource == ''").await?;
    client
        .deny(
            "no-mallory",
            rule("authorization.k8s.io", "subjectaccessreviews", "CREATE"),
            "object.spec.user != 'mallory'",
        )
        .await?;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
    });
    assert_eq!(
        client.refusal("POST", "/api/v1/persistentvolumes", volume).await?,
        "422 persistentvolumes \"pv\" is forbidden: ValidatingAdmissionPolicy 'absent' with binding 'absent' denied \
         request: expression 'request.subResource == ''' resulted in error: no such key: subResource"
    );
    // Every request depends on reviews: no policy is evaluated for them.
    client.create(REVIEWS, review("mallory")).await?;
    Ok(())
}

#[tokio::test]
async fn the_first_refusal_ends_the_deletion_of_a_collection() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = Client(cluster.endpoint().await?.connect().await?);
    // The policy is not about the first object.
    client.deny("keep", rule("", "configmaps", "DELETE"), "oldObject.metadata.name != 'c'").await?;
    let policy = format!("{POLICIES}/validatingadmissionpolicies/keep");
    let guarded = json!({"matchLabels": {"guard": "yes"}});
    let constraints = json!({"spec": {"matchConstraints": {"objectSelector": guarded}}});
    let (code, changed, _) = client.call("PATCH", &policy, constraints).await?;
    assert_eq!(code, 200, "{changed}");
    for name in ["a", "b", "c", "d", "e"] {
        let guard = if name == "a" { "no" } else { "yes" };
        let labels = json!({"x": "y", "guard": guard});
        client.create(CONFIG_MAPS, config_map(json!({"name": name, "labels": labels}))).await?;
    }
    let refused = client.refusal("DELETE", &format!("{CONFIG_MAPS}?labelSelector=x"), Value::Null).await?;
    assert!(refused.starts_with("422 "), "{refused}");
    let (_, left, _) = client.call("GET", &format!("{CONFIG_MAPS}?labelSelector=x"), Value::Null).await?;
    let left: Vec<&str> = left["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    assert_eq!(left, ["c", "d", "e"]);
    // A precondition is looked at before any policy.
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "other"}});
    let refused = client.refusal("DELETE", &format!("{CONFIG_MAPS}/c"), options).await?;
    assert!(refused.starts_with("409 ") && refused.contains("the UID in the precondition"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn unchanged_values_that_violate_new_rules_are_warned_of() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = Client(cluster.endpoint().await?.connect().await?);
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let scale = json!({"specReplicasPath": ".spec.missing", "statusReplicasPath": ".status.missing"});
    client.create(CRDS, definition(&open, scale)).await?;
    client.until_served().await?;
    client.create(THINGS, thing(json!({"a": "bad"}))).await?;
    // A field that the schema does not have cannot be scaled, but does not show either.
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t"}, "spec": {"replicas": 7},
    });
    let (code, scale, _) = client.call("PUT", &format!("{THINGS}/t/scale"), scale).await?;
    assert_eq!((code, &scale["spec"]), (200, &json!({})), "{scale}");
    let stricter = json!({"spec": {"versions": [{
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "externalDocs": {"url": "x"}, "properties": {"spec": {
            "type": "object", "properties": {"a": {
                "type": "string", "x-kubernetes-validations": [{"rule": "self != 'bad'"}],
            }},
        }}}},
    }]}});
    let (code, changed, _) =
        client.call("PATCH", &format!("{CRDS}/things.details.example.com"), stricter).await?;
    assert_eq!(code, 200, "{changed}");
    let want = r#"299 - "spec.a: Invalid value: \"bad\": failed rule: self != 'bad'""#;
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    // The new schema is served a moment after it is stored.
    let warnings = async || {
        let (code, body, warnings) = client.call("PATCH", &format!("{THINGS}/t"), labels.clone()).await?;
        anyhow::ensure!(code == 200, "{body}");
        Ok(warnings)
    };
    let warnings = until("the rule is evaluated", warnings, |warnings| !warnings.is_empty()).await?;
    assert_eq!(warnings, [want]);
    let accepted = client.refusal("PATCH", &format!("{THINGS}/t"), json!({"spec": {"a": "good"}})).await?;
    assert_eq!(accepted, "200 ");
    Ok(())
}

#[tokio::test]
async fn a_policy_writes_no_null_where_none_is_permitted() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = Client(cluster.endpoint().await?.connect().await?);
    let scale = json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"});
    client.create(CRDS, definition(&json!({"type": "object"}), scale)).await?;
    client.until_served().await?;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "null"},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule("details.example.com", "things", "CREATE")]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {
                "expression": "[JSONPatch{op: 'replace', path: '/spec', value: null}]",
            }}],
        },
    });
    client.create(&format!("{POLICIES}/mutatingadmissionpolicies"), policy).await?;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "null"}, "spec": {"policyName": "null"},
    });
    client.create(&format!("{POLICIES}/mutatingadmissionpolicybindings"), binding).await?;
    assert_eq!(
        client.refusal("POST", THINGS, thing(json!({}))).await?,
        "422 Thing.details.example.com \"t\" is invalid: \
         spec: Invalid value: \"null\": spec in body must be of type object: \"null\""
    );
    Ok(())
}

#[tokio::test]
async fn metadata_of_new_objects() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = Client(cluster.endpoint().await?.connect().await?);
    // Owners are the same only if all their members are.
    let owner = |controller: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": controller});
    let owners = json!([owner(json!(true)), owner(json!(false)), owner(json!(true)), owner(json!(true))]);
    let object = config_map(json!({"name": "owned", "ownerReferences": owners}));
    let (code, created, warnings) = client.call("POST", &format!("{CONFIG_MAPS}?dryRun=All"), object).await?;
    assert_eq!((code, created["metadata"]["ownerReferences"].as_array().map(Vec::len)), (201, Some(2)));
    assert!(warnings[0].ends_with("duplicate UID(s) observed: u, u\""), "{warnings:?}");
    // What the system sets is left out, also of what is not stored.
    let mut review = review("alice");
    review["metadata"] = json!({"uid": "u", "deletionGracePeriodSeconds": 1, "labels": {"a": "b"}});
    let refused = client.refusal("POST", REVIEWS, review).await?;
    assert!(refused.contains(r#""labels":{"a":"b"}"#) && !refused.contains("uid"), "{refused}");
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a/b"},
        "target": {"kind": "Node", "name": "n"},
    });
    assert_eq!(
        client.refusal("POST", "/api/v1/namespaces/default/bindings", binding).await?,
        "400 Name parameter invalid: \"a/b\": may not contain '/'"
    );
    // A base for generated names changes the error, and asks to try again.
    let object = config_map(json!({"name": "named", "generateName": "base-"}));
    client.create(CONFIG_MAPS, object.clone()).await?;
    let (code, refused, _) = client.call("POST", CONFIG_MAPS, object).await?;
    let want = "configmaps \"named\" already exists, the server was not able to generate a unique name for the object";
    assert_eq!((code, refused["message"].as_str()), (409, Some(want)));
    assert_eq!(refused["details"]["retryAfterSeconds"], 1);
    Ok(())
}

/// A version may be removed although objects are stored in it, if its name is taken out of
/// `status.storedVersions`. Nothing converts them any more, so the definition cannot be deleted.
#[tokio::test]
async fn a_definition_with_unreadable_objects_stays() -> Result<()> {
    let cluster = cluster().flag("--nodes", "0").start().await?;
    let mut client = Client(cluster.endpoint().await?.connect().await?);
    let definition = format!("{CRDS}/things.details.example.com");
    let version = |name: &str, is_stored: bool| json!({"name": name, "served": true, "storage": is_stored, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing"});
    let spec = json!({"group": "details.example.com", "names": names, "scope": "Namespaced", "versions": [version("v1", true)]});
    client.create(CRDS, json!({"metadata": {"name": "things.details.example.com"}, "spec": spec})).await?;
    client.until_served().await?;
    let thing = json!({"apiVersion": "details.example.com/v1", "kind": "Thing", "metadata": {"name": "a"}});
    client.create(THINGS, thing).await?;
    for (path, patch) in [
        ("", json!({"spec": {"versions": [version("v1", false), version("v2", true)]}})),
        ("/status", json!({"status": {"storedVersions": ["v2"]}})),
        ("", json!({"spec": {"versions": [version("v2", true)]}})),
    ] {
        let (code, body, _) = client.call("PATCH", &format!("{definition}{path}"), patch).await?;
        assert_eq!(code, 200, "{body}");
    }
    let of_v2 = "/apis/details.example.com/v2/namespaces/default/things";
    let code = async || Ok(client.call("GET", of_v2, Value::Null).await?.0);
    until("the new version is served", code, |code| *code == 429).await?;
    assert_eq!(client.call("DELETE", &definition, Value::Null).await?.0, 200);
    let reason = async || {
        let (_, body, _) = client.call("GET", &definition, Value::Null).await?;
        let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let terminating = conditions.into_iter().find(|condition| condition["type"] == "Terminating");
        Ok(terminating.map(|condition| condition["reason"].as_str().unwrap_or_default().to_owned()))
    };
    until("the deletion fails", reason, |reason| reason.as_deref() == Some("InstanceDeletionFailed")).await?;
    // It is looked at again from time to time, and not without a pause.
    let (code, body, _) = client.call("POST", "/coracle/v1alpha1/settle", json!({})).await?;
    assert_eq!(code, 200, "{body}");
    assert!(cluster.stop().await?.success());
    Ok(())
}
