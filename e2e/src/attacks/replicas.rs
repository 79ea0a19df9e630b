//! Owners that want far more pods than there can be.

use bytes::Bytes;
use serde_json::{Value, json};

use super::requests::{Attack, HostileRequest, JSON, NAMESPACE, json_body, requests};
use crate::http::Endpoint;
use crate::workloads::{apps, batch, template};

/// Returns the attacks of a user who may do everything in [`NAMESPACE`].
pub fn all(developer: &Endpoint) -> Vec<(&'static str, Attack)> {
    let repeated = |make| -> Attack { Box::pin(requests(developer.clone(), 1, make)) };
    vec![
        ("Deployments of billions", repeated(deployments)),
        ("StatefulSets of millions", repeated(stateful_sets)),
        ("Jobs of billions", repeated(jobs)),
        ("CronJobs that are long overdue", repeated(cron_jobs)),
    ]
}

fn create(collection: &str, name: &str, spec: Value) -> HostileRequest {
    ("POST", collection.to_owned(), JSON, json_body(&json!({"metadata": {"name": name}, "spec": spec})))
}

/// Builds a request that needs no other right than to the subresource.
fn scale(collection: &str, name: &str, replicas: i32) -> HostileRequest {
    let scale: Bytes = json_body(&json!({"spec": {"replicas": replicas}}));
    ("PATCH", format!("{collection}/{name}/scale"), "application/merge-patch+json", scale)
}

/// Builds a template of pods of which a simulated node takes 32. Without a request a node would
/// take 1,500.
fn large_pods(app: &str) -> Value {
    let mut template = template(app, json!({}));
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    template
}

fn replicated(app: &str) -> Value {
    json!({"replicas": 1, "selector": {"matchLabels": {"app": app}}, "template": large_pods(app)})
}

fn deployments() -> Vec<HostileRequest> {
    let collection = apps(NAMESPACE, "deployments");
    vec![
        create(&collection, "billions", replicated("billions")),
        scale(&collection, "billions", i32::MAX),
        scale(&collection, "billions", i32::MAX - 1),
    ]
}

fn stateful_sets() -> Vec<HostileRequest> {
    let collection = apps(NAMESPACE, "statefulsets");
    let policies = ["OrderedReady", "Parallel"].map(|policy| (policy.to_lowercase(), policy));
    let requests = policies.iter().flat_map(|(name, policy)| {
        let mut spec = replicated(name);
        spec["serviceName"] = json!(name);
        spec["podManagementPolicy"] = json!(policy);
        spec["ordinals"] = json!({"start": i32::MAX - 5_000_000});
        [
            create(&collection, name, spec),
            scale(&collection, name, 4_000_000),
            scale(&collection, name, i32::MAX),
        ]
    });
    requests.collect()
}

fn job_spec(app: &str, mode: &str, parallelism: i32) -> Value {
    let mut template = large_pods(app);
    template["metadata"]["annotations"]["sim.coracle.dev/exit-after"] = json!("never");
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "completionMode": mode, "completions": i32::MAX, "parallelism": parallelism, "backoffLimit": i32::MAX,
        "template": template,
    })
}

fn jobs() -> Vec<HostileRequest> {
    let collection = batch(NAMESPACE, "jobs");
    vec![
        create(&collection, "plain", job_spec("plain", "NonIndexed", i32::MAX)),
        // The most that an Indexed Job may have at a time.
        create(&collection, "indexed", job_spec("indexed", "Indexed", 100_000)),
    ]
}

/// Builds CronJobs with schedules of which millions of times have been missed, if the server
/// accepts a last time from a client.
fn cron_jobs() -> Vec<HostileRequest> {
    let collection = batch(NAMESPACE, "cronjobs");
    let requests =
        ["* * * * *", "@every 1s", "* * 1-31 2-12 *"].iter().enumerate().flat_map(|(index, schedule)| {
            let name = format!("overdue-{index}");
            let spec = json!({
                "schedule": schedule, "startingDeadlineSeconds": i64::MAX, "concurrencyPolicy": "Forbid",
                "jobTemplate": {"spec": job_spec(&name, "NonIndexed", 1)},
            });
            let status = json_body(&json!({"status": {"lastScheduleTime": "1970-01-01T00:00:00Z"}}));
            let path = format!("{collection}/{name}/status");
            [create(&collection, &name, spec), ("PATCH", path, "application/merge-patch+json", status)]
        });
    requests.collect()
}
