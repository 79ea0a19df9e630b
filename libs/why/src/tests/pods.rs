//! Pods and nodes that are not ready.

use serde_json::{Value, json};

use super::check;
use super::fake::{cluster, condition, event, node, object, owned, pending, pod, unready};

fn with(mut pod: Value, spec: &Value) -> Value {
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

/// Builds a pod on `node-0` with the status of its container `app`.
fn container(phase: &str, status: Value) -> Value {
    let mut container = json!({"name": "app", "image": "app:1", "ready": false, "restartCount": 0});
    container.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    unready("web-0", phase, json!({"containerStatuses": [container]}))
}

#[test]
fn pods_without_a_node() {
    let message = "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. \
        preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    let gated = with(pending("web-0", ""), &json!({"schedulingGates": [{"name": "example.com/wait"}]}));
    let bare = |spec: Value| object("Pod", "web-0", json!({"spec": spec, "status": {"phase": "Pending"}}));
    check(vec![
        (
            "no node fits",
            "pods web-0",
            cluster([pending("web-0", message)]),
            "notReady: pod/web-0 is pending because the scheduler finds no node for it: none of 3 nodes \
             can take it (1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were \
             unschedulable). To change that: ask for less in spec.containers[].resources.requests, or add \
             a node.",
            &[
                "1 Insufficient cpu; remedy: ask for less",
                "untolerated taint(s); remedy: add a toleration",
                "were unschedulable; remedy: kubectl uncordon NODE",
            ],
        ),
        (
            "no node",
            "pods web-0",
            cluster([pending("web-0", "no nodes available to schedule pods")]),
            "notReady: pod/web-0 is pending because the scheduler finds no node for it: no nodes \
             available to schedule pods.",
            &[],
        ),
        (
            "scheduling gates",
            "pods web-0",
            cluster([gated]),
            "notReady: pod/web-0 is pending because of its scheduling gates: example.com/wait. The \
             scheduler ignores it until whoever set them removes them from spec.schedulingGates.",
            &["spec.schedulingGates: example.com/wait"],
        ),
        (
            "another scheduler",
            "pods web-0",
            cluster([bare(json!({"schedulerName": "mine"}))]),
            "notReady: pod/web-0 is pending because it waits for the scheduler mine, which has not \
             reported on it. It is not scheduled if no program of that name runs.",
            &["spec.schedulerName: mine"],
        ),
        (
            "not looked at",
            "pods web-0",
            cluster([bare(json!({}))]),
            "notReady: pod/web-0 is pending: the scheduler has not looked at it yet.",
            &[],
        ),
    ]);
}

#[test]
fn pods_that_inherit_annotations() {
    let annotated = |mut object: Value, value: &str| {
        object["metadata"]["annotations"] = json!({"sim.coracle.dev/missing-images": value});
        object
    };
    let pulling = || {
        container(
            "Pending",
            json!({"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}),
        )
    };
    let deployment = || object("Deployment", "web", json!({}));
    let of_deployment = || annotated(owned(object("ReplicaSet", "web-1", json!({})), &deployment()), "app:1");
    let pod = || owned(pulling(), &of_deployment());
    let said_by = |name: &str| {
        format!(
            "notReady: pod/web-0 is pending because the image app:1 of its container app cannot be pulled (ErrImagePull): \
             not found. To find out more or to change that: the annotation sim.coracle.dev/missing-images of {name} says so: \
             remove the image from it"
        )
    };
    let namespace = object("Namespace", "shop", json!({}));
    let far = annotated(namespace, "app:1");
    for (objects, name) in [
        (
            vec![node("node-0"), pod(), of_deployment(), annotated(deployment(), "app:1"), far.clone()],
            "deployment/web",
        ),
        (vec![node("node-0"), pod(), of_deployment(), deployment(), far], "namespace/shop"),
        (vec![annotated(node("node-0"), "app:*"), pod(), of_deployment(), deployment()], "node/node-0"),
    ] {
        check(vec![(name, "pods web-0", cluster(objects), &said_by(name), &[])]);
    }
    // Only "true" means it.
    let mut taken_care_of = object("Pod", "web-0", json!({"spec": {}, "status": {"phase": "Pending"}}));
    taken_care_of["metadata"]["annotations"] = json!({"sim.coracle.dev/ignore": "false"});
    let want = "notReady: pod/web-0 is pending: the scheduler has not looked at it yet.";
    check(vec![("not ignored", "pods web-0", cluster([taken_care_of]), want, &[])]);
}

#[test]
fn pods_whose_resize_waits() {
    let waiting = |reason: &str, message: &str| {
        let mut pod = pod("web-0");
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(condition("PodResizePending", "True", reason, message));
        cluster([node("node-0"), pod])
    };
    check(vec![
        (
            "deferred",
            "pods web-0",
            waiting("Deferred", "Node didn't have enough resource: cpu"),
            "notReady: pod/web-0 is ready, and has not been resized: its condition PodResizePending is True since 10:00:00Z \
             (5 minutes ago): Deferred: Node didn't have enough resource: cpu. It is resized once other pods of node/node-0 \
             end or ask for less.",
            &["status.conditions: PodResizePending=True"],
        ),
        (
            "infeasible",
            "pods web-0",
            waiting("Infeasible", "Node didn't have enough capacity: cpu"),
            "notReady: pod/web-0 is ready, and has not been resized: its condition PodResizePending is True since 10:00:00Z \
             (5 minutes ago): Infeasible: Node didn't have enough capacity: cpu. node/node-0 can never give it that much: \
             ask for less in spec.containers[].resources.requests.",
            &["status.conditions: PodResizePending=True"],
        ),
    ]);
}

#[test]
fn pods_whose_containers_are_not_ready() {
    let probed = with(
        container("Running", json!({"state": {"running": {"startedAt": "2026-11-27T10:00:00Z"}}})),
        &json!({"containers": [{"name": "app", "readinessProbe": {}}]}),
    );
    let never = {
        let mut pod = container("Running", json!({"state": {"running": {}}}));
        pod["metadata"]["annotations"] = json!({"sim.coracle.dev/never-ready": "true"});
        pod
    };
    let missing = {
        let mut pod = container(
            "Pending",
            json!({"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}),
        );
        pod["metadata"]["annotations"] = json!({"sim.coracle.dev/missing-images": "app:1"});
        pod
    };
    let init = unready(
        "web-0",
        "Pending",
        json!({
            "initContainerStatuses": [
                {"name": "first", "state": {"terminated": {"exitCode": 0}}},
                {"name": "migrate", "state": {"running": {}}, "ready": false},
                {"name": "last", "state": {"waiting": {"reason": "PodInitializing"}}},
            ],
            "containerStatuses": [{"name": "app", "state": {"waiting": {"reason": "PodInitializing"}}}],
        }),
    );
    let gated = with(
        unready("web-0", "Running", json!({"conditions": [condition("ContainersReady", "True", "", "")]})),
        &json!({"readinessGates": [{"conditionType": "example.com/lb"}]}),
    );
    let ended = |phase: &str, code: i64| {
        container(phase, json!({"state": {"terminated": {"exitCode": code, "reason": "Error"}}}))
    };
    check(vec![
        (
            "image",
            "pods web-0",
            cluster([
                node("node-0"),
                container(
                    "Pending",
                    json!({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"app:1\""}}}),
                ),
            ]),
            "notReady: pod/web-0 is pending because the image app:1 of its container app cannot be pulled \
             (ImagePullBackOff): Back-off pulling image \"app:1\". To find out more or to change that: \
             check the name of the image, the access to its registry, and spec.imagePullSecrets",
            &["status.containerStatuses: app"],
        ),
        (
            "simulated image",
            "pods web-0",
            cluster([node("node-0"), missing]),
            "notReady: pod/web-0 is pending because the image app:1 of its container app cannot be pulled \
             (ErrImagePull): not found. To find out more or to change that: the annotation \
             sim.coracle.dev/missing-images of the pod says so: remove the image from it",
            &["remedy: the annotation sim.coracle.dev/missing-images"],
        ),
        (
            "crashes",
            "pods web-0",
            cluster([
                node("node-0"),
                container(
                    "Running",
                    json!({"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}),
                ),
            ]),
            "notReady: pod/web-0 is running and not ready because its container app ended again and again \
             with exit code 137 (it used more memory than its limit) (3 restarts), and waits before it is \
             started again (CrashLoopBackOff). To find out more or to change that: kubectl logs web-0 -n \
             shop -c app --previous",
            &["remedy: kubectl logs web-0 -n shop -c app --previous"],
        ),
        (
            "configuration",
            "pods web-0",
            cluster([
                node("node-0"),
                container(
                    "Pending",
                    json!({"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "configmap \"settings\" not found"}}}),
                ),
            ]),
            "notReady: pod/web-0 is pending because its container app cannot be configured: configmap \"settings\" not found. To find out more or to change that: create the \
             ConfigMap or the Secret, or the key in it",
            &[],
        ),
        (
            "readiness probe",
            "pods web-0",
            cluster([
                node("node-0"),
                probed.clone(),
                event(&probed, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503"),
            ]),
            "notReady: pod/web-0 is running and not ready because its container app runs, and its readiness \
             probe has not succeeded: Readiness probe failed: HTTP probe failed with statuscode: 503 at \
             10:04:00Z (60 seconds ago). To find out more or to change that: kubectl logs web-0 -n shop -c \
             app",
            &["since 2026-11-27T10:00:00Z; the readiness probe of container app"],
        ),
        (
            "never ready",
            "pods web-0",
            cluster([node("node-0"), never]),
            "notReady: pod/web-0 is running and not ready because its container app runs and is not ready, \
             as the annotation sim.coracle.dev/never-ready of the pod says. To find out more or to change that: remove \
             the annotation sim.coracle.dev/never-ready",
            &["remove the annotation"],
        ),
        (
            "init container",
            "pods web-0",
            cluster([node("node-0"), init]),
            "notReady: pod/web-0 is pending because its init container migrate has not ended yet, and the \
             containers start after it. To find out more or to change that: kubectl logs web-0 -n shop -c \
             migrate",
            &["status.initContainerStatuses: migrate"],
        ),
        (
            "readiness gate",
            "pods web-0",
            cluster([node("node-0"), gated]),
            "notReady: pod/web-0 runs, and is not ready because of its readiness gate example.com/lb: that \
             condition in its status is not True. It is ready when the program that the gate belongs to \
             sets it.",
            &["spec.readinessGates: example.com/lb"],
        ),
        (
            "exit code",
            "pods web-0",
            cluster([node("node-0"), ended("Failed", 127)]),
            "notReady: pod/web-0 has failed: its container app ended with exit code 127 (its command was \
             not found). A pod that has failed is not started again; see kubectl logs web-0 -n shop -c app",
            &["exit code 127"],
        ),
        (
            "evicted",
            "pods web-0",
            cluster([
                node("node-0"),
                unready(
                    "web-0",
                    "Failed",
                    json!({"reason": "Evicted", "message": "The node was low on resource: memory."}),
                ),
            ]),
            "notReady: pod/web-0 has failed: Evicted: The node was low on resource: memory. A pod that has \
             failed is not started again.",
            &["status.phase: Failed"],
        ),
        (
            "being created",
            "pods web-0",
            cluster([
                node("node-0"),
                container("Pending", json!({"state": {"waiting": {"reason": "ContainerCreating"}}})),
            ]),
            "notReady: pod/web-0 is pending because its container app is being created.",
            &[],
        ),
        (
            "not reported",
            "pods web-0",
            cluster([node("node-0"), unready("web-0", "Pending", json!({}))]),
            "notReady: pod/web-0 is not ready: the kubelet of node/node-0 has not reported on it yet.",
            &[],
        ),
        (
            "succeeded",
            "pods web-0",
            cluster([node("node-0"), unready("web-0", "Succeeded", json!({}))]),
            "none",
            &[],
        ),
        ("ready", "pods web-0", cluster([node("node-0"), pod("web-0")]), "none", &[]),
    ]);
}

#[test]
fn nodes_and_their_pods() {
    let silent = {
        let mut node = node("node-0");
        node["metadata"]["annotations"] = json!({"sim.coracle.dev/silent": "true"});
        node["status"]["conditions"] = json!([condition(
            "Ready",
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status."
        )]);
        node
    };
    let cordoned = {
        let mut node = node("node-0");
        node["spec"]["unschedulable"] = json!(true);
        node
    };
    let pressed = {
        let mut node = node("node-0");
        node["status"]["conditions"].as_array_mut().unwrap().push(condition(
            "DiskPressure",
            "True",
            "KubeletHasDiskPressure",
            "",
        ));
        node
    };
    check(vec![
        (
            "a node that is silent",
            "nodes node-0",
            cluster([silent.clone()]),
            "notReady: node/node-0 is not ready: its condition Ready is Unknown since 10:00:00Z (5 minutes \
             ago): NodeStatusUnknown: Kubelet stopped posting node status. Its annotation \
             sim.coracle.dev/silent keeps its kubelet from reporting: remove it.",
            &["remedy: kubectl annotate nodes node-0 sim.coracle.dev/silent-"],
        ),
        (
            "a pod on it",
            "pods web-0",
            cluster([silent, unready("web-0", "Running", json!({}))]),
            "notReady: pod/web-0 is not ready because its node node/node-0 is not ready: its condition \
             Ready is Unknown since 10:00:00Z (5 minutes ago): NodeStatusUnknown: Kubelet stopped posting \
             node status. It is ready again when the node is.",
            &["spec.nodeName: node-0", "node/node-0: node/node-0 is not ready"],
        ),
        (
            "a pod without its node",
            "pods web-0",
            cluster([unready("web-0", "Running", json!({}))]),
            "notReady: pod/web-0 is not ready because its node node/node-0 does not exist: no kubelet runs \
             it. The pod garbage collector deletes it, or: kubectl delete pods web-0 -n shop",
            &[],
        ),
        (
            "a cordoned node",
            "nodes node-0",
            cluster([cordoned]),
            "notReady: node/node-0 is ready, and takes no new pods because it is cordoned \
             (spec.unschedulable). To change that: kubectl uncordon node-0",
            &["spec.unschedulable: true; remedy: kubectl uncordon node-0"],
        ),
        (
            "a node under pressure",
            "nodes node-0",
            cluster([pressed]),
            "notReady: node/node-0 is ready, and takes few new pods: its condition DiskPressure is True \
             since 10:00:00Z (5 minutes ago): KubeletHasDiskPressure.",
            &[],
        ),
        ("a node", "nodes node-0", cluster([node("node-0")]), "none", &[]),
    ]);
}
