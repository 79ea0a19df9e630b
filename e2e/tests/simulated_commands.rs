//! The behavior of simulated containers: by their commands, their restart policies, and the
//! annotations that they inherit.

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster;
use coracle_e2e::cluster::{Builder, Cluster};
use coracle_e2e::http::Endpoint;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::wait::DEADLINE;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::{Value, json};
use tokio::time::timeout;

const PODS: &str = "/api/v1/namespaces/default/pods";

struct Scenario {
    cluster: Cluster,
    client: JsonClient,
}

impl Scenario {
    async fn start(builder: Builder) -> Result<Scenario> {
        let cluster = builder.with_service_account().start().await?;
        let endpoint: Endpoint = cluster.endpoint().await?;
        let client = JsonClient::new(&endpoint).await?;
        Ok(Scenario { cluster, client })
    }

    async fn create(&mut self, name: &str, spec: Value) -> Result<()> {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"restartPolicy": "Never"}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        self.client.create(PODS, pod).await.map(drop)
    }

    async fn until_phase(&mut self, name: &str, phase: &str) -> Result<Value> {
        let is_there = |pod: &Value| pod["status"]["phase"] == phase;
        self.client
            .until(&format!("{PODS}/{name}"), is_there)
            .await
            .with_context(|| format!("{name}: {phase}"))
    }

    async fn log(&self, name: &str, parameters: LogParams) -> Result<String> {
        let pods = Api::<Pod>::default_namespaced(self.cluster.client().await?);
        Ok(timeout(DEADLINE, pods.logs(name, &parameters)).await??)
    }
}

fn shell(script: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", script]}]})
}

fn code(pod: &Value, list: &str) -> Value {
    pod["status"][list][0]["state"]["terminated"]["exitCode"].clone()
}

#[tokio::test]
async fn containers_do_what_their_commands_say() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    scenario.create("ends", json!({"containers": [{"name": "c", "image": "app"}]})).await?;
    scenario.create("fails", shell("echo no; exit 3")).await?;
    scenario.create("waits", shell("echo a; sleep 5; echo b")).await?;
    scenario.create("sleeps", shell("sleep infinity")).await?;
    let mut with_init = shell("true");
    with_init["initContainers"] = json!([
        {"name": "i", "image": "busybox", "args": ["sh", "-c", "echo prepare; exit 4"]},
        {"name": "j", "image": "busybox"},
    ]);
    scenario.create("init", with_init).await?;

    let followed = LogParams { follow: true, ..LogParams::default() };
    scenario.until_phase("waits", "Running").await?;
    assert_eq!(scenario.log("waits", followed).await?, "a\nb\n", "until the container has ended");
    let timestamps = LogParams { timestamps: true, ..LogParams::default() };
    let log = scenario.log("waits", timestamps).await?;
    let times: Vec<&str> = log.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(times.len() == 2 && times[0] < times[1], "{log}");

    let failed = scenario.until_phase("fails", "Failed").await?;
    assert_eq!(code(&failed, "containerStatuses"), 3);
    assert_eq!(scenario.log("fails", LogParams::default()).await?, "no\n");
    let failed = scenario.until_phase("init", "Failed").await?;
    assert_eq!(code(&failed, "initContainerStatuses"), 4);
    let waiting = &failed["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
    assert_eq!(waiting, "PodInitializing", "{failed}");
    let init = LogParams { container: Some("i".into()), ..LogParams::default() };
    assert_eq!(scenario.log("init", init).await?, "prepare\n");
    scenario.until_phase("ends", "Succeeded").await?;
    scenario.until_phase("sleeps", "Running").await.map(drop)
}

#[tokio::test]
async fn probes_and_messages_follow_the_files_of_a_container() -> Result<()> {
    let mut scenario = Scenario::start(cluster().flag("--clock", "manual")).await?;
    let mut spec = shell("touch /tmp/healthy; sleep 30; rm -f /tmp/healthy; sleep 600");
    spec["containers"][0]["livenessProbe"] = json!({
        "exec": {"command": ["cat", "/tmp/healthy"]}, "initialDelaySeconds": 5, "periodSeconds": 5,
    });
    spec["restartPolicy"] = json!("Always");
    scenario.create("liveness", spec).await?;
    let variables = json!([
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    ]);
    let mut spec = shell("echo $IP on $HOST; sleep 20; echo done > /dev/termination-log");
    spec["containers"][0]["env"] = variables;
    scenario.create("message", spec).await?;
    let mut spec = shell("echo no such table; exit 2");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    scenario.create("log", spec).await?;
    scenario.cluster.settle().await?;
    scenario.cluster.advance("39s").await?;
    let pod = scenario.client.get(&format!("{PODS}/liveness")).await?;
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{pod}");
    scenario.cluster.advance("2s").await?;
    let pod = scenario.client.get(&format!("{PODS}/liveness")).await?;
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1, "{pod}");
    assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true, "{pod}");

    let message =
        |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"].clone();
    let pod = scenario.client.get(&format!("{PODS}/message")).await?;
    assert_eq!(message(&pod), "done\n", "{pod}");
    let address = |field: &str| pod["status"][field].as_str().unwrap_or_default().to_owned();
    let printed = format!("{} on {}\n", address("podIP"), address("hostIP"));
    assert_eq!(scenario.log("message", LogParams::default()).await?, printed);
    let pod = scenario.client.get(&format!("{PODS}/log")).await?;
    assert_eq!(message(&pod), "no such table\n", "{pod}");
    Ok(())
}

#[tokio::test]
async fn an_init_container_that_fails_is_started_again_before_the_others() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let mut spec = json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "app"}]});
    spec["initContainers"] = json!([{"name": "i", "image": "busybox", "command": ["false"]}]);
    scenario.create("init", spec).await?;
    let is_waiting = |pod: &Value| {
        let status = &pod["status"]["initContainerStatuses"][0];
        status["state"]["waiting"]["reason"] == "CrashLoopBackOff" && status["restartCount"] == 1
    };
    let pod = scenario.client.until(&format!("{PODS}/init"), is_waiting).await?;
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
    Ok(())
}

#[tokio::test]
async fn annotations_of_owners_and_namespaces_count_for_their_pods() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let client = &mut scenario.client;
    let annotations = json!({"metadata": {"annotations": {"sim.coracle.dev/exit-after": "never", "sim.coracle.dev/log": "namespace"}}});
    client.patch("/api/v1/namespaces/default", annotations).await?;
    let job = |name: &str, annotations: Value| {
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app"}]}});
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"template": template, "backoffLimit": 0}})
    };
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let failing = json!({"sim.coracle.dev/exit-after": "0s", "sim.coracle.dev/exit-code": "2"});
    client.create(jobs, job("runs", json!({}))).await?;
    client.create(jobs, job("fails", failing)).await?;
    client.until(&format!("{jobs}/fails"), |job| job["status"]["failed"] == 1).await?;
    client.until(&format!("{jobs}/runs"), |job| job["status"]["ready"] == 1).await?;
    let running = client.list(&format!("{PODS}?labelSelector=job-name%3Druns")).await?;
    let name = running[0]["metadata"]["name"].as_str().context("its name")?.to_owned();
    assert_eq!(scenario.log(&name, LogParams::default()).await?, "namespace\n");
    // A change of the owner reaches pods that run.
    let ends = json!({"metadata": {"annotations": {"sim.coracle.dev/exit-after": "0s"}}});
    scenario.client.patch(&format!("{jobs}/runs"), ends).await?;
    let is_complete = |job: &Value| job["status"]["succeeded"] == 1;
    scenario.client.until(&format!("{jobs}/runs"), is_complete).await.map(drop)
}

#[tokio::test]
async fn an_inert_simulation_ignores_commands() -> Result<()> {
    let by_flag = cluster().flag("--simulation-profile", "inert");
    let by_environment = cluster().env("CORACLE_SIMULATION_PROFILE", "inert");
    for builder in [by_flag, by_environment] {
        let mut scenario = Scenario::start(builder).await?;
        scenario.create("pod", shell("echo hi; exit 1")).await?;
        scenario.until_phase("pod", "Running").await?;
        let log = scenario.log("pod", LogParams::default()).await?;
        ensure!(log.starts_with("container c is simulated"), "{log}");
    }
    Ok(())
}
