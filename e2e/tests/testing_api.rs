//! The endpoints below `/coracle/v1alpha1/`, which no Kubernetes API has.

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{binary, cluster};
use serde_json::{Value, json};
use tokio::process::Command;

const CLOCK: &str = "/coracle/v1alpha1/clock";

#[tokio::test]
async fn the_clock_lists_the_next_timers() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "app"}]}}}}});
    let cronjob = json!({"metadata": {"name": "yearly"}, "spec": spec});
    client.create("/apis/batch/v1/namespaces/default/cronjobs", cronjob).await?;
    let timer = |clock: &Value, name: &str| {
        let timers = clock["nextTimers"].as_array().into_iter().flatten();
        timers.filter(|timer| timer["name"] == name).find(|timer| timer["key"] != "").cloned()
    };
    let path = format!("{CLOCK}?limit=1000");
    let clock = client.until(&path, |clock| timer(clock, "cronjob-schedule").is_some()).await?;
    let schedule = timer(&clock, "cronjob-schedule").context("a timer")?;
    ensure!(schedule["key"] == "default/yearly" && schedule["class"] == "semantic", "{schedule}");
    ensure!(schedule["at"].as_str().is_some_and(|at| at.contains("-01-01T00:00:00.")), "{schedule}");
    ensure!(clock["mode"] == "real" && clock["now"].is_string(), "{clock}");
    let times: Vec<&str> =
        clock["nextTimers"].as_array().context("a list")?.iter().filter_map(|t| t["at"].as_str()).collect();
    ensure!(times.len() > 1 && clock["nextTimers"][0]["at"].as_str() <= times.last().copied(), "{clock}");
    let two = client.get(&format!("{CLOCK}?limit=2")).await?;
    ensure!(two["nextTimers"].as_array().map(Vec::len) == Some(2), "{two}");

    let mut command = Command::new(binary::coracle());
    let printed = command.args(["clock", "--kubeconfig"]).arg(cluster.kubeconfig()).output().await?;
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    ensure!(printed.status.success() && text.contains(" (real)\nIN "), "{printed:?}");
    Ok(())
}

#[tokio::test]
async fn it_is_for_users_with_the_right_and_not_for_web_pages() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let dev = ("impersonate-user", Some("dev"));
    for (method, path, headers, want) in [
        ("GET", CLOCK.to_owned(), vec![], 200),
        ("GET", CLOCK.to_owned(), vec![dev], 403),
        ("GET", CLOCK.to_owned(), vec![("origin", Some("https://evil.example"))], 403),
        ("GET", format!("{CLOCK}?limit=1001"), vec![], 400),
        ("GET", format!("{CLOCK}?limit=-1"), vec![], 400),
        ("DELETE", CLOCK.to_owned(), vec![], 405),
        ("GET", "/coracle/v1alpha1/nothing".to_owned(), vec![], 404),
        ("GET", "/coracle/v1alpha1/".to_owned(), vec![], 404),
    ] {
        let response = connection.call(method, &path, &headers, None).await?;
        ensure!(response.status == want, "{method} {path} {headers:?}: {}", response.status);
    }
    // Clients see the APIs of Kubernetes alone.
    let response = connection.call("GET", "/", &[], None).await?;
    ensure!(!String::from_utf8_lossy(&response.body).contains("v1alpha1/clock"));
    Ok(())
}

#[tokio::test]
async fn it_can_be_turned_off() -> Result<()> {
    for (listen, flag, want) in
        [("127.0.0.1:0", Some("false"), 404), ("0.0.0.0:0", None, 404), ("0.0.0.0:0", Some("true"), 200)]
    {
        let builder = flag
            .into_iter()
            .fold(cluster().listen(listen), |builder, flag| builder.flag("--testing-api", flag));
        let cluster = builder.start().await?;
        let mut connection = cluster.endpoint().await?.connect().await?;
        let response = connection.call("GET", CLOCK, &[], None).await?;
        ensure!(response.status == want, "{listen} {flag:?}: {}", response.status);
    }
    Ok(())
}
