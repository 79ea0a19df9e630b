//! A manual clock: Kubernetes' times pass as fast as a test turns it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use coracle::{ClockMode, ControlPlane};
use coracle_e2e::cluster::Cluster;
use coracle_e2e::json_client::{JsonClient, condition};
use coracle_e2e::wait::until;
use coracle_e2e::{binary, cluster, workloads};
use futures::StreamExt;
use k8s_openapi::api::batch::v1::CronJob;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::process::Command;

const CLOCK: &str = "/coracle/v1alpha1/clock";

async fn manual() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--clock", "manual").flag("--nodes", "2").start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

async fn advance(client: &mut JsonClient, by: &str) -> Result<Value> {
    client.call("POST", CLOCK, Some(json!({"advance": by}))).await
}

async fn create_deployment(client: &mut JsonClient, replicas: usize) -> Result<()> {
    client.create(&workloads::apps("default", "deployments"), workloads::replicated("web", replicas)).await?;
    Ok(())
}

#[tokio::test]
async fn a_day_of_an_hourly_cron_job_takes_no_time() -> Result<()> {
    let (_cluster, mut client) = manual().await?;
    client.call("POST", CLOCK, Some(json!({"set": "2040-03-24T22:30:00Z"}))).await?;
    let mut cron_job = workloads::cron_job("hourly", "0 * * * *", json!({}));
    // Germany has no hour from two to three on the 25th of March 2040.
    cron_job["spec"]["timeZone"] = json!("Europe/Berlin");
    cron_job["spec"]["schedule"] = json!("0 0-5 * * *");
    cron_job["spec"]["successfulJobsHistoryLimit"] = json!(100);
    client.create(&workloads::batch("default", "cronjobs"), cron_job).await?;
    let began = Instant::now();
    let moved = advance(&mut client, "23h").await?;
    println!("a day took {:?}: {}", began.elapsed(), moved["timersByName"]);
    ensure!(moved["mode"] == "manual" && moved["settled"] == true, "{moved}");
    ensure!(moved["now"] == "2040-03-25T21:30:00Z" && moved["timersFired"].as_u64() > Some(5), "{moved}");
    let jobs = client.list(&workloads::batch("default", "jobs")).await?;
    let mut times: Vec<String> = jobs
        .iter()
        .filter_map(|job| {
            job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str()
        })
        .map(str::to_owned)
        .collect();
    times.sort();
    let hours: Vec<&str> = times.iter().filter_map(|time| time.get(11..13)).collect();
    ensure!(hours == ["00", "01", "03", "04", "05"], "{times:?}");
    Ok(())
}

#[tokio::test]
async fn a_silent_node_is_given_up_and_its_pods_are_replaced() -> Result<()> {
    let (_cluster, mut client) = manual().await?;
    create_deployment(&mut client, 4).await?;
    advance(&mut client, "1m").await?;
    let silent = json!({"metadata": {"annotations": {"sim.coracle.dev/silent": "true"}}});
    client.patch("/api/v1/nodes/node-1", silent).await?;
    let ready = |node: &Value| condition(node, "Ready").map(str::to_owned);
    advance(&mut client, "39s").await?;
    let node = client.get("/api/v1/nodes/node-1").await?;
    ensure!(ready(&node).as_deref() == Some("True"), "{node}");
    advance(&mut client, "20s").await?;
    let node = client.get("/api/v1/nodes/node-1").await?;
    ensure!(ready(&node).as_deref() == Some("Unknown"), "{node}");
    // It comes back, and nothing waits for an eviction any more; then it is silent again.
    let set = |silent: bool| {
        let annotation = silent.then_some("true");
        json!({"metadata": {"annotations": {"sim.coracle.dev/silent": annotation}}})
    };
    let evictions = async |client: &mut JsonClient| -> Result<usize> {
        let status = client.get(&format!("{CLOCK}?limit=1000")).await?;
        let timers = status["nextTimers"].as_array().context("a list")?;
        Ok(timers.iter().filter(|timer| timer["name"] == "taint-eviction").count())
    };
    ensure!(evictions(&mut client).await? > 0, "the pods of a silent node wait for their eviction");
    client.patch("/api/v1/nodes/node-1", set(false)).await?;
    advance(&mut client, "10s").await?;
    ensure!(evictions(&mut client).await? == 0, "timers are left");
    client.patch("/api/v1/nodes/node-1", set(true)).await?;
    advance(&mut client, "59s").await?;
    advance(&mut client, "301s").await?;
    let deployment = client.get(&format!("{}/web", workloads::apps("default", "deployments"))).await?;
    ensure!(deployment["status"]["availableReplicas"] == 4, "{deployment}");
    let node = client.get("/api/v1/nodes/node-0").await?;
    ensure!(ready(&node).as_deref() == Some("True"), "it has had its heartbeats: {node}");
    Ok(())
}

/// Checks that heartbeats that are skipped on a long advance do not hide a silent node, even just
/// after one.
#[tokio::test]
async fn a_silent_node_is_found_on_a_long_way() -> Result<()> {
    let (_cluster, mut client) = manual().await?;
    for by in ["60s", "6s", "4500ms"] {
        advance(&mut client, by).await?;
    }
    let silent = json!({"metadata": {"annotations": {"sim.coracle.dev/silent": "true"}}});
    client.patch("/api/v1/nodes/node-1", silent).await?;
    advance(&mut client, "30h").await?;
    for (node, want) in [("node-0", "True"), ("node-1", "Unknown")] {
        let node = client.get(&format!("/api/v1/nodes/{node}")).await?;
        ensure!(condition(&node, "Ready") == Some(want), "{node}");
    }
    Ok(())
}

/// Checks that a definition that waits for its custom resources keeps nothing from settling.
#[tokio::test]
async fn a_definition_that_waits_for_its_custom_resources_settles() -> Result<()> {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (_cluster, mut client) = manual().await?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "versions": [version],
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}});
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": spec});
    client.call("POST", DEFINITIONS, Some(definition)).await?;
    advance(&mut client, "1s").await?;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "finalizers": ["example.com/held"]}});
    client.call("POST", widgets, Some(widget)).await?;
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    client.call("DELETE", &definition, None).await?;
    for _ in 0..3 {
        advance(&mut client, "1m").await?;
        let conditions = client.get(&definition).await?;
        ensure!(condition(&conditions, "Terminating") == Some("True"), "{conditions}");
    }
    client.patch(&format!("{widgets}/w"), json!({"metadata": {"finalizers": null}})).await?;
    advance(&mut client, "10s").await?;
    let (status, _) = client.send("GET", &definition, None).await?;
    ensure!(status == 404, "the definition is left");
    Ok(())
}

/// Checks that the rate limit for the endpoints of a Service does not block while the clock stands
/// still.
#[tokio::test]
async fn many_changes_of_a_service_settle() -> Result<()> {
    let (cluster, mut client) = manual().await?;
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    client.create("/api/v1/namespaces/default/services", service).await?;
    create_deployment(&mut client, 1).await?;
    let deployment = format!("{}/web", workloads::apps("default", "deployments"));
    for round in 0..40 {
        client.patch(&deployment, json!({"spec": {"replicas": 1 + round % 2}})).await?;
        cluster.settle().await?;
    }
    advance(&mut client, "1m").await.map(drop)
}

#[tokio::test]
async fn deadlines_lifetimes_and_grace_periods_follow_it() -> Result<()> {
    let (_cluster, mut client) = manual().await?;
    let (deployments, jobs) =
        (workloads::apps("default", "deployments"), workloads::batch("default", "jobs"));
    let mut deployment = workloads::replicated("slow", 2);
    deployment["spec"]["minReadySeconds"] = json!(3600);
    deployment["spec"]["progressDeadlineSeconds"] = json!(7200);
    client.create(&deployments, deployment).await?;
    let mut job = workloads::job("late", json!({"sim.coracle.dev/exit-after": "never"}));
    job["spec"]["activeDeadlineSeconds"] = json!(7200);
    job["spec"]["ttlSecondsAfterFinished"] = json!(600);
    client.create(&jobs, job).await?;
    advance(&mut client, "59m").await?;
    let available = |deployment: &Value| deployment["status"]["availableReplicas"].as_u64().unwrap_or(0);
    ensure!(available(&client.get(&format!("{deployments}/slow")).await?) == 0);
    advance(&mut client, "2m").await?;
    ensure!(available(&client.get(&format!("{deployments}/slow")).await?) == 2);
    ensure!(client.get(&format!("{jobs}/late")).await?["status"]["active"] == 1);
    advance(&mut client, "60m").await?;
    let job = client.get(&format!("{jobs}/late")).await?;
    ensure!(condition(&job, "Failed") == Some("True"), "{job}");
    advance(&mut client, "11m").await?;
    ensure!(client.send("GET", &format!("{jobs}/late"), None).await?.0 == 404);
    // Events live for an hour.
    let events = client.list("/api/v1/namespaces/default/events").await?;
    ensure!(!events.is_empty());
    advance(&mut client, "3h").await?;
    let left = client.list("/api/v1/namespaces/default/events").await?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn the_clock_advances_to_the_next_timers_and_runs() -> Result<()> {
    let (cluster, mut client) = manual().await?;
    let now = |status: &Value| status["now"].as_str().unwrap_or_default().to_owned();
    let before = client.get(CLOCK).await?;
    ensure!(before["mode"] == "manual", "{before}");
    let at = "2090-01-01T00:00:00Z";
    client.call("POST", &format!("{CLOCK}/timers"), Some(json!({"at": at, "name": "mine"}))).await?;
    let listed = client.get(&format!("{CLOCK}?limit=1000")).await?;
    let timers = listed["nextTimers"].as_array().context("a list")?;
    ensure!(timers.iter().any(|timer| timer["name"] == "client-timer" && timer["key"] == "mine"), "{listed}");
    let next = client.call("POST", CLOCK, Some(json!({"next": 1}))).await?;
    ensure!(now(&next) > now(&before), "{next}");
    let none = client.call("POST", CLOCK, Some(json!({"next": 0}))).await?;
    ensure!(now(&none) == now(&next), "{none}");
    // Two of them, one behind the other.
    let moved = client.call("POST", CLOCK, Some(json!({"next": 2}))).await?;
    ensure!(now(&moved) > now(&next), "{moved}");
    let real = client.call("POST", CLOCK, Some(json!({"mode": "real"}))).await?;
    ensure!(real["mode"] == "real", "{real}");
    create_deployment(&mut client, 1).await?;
    let deployment = format!("{}/web", workloads::apps("default", "deployments"));
    client.until(&deployment, |deployment| deployment["status"]["readyReplicas"] == 1).await?;
    ensure!(client.send("POST", CLOCK, Some(json!({"advance": "1s"}))).await?.0 == 409);
    drop(cluster);
    Ok(())
}

#[tokio::test]
async fn clients_can_watch_it() -> Result<()> {
    let (cluster, mut client) = manual().await?;
    let watching = cluster.client().await?;
    let request = hyper::Request::get(format!("{CLOCK}?watch=1")).body(Vec::new())?;
    let lines = watching.request_stream(request).await?;
    let mut lines = std::pin::pin!(futures::AsyncBufReadExt::lines(lines));
    let mut next = async || {
        let line = tokio::time::timeout(Duration::from_secs(10), lines.next()).await?.context("a line")??;
        anyhow::Ok(serde_json::from_str::<Value>(&line)?)
    };
    let first = next().await?;
    ensure!(first["mode"] == "manual" && first["now"].is_string(), "{first}");
    let moved = advance(&mut client, "10m").await?;
    loop {
        let event = next().await?;
        if event["now"] == moved["now"] {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn what_is_impossible_is_refused() -> Result<()> {
    let (_cluster, mut client) = manual().await?;
    for (body, want) in [
        (json!({"advance": "-1s"}), 422),
        (json!({"advance": "tomorrow"}), 422),
        (json!({"advance": "99999999h"}), 422),
        (json!({"set": "1999-01-01T00:00:00Z"}), 422),
        (json!({"set": "noon"}), 422),
        (json!({"advance": "1s", "next": 1}), 422),
        (json!({}), 422),
        (json!({"mode": "fast"}), 400),
        (json!({"next": -1}), 400),
        (json!({"advance": "1h", "maxTimers": 0}), 422),
        (json!({"advance": "1h", "maxTimers": 3}), 409),
    ] {
        let (status, answer) = client.send("POST", CLOCK, Some(body.clone())).await?;
        ensure!(status == want, "{body}: {status} {answer}");
    }
    let (status, answer) = client.send("POST", CLOCK, Some(json!({"advance": "1h", "maxTimers": 3}))).await?;
    ensure!(
        status == 409 && answer["message"].as_str().is_some_and(|m| m.contains("timers, most of")),
        "{answer}"
    );
    for timer in [json!({"at": "x"}), json!({"at": "2090-01-01T00:00:00Z", "name": "x".repeat(257)})] {
        let (status, answer) = client.send("POST", &format!("{CLOCK}/timers"), Some(timer)).await?;
        ensure!(status == 422, "{status} {answer}");
    }

    for id in ["0", "1000", "x", ""] {
        let (status, answer) = client.send("DELETE", &format!("{CLOCK}/timers/{id}"), None).await?;
        ensure!(status == 404, "{id:?}: {status} {answer}");
    }

    let real = cluster().start().await?;
    let mut client = JsonClient::new(&real.endpoint().await?).await?;
    let (status, answer) = client.send("POST", CLOCK, Some(json!({"advance": "1h"}))).await?;
    ensure!(
        status == 409 && answer["message"].as_str().is_some_and(|m| m.contains("--clock=manual")),
        "{answer}"
    );
    let (status, _) =
        client.send("POST", &format!("{CLOCK}/timers"), Some(json!({"at": "2090-01-01T00:00:00Z"}))).await?;
    ensure!(status == 409, "{status}");

    let etcd = Command::new(binary::coracle())
        .args([
            "serve",
            "--clock",
            "manual",
            "--etcd-servers",
            "http://127.0.0.1:1",
            "--listen",
            "127.0.0.1:0",
        ])
        .output()
        .await?;
    ensure!(
        !etcd.status.success() && String::from_utf8_lossy(&etcd.stderr).contains("no manual clock"),
        "{etcd:?}"
    );
    Ok(())
}

/// Returns the state of a namespace, without the parts that differ from run to run.
async fn outcome(client: &mut JsonClient) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for path in [
        workloads::batch("default", "jobs"),
        workloads::batch("default", "cronjobs"),
        workloads::pods("default"),
    ] {
        for mut object in client.list(&path).await? {
            let metadata = object["metadata"].as_object_mut().context("metadata")?;
            // Pods of Jobs have names of chance.
            let name = metadata["name"].as_str().unwrap_or_default();
            let name = if path.contains("/pods") { &name[..name.len() - 6] } else { name };
            let kept = json!({"name": name, "created": metadata["creationTimestamp"], "generation": metadata["generation"]});
            let status = &object["status"];
            let kept_status = json!({"start": status["startTime"], "completion": status["completionTime"],
                "phase": status["phase"], "succeeded": status["succeeded"], "last": status["lastScheduleTime"],
                "conditions": status["conditions"]});
            objects.push(json!([kept, kept_status]));
        }
    }
    Ok(objects)
}

#[tokio::test]
async fn the_same_advances_give_the_same_objects() -> Result<()> {
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        let (_cluster, mut client) = manual().await?;
        client.call("POST", CLOCK, Some(json!({"set": "2050-01-01T00:00:00Z"}))).await?;
        for (name, schedule) in [("a", "*/20 * * * *"), ("b", "7 * * * *")] {
            let cron_job = workloads::cron_job(name, schedule, json!({"sim.coracle.dev/exit-after": "90s"}));
            client.create(&workloads::batch("default", "cronjobs"), cron_job).await?;
        }
        let mut timers = Vec::new();
        for by in [json!({"advance": "100m"}), json!({"next": 5}), json!({"advance": "3h"})] {
            let moved = client.call("POST", CLOCK, Some(by)).await?;
            timers.push(json!([moved["now"], moved["timersByName"]]));
        }
        outcomes.push([timers, outcome(&mut client).await?].concat());
    }
    ensure!(outcomes[0] == outcomes[1], "{:#?}\n{:#?}", outcomes[0], outcomes[1]);
    ensure!(outcomes[0].len() > 9, "{:?}", outcomes[0]);
    Ok(())
}

#[tokio::test]
async fn the_command_moves_it_on() -> Result<()> {
    let (cluster, _client) = manual().await?;
    for (arguments, want) in [
        (&["clock", "advance", "90m"][..], Ok("(manual), ")),
        (&["clock"][..], Ok("(manual)\n")),
        (&["clock", "next", "2"][..], Ok("(manual)")),
        (&["clock", "set", "2100-01-01T00:00:00Z"][..], Ok("2100-01-01T00:00:00Z (manual)")),
        (&["settle"][..], Ok("settled after ")),
        (&["clock", "advance", "-1h"][..], Err("advance: -1h is negative")),
        (&["clock", "set", "2000-01-01T00:00:00Z"][..], Err("does not go back")),
        (&["clock", "resume"][..], Ok("(real)")),
        (&["settle", "--timeout", "soon"][..], Err("timeout: ")),
    ] {
        let command =
            Command::new(binary::coracle()).args(arguments).env("KUBECONFIG", cluster.kubeconfig()).output();
        let output = command.await?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match want {
            Ok(text) => ensure!(output.status.success() && out.contains(text), "{arguments:?}: {out}{err}"),
            Err(text) => ensure!(!output.status.success() && err.contains(text), "{arguments:?}: {out}{err}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_data_directory_resumes_at_its_last_time() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let builder = || ControlPlane::builder().data_dir(directory.path()).clock(ClockMode::Manual);
    let control_plane = builder().start().await?;
    let moved = control_plane.clock().set("2050-06-01T12:00:00.5Z").await?;
    let end = control_plane.clock().advance(Duration::from_secs(3600)).await?;
    ensure!(moved.now < end.now, "{moved:?} {end:?}");
    control_plane.shutdown().await?;
    let control_plane = builder().start().await?;
    ensure!(
        control_plane.clock().status(0).now == end.now,
        "{:?} after {end:?}",
        control_plane.clock().status(0)
    );
    control_plane.shutdown().await?;
    std::fs::write(directory.path().join("clock"), "noon\n")?;
    let error = builder().start().await.err().context("an error")?.to_string();
    ensure!(error.ends_with("/clock: it does not begin with a time"), "{error}");
    Ok(())
}

/// Checks that an advance does not come to its end because no timers are left.
#[tokio::test(flavor = "multi_thread")]
async fn an_advance_fails_with_the_end_of_its_control_plane() -> Result<()> {
    const YEARS: Duration = Duration::from_secs(5 * 365 * 24 * 3600);
    let template = ControlPlane::builder().ephemeral().clock(ClockMode::Manual).start().await?;
    let cron_jobs = Api::<CronJob>::default_namespaced(template.client());
    let every_minute = workloads::cron_job("busy", "* * * * *", json!({"sim.coracle.dev/exit-after": "1s"}));
    cron_jobs.create(&PostParams::default(), &serde_json::from_value(every_minute)?).await?;
    let fork = template.fork().await?;
    let (clock, began) = (fork.clock(), fork.clock().now());
    let advance = tokio::spawn({
        let clock = clock.clone();
        async move { clock.advance(YEARS).await }
    });
    until("the clock moves", async || Ok(clock.now()), |now| *now > began).await?;
    fork.shutdown().await?;
    let error = advance.await?.err().context("the advance came to its end")?;
    ensure!(error.to_string().contains("is being stopped") && clock.now() < began + YEARS, "{error}");
    Ok(())
}

#[tokio::test]
async fn all_events_of_a_moment_are_recorded() -> Result<()> {
    let (cluster, mut client) = manual().await?;
    let mut pod = workloads::template("bare", json!({}));
    pod["metadata"]["name"] = json!("bare");
    client.create(&workloads::pods("default"), pod).await?;
    cluster.settle().await?;
    let events = client.list("/api/v1/namespaces/default/events").await?;
    let mut reasons: Vec<&str> = events.iter().filter_map(|event| event["reason"].as_str()).collect();
    reasons.sort_unstable();
    ensure!(["Created", "Pulled", "Scheduled", "Started"].iter().all(|r| reasons.contains(r)), "{reasons:?}");
    Ok(())
}

#[tokio::test]
async fn timers_of_clients_can_be_removed() -> Result<()> {
    let (_cluster, mut client) = manual().await?;
    let timers = format!("{CLOCK}/timers");
    let set =
        client.call("POST", &timers, Some(json!({"at": "2090-01-01T00:00:00Z", "name": "mine"}))).await?;
    let own = format!("{timers}/{}", set["id"].as_str().context("an id")?);
    let is_listed = async |client: &mut JsonClient| {
        let clock = client.get(&format!("{CLOCK}?limit=1000")).await?;
        let timers = clock["nextTimers"].as_array().context("timers")?;
        anyhow::Ok(timers.iter().any(|timer| timer["key"] == "mine"))
    };
    ensure!(is_listed(&mut client).await?);
    client.call("DELETE", &own, None).await?;
    ensure!(!is_listed(&mut client).await?, "it is listed after its removal");
    ensure!(client.send("DELETE", &own, None).await?.0 == 404);
    Ok(())
}
