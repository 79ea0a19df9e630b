//! Forks: control planes that begin with the state of another one, and go their own ways.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use coracle::{ClockMode, ControlPlane, ForkOptions};
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::wait::{DEADLINE, until, until_object};
use coracle_e2e::{binary, cluster};
use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, PersistentVolume, Pod};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

fn config_map(name: &str) -> Result<ConfigMap> {
    object(json!({"metadata": {"name": name}, "data": {"name": name}}))
}

/// Starts a control plane with a Deployment, its running pods, and a ConfigMap.
async fn template() -> Result<ControlPlane> {
    let control_plane = ControlPlane::builder().ephemeral().start().await?;
    // The controllers create the objects of each namespace before the tests create theirs.
    control_plane.settle().await?;
    let client = control_plane.client();
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("of-the-template")?).await?;
    let deployments = Api::<Deployment>::default_namespaced(client);
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "app"}]}}}});
    deployments.create(&PostParams::default(), &object(deployment)?).await?;
    control_plane.settle().await?;
    Ok(control_plane)
}

/// Returns the objects, by their paths, with their versions, except for those that name the
/// authority and the port of a fork.
async fn versions(control_plane: &ControlPlane) -> Result<Vec<String>> {
    let client = control_plane.client();
    let mut versions = Vec::new();
    for path in [
        "/api/v1/configmaps",
        "/api/v1/pods",
        "/api/v1/services",
        "/api/v1/events",
        "/api/v1/nodes",
        "/api/v1/serviceaccounts",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ] {
        let list: Value = client.request(hyper::Request::get(path).body(Vec::new())?).await?;
        for item in list["items"].as_array().context("items")? {
            let meta = &item["metadata"];
            let names_the_server = ["extension-apiserver-authentication", "kubernetes"];
            if names_the_server.iter().any(|name| meta["name"] == *name) {
                continue;
            }
            versions.push(format!(
                "{path} {}/{} {} {}",
                meta["namespace"], meta["name"], meta["uid"], meta["resourceVersion"]
            ));
        }
    }
    Ok(versions)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_begins_with_its_parents_objects_and_changes_independently() -> Result<()> {
    let parent = template().await?;
    let before = versions(&parent).await?;
    let fork = parent.fork().await?;
    ensure!(versions(&fork).await? == before, "the same objects at the same versions");
    // A fork of a settled parent is settled.
    fork.settle().await?;
    ensure!(versions(&fork).await? == before, "nothing is written");

    // Controllers of the fork work, and nothing of it is seen in the parent.
    let of = |control_plane: &ControlPlane| {
        let client = control_plane.client();
        (
            Api::<Pod>::default_namespaced(client.clone()),
            Api::<Deployment>::default_namespaced(client.clone()),
            Api::<ConfigMap>::default_namespaced(client),
        )
    };
    let ((pods, deployments, maps), (parent_pods, _, parent_maps)) = (of(&fork), of(&parent));
    deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 5}})))
        .await?;
    maps.create(&PostParams::default(), &config_map("of-the-fork")?).await?;
    parent_maps.create(&PostParams::default(), &config_map("of-the-parent")?).await?;
    fork.settle().await?;
    parent.settle().await?;
    let running = async |pods: &Api<Pod>| -> Result<usize> {
        let pods = pods.list(&ListParams::default().labels("app=web").fields("status.phase=Running")).await?;
        Ok(pods.items.len())
    };
    ensure!(running(&pods).await? == 5 && running(&parent_pods).await? == 3);
    ensure!(
        maps.get_opt("of-the-parent").await?.is_none() && parent_maps.get_opt("of-the-fork").await?.is_none()
    );

    // A fork of the fork outlives both.
    let second = fork.fork().await?;
    parent.shutdown().await?;
    fork.shutdown().await?;
    let (pods, deployments, maps) = of(&second);
    ensure!(maps.get_opt("of-the-fork").await?.is_some());
    deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 1}})))
        .await?;
    second.settle().await?;
    ensure!(running(&pods).await? == 1);
    second.shutdown().await?;
    Ok(())
}

/// Checks that a watch continues in a fork at a revision of the parent's history.
#[tokio::test(flavor = "multi_thread")]
async fn history_crosses() -> Result<()> {
    let parent = template().await?;
    let maps = Api::<ConfigMap>::default_namespaced(parent.client());
    let first = maps.get("of-the-template").await?.metadata.resource_version.context("a version")?;
    maps.create(&PostParams::default(), &config_map("second")?).await?;
    let fork = parent.fork().await?;
    maps.create(&PostParams::default(), &config_map("unseen")?).await?;
    let of_fork = Api::<ConfigMap>::default_namespaced(fork.client());
    of_fork.create(&PostParams::default(), &config_map("third")?).await?;
    let watch = of_fork.watch(&WatchParams::default(), &first).await?;
    let names = watch.try_filter_map(async |event| {
        Ok(match event {
            WatchEvent::Added(map) => map.metadata.name,
            _ => None,
        })
    });
    let names: Vec<String> = names.take(2).try_collect().await?;
    ensure!(names == ["second", "third"], "{names:?}");
    // An exact older state, too.
    let at = ListParams::default().at(&first).matching(kube::api::VersionMatch::Exact);
    let listed = of_fork.list(&at).await?;
    ensure!(listed.items.iter().all(|map| map.metadata.name.as_deref() != Some("second")));
    Ok(())
}

/// Checks that a fork serves custom resources from its start.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_cross() -> Result<()> {
    let parent = ControlPlane::builder().ephemeral().start().await?;
    let definition = json!({"metadata": {"name": "boats.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"kind": "Boat", "plural": "boats"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"seats": {"type": "integer", "default": 4}}}}}}}]}});
    let post = async |control_plane: &ControlPlane, path: &str, body: Value| -> Result<Value> {
        let request = hyper::Request::post(path).header("content-type", "application/json");
        Ok(control_plane.client().request(request.body(serde_json::to_vec(&body)?)?).await?)
    };
    post(&parent, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await?;
    parent.settle().await?;
    let boats = "/apis/example.com/v1/namespaces/default/boats";
    let boat = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": name}, "spec": {}});
    post(&parent, boats, boat("one")).await?;
    let fork = parent.fork().await?;
    let made = post(&fork, boats, boat("two")).await?;
    ensure!(made["spec"]["seats"] == 4, "{made}");
    // The definition is deleted in the fork alone, with its objects.
    let delete =
        hyper::Request::delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.example.com");
    fork.client().request::<Value>(delete.body(Vec::new())?).await?;
    fork.settle().await?;
    ensure!(post(&fork, boats, boat("three")).await.is_err());
    post(&parent, boats, boat("three")).await?;
    Ok(())
}

/// Checks that a fork starts with the time of its parent, and has a clock of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_its_own_clock() -> Result<()> {
    let parent = ControlPlane::builder().ephemeral().clock(ClockMode::Manual).start().await?;
    parent.settle().await?;
    parent.clock().advance(std::time::Duration::from_secs(3600)).await?;
    let fork = parent.fork().await?;
    let time = parent.clock().now();
    ensure!(fork.clock().now() == time);
    fork.clock().advance(std::time::Duration::from_secs(24 * 3600)).await?;
    ensure!(parent.clock().now() == time);
    ensure!(fork.clock().now().duration_since(time)?.as_secs() == 24 * 3600);

    // One that runs goes on from the time of its parent, and is the default if that runs.
    let options = ForkOptions { clock: Some(ClockMode::Real), ..ForkOptions::default() };
    let running = fork.fork_with(options).await?;
    let begins = fork.clock().now();
    ensure!(running.clock().now() >= begins);
    ensure!(running.clock().now().duration_since(begins)? < DEADLINE);
    let of_running = running.fork().await?;
    ensure!(of_running.clock().now() >= begins);
    let until = running.clock().now() + std::time::Duration::from_millis(20);
    let passes = async {
        while of_running.clock().now() < until {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, passes).await?;
    Ok(())
}

const FORKS: &str = "/coracle/v1alpha1/forks";

/// Returns the status and the body of a response.
async fn call(
    connection: &mut Connection,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Result<(u16, Value)> {
    let headers: Vec<_> = body.iter().map(|_| ("content-type", Some("application/json"))).collect();
    let body = body.map(|body| body.to_string().into());
    let response = connection.call(method, path, &headers, body).await?;
    Ok((response.status, serde_json::from_slice(&response.body).unwrap_or_default()))
}

#[tokio::test]
async fn clients_make_use_and_end_forks() -> Result<()> {
    let cluster = cluster().with_service_account().flag("--max-forks", "2").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let maps = "/api/v1/namespaces/default/configmaps";
    client.create(maps, json!({"metadata": {"name": "of-the-parent"}})).await?;
    let account = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let old_token = client.call("POST", account, Some(json!({"spec": {}}))).await?;
    let old_token = old_token["status"]["token"].as_str().context("a token")?.to_owned();

    let fork = client.call("POST", FORKS, Some(json!({"name": "a"}))).await?;
    ensure!(fork["name"] == "a" && fork["parent"] == "" && fork["path"] == "/coracle/forks/a", "{fork}");
    ensure!(fork["resourceVersion"].as_str().is_some_and(|version| version.parse::<u64>().is_ok()), "{fork}");
    let kubeconfig = fork["kubeconfig"].as_str().context("a kubeconfig")?;
    let server = fork["server"].as_str().context("a URL")?;
    ensure!(kubeconfig.contains(server) && kubeconfig.contains("certificate-authority-data"), "{kubeconfig}");
    ensure!(!kubeconfig.contains("client-key-data"), "forking gives no rights");
    let list = client.get(FORKS).await?;
    ensure!(list["forks"] == json!([fork]), "{list}");
    ensure!(client.get(&format!("{FORKS}/a")).await? == fork);

    // At its own address and below that of the parent, by the caller's certificate and by a token
    // of the parent.
    let parent_config = cluster.config().await?;
    let config = coracle_e2e::http::config_at(&parent_config, server)?;
    let endpoint = Endpoint::new(&config)?;
    let mut own = endpoint.connect().await?;
    let with_token =
        async |config: &kube::Config, token: &str| Endpoint::with_token(config, token)?.connect().await;
    let mut parent = cluster.endpoint().await?.connect().await?;
    let (status, _) =
        call(&mut own, "POST", maps, Some(json!({"metadata": {"name": "of-the-fork"}}))).await?;
    ensure!(status == 201, "{status}");
    let of_fork = format!("{maps}/of-the-fork");
    ensure!(call(&mut own, "GET", &of_fork, None).await?.0 == 200);
    for (token, want) in [(&*old_token, 403), ("no-token", 401)] {
        let mut connection = with_token(&config, token).await?;
        ensure!(call(&mut connection, "GET", &of_fork, None).await?.0 == want, "{want}");
        let mut connection = with_token(&parent_config, token).await?;
        let (status, _) = call(&mut connection, "GET", &format!("/coracle/forks/a{of_fork}"), None).await?;
        ensure!(status == want, "below the parent: {status}, not {want}");
    }
    for (path, want) in [
        (format!("/coracle/forks/a{maps}/of-the-fork"), 200),
        (format!("/coracle/forks/a{maps}/of-the-parent"), 200),
        (format!("/coracle/forks/a{maps}?limit=1"), 200),
        ("/coracle/forks/a/version".to_owned(), 200),
        ("/coracle/forks/a".to_owned(), 200),
        (format!("/coracle/forks/b{maps}"), 404),
        ("/coracle/forks/".to_owned(), 404),
        (format!("{maps}/of-the-fork"), 404),
    ] {
        let (status, body) = call(&mut parent, "GET", &path, None).await?;
        ensure!(status == want, "{path}: {status} {body}");
    }
    // The parent does not trust the fork.
    let (_, answer) = call(&mut own, "POST", account, Some(json!({"spec": {}}))).await?;
    let new_token = answer["status"]["token"].as_str().context("a token")?.to_owned();
    for (config, want) in [(&config, 403), (&parent_config, 401)] {
        let mut connection = with_token(config, &new_token).await?;
        ensure!(call(&mut connection, "GET", &of_fork, None).await?.0 == want, "{want}");
    }

    // A fork sees none but its own, and leads to none.
    let (_, seen) = call(&mut own, "GET", FORKS, None).await?;
    ensure!(seen["forks"] == json!([]), "{seen}");
    for (method, path) in [
        ("DELETE", format!("{FORKS}/a")),
        ("GET", "/coracle/v1alpha1/diff?fork=a".to_owned()),
        ("GET", "/coracle/forks/a/version".to_owned()),
    ] {
        let (status, body) = call(&mut own, method, &path, None).await?;
        ensure!(status == 404, "{method} {path}: {status} {body}");
    }

    let watches = ["/coracle/v1alpha1/clock?watch=1", "/api/v1/configmaps?watch=1"];
    let watches = watches.map(async |path| endpoint.connect().await?.open("GET", path, &[], None).await);
    let watches = futures::future::try_join_all(watches).await?;

    // A fork of the fork, which outlives it; the limit; and names.
    let (status, second) = call(&mut own, "POST", FORKS, Some(json!({}))).await?;
    ensure!(status == 201 && second["parent"] == "a", "{second}");
    let name = second["name"].as_str().context("a name")?.to_owned();
    for (method, path, body, want) in [
        ("POST", FORKS.to_owned(), json!({"name": "c"}), 429),
        ("POST", FORKS.to_owned(), json!({"name": "a"}), 409),
        ("POST", FORKS.to_owned(), json!({"name": "A/b"}), 422),
        ("POST", FORKS.to_owned(), json!({"name": 1}), 400),
        ("POST", FORKS.to_owned(), json!({"nam": "c"}), 400),
        ("DELETE", format!("{FORKS}/b"), json!({}), 404),
        ("PUT", FORKS.to_owned(), json!({}), 405),
        ("DELETE", FORKS.to_owned(), json!({}), 405),
        ("DELETE", format!("{FORKS}/a"), json!({}), 200),
        ("DELETE", format!("{FORKS}/a"), json!({}), 404),
    ] {
        let (status, answer) = call(&mut parent, method, &path, Some(body)).await?;
        ensure!(status == want, "{method} {path}: {status} {answer}");
    }
    for watch in watches {
        let path = format!("a watch of the fork ends as it should: {watch:?}");
        tokio::time::timeout(DEADLINE, watch.into_body().collect()).await?.context(path)?;
    }
    let path = format!("/coracle/forks/{name}{maps}/of-the-fork");
    ensure!(call(&mut parent, "GET", &path, None).await?.0 == 200, "it goes on");
    let unknown = client.get(FORKS).await?;
    let names: Vec<&str> = unknown["forks"]
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|fork| fork["name"].as_str())
        .collect();
    ensure!(names == [&*name], "{names:?}");

    // RBAC decides.
    let dev = [("impersonate-user", Some("dev"))];
    ensure!(parent.call("POST", FORKS, &dev, Some("{}".into())).await?.status == 403);
    Ok(())
}

/// Checks that many forks work at once and independently.
#[tokio::test(flavor = "multi_thread")]
async fn many_forks_work_at_once() -> Result<()> {
    let parent = template().await?;
    let work = (0..20).map(|i| {
        let fork = parent.fork();
        async move {
            let fork = fork.await?;
            let deployments = Api::<Deployment>::default_namespaced(fork.client());
            let scale = Patch::Merge(json!({"spec": {"replicas": i}}));
            deployments.patch("web", &PatchParams::default(), &scale).await?;
            fork.settle().await?;
            let pods = Api::<Pod>::default_namespaced(fork.client()).list(&ListParams::default()).await?;
            ensure!(pods.items.len() == i, "{i}: {}", pods.items.len());
            let uids: BTreeSet<_> = pods.items.iter().map(|pod| pod.metadata.uid.clone()).collect();
            ensure!(uids.len() == i);
            fork.shutdown().await?;
            anyhow::Ok(())
        }
    });
    futures::future::try_join_all(work).await?;
    Ok(())
}

#[tokio::test]
async fn the_command_line_makes_forks() -> Result<()> {
    let cluster = cluster().flag("--max-forks", "2").start().await?;
    let run_at = async |kubeconfig: &Path, arguments: &[&str]| -> Result<(bool, String)> {
        let mut command = tokio::process::Command::new(binary::coracle());
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
        let output = command
            .env("XDG_STATE_HOME", cluster.kubeconfig().parent().context("a directory")?)
            .output()
            .await?;
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        Ok((output.status.success(), text))
    };
    let run = async |arguments: &[&str]| run_at(cluster.kubeconfig(), arguments).await;
    let (is_made, path) = run(&["fork", "a"]).await?;
    ensure!(is_made && path.trim_end().ends_with("a.yaml"), "{path}");
    let kubeconfig = kube::config::Kubeconfig::read_from(path.trim_end())?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    let maps = Api::<ConfigMap>::default_namespaced(kube::Client::try_from(config)?);
    maps.create(&PostParams::default(), &config_map("of-the-fork")?).await?;
    let (_, listed) = run(&["forks"]).await?;
    ensure!(listed.contains("a ") && listed.contains("https://127.0.0.1:"), "{listed}");
    let (_, differing) = run(&["diff", "a"]).await?;
    let lines: Vec<&str> = differing.lines().filter(|line| line.contains("of-the-fork")).collect();
    ensure!(lines == ["configmaps default/of-the-fork added"], "{differing}");
    ensure!(run(&["fork", "b"]).await?.0);
    let (is_made, refused) = tokio::time::timeout(DEADLINE, run(&["fork", "c"])).await??;
    ensure!(!is_made && refused.contains("there may be no more (--max-forks)"), "{refused}");
    let (_, differing) = run(&["diff", "a", "b"]).await?;
    ensure!(differing.contains("configmaps default/of-the-fork removed\n"), "{differing}");
    let (_, json) = run(&["diff", "a", "b", "-o", "json"]).await?;
    ensure!(
        serde_json::from_str::<Value>(&json)?["objects"]
            .as_array()
            .is_some_and(|objects| !objects.is_empty())
    );
    ensure!(run(&["fork", "--delete", "b"]).await?.0);
    // Its place is free at once.
    ensure!(run(&["fork", "c"]).await?.0 && run(&["fork", "--delete", "c"]).await?.0);
    for (arguments, want) in [
        (&["diff", "a", "b"][..], "fork \"b\" not found"),
        (&["diff", "b", "a"], "fork \"b\" not found"),
        (&["diff", "b/../a"], "is no name of a fork"),
        (&["diff"], "FORK"),
        (&["diff", "--from", "99999999"], "is later than"),
        (&["diff", "--to", "1"], "--from"),
    ] {
        let (is_done, text) = run(arguments).await?;
        ensure!(!is_done && text.contains(want), "{arguments:?}: {text}");
    }
    for (namespace, is_same) in [("default", false), ("nowhere", true)] {
        let (has_none, text) = run(&["diff", "a", "-n", namespace, "--exit-code"]).await?;
        ensure!(has_none == is_same && (text == "no differences\n") == is_same, "{namespace}: {text}");
        ensure!(run(&["diff", "a", "-n", namespace]).await?.0, "without the flag it succeeds");
    }
    let (is_done, since) = run(&["diff", "--from", "1"]).await?;
    ensure!(is_done && since.contains("namespaces default added\n"), "{since}");
    let (is_made, again) = run(&["fork", "a"]).await?;
    ensure!(!is_made && again.contains("already exists"), "{again}");
    let (is_deleted, text) = run(&["fork", "--delete", "a"]).await?;
    ensure!(is_deleted && text == "a is deleted\n", "{text}");
    ensure!(!Path::new(path.trim_end()).exists(), "its kubeconfig is deleted, too");
    let (is_deleted, text) = run(&["fork", "--delete", "a"]).await?;
    ensure!(!is_deleted && text.contains("not found"), "{text}");
    let (_, listed) = run(&["forks"]).await?;
    ensure!(listed == "no forks\n", "{listed}");

    // One whose kubeconfig cannot be written is known to nobody, and is ended.
    let mut command = tokio::process::Command::new(binary::coracle());
    command.args(["fork", "lost", "--kubeconfig"]).arg(cluster.kubeconfig()).env("XDG_STATE_HOME", "/proc");
    let output = command.output().await?;
    ensure!(!output.status.success() && !output.stderr.is_empty(), "{output:?}");
    let (_, listed) = run(&["forks"]).await?;
    ensure!(listed == "no forks\n", "{listed}");

    // The kubeconfigs end with the process, also those of forks of forks.
    let (_, of_first) = run(&["fork", "a"]).await?;
    let (_, of_second) = run_at(Path::new(of_first.trim_end()), &["fork", "b"]).await?;
    let files = [of_first, of_second];
    let exist = || files.each_ref().map(|file| Path::new(file.trim_end()).exists());
    ensure!(exist() == [true; 2], "{files:?}");
    ensure!(cluster.stop().await?.success());
    ensure!(exist() == [false; 2], "{files:?}");
    Ok(())
}

/// Checks that a fork has its own volumes: a pod that mounts one finds the files of the parent in a
/// directory of the fork, and deleting them touches no directory of the parent.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_fork_never_touch_those_of_its_parent() -> Result<()> {
    let data = tempfile::tempdir()?;
    let parent = ControlPlane::builder().data_dir(data.path()).start().await?;
    let set = json!({"metadata": {"name": "db"}, "spec": {"serviceName": "db", "replicas": 2,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
        "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [
            {"name": "c", "image": "app", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    let sets = |control_plane: &ControlPlane| Api::<StatefulSet>::default_namespaced(control_plane.client());
    let volumes = |control_plane: &ControlPlane| Api::<PersistentVolume>::all(control_plane.client());
    sets(&parent).create(&PostParams::default(), &object(set)?).await?;
    parent.settle().await?;
    let directories = || -> Result<usize> {
        let drivers = std::fs::read_dir(data.path().join("volumes"))?.collect::<std::io::Result<Vec<_>>>()?;
        let count = |driver: std::fs::DirEntry| Ok(std::fs::read_dir(driver.path())?.count());
        drivers.into_iter().map(count).sum::<std::io::Result<usize>>().map_err(Into::into)
    };
    let before = directories()?;
    ensure!(before >= 2, "{before}");
    let all = volumes(&parent).list(&ListParams::default()).await?.items;
    let handles: Vec<String> =
        all.into_iter().filter_map(|volume| Some(volume.spec?.csi?.volume_handle)).collect();
    for handle in &handles {
        std::fs::write(data.path().join("volumes/coracle.csi").join(handle).join("file"), handle)?;
    }

    let fork = parent.fork().await?;
    let pods = Api::<Pod>::default_namespaced(fork.client());
    pods.delete("db-0", &DeleteParams::default().grace_period(0)).await?;
    fork.settle().await?;
    let copied = |handle: &String| {
        let temporary = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
        let file = Path::new("volumes/coracle.csi").join(handle).join("file");
        let mut others = temporary.map(|entry| entry.path()).filter(|path| path != data.path());
        others.find_map(|path| Some(path.join(&file)).filter(|path| path.is_file()))
    };
    let copies: Vec<_> = handles.iter().filter_map(copied).collect();
    ensure!(copies.len() == 1, "only the volume of the new pod is copied: {copies:?}");
    std::fs::write(&copies[0], "the fork's")?;
    sets(&fork).delete("db", &DeleteParams::default()).await?;
    fork.settle().await?;
    ensure!(
        volumes(&fork).list(&ListParams::default()).await?.items.is_empty(),
        "the volumes go with their claims"
    );
    ensure!(volumes(&parent).list(&ListParams::default()).await?.items.len() == 2);
    ensure!(directories()? == before, "the directories of the parent stay");
    ensure!(!copies[0].exists(), "those of the fork go with their volumes");
    for handle in &handles {
        let file = data.path().join("volumes/coracle.csi").join(handle).join("file");
        ensure!(&std::fs::read_to_string(file)? == handle);
    }
    let grown = Patch::Merge(json!({"spec": {"replicas": 3}}));
    sets(&parent).patch("db", &PatchParams::default(), &grown).await?;
    parent.settle().await?;
    ensure!(directories()? > before);
    Ok(())
}

/// Checks that the forks of clients end with the original control plane, and that those of the
/// library continue.
#[tokio::test(flavor = "multi_thread")]
async fn forks_of_clients_end_with_the_process_that_serves_them() -> Result<()> {
    let parent = ControlPlane::builder().ephemeral().nodes(0).start().await?;
    let other = parent.fork().await?;
    let post = || {
        anyhow::Ok(
            hyper::Request::post(FORKS).header("content-type", "application/json").body(b"{}".to_vec())?,
        )
    };
    let mut addresses = Vec::new();
    for control_plane in [&parent, &other] {
        let fork: Value = control_plane.client().request(post()?).await?;
        let server = fork["server"].as_str().context("a URL")?.trim_start_matches("https://").to_owned();
        ensure!(tokio::net::TcpStream::connect(&server).await.is_ok(), "{server}");
        addresses.push(server);
    }
    parent.shutdown().await?;
    for address in addresses {
        ensure!(tokio::net::TcpStream::connect(&address).await.is_err(), "{address} is left");
    }
    let refused = other.client().request::<Value>(post()?).await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("has ended")), "there is nobody to end it");
    Api::<ConfigMap>::default_namespaced(other.client())
        .create(&PostParams::default(), &config_map("a")?)
        .await?;
    Ok(())
}

/// Checks that the pods of a silent node are evicted when they are in the parent, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_silent_since_the_same_time_in_a_fork() -> Result<()> {
    let seconds = std::time::Duration::from_secs;
    let parent = ControlPlane::builder().ephemeral().nodes(2).clock(ClockMode::Manual).start().await?;
    let template = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "app"}]}});
    let spec = json!({"replicas": 4, "selector": {"matchLabels": {"app": "a"}}, "template": template});
    let deployments = Api::<Deployment>::default_namespaced(parent.client());
    let deployment = object(json!({"metadata": {"name": "a"}, "spec": spec}))?;
    deployments.create(&PostParams::default(), &deployment).await?;
    parent.settle().await?;
    let silent = Patch::Merge(json!({"metadata": {"annotations": {"sim.coracle.dev/silent": "true"}}}));
    Api::<Node>::all(parent.client()).patch("node-1", &PatchParams::default(), &silent).await?;
    parent.clock().advance(seconds(240)).await?;
    let before = versions(&parent).await?;
    let fork = parent.fork().await?;
    fork.settle().await?;
    ensure!(versions(&fork).await? == before, "nothing is written");
    let evicted = async |control_plane: &ControlPlane| -> Result<BTreeSet<String>> {
        let pods = Api::<Pod>::default_namespaced(control_plane.client());
        let pods = pods.list(&ListParams::default()).await?.items.into_iter();
        let evicted = pods.filter(|pod| pod.metadata.deletion_timestamp.is_some());
        Ok(evicted.filter_map(|pod| pod.metadata.name).collect())
    };
    for control_plane in [&parent, &fork] {
        ensure!(evicted(control_plane).await?.is_empty());
        control_plane.clock().advance(seconds(130)).await?;
    }
    let (expected, actual) = (evicted(&parent).await?, evicted(&fork).await?);
    ensure!(!expected.is_empty() && expected == actual, "{expected:?} {actual:?}");
    Ok(())
}

/// Checks that what waits in the parent's memory for a time has its time in the fork, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_time_has_it_in_a_fork() -> Result<()> {
    let seconds = std::time::Duration::from_secs;
    let parent = ControlPlane::builder().ephemeral().clock(ClockMode::Manual).start().await?;
    let pod = |name: &str, restarts: &str, annotations: Value| {
        json!({"metadata": {"name": name, "annotations": annotations},
            "spec": {"restartPolicy": restarts, "containers": [{"name": "c", "image": "app"}]}})
    };
    let failing =
        pod("", "Never", json!({"sim.coracle.dev/exit-after": "1s", "sim.coracle.dev/exit-code": "1"}));
    let job = json!({"metadata": {"name": "fails"}, "spec": {"backoffLimit": 6, "template": failing}});
    let jobs = Api::<Job>::default_namespaced(parent.client());
    parent.settle().await?;
    jobs.create(&PostParams::default(), &object(job)?).await?;
    let pods = |control_plane: &ControlPlane| Api::<Pod>::default_namespaced(control_plane.client());
    let stubborn = pod("stubborn", "Always", json!({"sim.coracle.dev/terminate-after": "60s"}));
    pods(&parent).create(&PostParams::default(), &object(stubborn)?).await?;
    parent.settle().await?;
    // The second pod of the Job fails after 10 and a few seconds, and the third one waits for 20.
    parent.clock().advance(seconds(15)).await?;
    pods(&parent).delete("stubborn", &DeleteParams::default().grace_period(300)).await?;
    parent.settle().await?;
    parent.clock().advance(seconds(5)).await?;
    let before = versions(&parent).await?;
    let fork = parent.fork().await?;
    fork.settle().await?;
    ensure!(versions(&fork).await? == before, "nothing is written");
    let state = async |control_plane: &ControlPlane| -> Result<(usize, bool, usize)> {
        let failed = pods(control_plane).list(&ListParams::default().labels("job-name=fails")).await?;
        let is_there = pods(control_plane).get_opt("stubborn").await?.is_some();
        let events = Api::<Event>::default_namespaced(control_plane.client());
        let killing = ListParams::default().fields("reason=Killing,involvedObject.name=stubborn");
        Ok((failed.items.len(), is_there, events.list(&killing).await?.items.len()))
    };
    let began = state(&fork).await?;
    ensure!(began == (2, true, 1), "{began:?}");
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        for control_plane in [&parent, &fork] {
            control_plane.clock().advance(seconds(10)).await?;
        }
        let (expected, actual) = (state(&parent).await?, state(&fork).await?);
        ensure!(expected == actual, "{:?}: {expected:?} {actual:?}", parent.clock().now());
        seen.insert(expected);
    }
    ensure!(seen.contains(&(3, true, 1)) && seen.iter().any(|(_, is_there, _)| !is_there), "{seen:?}");
    Ok(())
}

/// Checks that a fork knows which groups cannot be listed: it does not take a namespace for empty
/// before it has asked their servers.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_whose_contents_are_not_known_stays_in_a_fork() -> Result<()> {
    let parent = ControlPlane::builder().ephemeral().nodes(0).start().await?;
    let services = Api::<APIService>::all(parent.client());
    let lost = json!({"metadata": {"name": "v1.lost.example.com"}, "spec": {
        "group": "lost.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "service": {"namespace": "default", "name": "nobody"}, "insecureSkipTLSVerify": true,
    }});
    services.create(&PostParams::default(), &object(lost)?).await?;
    let namespaces = Api::<Namespace>::all(parent.client());
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "held"}}))?).await?;
    let is_listed = || async {
        let groups = parent.client().list_api_groups().await?;
        Ok(groups.groups.iter().any(|group| group.name == "lost.example.com"))
    };
    until("the group is listed", is_listed, |is_listed| *is_listed).await?;
    namespaces.delete("held", &DeleteParams::default()).await?;
    let is_held = |namespace: Option<&Namespace>| {
        let conditions = namespace.and_then(|namespace| namespace.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "NamespaceDeletionDiscoveryFailure" && condition.status == "True"
        })
    };
    until_object(namespaces.clone(), "held", is_held).await?;

    let fork = parent.fork().await?;
    let of_fork = Api::<Namespace>::all(fork.client());
    fork.settle().await?;
    ensure!(
        is_held(of_fork.get_opt("held").await?.as_ref()),
        "the fork ended a namespace that it cannot read"
    );
    let services = Api::<APIService>::all(fork.client());
    services.delete("v1.lost.example.com", &DeleteParams::default()).await?;
    until_object(of_fork, "held", |namespace| namespace.is_none()).await?;
    ensure!(is_held(namespaces.get_opt("held").await?.as_ref()), "the parent's namespace is not the fork's");
    Ok(())
}
