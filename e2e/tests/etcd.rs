//! Two servers on one etcd cluster: each sees the other's writes, either may be killed, and so may
//! a member of the cluster. Skipped, and said so, where there is no etcd.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::wait::DEADLINE;
use coracle_e2e::{Cluster, binary, cluster};
use coracle_storage::log::{Change, Log, Notifier, Outcome, Proposal};
use coracle_storage::{Key, Revision, Unreadable};
use coracle_storage_etcd::testing::{EtcdCluster, start_or_skip};
use coracle_storage_etcd::{Compaction, EtcdLog, Layout};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// An etcd cluster, and a directory with the keys of the servers that share it.
struct Shared {
    etcd: EtcdCluster,
    keys: TempDir,
}

impl Shared {
    async fn start(members: usize) -> Result<Option<Shared>> {
        let Some(etcd) = start_or_skip(members)? else { return Ok(None) };
        let keys = TempDir::new()?;
        // The first server creates the keys.
        let first = cluster().data_dir(keys.path()).flag("--controllers", "").start().await?;
        ensure!(first.stop().await?.success(), "no clean stop");
        Ok(Some(Shared { etcd, keys }))
    }

    /// Starts a server; an empty list selects no controllers.
    async fn server(&self, controllers: &str) -> Result<Cluster> {
        let servers = self.etcd.urls().join(",");
        let builder = cluster().data_dir(self.keys.path()).flag("--etcd-servers", servers);
        builder.flag("--controllers", controllers).start().await
    }

    async fn two_servers(&self) -> Result<(Cluster, Cluster)> {
        // At once: both make the first objects.
        tokio::try_join!(self.server(""), self.server(""))
    }
}

async fn json(server: &Cluster) -> Result<JsonClient> {
    JsonClient::new(&server.endpoint().await?).await
}

async fn config_maps(server: &Cluster) -> Result<Api<ConfigMap>> {
    Ok(Api::namespaced(server.client().await?, "default"))
}

fn config_map(name: &str, count: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"count": count.to_string()}})
}

fn revision(object: &Value) -> Result<u64> {
    let text = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    Ok(text.with_context(|| object.to_string())?.parse()?)
}

/// Reads the events of a watch until `is_over` holds for the revisions read so far.
async fn watch(
    maps: &Api<ConfigMap>,
    after: u64,
    mut is_over: impl FnMut(&[u64]) -> bool,
) -> Result<Vec<u64>> {
    let mut seen = Vec::new();
    let reading = async {
        let mut events = maps.watch(&WatchParams::default(), &after.to_string()).await?.boxed();
        while !is_over(&seen) {
            match events.try_next().await? {
                Some(WatchEvent::Added(map) | WatchEvent::Modified(map) | WatchEvent::Deleted(map)) => {
                    seen.push(map.metadata.resource_version.context("no revision")?.parse()?);
                }
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(error)) => bail!("{error:?}"),
                None => break,
            }
        }
        Ok(())
    };
    timeout(DEADLINE, reading).await.context("the watch shows too little")??;
    Ok(seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_server_sees_the_others_writes() -> Result<()> {
    let Some(shared) = Shared::start(1).await? else { return Ok(()) };
    let (one, two) = shared.two_servers().await?;
    let (mut on_one, mut on_two) = (json(&one).await?, json(&two).await?);
    let start = revision(&on_two.get(CONFIG_MAPS).await?)?;
    let maps = config_maps(&two).await?;
    let watching = tokio::spawn(async move { watch(&maps, start, |seen| seen.len() == 30).await });
    let mut written = Vec::new();
    for count in 0..10 {
        let path = format!("{CONFIG_MAPS}/m{count}");
        let created = on_one.create(CONFIG_MAPS, config_map(&format!("m{count}"), 0)).await?;
        // Read by the other at once, without a revision.
        let read = on_two.get(&path).await?;
        assert_eq!(read, created);
        let changed = on_two.patch(&path, json!({"data": {"count": "1"}})).await?;
        assert_eq!(on_one.get(&path).await?, changed);
        let deleted = on_one.send("DELETE", &path, None).await?.0;
        assert_eq!(deleted, 200);
        assert_eq!(on_two.send("GET", &path, None).await?.0, 404);
        written.extend([revision(&created)?, revision(&changed)?]);
    }
    let seen = watching.await??;
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    assert!(written.iter().all(|revision| seen.contains(revision)), "{written:?} {seen:?}");

    for round in 0..20 {
        let name = format!("contested-{round}");
        let path = format!("{CONFIG_MAPS}/{name}");
        let mut object = on_one.create(CONFIG_MAPS, config_map(&name, 0)).await?;
        object["data"]["count"] = "1".into();
        let mut other = object.clone();
        other["data"]["count"] = "2".into();
        let (first, second) = tokio::try_join!(
            on_one.send("PUT", &path, Some(object)),
            on_two.send("PUT", &path, Some(other))
        )?;
        let mut codes = [first.0, second.0];
        codes.sort();
        assert_eq!(codes, [200, 409], "{first:?} {second:?}");
    }
    Ok(())
}

/// Checks that both servers allocate cluster IPs and node ports concurrently, and none twice.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_allocated_twice() -> Result<()> {
    const EACH: usize = 40;
    let Some(shared) = Shared::start(1).await? else { return Ok(()) };
    let (one, two) = shared.two_servers().await?;
    let create = async |server: &Cluster, name: String| -> Result<Value> {
        let spec = json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "name": "other"}]});
        let mut spec = spec;
        spec["ports"][0]["name"] = "first".into();
        json(server).await?.create(SERVICES, json!({"metadata": {"name": name}, "spec": spec})).await
    };
    let creating =
        (0..2 * EACH).map(|n| create(if n.is_multiple_of(2) { &one } else { &two }, format!("s{n}")));
    let services = try_join_all(creating).await?;
    let all = |pointer: &str| -> BTreeSet<String> {
        services.iter().filter_map(|service| service.pointer(pointer)).map(Value::to_string).collect()
    };
    assert_eq!(all("/spec/clusterIP").len(), 2 * EACH);
    let ports: BTreeSet<_> =
        all("/spec/ports/0/nodePort").into_iter().chain(all("/spec/ports/1/nodePort")).collect();
    assert_eq!(ports.len(), 4 * EACH);
    // A released port can be allocated again.
    let port = services[0]["spec"]["ports"][0]["nodePort"].clone();
    json(&two).await?.delete(&format!("{SERVICES}/s0")).await?;
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    json(&one).await?.create(SERVICES, json!({"metadata": {"name": "again"}, "spec": spec})).await?;
    Ok(())
}

/// Writes on both servers, one of which is killed: acknowledged writes exist, and a watch that is
/// resumed on the other server shows each change once.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing() -> Result<()> {
    let Some(shared) = Shared::start(1).await? else { return Ok(()) };
    let (one, two) = shared.two_servers().await?;
    let start = revision(&json(&one).await?.get(CONFIG_MAPS).await?)?;
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for n in 0..8 {
        let mut client = json(if n % 2 == 0 { &one } else { &two }).await?;
        let (acknowledged, is_over) = (acknowledged.clone(), is_over.clone());
        writers.push(tokio::spawn(async move {
            let mut revisions = Vec::new();
            for count in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("w{n}-{count}");
                // The server was killed: whether the last one is stored is not known.
                let Ok((status, body)) =
                    client.send("POST", CONFIG_MAPS, Some(config_map(&name, count))).await
                else {
                    break;
                };
                ensure!(status == 201, "{body}");
                revisions.push(revision(&body)?);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Ok(revisions)
        }));
    }
    let count = acknowledged.clone();
    let before = watch(&config_maps(&one).await?, start, move |seen| {
        seen.len() > 50 && count.load(Ordering::Relaxed) > 200
    })
    .await?;
    one.kill().await?;
    let at_death = acknowledged.load(Ordering::Relaxed);
    let began = Instant::now();
    while acknowledged.load(Ordering::Relaxed) < at_death + 100 {
        ensure!(began.elapsed() < DEADLINE, "the other server does not go on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.extend(writer.await??);
    }
    revisions.sort();
    let newest = *revisions.last().context("nothing was written")?;
    let resumed = *before.last().context("nothing was seen")?;
    let after = watch(&config_maps(&two).await?, resumed, |seen| seen.last() >= Some(&newest)).await?;
    let seen: Vec<u64> = before.into_iter().chain(after).collect();
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    let lost: Vec<_> = revisions.iter().filter(|revision| seen.binary_search(revision).is_err()).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let list = json(&two).await?.list(CONFIG_MAPS).await?;
    let stored: BTreeSet<u64> = list.iter().map(revision).collect::<Result<_>>()?;
    assert!(revisions.iter().all(|revision| stored.contains(revision)));
    Ok(())
}

/// Creates a ConfigMap and returns its revision; again where etcd, which elects a leader meanwhile,
/// does not know in time whether it is created.
async fn create_config_map(client: &mut JsonClient, name: &str, count: usize) -> Result<u64> {
    let is_of_etcd =
        |status: &Value| status["message"].as_str().is_some_and(|text| text.starts_with("etcdserver: "));
    let began = Instant::now();
    let mut is_repeated = false;
    loop {
        let (status, answer) = client.send("POST", CONFIG_MAPS, Some(config_map(name, count))).await?;
        match status {
            201 => return revision(&answer),
            409 if is_repeated => return revision(&client.get(&format!("{CONFIG_MAPS}/{name}")).await?),
            500 if began.elapsed() < DEADLINE && is_of_etcd(&answer) => is_repeated = true,
            _ => bail!("{name}: {answer}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_of_three_keep_serving() -> Result<()> {
    let Some(mut shared) = Shared::start(3).await? else { return Ok(()) };
    let (one, two) = shared.two_servers().await?;
    let start = revision(&json(&one).await?.get(CONFIG_MAPS).await?)?;
    let (mut on_one, mut on_two) = (json(&one).await?, json(&two).await?);
    let mut written = Vec::new();
    for member in 0..3 {
        shared.etcd.kill(member)?;
        for count in 0..20_usize {
            let client = if count.is_multiple_of(2) { &mut on_one } else { &mut on_two };
            written.push(create_config_map(client, &format!("m{member}-{count}"), count).await?);
        }
        shared.etcd.restart(member)?;
    }
    for server in [&one, &two] {
        let seen = watch(&config_maps(server).await?, start, |seen| seen.len() == written.len()).await?;
        assert_eq!(seen, written);
    }
    Ok(())
}

/// Checks that the controllers of one server work at a time, and that those of the other take over
/// when that server is killed.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_takes_over_the_controllers() -> Result<()> {
    let Some(shared) = Shared::start(1).await? else { return Ok(()) };
    let leader = shared.server("*").await?;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let held = json(&leader).await?.until(lease, |lease| !holder(lease).is_empty()).await?;
    let other = shared.server("*").await?;
    let mut on_other = json(&other).await?;
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "serviceName": "web", "selector": {"matchLabels": labels}, "template": template});
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    json(&leader).await?.create(sets, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let web = format!("{sets}/web");
    on_other.until(&web, |set| set["status"]["readyReplicas"] == 2).await?;
    assert_eq!(holder(&on_other.get(lease).await?), holder(&held));
    leader.kill().await?;
    on_other.patch(&web, json!({"spec": {"replicas": 4}})).await?;
    on_other.until(&web, |set| set["status"]["readyReplicas"] == 4).await?;
    let last = holder(&on_other.get(lease).await?);
    assert_ne!(last, holder(&held));
    // A clean stop releases the lease, so that another need not wait until it expires.
    let third = shared.server("*").await?;
    assert!(other.stop().await?.success());
    let mut on_third = json(&third).await?;
    on_third.patch(&web, json!({"spec": {"replicas": 1}})).await?;
    let is_taken = |lease: &Value| ![last.as_str(), ""].contains(&holder(lease).as_str());
    on_third
        .until_within(lease, Duration::from_secs(10), is_taken)
        .await
        .context("the lease was not released")?;
    on_third.until(&web, |set| set["status"]["replicas"] == 1).await.map(drop)
}

/// Names and values in the cluster as they are.
struct Raw;

impl Layout for Raw {
    fn prefix(&self) -> &str {
        "/registry/"
    }

    fn name(&self, key: &Key) -> String {
        format!("/registry/{}/{}", key.bucket(), key.name())
    }

    fn key(&self, name: &str) -> Option<Key> {
        let (bucket, name) = name.strip_prefix("/registry/")?.split_once('/')?;
        Some(Key::new(bucket, name))
    }

    fn encode(&self, _: &Key, stored: &Bytes) -> Bytes {
        stored.clone()
    }

    fn decode(&self, _: &Key, value: &Bytes) -> std::result::Result<Bytes, Unreadable> {
        Ok(value.clone())
    }
}

/// Writes or deletes a value of the cluster.
async fn write_raw(
    etcd: &EtcdCluster,
    name: &str,
    previous: Option<Revision>,
    change: Change,
) -> Result<Revision> {
    let endpoints = etcd.endpoints();
    let proposal = Proposal { key: Key::new("configmaps", name), previous, change };
    let written = tokio::task::spawn_blocking(move || {
        let mut log = EtcdLog::new(&endpoints, Raw, Compaction::Interval(Duration::ZERO))?;
        log.start(Notifier::new(|_| ()))?;
        anyhow::Ok(log.append(&[vec![proposal]])?)
    });
    match written.await??[..] {
        [Outcome::Committed(revision)] => Ok(revision),
        ref other => bail!("{other:?}"),
    }
}

/// Checks that a value that cannot be decoded still counts: its namespace is not deleted before it.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_value_holds_its_namespace() -> Result<()> {
    let Some(shared) = Shared::start(1).await? else { return Ok(()) };
    let server = shared.server("*").await?;
    let mut client = json(&server).await?;
    let deep = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x"}},"data":{}{}}}"#,
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    for (namespace, value) in [("garbage", "no object".to_owned()), ("nested", deep)] {
        client.create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await?;
        let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        client.create(&config_maps, config_map("readable", 1)).await?;
        let name = format!("{namespace}/x");
        let change = Change::Put { created: None, stored: value.into() };
        let written = write_raw(&shared.etcd, &name, None, change).await?;
        let list = client.get(&config_maps).await?;
        ensure!(list["items"].as_array().is_some_and(|items| !items.is_empty()), "{list}");
        ensure!(!list.to_string().contains("[[[[[["), "nothing that cannot be read is served");
        let path = format!("/api/v1/namespaces/{namespace}");
        client.delete(&path).await?;
        let is_held = |namespace: &Value| {
            let conditions = namespace["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "NamespaceDeletionContentFailure"
                    && condition["status"] == "True"
                    && condition["message"].as_str().is_some_and(|message| message.contains("corrupt object"))
            })
        };
        client.until(&path, is_held).await?;
        client.until_deleted(&format!("{config_maps}/readable")).await?;
        write_raw(&shared.etcd, &name, Some(written), Change::Delete).await?;
        client.until_deleted(&path).await?;
    }
    Ok(())
}

/// Restores a backup of a server with a data directory to a cluster, and one of the cluster to a
/// data directory.
#[tokio::test(flavor = "multi_thread")]
async fn backups_move_between_stores() -> Result<()> {
    let Some(shared) = Shared::start(1).await? else { return Ok(()) };
    let directory = TempDir::new()?;
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(binary::coracle());
        command.args(arguments).current_dir(directory.path()).stdin(Stdio::null()).kill_on_drop(true);
        anyhow::Ok(timeout(DEADLINE, command.output()).await.context("it does not end")??)
    };
    let succeed = async |arguments: &[&str]| {
        let output = run(arguments).await?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        anyhow::Ok(())
    };
    let objects = async |server: &Cluster| {
        let mut objects = json(server).await?.list(CONFIG_MAPS).await?;
        objects.extend(json(server).await?.list("/apis/example.com/v1/widgets").await?);
        for object in &mut objects {
            object["metadata"]["resourceVersion"] = Value::Null;
        }
        anyhow::Ok(objects)
    };
    let local = cluster().data_dir(&directory.path().join("data")).flag("--controllers", "").start().await?;
    let mut client = json(&local).await?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "widgets", "kind": "Widget"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.create(definitions, json!({"metadata": {"name": "widgets.example.com"}, "spec": spec})).await?;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    client.until(widgets, |list| list["kind"] == "WidgetList").await?;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 7,
    });
    client.create(widgets, widget).await?;
    for count in 0..600 {
        client.create(CONFIG_MAPS, config_map(&format!("m{count}"), count)).await?;
    }
    let before = objects(&local).await?;
    let kubeconfig = |server: &Cluster| server.kubeconfig().display().to_string();
    succeed(&["backup", "local", "--kubeconfig", &kubeconfig(&local)]).await?;
    assert!(local.stop().await?.success());

    let servers = shared.etcd.urls().join(",");
    succeed(&["restore", "local", "--etcd-servers", &servers]).await?;
    let server = shared.server("").await?;
    json(&server).await?.until(widgets, |list| list["kind"] == "WidgetList").await?;
    assert_eq!(objects(&server).await?, before);
    succeed(&["backup", "cluster", "--kubeconfig", &kubeconfig(&server)]).await?;
    // Not into what is there already, which stays as it is.
    for arguments in
        [&["restore", "local", "--etcd-servers", &servers][..], &["restore", "local", "--data-dir", "data"]]
    {
        let refused = run(arguments).await?;
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {refused:?}");
    }
    assert_eq!(objects(&server).await?, before);

    succeed(&["restore", "cluster", "--data-dir", "moved"]).await?;
    let moved = cluster().data_dir(&directory.path().join("moved")).flag("--controllers", "").start().await?;
    json(&moved).await?.until(widgets, |list| list["kind"] == "WidgetList").await?;
    assert_eq!(objects(&moved).await?, before);
    Ok(())
}

/// Checks that a fork of a server on etcd is in memory, with all that the server has.
#[tokio::test]
async fn a_fork_of_a_server_on_etcd_writes_nothing_to_it() -> Result<()> {
    const FORKS: &str = "/coracle/v1alpha1/forks";
    let Some(shared) = Shared::start(1).await? else { return Ok(()) };
    let server = shared.server("").await?;
    let mut parent = json(&server).await?;
    parent.create(CONFIG_MAPS, config_map("of-the-parent", 1)).await?;
    let made = parent.call("POST", FORKS, Some(json!({"name": "a"}))).await?;
    let url = made["server"].as_str().with_context(|| made.to_string())?;
    let config = coracle_e2e::http::config_at(&server.config().await?, url)?;
    let mut fork = JsonClient::new(&coracle_e2e::http::Endpoint::new(&config)?).await?;
    let inherited = fork.get(&format!("{CONFIG_MAPS}/of-the-parent")).await?;
    ensure!(inherited == parent.get(&format!("{CONFIG_MAPS}/of-the-parent")).await?, "{inherited}");
    fork.create(CONFIG_MAPS, config_map("of-the-fork", 1)).await?;
    fork.delete(&format!("{CONFIG_MAPS}/of-the-parent")).await?;
    parent.create(CONFIG_MAPS, config_map("later", 1)).await?;
    let names = async |client: &mut JsonClient| -> Result<BTreeSet<String>> {
        let items = client.list(CONFIG_MAPS).await?.into_iter();
        Ok(items.filter_map(|item| Some(item["metadata"]["name"].as_str()?.to_owned())).collect())
    };
    let of_parent = names(&mut parent).await?;
    ensure!(of_parent.contains("of-the-parent") && of_parent.contains("later"), "{of_parent:?}");
    ensure!(!of_parent.contains("of-the-fork"), "{of_parent:?}");
    let of_fork = names(&mut fork).await?;
    ensure!(of_fork.contains("of-the-fork"), "{of_fork:?}");
    ensure!(!of_fork.contains("of-the-parent") && !of_fork.contains("later"), "{of_fork:?}");
    // Another server on the cluster sees what is in etcd.
    let other = shared.server("").await?;
    ensure!(names(&mut json(&other).await?).await? == of_parent);
    ensure!(server.stop().await?.success() && other.stop().await?.success());
    Ok(())
}
