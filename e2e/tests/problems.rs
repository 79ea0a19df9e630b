//! `coracle problems`, and the same report of a failed `coracle run` and of the library.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use coracle::ControlPlane;
use coracle_e2e::{binary, cluster};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until the problems of a control plane contain all of some texts.
async fn until_reported(control_plane: &ControlPlane, texts: &[&str]) -> Result<String> {
    let mut last = String::new();
    let reported = async {
        loop {
            last = control_plane.problems().await?.to_string();
            if texts.iter().all(|text| last.contains(text)) {
                return anyhow::Ok(());
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let reported = timeout(DEADLINE, reported).await;
    reported.with_context(|| format!("{texts:?} is not reported: {last}"))??;
    Ok(last)
}

async fn create<K>(client: &Client, object: Value) -> Result<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let objects = Api::<K>::default_namespaced(client.clone());
    Ok(objects.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// Builds a template of pods with a container.
fn template(labels: &Value, container: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}})
}

#[tokio::test]
async fn a_control_plane_without_problems_reports_nothing() -> Result<()> {
    let control_plane = ControlPlane::builder().ephemeral().start().await?;
    let container = json!({"name": "app", "image": "app"});
    let labels = json!({"app": "web"});
    let deployment: k8s_openapi::api::apps::v1::Deployment = create(
        &control_plane.client(),
        json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template(&labels, &container)},
        }),
    )
    .await?;
    assert_eq!(deployment.metadata.name.as_deref(), Some("web"));
    // It begins with a rollout, and ends with nothing.
    let settled = async {
        while !control_plane.problems().await?.is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    timeout(DEADLINE, settled).await.context("the Deployment is not ready")??;
    control_plane.shutdown().await?;
    Ok(())
}

#[tokio::test]
async fn objects_that_are_not_ready_are_reported_with_their_events() -> Result<()> {
    use k8s_openapi::api::apps::v1::StatefulSet;
    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};

    let control_plane = ControlPlane::builder().ephemeral().start().await?;
    let client = control_plane.client();
    let app = json!({"name": "app", "image": "app"});
    let large = json!({"name": "app", "image": "app", "resources": {"requests": {"cpu": "100000"}}});
    create::<Pod>(&client, json!({"metadata": {"name": "large"}, "spec": {"containers": [large]}})).await?;
    let annotations = json!({"sim.coracle.dev/never-ready": "true"});
    let metadata = json!({"name": "unready", "annotations": annotations});
    create::<Pod>(&client, json!({"metadata": metadata, "spec": {"containers": [app]}})).await?;
    let labels = json!({"app": "db"});
    let mut pods = template(&labels, &app);
    pods["metadata"]["annotations"] = json!({"sim.coracle.dev/missing-images": "app"});
    let selector = json!({"matchLabels": labels});
    let spec = json!({"replicas": 3, "selector": selector, "serviceName": "db", "template": pods});
    create::<StatefulSet>(&client, json!({"metadata": {"name": "db"}, "spec": spec})).await?;
    let mut failing = template(&json!({}), &json!({"name": "app", "image": "app", "command": ["false"]}));
    failing["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "fails"}, "spec": {"backoffLimit": 0, "template": failing}});
    create::<Job>(&client, job).await?;
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    create::<PersistentVolumeClaim>(&client, claim).await?;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create::<ConfigMap>(&client, held).await?;
    Api::<ConfigMap>::default_namespaced(client.clone()).delete("held", &DeleteParams::default()).await?;

    let report = until_reported(
        &control_plane,
        &[
            "  pod/default/large: Pending: Unschedulable: 0/1 nodes are available: ",
            "  pod/default/unready: Running, not ready: container app: running, not ready\n",
            "  pod/default/db-0: Pending: container app: ",
            "  statefulset.apps/default/db: 3 desired, readyReplicas 0, availableReplicas 0\n",
            "  job.batch/default/fails: Failed: BackoffLimitExceeded: ",
            "  persistentvolumeclaim/default/data: Pending: storage class none\n",
            "  configmap/default/held: Terminating: deletionTimestamp ",
            ", finalizers example.com/hold\n",
            "Warning pod/default/large: FailedScheduling: 0/1 nodes are available: ",
            "Warning job.batch/default/fails: BackoffLimitExceeded: ",
        ],
    )
    .await?;
    let (first_normal, last_warning) = (report.find("Z Normal "), report.rfind("Z Warning "));
    assert!(first_normal.is_none_or(|normal| Some(normal) > last_warning), "warnings are first: {report}");
    control_plane.shutdown().await?;
    Ok(())
}

#[tokio::test]
async fn a_custom_resource_is_reported_by_its_conditions_and_a_namespace_by_its_content() -> Result<()> {
    use k8s_openapi::api::core::v1::Namespace;

    let control_plane = ControlPlane::builder().ephemeral().nodes(0).start().await?;
    let client = control_plane.client();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "boats.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.create(&PostParams::default(), &serde_json::from_value(definition)?).await?;
    let namespaces = Api::<Namespace>::all(client.clone());
    let harbour = serde_json::from_value(json!({"metadata": {"name": "harbour"}}))?;
    namespaces.create(&PostParams::default(), &harbour).await?;
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Boat"), "boats");
    let boats = Api::<DynamicObject>::namespaced_with(client, "harbour", &resource);
    let condition =
        json!({"type": "Ready", "status": "False", "reason": "Leaks", "message": "in two places"});
    let boat: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "Boat",
        "metadata": {"name": "coracle", "finalizers": ["example.com/anchor"]},
        "status": {"conditions": [condition]},
    }))?;
    let created = async {
        while boats.create(&PostParams::default(), &boat).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, created).await.context("the definition is not served")?;
    until_reported(
        &control_plane,
        &["  boat.example.com/harbour/coracle: Ready=False: Leaks: in two places\n"],
    )
    .await?;

    namespaces.delete("harbour", &DeleteParams::default()).await?;
    until_reported(
        &control_plane,
        &[
            "  namespace/harbour: Terminating: deletionTimestamp ",
            "NamespaceFinalizersRemaining=True: SomeFinalizersRemain: ",
            "  boat.example.com/harbour/coracle: Terminating: deletionTimestamp ",
        ],
    )
    .await?;
    control_plane.shutdown().await?;
    Ok(())
}

fn read_kubeconfig(file: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(file).with_context(|| file.display().to_string())
}

/// Covers a failure, success, and an end by a signal to `coracle`.
#[tokio::test]
async fn run_reports_the_problems_if_its_command_fails() -> Result<()> {
    // The command ends with the code that it reads.
    let script = r#"echo "$KUBECONFIG"; read -r code; exit "$code""#;
    for (pod, code) in [(true, Some(7)), (true, Some(0)), (false, Some(7)), (true, None)] {
        let mut command = Command::new(binary::coracle());
        command.args(["run", "--nodes=0", "--", "sh", "-c", script]).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let kubeconfig = timeout(DEADLINE, lines.next_line()).await??.context("no kubeconfig")?;
        if pod {
            let kubeconfig = read_kubeconfig(Path::new(&kubeconfig))?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
            // Nothing schedules it.
            let containers = json!([{"name": "app", "image": "app"}]);
            let lonely = json!({"metadata": {"name": "lonely"}, "spec": {"containers": containers}});
            create::<Pod>(&Client::try_from(config)?, lonely).await?;
        }
        // Its end would end the command.
        let mut stdin = child.stdin.take().context("stdin")?;
        match code {
            Some(code) => {
                stdin.write_all(format!("{code}\n").as_bytes()).await?;
            }
            None => {
                let id = child.id().and_then(|id| rustix::process::Pid::from_raw(id.try_into().ok()?));
                rustix::process::kill_process(id.context("a process")?, rustix::process::Signal::TERM)?;
            }
        }
        let output = timeout(DEADLINE, child.wait_with_output()).await.context("it does not end")??;
        drop(stdin);
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(code.unwrap_or(128 + 15)), "{stderr}");
        let report = "coracle: when the command failed, the control plane had\n\
                      objects that are not ready (1):\n  pod/default/lonely: Pending";
        match pod && code == Some(7) {
            true => assert!(stderr.starts_with(report), "{stderr}"),
            false => assert_eq!(stderr, "", "{pod} {code:?}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn problems_are_printed_with_what_may_not_be_read() -> Result<()> {
    let directory = TempDir::new()?;
    let cluster = cluster().flag("--nodes", "0").start().await?;
    let file = directory.path().join("kubeconfig");
    let mut kubeconfig = read_kubeconfig(cluster.kubeconfig())?;
    for (user, expected) in [
        (None, ("", "No problems found.\n")),
        (Some("alice"), ("not read:\n  nodes: nodes is forbidden: User \"alice\" cannot list resource", "")),
    ] {
        for auth_info in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
            auth_info.impersonate = user.map(str::to_owned);
        }
        fs::write(&file, serde_json::to_vec(&kubeconfig)?)?;
        let mut command = Command::new(binary::coracle());
        command.args(["problems", "--kubeconfig"]).arg(&file).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(DEADLINE, command.output()).await.context("it does not end")??;
        let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        assert!(output.status.success() && stdout.starts_with(expected.0), "{stdout}{stderr}");
        assert_eq!(stderr, expected.1);
        assert_eq!(stdout.is_empty(), user.is_none(), "{stdout}");
        assert!(stdout.lines().count() <= 12, "{stdout}");
    }
    assert!(cluster.stop().await?.success());
    Ok(())
}

/// Runs `coracle problems`, and returns its exit code, standard output and standard error.
async fn problems(kubeconfig: &Path, flags: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = Command::new(binary::coracle());
    command.arg("problems").args(flags).env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(DEADLINE, command.output()).await.context("it does not end")??;
    Ok((output.status.code(), String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

#[tokio::test]
async fn problems_of_a_namespace_are_text_or_json() -> Result<()> {
    let cluster = cluster().flag("--nodes", "0").start().await?;
    let kubeconfig = read_kubeconfig(cluster.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let container = json!([{"name": "app", "image": "app"}]);
    let lonely = json!({"metadata": {"name": "lonely"}, "spec": {"containers": container}});
    create::<Pod>(&Client::try_from(config)?, lonely).await?;

    let report = |flags: &'static [&'static str]| problems(cluster.kubeconfig(), flags);
    let (code, stdout, stderr) = report(&["-n", "default", "-o", "json"]).await?;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let found: Value = serde_json::from_str(&stdout)?;
    assert_eq!((&found["found"], &found["notes"]), (&json!(1), &json!([])), "{found}");
    let line = found["objects"][0].as_str().unwrap_or_default();
    assert!(line.starts_with("pod/default/lonely: Pending"), "{found}");

    assert_eq!(
        report(&["-n", "kube-system"]).await?,
        (Some(0), String::new(), "No problems found.\n".to_owned())
    );
    let (_, stdout, stderr) = report(&["-n", "kube-system", "-o", "json"]).await?;
    assert_eq!((serde_json::from_str::<Value>(&stdout)?["found"].clone(), stderr.as_str()), (json!(0), ""));
    assert!(cluster.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_respond_is_an_error() -> Result<()> {
    // Connections are accepted by the kernel, and never read.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let directory = TempDir::new()?;
    let file = directory.path().join("kubeconfig");
    let server = format!("http://{}", silent.local_addr()?);
    let kubeconfig = json!({
        "current-context": "silent",
        "contexts": [{"name": "silent", "context": {"cluster": "silent", "user": "silent"}}],
        "clusters": [{"name": "silent", "cluster": {"server": server}}],
        "users": [{"name": "silent", "user": {}}],
    });
    fs::write(&file, serde_json::to_vec(&kubeconfig)?)?;
    let mut command = Command::new(binary::coracle());
    command.arg("problems").env("KUBECONFIG", &file).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(DEADLINE, command.output()).await.context("it does not end")??;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr, format!("coracle: {server}: the server does not respond within 2 s\n"));
    assert!(output.stdout.is_empty());
    Ok(())
}
