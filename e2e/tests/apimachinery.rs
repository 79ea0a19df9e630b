//! Behaviors that Kubernetes' own e2e suite asserts of custom resources, CEL and admission. Tests
//! are named as there.
//!
//! | suite | where |
//! | --- | --- |
//! | CustomResourceDefinition resources | recordings `crd-create-established-discovered-deleted`, `crd-status-subresource`, `cr-defaulting` |
//! | CustomResourceDefinition Watch | here |
//! | CustomResourcePublishOpenAPI | recording `crd-openapi`; several versions and groups here |
//! | CustomResourceConversionWebhook | `admission_webhooks.rs` |
//! | CustomResourceFieldSelectors | recording `cr-selectable-fields` |
//! | CustomResourceValidationRules | recordings `cr-cel-rules`, `cr-cel-transition-rules`, `crd-cel-invalid-rules`, `crd-cel-cost` |
//! | CRDValidationRatcheting | recording `crd-ratcheting`; rules here |
//! | FieldValidation | recording `cr-pruning-and-field-validation`, `cr-embedded-resource` |
//! | ValidatingAdmissionPolicy | recordings `vap-*`; Deployments and the types of custom resources here |
//! | MutatingAdmissionPolicy | here |
//! | AdmissionWebhook | `admission_webhooks.rs`, recording `webhook-config-invalid` |
//! | AggregatedDiscovery | here |

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::Connection;
use coracle_e2e::json_client::condition;
use coracle_e2e::wait::until;
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn start() -> Result<(Cluster, Connection)> {
    let controllers = "validatingadmissionpolicy-status-controller";
    let cluster = cluster().flag("--controllers", controllers).start().await?;
    let connection = cluster.endpoint().await?.connect().await?;
    Ok((cluster, connection))
}

async fn call(connection: &mut Connection, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
    let body = (!body.is_null()).then(|| Bytes::from(body.to_string()));
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let response = connection.call(method, path, &[("Content-Type", Some(content_type))], body).await?;
    Ok((response.status, serde_json::from_slice(&response.body).unwrap_or_default()))
}

async fn create(connection: &mut Connection, path: &str, object: &Value) -> Result<()> {
    let (code, body) = call(connection, "POST", path, object).await?;
    ensure!(code == 201, "{path}: {body}");
    Ok(())
}

/// Builds the versions of a definition: name, whether it is served, and the schema of `spec`.
fn versions(versions: &[(&str, bool, Value)]) -> Value {
    let version = |(index, (name, served, spec)): (usize, &(&str, bool, Value))| {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": served, "storage": index == 0, "schema": {"openAPIV3Schema": schema}})
    };
    versions.iter().enumerate().map(version).collect()
}

fn definition(group: &str, kind: &str, versions: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
        },
    })
}

/// Creates a definition and waits until it is established.
async fn define(connection: &mut Connection, definition: &Value) -> Result<()> {
    create(connection, CRDS, definition).await?;
    let path = format!("{CRDS}/{}", definition["metadata"]["name"].as_str().context("a name")?);
    let stored = async || Ok(call(connection, "GET", &path, &Value::Null).await?.1);
    until("it is established", stored, |stored| condition(stored, "Established") == Some("True"))
        .await
        .map(drop)
}

/// Covers upstream's CRDValidationRatcheting: "MUST NOT fail to update a resource due to CRD
/// Validation Rule errors on unchanged correlatable fields", "MUST fail ... on unchanged
/// uncorrelatable fields", "... on changed fields", "MUST NOT ratchet errors raised by transition
/// rules", "MUST evaluate a CRD Validation Rule with oldSelf = nil for new values when
/// optionalOldSelf is true".
#[tokio::test]
async fn crd_validation_rules_are_ratcheted() -> Result<()> {
    let (_cluster, mut connection) = start().await?;
    let rule = |rule: &str| json!([{"rule": rule, "message": "refused"}]);
    let text = |rules: &Value| json!({"type": "string", "x-kubernetes-validations": rules});
    let loose = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    define(&mut connection, &definition("ratchet.example.com", "Widget", &versions(&[("v1", true, loose)])))
        .await?;
    let path = "/apis/ratchet.example.com/v1/namespaces/default/widgets";
    let object = json!({
        "apiVersion": "ratchet.example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"field": "bad", "list": ["bad"], "fixed": "a", "other": "x"},
    });
    create(&mut connection, path, &object).await?;
    let strict = json!({"type": "object", "properties": {
        "field": text(&rule("self != 'bad' && !self.startsWith('worse')")),
        "list": {"type": "array", "items": text(&rule("self != 'bad' || false"))},
        "fixed": text(&rule("self == oldSelf")),
        "other": {"type": "string"},
        "fresh": {"type": "string", "x-kubernetes-validations":
            [{"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "refused"}]},
    }});
    let changed = json!({"spec": {"versions": versions(&[("v1", true, strict)])}});
    let (code, body) =
        call(&mut connection, "PATCH", &format!("{CRDS}/widgets.ratchet.example.com"), &changed).await?;
    ensure!(code == 200, "{body}");
    let path = format!("{path}/w");
    // The new schema is served a moment later: until then nothing refuses this.
    let patch = json!({"spec": {"field": "worse"}});
    let dry_run = format!("{path}?dryRun=All");
    let patched = async || Ok(call(&mut connection, "PATCH", &dry_run, &patch).await?.0);
    until("the new schema is served", patched, |code| *code == 422).await?;
    for (case, spec, want) in [
        ("unchanged fields next to a changed one", json!({"other": "y"}), 200),
        ("a changed list, whose items are not correlatable", json!({"list": ["bad", "good"]}), 422),
        ("a changed field", json!({"field": "worse than bad"}), 422),
        ("a transition rule", json!({"fixed": "b"}), 422),
        ("a new value", json!({"fresh": "second"}), 422),
        ("another new value", json!({"fresh": "first"}), 200),
        ("a value that is not new", json!({"fresh": "second"}), 200),
    ] {
        let (code, body) = call(&mut connection, "PATCH", &path, &json!({"spec": spec})).await?;
        assert_eq!(code, want, "{case}: {body}");
    }
    Ok(())
}

/// Covers upstream's CustomResourceDefinition Watch: "watch on custom resource definition objects".
#[tokio::test]
async fn watch_on_custom_resource_definition_objects() -> Result<()> {
    let (cluster, mut connection) = start().await?;
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    define(&mut connection, &definition("watch.example.com", "Noxu", &versions(&[("v1", true, any)])))
        .await?;
    let path = "/apis/watch.example.com/v1/namespaces/default/noxus";
    for name in ["a", "b"] {
        let object =
            json!({"apiVersion": "watch.example.com/v1", "kind": "Noxu", "metadata": {"name": name}});
        create(&mut connection, path, &object).await?;
    }
    for (name, method, body) in [
        ("a", "PATCH", json!({"spec": {"n": 1}})),
        ("a", "DELETE", Value::Null),
        ("b", "DELETE", Value::Null),
    ] {
        call(&mut connection, method, &format!("{path}/{name}"), &body).await?;
    }
    let mut watcher = cluster.endpoint().await?.connect().await?;
    let (_, list) = call(&mut connection, "GET", path, &Value::Null).await?;
    ensure!(list["items"] == json!([]), "{list}");
    let watch = format!("{path}?watch=1&resourceVersion=1&timeoutSeconds=3&allowWatchBookmarks=false");
    let response = watcher.call("GET", &watch, &[], None).await?;
    let text = String::from_utf8(response.body.to_vec())?;
    let events = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let seen: Vec<String> = events
        .iter()
        .map(|event| {
            format!(
                "{} {}",
                event["type"].as_str().unwrap_or(""),
                event["object"]["metadata"]["name"].as_str().unwrap_or("")
            )
        })
        .collect();
    assert_eq!(seen, ["ADDED a", "ADDED b", "MODIFIED a", "DELETED a", "DELETED b"]);
    Ok(())
}

/// Checks that a definition whose objects have finalizers waits for them, and is not written
/// repeatedly meanwhile.
#[tokio::test]
async fn a_definition_waits_quietly_for_objects_that_are_held() -> Result<()> {
    let (_cluster, mut connection) = start().await?;
    let schema = json!({"type": "object"});
    define(&mut connection, &definition("held.example.com", "Widget", &versions(&[("v1", true, schema)])))
        .await?;
    let path = "/apis/held.example.com/v1/namespaces/default/widgets";
    let object = json!({
        "apiVersion": "held.example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "finalizers": ["example.com/held"]},
    });
    create(&mut connection, path, &object).await?;
    let stored = format!("{CRDS}/widgets.held.example.com");
    let (code, body) = call(&mut connection, "DELETE", &stored, &Value::Null).await?;
    ensure!(code == 200, "{body}");
    let held = format!("{path}/w");
    let object = async || Ok(call(&mut connection, "GET", &held, &Value::Null).await?.1);
    until("the object is to be deleted", object, |object| {
        object["metadata"]["deletionTimestamp"].is_string()
    })
    .await?;
    let mut versions = Vec::new();
    for _ in 0..100 {
        let (_, definition) = call(&mut connection, "GET", &stored, &Value::Null).await?;
        ensure!(condition(&definition, "Terminating") == Some("True"), "{definition}");
        versions.push(definition["metadata"]["resourceVersion"].to_string());
    }
    versions.dedup();
    ensure!(versions.len() == 1, "it is written again and again: {versions:?}");
    let released = json!({"metadata": {"finalizers": null}});
    call(&mut connection, "PATCH", &held, &released).await?;
    let definition = async || Ok(call(&mut connection, "GET", &stored, &Value::Null).await?.0);
    until("the definition is gone", definition, |code| *code == 404).await.map(drop)
}

/// Covers upstream's CustomResourcePublishOpenAPI: "works for multiple CRDs of different groups",
/// "... of same group but different versions", "updates the published spec when one version gets
/// renamed", "removes definition from spec when one version gets changed to not be served".
#[tokio::test]
async fn open_api_is_published_for_what_is_served() -> Result<()> {
    let (_cluster, mut connection) = start().await?;
    let spec = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
    let both = versions(&[("v2", true, spec("two")), ("v3", true, spec("three"))]);
    define(&mut connection, &definition("one.example.com", "Foo", &both)).await?;
    define(&mut connection, &definition("other.example.com", "Bar", &versions(&[("v1", true, spec("one"))])))
        .await?;
    let document = async |connection: &mut Connection, group_version: &str| -> Result<Option<String>> {
        let (code, body) =
            call(connection, "GET", &format!("/openapi/v3/apis/{group_version}"), &Value::Null).await?;
        Ok((code == 200).then(|| body["components"]["schemas"].to_string()))
    };
    for (group_version, name) in [
        ("one.example.com/v2", "com.example.one.v2.Foo"),
        ("one.example.com/v3", "com.example.one.v3.Foo"),
        ("other.example.com/v1", "com.example.other.v1.Bar"),
    ] {
        let text = document(&mut connection, group_version).await?.context("published")?;
        assert!(text.contains(name), "{group_version}: {text}");
    }
    let renamed =
        versions(&[("v2", true, spec("two")), ("v4", true, spec("four")), ("v3", false, spec("three"))]);
    let patch = json!({"spec": {"versions": renamed}});
    let (code, body) =
        call(&mut connection, "PATCH", &format!("{CRDS}/foos.one.example.com"), &patch).await?;
    ensure!(code == 200, "{body}");
    let documents = async || {
        let v3 = document(&mut connection, "one.example.com/v3").await?;
        Ok((v3, document(&mut connection, "one.example.com/v4").await?))
    };
    until("the documents follow the definition", documents, |(v3, v4)| {
        v3.is_none() && v4.as_ref().is_some_and(|text| text.contains("com.example.one.v4.Foo"))
    })
    .await
    .map(drop)
}

/// Covers upstream's AggregatedDiscovery: "should support raw aggregated discovery request for
/// CRDs".
#[tokio::test]
async fn should_support_raw_aggregated_discovery_request_for_crds() -> Result<()> {
    let (_cluster, mut connection) = start().await?;
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    define(&mut connection, &definition("disco.example.com", "Foo", &versions(&[("v1", true, any)]))).await?;
    for version in ["v2", "v2beta1"] {
        let accept = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        let response = connection.call("GET", "/apis", &[("Accept", Some(&accept))], None).await?;
        if version == "v2beta1" && response.status == 406 {
            continue;
        }
        let body: Value = serde_json::from_slice(&response.body)?;
        let groups = body["items"].as_array().cloned().unwrap_or_default();
        let group = groups.iter().find(|group| group["metadata"]["name"] == "disco.example.com");
        let group = group.with_context(|| format!("{version}: {body}"))?;
        assert_eq!(group["versions"][0]["resources"][0]["resource"], "foos", "{group}");
    }
    Ok(())
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

fn of_deployments() -> Value {
    json!({"resourceRules": [{
        "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE", "UPDATE"],
    }]})
}

/// Covers upstream's ValidatingAdmissionPolicy: "should validate against a Deployment", "should
/// allow expressions to refer variables", "should type check a CRD".
#[tokio::test]
async fn validating_admission_policies_validate_and_are_type_checked() -> Result<()> {
    let (_cluster, mut connection) = start().await?;
    let policy = |name: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec});
    let path = format!("{ADMISSION}/validatingadmissionpolicies");
    let spec = json!({
        "matchConstraints": of_deployments(),
        "variables": [{"name": "replicas", "expression": "object.spec.replicas"}, {"name": "odd", "expression": "variables.replicas % 2 == 1"}],
        "validations": [
            {"expression": "variables.replicas > 1", "messageExpression": "'wants more than ' + string(variables.replicas)"},
            {"expression": "!variables.odd"},
        ],
    });
    create(&mut connection, &path, &policy("replicas", spec)).await?;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "replicas"},
        "spec": {"policyName": "replicas", "validationActions": ["Deny"]},
    });
    create(&mut connection, &format!("{ADMISSION}/validatingadmissionpolicybindings"), &binding).await?;
    for (replicas, want) in
        [(1, Some("wants more than 1")), (3, Some("failed expression: !variables.odd")), (2, None)]
    {
        let (code, body) =
            call(&mut connection, "POST", DEPLOYMENTS, &deployment(&format!("d{replicas}"), replicas))
                .await?;
        let message = body["message"].as_str().unwrap_or_default();
        match want {
            Some(text) => assert!(code == 422 && message.contains(text), "{replicas}: {body}"),
            None => assert_eq!(code, 201, "{body}"),
        }
    }
    let spec = json!({"type": "object", "properties": {"fish": {"type": "string"}}});
    define(&mut connection, &definition("check.example.com", "Crab", &versions(&[("v1", true, spec)])))
        .await?;
    let wrong = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["check.example.com"], "apiVersions": ["v1"], "resources": ["crabs"], "operations": ["*"],
        }]},
        "validations": [{"expression": "object.spec.fish > 3"}, {"expression": "object.spec.fish == 'x'"}, {"expression": "object.spec.bird == 'x'"}],
    });
    create(&mut connection, &path, &policy("crabs", wrong)).await?;
    let one = format!("{path}/crabs");
    let warnings = async || {
        let (_, mut stored) = call(&mut connection, "GET", &one, &Value::Null).await?;
        Ok(stored["status"]["typeChecking"]["expressionWarnings"].take())
    };
    let warnings = until("the policy is type checked", warnings, Value::is_array).await?;
    let fields: Vec<_> =
        warnings.as_array().into_iter().flatten().map(|warning| &warning["fieldRef"]).collect();
    assert_eq!(fields, ["spec.validations[0].expression", "spec.validations[2].expression"], "{warnings}");
    Ok(())
}

/// Covers upstream's MutatingAdmissionPolicy: "should mutate a Deployment with ApplyConfiguration
/// and JSONPatch".
#[tokio::test]
async fn mutating_admission_policies_mutate_deployments() -> Result<()> {
    let (_cluster, mut connection) = start().await?;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "m"},
        "spec": {
            "matchConstraints": of_deployments(), "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "matchConditions": [{"name": "not-skipped", "expression": "object.metadata.name != 'skip-me'"}],
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{metadata: Object.metadata{annotations: {'by': request.options.kind}}, spec: Object.spec{replicas: object.spec.replicas + 10}}"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression":
                    "[JSONPatch{op: 'add', path: '/metadata/labels/replicas', value: string(object.spec.replicas)}]"}},
            ],
        },
    });
    create(&mut connection, &format!("{ADMISSION}/mutatingadmissionpolicies"), &policy).await?;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "m"},
        "spec": {"policyName": "m"},
    });
    create(&mut connection, &format!("{ADMISSION}/mutatingadmissionpolicybindings"), &binding).await?;
    for (name, replicas, label) in [("d", 12, json!("12")), ("skip-me", 2, Value::Null)] {
        let (code, body) = call(&mut connection, "POST", DEPLOYMENTS, &deployment(name, 2)).await?;
        assert_eq!(
            (code, &body["spec"]["replicas"], &body["metadata"]["labels"]["replicas"]),
            (201, &json!(replicas), &label),
            "{body}"
        );
        let by = if name == "d" { json!("CreateOptions") } else { Value::Null };
        assert_eq!(body["metadata"]["annotations"]["by"], by, "{body}");
    }
    Ok(())
}
