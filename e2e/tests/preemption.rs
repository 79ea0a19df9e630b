//! PriorityClasses and preemption: upstream's end-to-end behaviors (`[sig-scheduling]
//! SchedulerPreemption`). A node has 32 CPUs.

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::{JsonClient, condition, condition_reason, items};
use coracle_e2e::workloads::{apps, is_ready, pods, replicated, template};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const DEFAULT: &str = "default";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const INVALID: u16 = 422;

/// Starts a control plane with PriorityClasses of 100, 200 and 300.
async fn start(nodes: &str) -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--nodes", nodes).with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let are_ready = |list: &Value| {
        items(list).is_some_and(|all| {
            all.len().to_string() == nodes && all.iter().all(|node| node["spec"]["taints"].is_null())
        })
    };
    client.until("/api/v1/nodes", are_ready).await?;
    for (name, value) in [("low", 100), ("medium", 200), ("high", 300)] {
        client.create(CLASSES, json!({"metadata": {"name": name}, "value": value})).await?;
    }
    Ok((cluster, client))
}

fn path(name: &str) -> String {
    format!("{}/{name}", pods(DEFAULT))
}

fn asking(name: &str, class: &str, cpu: &str) -> Value {
    let mut pod = template("app", json!({}));
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["priorityClassName"] = json!(class);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

async fn create_ready(client: &mut JsonClient, pod: Value) -> Result<Value> {
    let created = client.create(&pods(DEFAULT), pod).await?;
    let name = created["metadata"]["name"].as_str().context("no name")?.to_owned();
    client.until(&path(&name), is_ready).await
}

/// Covers upstream's "validates basic preemption works".
#[tokio::test]
async fn the_least_important_pod_is_preempted() -> Result<()> {
    let (_cluster, mut client) = start("2").await?;
    let mut first = Value::Null;
    for (i, class) in ["low", "medium", "medium"].into_iter().enumerate() {
        // One fills half of a node, so that each node has two of them at most.
        let pod = create_ready(&mut client, asking(&format!("pod-{i}"), class, "15")).await?;
        first = if i == 0 { pod } else { first };
    }
    create_ready(&mut client, asking("pod-3", "medium", "15")).await?;
    let preemptor = create_ready(&mut client, asking("preemptor", "high", "15")).await?;
    assert_eq!(preemptor["spec"]["nodeName"], first["spec"]["nodeName"]);
    client.until_deleted(&path("pod-0")).await?;
    for i in 1..4 {
        ensure!(is_ready(&client.get(&path(&format!("pod-{i}"))).await?), "pod-{i}");
    }
    Ok(())
}

/// Covers upstream's "validates lower priority pod preemption by critical pod".
#[tokio::test]
async fn a_critical_pod_preempts_across_namespaces() -> Result<()> {
    let (_cluster, mut client) = start("1").await?;
    create_ready(&mut client, asking("low", "low", "16")).await?;
    create_ready(&mut client, asking("high", "high", "15")).await?;
    client
        .until_items(
            "/api/v1/namespaces/kube-system/serviceaccounts?fieldSelector=metadata.name%3Ddefault",
            1,
        )
        .await?;
    let critical = asking("critical", "system-cluster-critical", "16");
    client.create("/api/v1/namespaces/kube-system/pods", critical).await?;
    client.until("/api/v1/namespaces/kube-system/pods/critical", is_ready).await?;
    client.until_deleted(&path("low")).await?;
    ensure!(is_ready(&client.get(&path("high")).await?));
    client.delete("/api/v1/namespaces/kube-system/pods/critical").await.map(drop)
}

/// Covers upstream's "validates pod disruption condition is added to the preempted pod".
#[tokio::test]
async fn a_preempted_pod_has_the_condition_of_a_disruption() -> Result<()> {
    let (_cluster, mut client) = start("1").await?;
    let mut victim = asking("victim", "low", "31");
    victim["metadata"]["finalizers"] = json!(["example.com/held"]);
    create_ready(&mut client, victim).await?;
    client.create(&pods(DEFAULT), asking("preemptor", "high", "31")).await?;
    let is_terminating = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    let victim = client.until(&path("victim"), is_terminating).await?;
    assert_eq!(condition(&victim, "DisruptionTarget"), Some("True"));
    assert_eq!(condition_reason(&victim, "DisruptionTarget"), Some("PreemptionByScheduler"));
    client.patch(&path("victim"), json!({"metadata": {"finalizers": null}})).await?;
    client.until(&path("preemptor"), is_ready).await.map(drop)
}

/// Checks that a pod whose class never preempts waits, whatever its priority, until a node has
/// space.
#[tokio::test]
async fn a_pod_that_never_preempts_waits_for_its_turn() -> Result<()> {
    let (_cluster, mut client) = start("1").await?;
    let patient = json!({"metadata": {"name": "patient"}, "value": 1000, "preemptionPolicy": "Never"});
    client.create(CLASSES, patient).await?;
    create_ready(&mut client, asking("running", "low", "31")).await?;
    let created = client.create(&pods(DEFAULT), asking("patient", "patient", "31")).await?;
    assert_eq!(
        (&created["spec"]["priority"], &created["spec"]["preemptionPolicy"]),
        (&json!(1000), &json!("Never"))
    );
    client.create(&pods(DEFAULT), asking("other", "medium", "40")).await?;
    for name in ["patient", "other"] {
        client
            .until(&path(name), |pod| condition_reason(pod, "PodScheduled") == Some("Unschedulable"))
            .await?;
    }
    ensure!(is_ready(&client.get(&path("running")).await?));
    client.delete(&path("running")).await?;
    client.until(&path("patient"), is_ready).await.map(drop)
}

/// Covers upstream's "PodTopologySpread Preemption validates proper pods are preempted".
#[tokio::test]
async fn preemption_keeps_to_the_topology_spread() -> Result<()> {
    let (_cluster, mut client) = start("2").await?;
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"spread": "yes"}},
    }]);
    let on = |mut pod: Value, node: &str| {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        pod
    };
    let spreading = |mut pod: Value| {
        pod["metadata"]["labels"]["spread"] = json!("yes");
        pod
    };
    // One node has the high pod, the other three low ones; all of the kind.
    create_ready(&mut client, on(spreading(asking("high", "high", "28")), "node-0")).await?;
    for i in 0..3 {
        create_ready(&mut client, on(spreading(asking(&format!("low-{i}"), "low", "10")), "node-1")).await?;
    }
    // A medium one may only be where the high one is, which it cannot preempt, or where low ones go
    // until the skew is right.
    let mut medium = spreading(asking("medium", "medium", "10"));
    medium["spec"]["topologySpreadConstraints"] = spread;
    let medium = create_ready(&mut client, medium).await?;
    assert_eq!(medium["spec"]["nodeName"], "node-1");
    ensure!(is_ready(&client.get(&path("high")).await?));
    let is_left = |list: &Value| {
        let pods = list["items"].as_array().into_iter().flatten();
        pods.filter(|pod| pod["spec"]["nodeName"] == "node-1").count() == 2
    };
    client.until(&pods(DEFAULT), is_left).await.map(drop)
}

/// Covers upstream's "PreemptionExecutionPath runs ReplicaSets to verify preemption running path".
#[tokio::test]
async fn sets_of_higher_priority_take_the_place_of_lower_ones() -> Result<()> {
    let (_cluster, mut client) = start("1").await?;
    client.create(CLASSES, json!({"metadata": {"name": "highest"}, "value": 400})).await?;
    let sets = apps(DEFAULT, "replicasets");
    let set = |name: &str, class: &str, replicas: usize, cpu: &str| {
        let mut set = replicated(name, replicas);
        set["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
        set["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        set
    };
    // 1, 2 and 3 of them fill the node but for a CPU.
    for (name, class, replicas, cpu) in
        [("a", "low", 1, "10"), ("b", "medium", 3, "4"), ("c", "high", 3, "3")]
    {
        client.create(&sets, set(name, class, replicas, cpu)).await?;
        client.until(&format!("{sets}/{name}"), |set| set["status"]["readyReplicas"] == replicas).await?;
    }
    // It takes the place of the lowest set and of a pod of the next one.
    client.create(&sets, set("d", "highest", 1, "14")).await?;
    client.until(&format!("{sets}/d"), |set| set["status"]["readyReplicas"] == 1).await?;
    for (name, ready) in [("a", 0), ("b", 2), ("c", 3)] {
        let has = |set: &Value| set["status"]["readyReplicas"].as_u64().unwrap_or(0) == ready;
        client.until(&format!("{sets}/{name}"), has).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Covers upstream's "PriorityClass endpoints verify PriorityClass endpoints can be operated with
/// different HTTP methods".
#[tokio::test]
async fn a_priority_class_keeps_its_value() -> Result<()> {
    let (_cluster, mut client) = start("0").await?;
    let low = format!("{CLASSES}/low");
    let patched = client.patch(&low, json!({"description": "patched"})).await?;
    assert_eq!(patched["description"], "patched");
    let mut replaced = patched;
    replaced["description"] = json!("replaced");
    client.call("PUT", &low, Some(replaced)).await?;
    let read = client.get(&low).await?;
    assert_eq!((&read["description"], &read["value"]), (&json!("replaced"), &json!(100)));
    let (status, answer) = client.send("PATCH", &low, Some(json!({"value": 1}))).await?;
    assert_eq!((status, &answer["details"]["causes"][0]["field"]), (INVALID, &json!("value")));
    client.delete(&low).await?;
    let left = client.list(CLASSES).await?;
    ensure!(left.iter().all(|class| class["metadata"]["name"] != "low") && left.len() == 4, "{left:?}");
    Ok(())
}
