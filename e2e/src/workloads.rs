//! Workloads for the tests: one container, labels by the name, a grace period of a second.
//!
//! A test sets the fields that it is about in the returned object.

use serde_json::{Value, json};

/// Returns the path of the pods in a namespace.
pub fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Returns the path of a resource of the group `apps` in a namespace.
pub fn apps(namespace: &str, resource: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/{resource}")
}

/// Returns the path of a resource of the group `batch` in a namespace.
pub fn batch(namespace: &str, resource: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/{resource}")
}

/// Returns a pod template with the label `app`, and with annotations for the simulation of its
/// pods.
pub fn template(app: &str, annotations: Value) -> Value {
    let containers = json!([{"name": "c", "image": "registry.example/app:1"}]);
    json!({
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
    })
}

/// Returns the manifest of a Deployment or a ReplicaSet.
pub fn replicated(name: &str, replicas: usize) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, json!({})),
    }})
}

/// Returns the manifest of a ReplicationController.
pub fn replication_controller(name: &str, replicas: usize) -> Value {
    let mut controller = replicated(name, replicas);
    controller["spec"]["selector"] = json!({"app": name});
    controller
}

/// Returns the manifest of a DaemonSet.
pub fn daemon_set(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}}, "template": template(name, json!({})),
    }})
}

/// Returns the manifest of a Job. Its pods run until they are deleted, unless the annotations of
/// the template specify otherwise.
pub fn job(name: &str, annotations: Value) -> Value {
    let mut template = template(name, annotations);
    let exit_after = &mut template["metadata"]["annotations"]["sim.coracle.dev/exit-after"];
    if exit_after.is_null() {
        *exit_after = json!("never");
    }
    template["spec"]["restartPolicy"] = json!("Never");
    json!({"metadata": {"name": name}, "spec": {"template": template}})
}

/// Returns the manifest of a CronJob that creates such Jobs.
pub fn cron_job(name: &str, schedule: &str, annotations: Value) -> Value {
    let job = job(name, annotations);
    json!({"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": {"spec": job["spec"]}}})
}

/// Returns a merge patch that changes the image in the template of a workload.
pub fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Returns `true` if the rollout of a Deployment is complete.
pub fn is_complete(deployment: &Value) -> bool {
    let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && counts.iter().all(|count| status[count] == *wanted)
}

/// Returns `true` if all pods of a DaemonSet are up to date and available.
pub fn is_rolled_out(set: &Value) -> bool {
    let status = &set["status"];
    let wanted = &status["desiredNumberScheduled"];
    status["observedGeneration"] == set["metadata"]["generation"]
        && *wanted != 0
        && ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable"]
            .iter()
            .all(|count| status[count] == *wanted)
}

/// Returns `true` if a pod is ready and not terminating.
pub fn is_ready(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
        && crate::json_client::condition(pod, "Ready") == Some("True")
}

/// Returns the name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the uid of an object.
pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns the uid of an object's controller, or `None` if it has none.
pub fn controller(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}
