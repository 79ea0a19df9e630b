//! `--record`, `coracle open` and `coracle replay`: the history of a control plane in a file.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster::{Cluster, Termination};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{binary, cluster, workloads};
use serde_json::{Value, json};
use tokio::process::Command;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn run(arguments: &[&str], kubeconfig: Option<&Path>) -> Result<Output> {
    let mut command = Command::new(binary::coracle());
    command.args(arguments);
    match kubeconfig {
        Some(kubeconfig) => command.env("KUBECONFIG", kubeconfig),
        None => command.env_remove("KUBECONFIG"),
    };
    Ok(command.output().await?)
}

fn text(output: &Output) -> String {
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    // Long sentences have several lines.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn client(cluster: &Cluster) -> Result<JsonClient> {
    JsonClient::new(&cluster.endpoint().await?).await
}

/// Creates a directory, and returns it with the path of a record in it.
fn record() -> Result<(tempfile::TempDir, PathBuf)> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("trace.coracle");
    Ok((directory, path))
}

fn stateful_set(replicas: u64) -> Value {
    let labels = json!({"app": "web"});
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "serviceName": "web",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}}})
}

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect()
}

/// Records a StatefulSet that is scaled down. Returns the revision before that.
async fn record_scale_down(path: &Path, end: Termination) -> Result<u64> {
    let cluster = cluster().with_service_account().flag("--record", path).start().await?;
    let mut client = client(&cluster).await?;
    let sets = workloads::apps("default", "statefulsets");
    client.create(&sets, stateful_set(2)).await?;
    let set = client.until(&format!("{sets}/web"), |set| set["status"]["readyReplicas"] == 2).await?;
    client.patch(&format!("{sets}/web"), json!({"spec": {"replicas": 1}})).await?;
    client.until_deleted(&format!("{PODS}/web-1")).await?;
    cluster.settle().await?;
    if end == Termination::Crash {
        // Entries older than the recorder's interval are in the file.
        let written = async {
            loop {
                if has_deletion(path)? {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(coracle_e2e::wait::DEADLINE, written).await??;
    }
    end.apply(cluster).await?;
    Ok(set["metadata"]["resourceVersion"].as_str().context("a revision")?.parse()?)
}

/// Returns `true` if the deletion of web-1 is in a record.
fn has_deletion(path: &Path) -> Result<bool> {
    let record = coracle_record::Record::open(path, coracle_record::Limits::default())?;
    for entry in record.entries() {
        if let coracle_record::Entry::Version(version) = entry?
            && *version.key == *"default/web-1"
            && version.object.is_none()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[tokio::test]
async fn a_record_shows_each_moment_and_explains_it() -> Result<()> {
    let (_directory, path) = record()?;
    let before = record_scale_down(&path, Termination::Stop).await?;

    let opened = cluster().open(&path).start().await?;
    let mut now = client(&opened).await?;
    assert_eq!(names(&now.list(PODS).await?), ["web-0"]);
    let earlier = now.get(&format!("{PODS}?resourceVersion={before}&resourceVersionMatch=Exact")).await?;
    assert_eq!(names(earlier["items"].as_array().context("items")?), ["web-0", "web-1"]);
    let why = text(&run(&["why", "pod/web-1"], Some(opened.kubeconfig())).await?);
    ensure!(why.contains("deleted by the statefulset-controller") && why.contains("scaled to 1"), "{why}");
    let log = text(&run(&["log", "sts/web", "--diff"], Some(opened.kubeconfig())).await?);
    ensure!(log.contains(".spec.replicas: 2 -> 1"), "{log}");

    // Nothing can be changed, and nothing changes.
    let revision = |list: Value| list["metadata"]["resourceVersion"].clone();
    let last = revision(now.get(PODS).await?);
    for (method, path, body) in [
        ("POST", MAPS.to_owned(), Some(json!({"metadata": {"name": "new"}}))),
        ("PATCH", format!("{PODS}/web-0"), Some(json!({"metadata": {"labels": {"a": "b"}}}))),
        ("DELETE", format!("{PODS}/web-0"), None),
        ("DELETE", PODS.to_owned(), None),
        ("POST", format!("{PODS}/web-0/eviction"), Some(json!({"metadata": {"name": "web-0"}}))),
        ("DELETE", "/apis/metrics.k8s.io/v1beta1/pods/web-0".to_owned(), None),
    ] {
        let (code, status) = now.send(method, &path, body).await?;
        ensure!(code == 405 && status["message"].to_string().contains("read-only"), "{method}: {status}");
    }
    assert_eq!(revision(now.get(PODS).await?), last);
    let moved = now.send("POST", "/coracle/v1alpha1/clock", Some(json!({"advance": "1h"}))).await?;
    ensure!(moved.0 == 409 && moved.1.to_string().contains("read-only"), "{moved:?}");
    let why = text(&run(&["why", "pod/web-0"], Some(opened.kubeconfig())).await?);
    ensure!(!why.contains("read-only"), "{why}");
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(now.create(reviews, review).await?["status"]["allowed"], true);

    // An earlier moment is shown as if it were now, and a fork goes on from it.
    let at = before.to_string();
    let earlier = cluster().open(&path).flag("--at", &at).start().await?;
    let mut then = client(&earlier).await?;
    assert_eq!(names(&then.list(PODS).await?), ["web-0", "web-1"]);
    let fork = run(&["fork"], Some(earlier.kubeconfig())).await?;
    ensure!(fork.status.success(), "{}", text(&fork));
    let kubeconfig = PathBuf::from(text(&fork).trim());
    let mut goes_on =
        JsonClient::new(&coracle_e2e::http::Endpoint::new(&coracle_e2e::http::config(&kubeconfig).await?)?)
            .await?;
    let sets = workloads::apps("default", "statefulsets");
    goes_on.patch(&format!("{sets}/web"), json!({"spec": {"replicas": 3}})).await?;
    goes_on.until(&format!("{sets}/web"), |set| set["status"]["readyReplicas"] == 3).await?;
    assert_eq!(names(&then.list(PODS).await?), ["web-0", "web-1"]);
    Ok(())
}

#[tokio::test]
async fn a_record_of_a_data_directory_begins_with_its_objects_and_is_opened_by_time() -> Result<()> {
    let (directory, path) = record()?;
    let data = directory.path().join("data");
    let first = cluster().data_dir(&data).flag("--nodes", "2").start().await?;
    client(&first).await?.create(MAPS, json!({"metadata": {"name": "before"}})).await?;
    ensure!(first.stop().await?.success(), "a clean stop");
    let recorded = cluster().data_dir(&data).flag("--nodes", "2").flag("--record", &path);
    let recorded = recorded.flag("--clock", "manual").start().await?;
    recorded.advance("48h").await?;
    let mut writer = client(&recorded).await?;
    writer.create(MAPS, json!({"metadata": {"name": "one"}})).await?;
    let log = writer.get("/coracle/v1alpha1/log?resource=configmaps&name=one").await?;
    let time = log["entries"][0]["time"].as_str().context("a time")?.to_owned();
    recorded.advance("1s").await?;
    writer.create(MAPS, json!({"metadata": {"name": "two"}})).await?;
    recorded.settle().await?;
    ensure!(recorded.stop().await?.success(), "a clean stop");

    let opened = cluster().open(&path).flag("--at", &time).start().await?;
    let mut reader = client(&opened).await?;
    let maps = reader.list(MAPS).await?;
    let own: Vec<&str> = names(&maps).into_iter().filter(|name| *name != "kube-root-ca.crt").collect();
    assert_eq!(own, ["before", "one"]);
    let early = text(&run(&["open", "--at", "1", &path.display().to_string()], None).await?);
    ensure!(early.contains("nothing up to revision 1; it begins with revision"), "{early}");

    // A fork has the nodes and the time of the record.
    let now = reader.get("/coracle/v1alpha1/clock").await?["now"].as_str().context("a time")?.to_owned();
    reader.call("POST", "/coracle/v1alpha1/forks", Some(json!({"name": "a"}))).await?;
    let clock = reader.get("/coracle/forks/a/coracle/v1alpha1/clock").await?;
    // The machine's clock is two days behind.
    let continued = clock["now"].as_str().context("a time")?;
    ensure!(clock["mode"] == "real" && *continued >= *now, "{clock}, and {now} in the record");
    reader.call("POST", "/coracle/forks/a/coracle/v1alpha1/settle", Some(json!({}))).await?;
    let nodes = reader.list("/coracle/forks/a/api/v1/nodes").await?;
    assert_eq!(names(&nodes), ["node-0", "node-1"]);
    Ok(())
}

#[tokio::test]
async fn a_record_survives_the_death_of_its_process() -> Result<()> {
    let (_directory, path) = record()?;
    record_scale_down(&path, Termination::Crash).await?;
    let opened = cluster().open(&path).start().await?;
    ensure!(opened.log().contains("the record"), "{}", opened.log());
    assert_eq!(names(&client(&opened).await?.list(PODS).await?), ["web-0"]);
    Ok(())
}

#[tokio::test]
async fn forks_are_in_the_record_and_are_opened_by_name() -> Result<()> {
    let (_directory, path) = record()?;
    let recorded = cluster().flag("--record", &path).start().await?;
    let mut parent = client(&recorded).await?;
    parent.create(MAPS, json!({"metadata": {"name": "before"}})).await?;
    parent.call("POST", "/coracle/v1alpha1/forks", Some(json!({"name": "a"}))).await?;
    parent.create(MAPS, json!({"metadata": {"name": "of-parent"}})).await?;
    parent.create(&format!("/coracle/forks/a{MAPS}"), json!({"metadata": {"name": "of-fork"}})).await?;
    ensure!(recorded.stop().await?.success(), "a clean stop");

    let own = |maps: Vec<Value>| -> Vec<String> {
        let names = names(&maps).into_iter().filter(|name| *name != "kube-root-ca.crt");
        names.map(str::to_owned).collect()
    };
    let opened = cluster().open(&path).start().await?;
    assert_eq!(own(client(&opened).await?.list(MAPS).await?), ["before", "of-parent"]);
    let opened = cluster().open(&path).flag("--fork", "a").start().await?;
    assert_eq!(own(client(&opened).await?.list(MAPS).await?), ["before", "of-fork"]);
    let unknown = text(&run(&["open", "--fork", "b", &path.display().to_string()], None).await?);
    ensure!(unknown.contains("no fork \"b\"; it has a"), "{unknown}");
    Ok(())
}

#[tokio::test]
async fn a_failing_run_names_its_record_and_what_explains_it() -> Result<()> {
    let (_directory, path) = record()?;
    let file = path.display().to_string();
    let arguments = ["run", "--record", &file, "--nodes", "0", "--", "sh", "-c", "exit 3"];
    let output = run(&arguments, None).await?;
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let hint = format!("the run is recorded: coracle open {file}");
    ensure!(text(&output).contains(&hint), "{}", text(&output));

    // A record is never overwritten, and nothing is started then.
    let again = run(&arguments, None).await?;
    ensure!(!again.status.success() && text(&again).contains("exists"), "{}", text(&again));
    Ok(())
}

#[tokio::test]
async fn secrets_are_redacted_unless_they_are_asked_for() -> Result<()> {
    for (is_asked_for, want) in [(false, "cmVkYWN0ZWQ="), (true, "aGlkZGVu")] {
        let (_directory, path) = record()?;
        let flags = cluster().flag("--record", &path);
        let flags = if is_asked_for { flags.switch("--record-secrets") } else { flags };
        let recorded = flags.start().await?;
        let secrets = "/api/v1/namespaces/default/secrets";
        let secret = json!({"metadata": {"name": "key"}, "stringData": {"a": "hidden"}});
        client(&recorded).await?.create(secrets, secret).await?;
        ensure!(recorded.stop().await?.success(), "a clean stop");
        let opened = cluster().open(&path).start().await?;
        let secret = client(&opened).await?.get(&format!("{secrets}/key")).await?;
        assert_eq!(secret["data"]["a"], want);
    }
    Ok(())
}

#[tokio::test]
async fn recorded_writes_are_replayed_on_another_control_plane() -> Result<()> {
    let (_directory, path) = record()?;
    let recorded = cluster().with_service_account().flag("--record", &path).start().await?;
    let mut first = client(&recorded).await?;
    first.create(MAPS, json!({"metadata": {"name": "settings"}, "data": {"a": "1"}})).await?;
    first.patch(&format!("{MAPS}/settings"), json!({"data": {"a": "2"}})).await?;
    first.create(MAPS, json!({"metadata": {"name": "late"}})).await?;
    first.delete(&format!("{MAPS}/late")).await?;
    ensure!(recorded.stop().await?.success(), "a clean stop");

    let other = cluster().with_service_account().start().await?;
    let mut second = client(&other).await?;
    second.create(MAPS, json!({"metadata": {"name": "late"}})).await?;
    let replayed =
        run(&["replay", &path.display().to_string(), "--speed", "1000"], Some(other.kubeconfig())).await?;
    let replayed_text = text(&replayed);
    // Another response than in the record is a difference, as of `diff`.
    assert_eq!(replayed.status.code(), Some(1), "{replayed_text}");
    ensure!(replayed_text.contains("4 requests sent to "), "{replayed_text}");
    ensure!(
        replayed_text.contains(&format!("create {MAPS}")) && replayed_text.contains("409, and 201"),
        "{replayed_text}"
    );
    assert_eq!(second.get(&format!("{MAPS}/settings")).await?["data"]["a"], "2");
    second.until_deleted(&format!("{MAPS}/late")).await?;
    Ok(())
}

#[tokio::test]
async fn files_that_are_no_sound_records_are_refused_with_a_reason() -> Result<()> {
    let (directory, path) = record()?;
    let recorded = cluster().flag("--record", &path).start().await?;
    ensure!(recorded.stop().await?.success(), "a clean stop");
    let bytes = std::fs::read(&path)?;
    let file = |name: &str, bytes: &[u8]| -> Result<String> {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes)?;
        Ok(path.display().to_string())
    };
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let newer = [b"coracle record 99\n", &bytes[17..]].concat();
    for (arguments, wanted) in [
        (vec![file("foreign", b"PK\x03\x04 not a record at all")?], "not a record"),
        (vec![file("empty", b"")?], "not a record"),
        (vec![file("damaged", &damaged)?], "damaged"),
        (vec![file("newer", &newer)?], "newer"),
        (vec![directory.path().join("missing").display().to_string()], "No such file"),
        (
            vec!["--at".to_owned(), "1999-01-01T00:00:00Z".to_owned(), path.display().to_string()],
            "nothing up to",
        ),
        (
            vec!["--at".to_owned(), "99999999".to_owned(), path.display().to_string()],
            "no revision 99999999; it ends with revision",
        ),
        (
            vec!["--at".to_owned(), "yesterday".to_owned(), path.display().to_string()],
            "a revision, such as 123",
        ),
    ] {
        let arguments: Vec<&str> =
            std::iter::once("open").chain(arguments.iter().map(String::as_str)).collect();
        let output = run(&arguments, None).await?;
        ensure!(
            !output.status.success() && text(&output).contains(wanted),
            "{arguments:?}: {}",
            text(&output)
        );
    }
    Ok(())
}
