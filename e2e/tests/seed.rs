//! Seeds: two control planes with the same seed, requests and times come to the same objects.

use anyhow::{Result, ensure};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::random::Rng;
use coracle_e2e::random_workloads::{objects_since, write_some};
use coracle_e2e::{Cluster, cluster, workloads};
use serde_json::{Value, json};

const CLOCK: &str = "/coracle/v1alpha1/clock";
const SETTLE: &str = "/coracle/v1alpha1/settle";
const START: &str = "2050-01-01T00:00:00Z";

async fn seeded(seed: &str) -> Result<(Cluster, JsonClient)> {
    let cluster =
        cluster().flag("--clock", "manual").flag("--nodes", "3").flag("--seed", seed).start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    client.call("POST", CLOCK, Some(json!({"set": START}))).await?;
    Ok((cluster, client))
}

async fn settle(client: &mut JsonClient) -> Result<()> {
    client.call("POST", SETTLE, Some(json!({"quietFor": "0s"}))).await.map(drop)
}

/// Returns the objects, except for certificates: keys are never derived from a seed.
async fn outcome(client: &mut JsonClient) -> Result<Vec<(String, Value)>> {
    let mut objects = objects_since(client, START).await?;
    objects.retain(|(_, object)| object["metadata"]["name"] != "kube-root-ca.crt");
    Ok(objects)
}

fn difference(a: &[(String, Value)], b: &[(String, Value)]) -> String {
    let name = |(resource, object): &(String, Value)| format!("{resource} {}", object["metadata"]["name"]);
    let only = |a: &[(String, Value)], b: &[(String, Value)]| -> Vec<String> {
        a.iter().filter(|object| !b.contains(object)).map(name).collect()
    };
    let first = a.iter().zip(b).find(|(a, b)| a != b);
    let first = first.map(|(a, b)| format!("{}\n{:#}\n{:#}", name(a), a.1, b.1)).unwrap_or_default();
    format!("{:?}\n{:?}\n{first}", only(a, b), only(b, a))
}

/// Returns the objects after each ten of 50 workloads.
async fn outcomes() -> Result<Vec<Vec<(String, Value)>>> {
    let (_cluster, mut client) = seeded("7").await?;
    let (mut random, mut outcomes) = (Rng(11), Vec::new());
    for round in 0..50 {
        // The order of a client's writes and concurrent ones of controllers is random.
        write_some(&mut client, &mut random, round, settle).await?;
        client.call("POST", CLOCK, Some(json!({"advance": "45s"}))).await?;
        if round % 10 == 9 {
            outcomes.push(outcome(&mut client).await?);
        }
    }
    Ok(outcomes)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_workloads_come_to_the_same_objects() -> Result<()> {
    let (one, other) = futures::future::try_join(outcomes(), outcomes()).await?;
    for (round, (a, b)) in one.iter().zip(&other).enumerate() {
        ensure!(a.len() > 50, "{} objects", a.len());
        ensure!(a == b, "after {} workloads: {}", 10 * (round + 1), difference(a, b));
    }
    Ok(())
}

/// Returns the name, UID and address of each pod of a Deployment, which is created between others.
async fn pods_of(seed: &str, before: &[&str]) -> Result<Vec<Value>> {
    let cluster = cluster().flag("--seed", seed).start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let path = workloads::apps("default", "deployments");
    for name in before.iter().chain(&["web"]) {
        client.create(&path, workloads::replicated(name, 2)).await?;
        client.create("/api/v1/namespaces/default/services", service(name)).await?;
    }
    settle(&mut client).await?;
    let mut found = Vec::new();
    for pod in client.list(&workloads::pods("default")).await? {
        if pod["metadata"]["labels"]["app"] == "web" {
            found.push(json!([pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"]["podIP"]]));
        }
    }
    let service = client.get("/api/v1/namespaces/default/services/web").await?;
    found.push(json!([service["metadata"]["uid"], service["spec"]["clusterIP"]]));
    Ok(found)
}

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

#[tokio::test]
async fn names_uids_and_addresses_do_not_depend_on_the_order() -> Result<()> {
    let first = pods_of("7", &[]).await?;
    ensure!(first.len() == 3, "{first:?}");
    ensure!(pods_of("7", &["a", "b"]).await? == first, "others came before");
    let other = pods_of("8", &[]).await?;
    ensure!(other.iter().all(|found| !first.contains(found)), "another seed: {other:?}");
    Ok(())
}

#[tokio::test]
async fn an_object_of_the_same_name_is_another_one() -> Result<()> {
    let cluster = cluster().flag("--seed", "7").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let (path, mut uids) = ("/api/v1/namespaces/default/configmaps", Vec::new());
    for _ in 0..3 {
        let map = client.create(path, json!({"metadata": {"name": "a"}})).await?;
        uids.push(workloads::uid(&map).to_owned());
        client.delete(&format!("{path}/a")).await?;
    }
    uids.sort_unstable();
    uids.dedup();
    ensure!(uids.len() == 3, "{uids:?}");
    let mut names = Vec::new();
    for _ in 0..3 {
        let map = client.create(path, json!({"metadata": {"generateName": "g-"}})).await?;
        let name = workloads::name(&map).to_owned();
        client.delete(&format!("{path}/{name}")).await?;
        names.push(name);
    }
    names.sort_unstable();
    names.dedup();
    ensure!(names.len() == 3, "{names:?}");
    Ok(())
}
