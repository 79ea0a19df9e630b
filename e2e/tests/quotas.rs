//! ResourceQuotas and LimitRanges: upstream's end-to-end behaviors (`[sig-api-machinery]
//! ResourceQuota`, `[sig-scheduling] LimitRange`). What concurrent writes do to a quota is in
//! `limits.rs`.

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::{JsonClient, condition};
use coracle_e2e::workloads::{apps, pods, replicated, replication_controller};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const DEFAULT: &str = "default";
const FORBIDDEN: u16 = 403;

/// Starts a control plane without nodes, so that created objects stay as they are.
async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--nodes", "0").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    // Waits until the objects that every namespace gets exist.
    client.until_items(&core("serviceaccounts"), 1).await?;
    client.until_items(&core("configmaps"), 1).await?;
    Ok((cluster, client))
}

fn core(resource: &str) -> String {
    format!("/api/v1/namespaces/{DEFAULT}/{resource}")
}

fn quota(name: &str) -> String {
    format!("{}/{name}", core("resourcequotas"))
}

/// Creates a quota, and waits until it is counted.
async fn create_quota(client: &mut JsonClient, name: &str, spec: Value) -> Result<()> {
    client.create(&core("resourcequotas"), json!({"metadata": {"name": name}, "spec": spec})).await?;
    let is_counted = |quota: &Value| quota["status"]["hard"] == quota["spec"]["hard"];
    client.until(&quota(name), is_counted).await.map(drop)
}

/// Waits until a quota has this usage.
async fn until_used(client: &mut JsonClient, name: &str, used: &Value) -> Result<()> {
    client.until(&quota(name), |quota| quota["status"]["used"] == *used).await.map(drop)
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "c"}]}});
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    for (key, value) in spec.as_object().into_iter().flatten() {
        match key.as_str() {
            "resources" => pod["spec"]["containers"][0]["resources"] = value.clone(),
            _ => pod["spec"][key] = value.clone(),
        }
    }
    pod
}

/// Creates an object that is refused, and returns why.
async fn refused(client: &mut JsonClient, path: &str, object: Value) -> Result<String> {
    let (status, answer) = client.send("POST", path, Some(object)).await?;
    ensure!(status == FORBIDDEN, "{status}: {answer}");
    Ok(answer["message"].as_str().unwrap_or_default().to_owned())
}

/// Covers upstream's "should create a ResourceQuota and ensure its status is promptly calculated",
/// "... capture the life of a service", "... a secret", "... a pod", "... a configMap", "... a
/// replication controller", "... a replica set", "... a persistent volume claim", "... with a
/// storage class", "... a custom resource".
#[tokio::test]
async fn a_quota_captures_the_life_of_every_kind() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.create(definitions, definition).await?;
    let is_established = |definition: &Value| condition(definition, "Established") == Some("True");
    client.until(&format!("{definitions}/things.example.com"), is_established).await?;
    let things = format!("/apis/example.com/v1/namespaces/{DEFAULT}/things");
    let named = |name: &str| json!({"metadata": {"name": name}});
    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let resources = json!({"requests": {"cpu": "500m", "memory": "252Mi"}, "limits": {"cpu": "1"}});
    let pod = |name: &str| pod(name, json!({"resources": resources}));
    let claim = |name: &str| {
        let resources = json!({"requests": {"storage": "1Gi"}});
        json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "gold", "resources": resources,
        }})
    };
    let gold = |what: &str| format!("gold.storageclass.storage.k8s.io/{what}");
    let custom =
        |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}});
    type Used<'a> = Vec<(String, &'a str)>;
    let cases: [(&str, String, Value, Value, Used<'_>); 8] = [
        (
            "service",
            core("services"),
            service("one"),
            service("two"),
            // The API server's own is one already.
            vec![
                ("services".into(), "2"),
                ("services.nodeports".into(), "1"),
                ("count/services".into(), "2"),
            ],
        ),
        ("secret", core("secrets"), named("one"), named("two"), vec![("secrets".into(), "1")]),
        (
            "pod",
            pods(DEFAULT),
            pod("one"),
            pod("two"),
            vec![
                ("pods".into(), "1"),
                ("cpu".into(), "500m"),
                ("requests.memory".into(), "252Mi"),
                ("limits.cpu".into(), "1"),
            ],
        ),
        (
            "replication controller",
            core("replicationcontrollers"),
            replication_controller("one", 0),
            replication_controller("two", 0),
            vec![("replicationcontrollers".into(), "1")],
        ),
        (
            "replica set",
            apps(DEFAULT, "replicasets"),
            replicated("one", 0),
            replicated("two", 0),
            vec![("count/replicasets.apps".into(), "1")],
        ),
        (
            "claim",
            core("persistentvolumeclaims"),
            claim("one"),
            claim("two"),
            vec![
                ("persistentvolumeclaims".into(), "1"),
                ("requests.storage".into(), "1Gi"),
                (gold("persistentvolumeclaims"), "1"),
                (gold("requests.storage"), "1Gi"),
            ],
        ),
        (
            "custom resource",
            things,
            custom("one"),
            custom("two"),
            vec![("count/things.example.com".into(), "1")],
        ),
        // The certificates of the API server are one already.
        ("config map", core("configmaps"), named("one"), named("two"), vec![("configmaps".into(), "2")]),
    ];
    for (kind, path, first, second, hard) in cases {
        let full: Value = hard.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        create_quota(&mut client, "q", json!({"hard": full})).await.context(kind)?;
        let before = client.get(&quota("q")).await?["status"]["used"].clone();
        client.create(&path, first).await.context(kind)?;
        until_used(&mut client, "q", &full).await.context(kind)?;
        let message = refused(&mut client, &path, second).await.context(kind)?;
        ensure!(message.contains("exceeded quota: q, requested: "), "{kind}: {message}");
        client.delete(&format!("{path}/one")).await?;
        until_used(&mut client, "q", &before).await.context(kind)?;
        client.delete(&quota("q")).await?;
    }
    Ok(())
}

/// Covers upstream's "should verify ResourceQuota with terminating scopes", "... with best effort
/// scope", the same "through scope selectors", and "should verify ResourceQuota's priority class
/// scope" with the operators In, NotIn and Exists.
#[tokio::test]
async fn quotas_count_the_pods_of_their_scopes() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let class = |name: &str| json!({"metadata": {"name": name}, "value": 1000});
    for name in ["gold", "silver"] {
        client.create("/apis/scheduling.k8s.io/v1/priorityclasses", class(name)).await?;
    }
    let selector = |scope: &str, operator: &str, values: Value| json!({"matchExpressions": [{"scopeName": scope, "operator": operator, "values": values}]});
    let none = json!(null);
    let scoped = [
        ("terminating", json!(["Terminating"]), none.clone()),
        ("not-terminating", json!(["NotTerminating"]), none.clone()),
        ("best-effort", json!(["BestEffort"]), none.clone()),
        ("not-best-effort", json!(["NotBestEffort"]), none.clone()),
        ("selected-terminating", none.clone(), selector("Terminating", "Exists", none.clone())),
        ("selected-best-effort", none.clone(), selector("BestEffort", "Exists", none.clone())),
        ("in", none.clone(), selector("PriorityClass", "In", json!(["gold"]))),
        ("not-in", none.clone(), selector("PriorityClass", "NotIn", json!(["gold"]))),
        ("exists", none.clone(), selector("PriorityClass", "Exists", none)),
    ];
    for (name, scopes, selector) in &scoped {
        let spec = json!({"hard": {"pods": "1"}, "scopes": scopes, "scopeSelector": selector});
        create_quota(&mut client, name, spec).await.with_context(|| (*name).to_owned())?;
    }
    let small = json!({"requests": {"cpu": "1m"}});
    for (case, spec, counted) in [
        ("plain", json!({}), &["not-terminating", "best-effort", "selected-best-effort", "not-in"][..]),
        ("requesting", json!({"resources": small}), &["not-terminating", "not-best-effort", "not-in"]),
        (
            "short",
            json!({"activeDeadlineSeconds": 3600, "resources": small}),
            &["terminating", "selected-terminating", "not-best-effort", "not-in"],
        ),
        (
            "golden",
            json!({"priorityClassName": "gold"}),
            &["not-terminating", "best-effort", "selected-best-effort", "in", "exists"],
        ),
        (
            "silvery",
            json!({"priorityClassName": "silver", "resources": small}),
            &["not-terminating", "not-best-effort", "not-in", "exists"],
        ),
    ] {
        client.create(&pods(DEFAULT), pod("one", spec.clone())).await.context(case)?;
        for (name, ..) in &scoped {
            let used = if counted.contains(name) { "1" } else { "0" };
            until_used(&mut client, name, &json!({"pods": used}))
                .await
                .with_context(|| format!("{case} {name}"))?;
        }
        let message = refused(&mut client, &pods(DEFAULT), pod("two", spec)).await.context(case)?;
        ensure!(message.contains("exceeded quota: "), "{case}: {message}");
        client.delete(&format!("{}/one", pods(DEFAULT))).await?;
        for (name, ..) in &scoped {
            until_used(&mut client, name, &json!({"pods": "0"}))
                .await
                .with_context(|| format!("{case} {name}"))?;
        }
    }
    Ok(())
}

/// Covers upstream's "should be able to update and delete ResourceQuota", "should manage the
/// lifecycle of a ResourceQuota", "should apply changes to a resourcequota status".
#[tokio::test]
async fn a_quota_is_changed_listed_and_deleted() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    create_quota(&mut client, "q", json!({"hard": {"cpu": "1", "memory": "500Mi"}})).await?;
    client.patch(&quota("q"), json!({"metadata": {"labels": {"set": "test"}}})).await?;
    client.patch(&quota("q"), json!({"spec": {"hard": {"cpu": "2", "memory": "1Gi"}}})).await?;
    let is_followed = |quota: &Value| quota["status"]["hard"] == json!({"cpu": "2", "memory": "1Gi"});
    client.until(&quota("q"), is_followed).await?;
    // Other clients' writes to the status stay until the limits change or all quotas are counted
    // again.
    let wrong = json!({"status": {"hard": {"cpu": "8", "memory": "8Gi"}}});
    let written = client.patch(&format!("{}/status", quota("q")), wrong).await?;
    assert_eq!(
        (&written["status"]["hard"]["cpu"], &written["spec"]["hard"]["cpu"]),
        (&json!("8"), &json!("2"))
    );
    client.patch(&quota("q"), json!({"spec": {"hard": {"cpu": "3"}}})).await?;
    client
        .until(&quota("q"), |quota| quota["status"]["hard"] == json!({"cpu": "3", "memory": "1Gi"}))
        .await?;
    let all = "/api/v1/resourcequotas?labelSelector=set%3Dtest";
    assert_eq!(client.list(all).await?.len(), 1);
    client.delete(&format!("{}?labelSelector=set%3Dtest", core("resourcequotas"))).await?;
    client.until_items(all, 0).await.map(drop)
}

/// Covers upstream's "should create a LimitRange with defaults and ensure pod has those defaults
/// applied", "should list, patch and delete a LimitRange by collection".
#[tokio::test]
async fn a_limit_range_fills_in_defaults_and_refuses() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let limit = json!({
        "type": "Container",
        "min": {"cpu": "50m", "memory": "100Mi"}, "max": {"cpu": "500m", "memory": "500Mi"},
        "defaultRequest": {"cpu": "100m", "memory": "200Mi"}, "default": {"cpu": "500m", "memory": "500Mi"},
    });
    let range =
        json!({"metadata": {"name": "range", "labels": {"set": "test"}}, "spec": {"limits": [limit]}});
    let ranges = core("limitranges");
    client.create(&ranges, range).await?;
    for (name, resources, want) in [
        (
            "nothing",
            json!({}),
            json!({"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"cpu": "500m", "memory": "500Mi"}}),
        ),
        (
            "some",
            json!({"requests": {"memory": "150Mi"}, "limits": {"cpu": "300m"}}),
            // A limit without a request is the request.
            json!({"requests": {"cpu": "300m", "memory": "150Mi"}, "limits": {"cpu": "300m", "memory": "500Mi"}}),
        ),
    ] {
        let created = client.create(&pods(DEFAULT), pod(name, json!({"resources": resources}))).await?;
        assert_eq!(created["spec"]["containers"][0]["resources"], want, "{name}");
    }
    // The requests of the whole pod follow those of its containers, which the range has set.
    let mut whole = pod("whole", json!({}));
    whole["spec"]["resources"] = json!({"requests": {"cpu": "300m"}, "limits": {"cpu": "500m"}});
    let created = client.create(&pods(DEFAULT), whole).await?;
    assert_eq!(created["spec"]["resources"]["requests"], json!({"cpu": "300m", "memory": "200Mi"}));
    let less = pod("less", json!({"resources": {"requests": {"cpu": "10m", "memory": "50Mi"}}}));
    let more = pod("more", json!({"resources": {"requests": {"cpu": "600m"}, "limits": {"cpu": "600m"}}}));
    let message = refused(&mut client, &pods(DEFAULT), less.clone()).await?;
    ensure!(message.contains("minimum cpu usage per Container is 50m, but request is 10m"), "{message}");
    let message = refused(&mut client, &pods(DEFAULT), more.clone()).await?;
    ensure!(message.contains("maximum cpu usage per Container is 500m, but limit is 600m"), "{message}");
    let smaller = json!({"type": "Container", "min": {"cpu": "9m", "memory": "49Mi"}, "max": {"cpu": "500m", "memory": "500Mi"}});
    client.patch(&format!("{ranges}/range"), json!({"spec": {"limits": [smaller]}})).await?;
    client.create(&pods(DEFAULT), less).await?;
    refused(&mut client, &pods(DEFAULT), more.clone()).await?;
    assert_eq!(client.list("/api/v1/limitranges?labelSelector=set%3Dtest").await?.len(), 1);
    client.delete(&format!("{ranges}?labelSelector=set%3Dtest")).await?;
    client.until_items(&ranges, 0).await?;
    client.create(&pods(DEFAULT), more).await.map(drop)
}
