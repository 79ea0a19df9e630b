//! Authorization, from the view of users with few rights.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle::ControlPlane;
use coracle_e2e::http::{Connection, Endpoint};
use serde_json::{Value, json};

/// Starts a control plane in this process with the user `alice`, and two connections: the
/// administrator's and hers.
async fn start(directory: &Path) -> Result<(ControlPlane, Connection, Connection)> {
    let tokens = directory.join("tokens.csv");
    std::fs::write(&tokens, "secret,alice,1\n")?;
    let builder = ControlPlane::builder().ephemeral().token_auth_file(&tokens).nodes(0);
    let control_plane = builder.start().await?;
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let admin = Endpoint::new(&config)?.connect().await?;
    let alice = Endpoint::with_token(&config, "secret")?.connect().await?;
    Ok((control_plane, admin, alice))
}

/// Sends a document; returns the status code and the response.
async fn send(
    connection: &mut Connection,
    method: &str,
    path: &str,
    document: &Value,
) -> Result<(u16, Value)> {
    let response = connection.call(method, path, &[], Some(Bytes::from(document.to_string()))).await?;
    let value = serde_json::from_slice(&response.body).with_context(|| {
        format!("{method} {path}: {:?}", response.body.slice(..response.body.len().min(200)))
    })?;
    Ok((response.status, value))
}

/// Grants alice these verbs on these resources in all namespaces.
async fn grant(admin: &mut Connection, name: &str, verbs: &[&str], resources: &[&str]) -> Result<()> {
    let rules = json!([{"verbs": verbs, "apiGroups": ["*"], "resources": resources}]);
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    for (resource, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{resource}");
        let (code, response) = send(admin, "POST", &path, &object).await?;
        ensure!(code == 201, "{response}");
    }
    Ok(())
}

#[tokio::test]
async fn a_put_that_creates_needs_the_right_to_create() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (control_plane, mut admin, mut alice) = start(directory.path()).await?;
    grant(&mut admin, "changes", &["get", "update", "patch"], &["*"]).await?;
    let rbac = "rbac.authorization.k8s.io";
    let none = json!({"metadata": {"name": "none"}, "rules": []});
    for path in ["namespaces/default/roles", "clusterroles"] {
        let (code, response) = send(&mut admin, "POST", &format!("/apis/{rbac}/v1/{path}"), &none).await?;
        ensure!(code == 201, "{response}");
    }
    let role_ref = |kind: &str| json!({"roleRef": {"apiGroup": rbac, "kind": kind, "name": "none"}});
    let in_default = "in the namespace \"default\"";
    let in_cluster = "at the cluster scope";
    let cases = [
        ("/apis/coordination.k8s.io/v1", "coordination.k8s.io", "leases", in_default, json!({"spec": {}})),
        ("/api/v1", "", "services", in_default, json!({"spec": {"ports": [{"port": 80}]}})),
        ("/api/v1", "", "endpoints", in_default, json!({})),
        ("/api/v1", "", "limitranges", in_default, json!({"spec": {"limits": []}})),
        ("/api/v1", "", "events", in_default, json!({"involvedObject": {"namespace": "default"}})),
        ("/apis/rbac.authorization.k8s.io/v1", rbac, "roles", in_default, json!({"rules": []})),
        ("/apis/rbac.authorization.k8s.io/v1", rbac, "rolebindings", in_default, role_ref("Role")),
        ("/apis/rbac.authorization.k8s.io/v1", rbac, "clusterroles", in_cluster, json!({"rules": []})),
        (
            "/apis/rbac.authorization.k8s.io/v1",
            rbac,
            "clusterrolebindings",
            in_cluster,
            role_ref("ClusterRole"),
        ),
        ("/apis/node.k8s.io/v1", "node.k8s.io", "runtimeclasses", in_cluster, json!({"handler": "h"})),
    ];
    let path = |prefix: &str, resource: &str, scope: &str| match scope == in_default {
        true => format!("{prefix}/namespaces/default/{resource}/x"),
        false => format!("{prefix}/{resource}/x"),
    };
    for (prefix, group, resource, scope, object) in &cases {
        let mut object = object.clone();
        object["metadata"] = json!({"name": "x"});
        let path = path(prefix, resource, scope);
        let (code, response) = send(&mut alice, "PUT", &path, &object).await?;
        let full = if group.is_empty() { (*resource).to_owned() } else { format!("{resource}.{group}") };
        let want = format!(
            "{full} \"x\" is forbidden: User \"alice\" cannot create resource \"{resource}\" in API group \"{group}\" {scope}"
        );
        assert_eq!(
            (code, response["message"].as_str()),
            (403, Some(want.as_str())),
            "{resource}: {response}"
        );
        let (code, response) = send(&mut admin, "GET", &path, &Value::Null).await?;
        assert_eq!(code, 404, "{resource}: {response}");
        // An invalid object is rejected for everyone; a user who may create succeeds.
        let (code, created) = send(&mut admin, "PUT", &path, &object).await?;
        assert_eq!(code, 201, "{resource}: {created}");
        let (code, response) = send(&mut alice, "PUT", &path, &created).await?;
        assert_eq!(code, 200, "{resource}: a change needs no more than update: {response}");
    }
    grant(&mut admin, "creates", &["create"], &["leases"]).await?;
    let lease = json!({"metadata": {"name": "y"}, "spec": {}});
    let (code, response) =
        send(&mut alice, "PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/y", &lease).await?;
    assert_eq!(code, 201, "{response}");
    control_plane.shutdown().await?;
    Ok(())
}

#[tokio::test]
async fn virtual_resources_need_their_namespace() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (control_plane, mut admin, _) = start(directory.path()).await?;
    let named = |name: &str| json!({"metadata": {"name": name}});
    let terminating = json!({"metadata": {"name": "ending", "finalizers": ["example.com/kept"]}});
    let (code, response) = send(&mut admin, "POST", "/api/v1/namespaces", &terminating).await?;
    ensure!(code == 201, "{response}");
    let (code, response) = send(&mut admin, "DELETE", "/api/v1/namespaces/ending", &json!({})).await?;
    ensure!(code == 200, "{response}");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    for (what, path, document, resource, name) in [
        ("an eviction", "pods/p/eviction", named("p"), "pods", "p"),
        ("a token request", "serviceaccounts/s/token", json!({"spec": {}}), "serviceaccounts", "s"),
        ("a binding", "pods/p/binding", binding, "pods", "p"),
    ] {
        let at = |namespace: &str| format!("/api/v1/namespaces/{namespace}/{path}");
        let (code, response) = send(&mut admin, "POST", &at("nowhere"), &document).await?;
        let want = "namespaces \"nowhere\" not found";
        assert_eq!((code, response["message"].as_str()), (404, Some(want)), "{what}");
        let (code, response) = send(&mut admin, "POST", &at("ending"), &document).await?;
        let want = format!(
            "{resource} \"{name}\" is forbidden: unable to create new content in namespace ending because it is being terminated"
        );
        assert_eq!((code, response["message"].as_str()), (403, Some(want.as_str())), "{what}");
        let (code, response) = send(&mut admin, "POST", &at("default"), &document).await?;
        let want = format!("{resource} \"{name}\" not found");
        assert_eq!((code, response["message"].as_str()), (404, Some(want.as_str())), "{what}");
    }
    control_plane.shutdown().await?;
    Ok(())
}

/// Checks that nobody learns what is in an object that they must not read from the messages of a
/// policy with that object as its parameter.
#[tokio::test]
async fn authors_of_policies_must_be_allowed_to_read_the_parameters() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (control_plane, mut admin, mut alice) = start(directory.path()).await?;
    let policies = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
    grant(&mut admin, "policies", &["create", "update"], &policies).await?;
    grant(&mut admin, "configmaps", &["get", "create"], &["configmaps"]).await?;
    let at = |resource: &str| format!("/apis/admissionregistration.k8s.io/v1/{resource}");
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = |name: &str, kind: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "paramKind": {"apiVersion": "v1", "kind": kind},
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "messageExpression": "string(params.data.password)"}],
        }})
    };
    let (code, refused) = send(&mut alice, "POST", &at(policies[0]), &policy("p", "Secret")).await?;
    let message = "must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
    ensure!(code == 422 && refused["message"].as_str().unwrap_or_default().ends_with(message), "{refused}");
    let (code, response) = send(&mut alice, "POST", &at(policies[0]), &policy("own", "ConfigMap")).await?;
    ensure!(code == 201, "{response}");
    let (code, response) = send(&mut admin, "POST", &at(policies[0]), &policy("p", "Secret")).await?;
    ensure!(code == 201, "{response}");
    let binding = json!({"metadata": {"name": "b"}, "spec": {
        "policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "s", "namespace": "default", "parameterNotFoundAction": "Deny"},
    }});
    let (code, refused) = send(&mut alice, "POST", &at(policies[1]), &binding).await?;
    let message = "does not have \"get\" permission on the object referenced by paramRef";
    ensure!(code == 422 && refused["message"].as_str().unwrap_or_default().ends_with(message), "{refused}");
    control_plane.shutdown().await?;
    Ok(())
}

/// Checks that a policy that denies everything still leaves a way to find that out, and to mend it.
#[tokio::test]
async fn a_policy_for_everything_spares_reviews_and_policies() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (control_plane, mut admin, _) = start(directory.path()).await?;
    let at = |resource: &str| format!("/apis/admissionregistration.k8s.io/v1/{resource}");
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": resources});
    let policy = |name: &str, rule: Value| {
        json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}],
        }})
    };
    let binding = |name: &str| json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let account = json!({"metadata": {"name": "default"}});
    // The account may have been created by its controller.
    send(&mut admin, "POST", "/api/v1/namespaces/default/serviceaccounts", &account).await?;
    let (code, response) = send(&mut admin, "POST", "/api/v1/namespaces/default/pods", &pod).await?;
    ensure!(code == 201, "{response}");
    let target = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    for (name, rule) in [("bindings", rule("", &["bindings"])), ("everything", rule("*", &["*"]))] {
        for (resource, object) in [
            ("validatingadmissionpolicies", policy(name, rule)),
            ("validatingadmissionpolicybindings", binding(name)),
        ] {
            let (code, response) = send(&mut admin, "POST", &at(resource), &object).await?;
            ensure!(code == 201, "{response}");
        }
        let (code, response) =
            send(&mut admin, "POST", "/api/v1/namespaces/default/bindings", &target).await?;
        ensure!(
            code == 422
                && response["message"]
                    .as_str()
                    .unwrap_or_default()
                    .starts_with("bindings \"p\" is forbidden"),
            "{response}"
        );
        if name == "bindings" {
            let path = "/api/v1/namespaces/default/pods/p/binding";
            let (code, response) = send(&mut admin, "POST", path, &target).await?;
            ensure!(code == 201, "{response}");
        }
    }
    let attributes = json!({"verb": "get", "resource": "pods"});
    for (path, spec) in [
        ("authorization.k8s.io/v1/selfsubjectaccessreviews", json!({"resourceAttributes": attributes})),
        (
            "authorization.k8s.io/v1/subjectaccessreviews",
            json!({"user": "u", "resourceAttributes": attributes}),
        ),
        ("authorization.k8s.io/v1/selfsubjectrulesreviews", json!({"namespace": "default"})),
        ("authentication.k8s.io/v1/tokenreviews", json!({"token": "x"})),
    ] {
        let (code, response) =
            send(&mut admin, "POST", &format!("/apis/{path}"), &json!({"spec": spec})).await?;
        ensure!(code == 201, "{path}: {response}");
    }
    let webhooks = json!({"metadata": {"name": "w"}, "webhooks": []});
    let (code, response) =
        send(&mut admin, "POST", &at("validatingwebhookconfigurations"), &webhooks).await?;
    ensure!(code == 422, "{response}");
    let (code, response) =
        send(&mut admin, "DELETE", &at("validatingadmissionpolicybindings/everything"), &json!({})).await?;
    ensure!(code == 200, "{response}");
    let (code, response) =
        send(&mut admin, "POST", &at("validatingwebhookconfigurations"), &webhooks).await?;
    ensure!(code == 201, "{response}");
    control_plane.shutdown().await?;
    Ok(())
}

#[tokio::test]
async fn reviews_have_no_tables() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (control_plane, mut admin, _) = start(directory.path()).await?;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let access = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let token = json!({"spec": {"token": "x"}});
    for (path, document) in [
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", access),
        ("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json!({"spec": {"namespace": "default"}})),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})),
        ("/apis/authentication.k8s.io/v1/tokenreviews", token),
        ("/api/v1/namespaces/default/serviceaccounts/default/token", json!({"spec": {}})),
    ] {
        let body = || Some(Bytes::from(document.to_string()));
        let response = admin.call("POST", path, &[("accept", Some(table))], body()).await?;
        assert_eq!(response.status, 406, "{path}");
        let status: Value = serde_json::from_slice(&response.body)?;
        assert_eq!(status["reason"], "NotAcceptable", "{path}: {status}");
        let both = format!("{table},application/json");
        let response = admin.call("POST", path, &[("accept", Some(&both))], body()).await?;
        assert!(matches!(response.status, 201 | 404), "{path}: {}", response.status);
        let document: Value = serde_json::from_slice(&response.body)?;
        assert_ne!(document["kind"], "Table", "{path}");
    }
    control_plane.shutdown().await?;
    Ok(())
}

/// Compares roles that once took all memory, or minutes during which no other client was served.
#[tokio::test]
async fn large_roles_are_compared_in_bounded_time() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (control_plane, mut admin, mut alice) = start(directory.path()).await?;
    grant(&mut admin, "writes", &["create"], &["roles"]).await?;
    let texts = |prefix: &str, count: usize| (0..count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let wide = json!([{"verbs": texts("v", 60), "apiGroups": texts("g", 60), "resources": texts("r", 60),
        "resourceNames": texts("n", 60)}]);
    let names = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": texts("n", 16_000)}]);
    for (case, rules) in [("wide", wide), ("names", names)] {
        let role = json!({"metadata": {"name": case}, "rules": rules});
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
        let began = Instant::now();
        let (code, response) = send(&mut alice, "POST", path, &role).await?;
        let took = began.elapsed();
        assert_eq!(code, 403, "{case}");
        let message = response["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("is attempting to grant RBAC permissions not currently held:\n{APIGroups:["),
            "{case}"
        );
        assert!(
            message.len() < 1 << 20 && message.ends_with("...and more"),
            "{case}: {} bytes",
            message.len()
        );
        let limit = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });
        assert!(took < limit, "{case}: {took:?}");
    }
    control_plane.shutdown().await?;
    Ok(())
}
