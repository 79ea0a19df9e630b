//! Objects that are still there: finalizers and grace periods.

use serde_json::json;

use super::check;
use super::fake::{alice, cluster, condition, node, object, owned, pod, terminating, unready, writer};

#[test]
fn finalizers_and_what_their_controllers_wait_for() {
    let hold = json!([{"manager": "my-operator", "operation": "Update", "time": "2026-11-27T10:02:00Z",
        "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, "v:\"example.com/hold\"": {}}}}}]);
    let held = |finalizers: &[&str]| {
        let mut held = terminating(object("Widget", "w", json!({})), finalizers);
        held["metadata"]["managedFields"] = hold.clone();
        held
    };
    let deployment = object("Deployment", "web", json!({}));
    let namespace = |status: serde_json::Value| {
        let mut namespace = terminating(object("Namespace", "shop", json!({})), &[]);
        namespace["spec"] = json!({"finalizers": ["kubernetes"]});
        namespace["status"] = status;
        namespace
    };
    let definition = object(
        "CustomResourceDefinition",
        "widgets.example.com",
        json!({
            "spec": {"group": "example.com", "names": {"plural": "widgets", "kind": "Widget"}},
        }),
    );
    check(vec![
        (
            "an operator's finalizer",
            "widgets.example.com w",
            cluster([held(&["example.com/hold"])]),
            "present: widget.example.com/w was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizer example.com/hold is still set (by my-operator since \
             10:02:00Z). No controller of the control plane removes it. It goes when my-operator removes \
             it, or: kubectl patch widgets.example.com w -n shop --type=json -p \
             '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/0\",\"value\":\"example.com/hold\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}]'",
            &[
                "metadata.finalizers: example.com/hold; by my-operator; since 2026-11-27T10:02:00Z; my-operator: no controller",
            ],
        ),
        (
            "two finalizers of others",
            "widgets.example.com w",
            cluster([held(&["a.io/b", "example.com/hold"])]),
            "present: widget.example.com/w was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizers a.io/b and example.com/hold are still set. a.io/b: no \
             controller of the control plane removes it. It goes when the program that set it removes it, \
             or: kubectl patch widgets.example.com w -n shop --type=json -p \
             '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/0\",\"value\":\"a.io/b\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}]'; \
             example.com/hold: no controller of the control plane removes it. It goes when my-operator \
             removes it, or: kubectl patch widgets.example.com w -n shop --type=json -p \
             '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/1\",\"value\":\"example.com/hold\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/1\"}]'",
            &[
                "metadata.finalizers: a.io/b",
                "'[{\"op\":\"test\",\"path\":\"/metadata/finalizers/1\",\"value\":\"example.com/hold\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/1\"}]'",
            ],
        ),
        (
            "deleted by somebody known",
            "widgets.example.com w",
            cluster([held(&["example.com/hold"])])
                .version("10:04:00", writer("op", "my-operator", "update"), held(&["example.com/hold"]))
                .version("10:03:00", alice(), held(&["example.com/hold"]))
                .version("10:01:00", alice(), object("Widget", "w", json!({}))),
            "present: widget.example.com/w was marked for deletion at 10:03:00Z (2 minutes ago) by alice \
             with kubectl, and is still there because its finalizer example.com/hold is still set (by \
             my-operator since 10:02:00Z). No controller of the control plane removes it. It goes when \
             my-operator removes it, or: kubectl patch widgets.example.com w -n shop --type=json -p \
             '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/0\",\"value\":\"example.com/hold\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}]'",
            &[],
        ),
        (
            "a finalizer whose removal is refused",
            "widgets.example.com w",
            cluster([held(&["example.com/hold"])]).refused(
                "widgets.example.com w",
                "patch",
                403,
                "Forbidden",
                "admission webhook \"check.example.com\" denied the request: no",
            ),
            "present: widget.example.com/w was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizer example.com/hold is still set (by my-operator since \
             10:02:00Z). No controller of the control plane removes it. It goes when my-operator removes \
             it, or: kubectl patch widgets.example.com w -n shop --type=json -p \
             '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/0\",\"value\":\"example.com/hold\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}]'; The last request about widget.example.com/w was \
             refused: alice with kubectl tried to patch it at 10:04:00Z (60 seconds ago), and the \
             response was 403 Forbidden: admission webhook \"check.example.com\" denied the request: no \
             (an admission webhook refused it).",
            &["metadata.finalizers: example.com/hold", "403 Forbidden: admission webhook"],
        ),
        (
            "nothing holds it",
            "widgets.example.com w",
            cluster([terminating(object("Widget", "w", json!({})), &[])]),
            "present: widget.example.com/w was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there. Nothing is known to hold it: it should disappear at once.",
            &[],
        ),
        (
            "dependents that block the deletion of their owner",
            "deployments.apps web",
            cluster([
                terminating(deployment.clone(), &["foregroundDeletion"]),
                terminating(
                    owned(object("ReplicaSet", "web-1", json!({})), &deployment),
                    &["example.com/hold"],
                ),
                owned(object("ConfigMap", "web-settings", json!({})), &deployment),
            ]),
            "present: deployment/web was marked for deletion at 10:03:00Z (2 minutes ago), and is still \
             there because its finalizer foregroundDeletion is still set. The garbage collector removes it \
             once the dependents that block the deletion (ownerReferences with blockOwnerDeletion: true) \
             are deleted; left: 1 ConfigMap and 1 ReplicaSet.",
            &[
                "configmap/shop/web-settings: metadata.ownerReferences: blockOwnerDeletion=true",
                "replicaset.apps/shop/web-1: replicaset/web-1 was marked for deletion",
                "metadata.finalizers: example.com/hold",
            ],
        ),
        (
            "an object that owns itself",
            "configmaps self",
            {
                let own = object("ConfigMap", "self", json!({}));
                cluster([terminating(owned(own.clone(), &own), &["foregroundDeletion"])])
            },
            "present: configmap/self was marked for deletion at 10:03:00Z (2 minutes ago), and is still \
             there because its finalizer foregroundDeletion is still set. The garbage collector removes it \
             once the dependents that block the deletion (ownerReferences with blockOwnerDeletion: true) \
             are deleted; left: 1 ConfigMap. To change that: kubectl patch configmaps self -n shop \
             --type=merge -p '{\"metadata\":{\"ownerReferences\":null}}'",
            &["the object is its own owner"],
        ),
        (
            "an owner whose dependents are orphaned",
            "deployments.apps web",
            cluster([
                terminating(deployment.clone(), &["orphan"]),
                owned(object("ReplicaSet", "web-1", json!({})), &deployment),
            ]),
            "present: deployment/web was marked for deletion at 10:03:00Z (2 minutes ago), and is still \
             there because its finalizer orphan is still set. The garbage collector removes it after it has \
             removed the references of the dependents to their owner, which stay; 1 dependent still has \
             one.",
            &["replicaset.apps/shop/web-1: metadata.ownerReferences"],
        ),
        (
            "a pod that its Job has to count",
            "pods count-1",
            {
                let job = object("Job", "count", json!({"spec": {}}));
                let pod = owned(unready("count-1", "Succeeded", json!({})), &job);
                cluster([job, terminating(pod, &["batch.kubernetes.io/job-tracking"])])
            },
            "present: pod/count-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is still there \
             because its finalizer batch.kubernetes.io/job-tracking is still set. The job controller \
             removes it once the pod has ended and is counted in the status of job/count.",
            &[],
        ),
        (
            "a pod of a Job that another controller manages",
            "pods count-1",
            {
                let job = object("Job", "count", json!({"spec": {"managedBy": "example.com/jobs"}}));
                let pod = owned(unready("count-1", "Succeeded", json!({})), &job);
                cluster([job, terminating(pod, &["batch.kubernetes.io/job-tracking"])])
            },
            "present: pod/count-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is still there \
             because its finalizer batch.kubernetes.io/job-tracking is still set. The job controller \
             removes it only for Jobs of its own, and job/count is managed by example.com/jobs, which has \
             to remove it.",
            &[],
        ),
        (
            "a namespace with objects",
            "namespaces shop",
            cluster([
                namespace(json!({})),
                terminating(object("ConfigMap", "a", json!({})), &["example.com/hold"]),
                object("ConfigMap", "b", json!({})),
                pod("web-0"),
            ]),
            "present: namespace/shop was marked for deletion at 10:03:00Z (2 minutes ago), and is still \
             there because its finalizer kubernetes is still set. The namespace controller removes it once \
             the namespace is empty; left: 1 Pod, 2 ConfigMaps, with the finalizers example.com/hold on 1 \
             object.",
            &[
                "pod/shop/web-0: its deletion by the namespace controller",
                "configmap/shop/a: configmap/a was marked for deletion",
                "configmap/shop/b",
            ],
        ),
        (
            "a namespace whose content cannot be discovered",
            "namespaces shop",
            cluster([namespace(json!({"conditions": [
                condition("NamespaceDeletionDiscoveryFailure", "True", "DiscoveryFailed", "metrics.k8s.io/v1beta1: stale"),
                condition("NamespaceContentRemaining", "False", "ContentRemoved", ""),
            ]}))]),
            "present: namespace/shop was marked for deletion at 10:03:00Z (2 minutes ago), and is still \
             there because its finalizer kubernetes is still set. The namespace controller removes it once \
             the namespace is empty; nothing is left in it; its condition NamespaceDeletionDiscoveryFailure \
             is True since 10:00:00Z (5 minutes ago): DiscoveryFailed: metrics.k8s.io/v1beta1: stale. To \
             change that: repair or delete the APIService that is not available: kubectl get apiservices",
            &["status.conditions: NamespaceDeletionDiscoveryFailure=True"],
        ),
        (
            "a definition with objects",
            "customresourcedefinitions.apiextensions.k8s.io widgets.example.com",
            cluster([
                terminating(definition, &["customresourcecleanup.apiextensions.k8s.io"]),
                held(&["example.com/hold"]),
            ]),
            "present: customresourcedefinition/widgets.example.com was marked for deletion at 10:03:00Z (2 \
             minutes ago), and is still there because its finalizer \
             customresourcecleanup.apiextensions.k8s.io is still set. The API server removes it once it has \
             deleted all objects of this kind; left: 1 Widget.",
            &["widget.example.com/shop/w: widget.example.com/w was marked for deletion", "by my-operator"],
        ),
        (
            "a Service of a cloud",
            "services web",
            cluster([terminating(
                object("Service", "web", json!({})),
                &["service.kubernetes.io/load-balancer-cleanup"],
            )]),
            "present: service/web was marked for deletion at 10:03:00Z (2 minutes ago), and is still there \
             because its finalizer service.kubernetes.io/load-balancer-cleanup is still set. The service \
             controller of a cloud provider removes it after it has deleted the load balancer; without a \
             cloud provider nobody does. To change that: kubectl patch services web -n shop --type=json -p \
             '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/0\",\"value\":\"service.kubernetes.io/load-balancer-cleanup\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}]'",
            &[],
        ),
        (
            "a range of addresses in use",
            "servicecidrs.networking.k8s.io extra",
            cluster([
                terminating(
                    object("ServiceCIDR", "extra", json!({"spec": {"cidrs": ["10.9.0.0/24"]}})),
                    &["networking.k8s.io/service-cidr-finalizer"],
                ),
                object("IPAddress", "10.9.0.7", json!({})),
            ]),
            "present: servicecidr/extra was marked for deletion at 10:03:00Z (2 minutes ago), and is still \
             there because its finalizer networking.k8s.io/service-cidr-finalizer is still set. The \
             service-cidr-controller removes it once no Service needs an address of its range 10.9.0.0/24 \
             that no other ServiceCIDR has; allocated addresses: 1.",
            &[],
        ),
    ]);
}

#[test]
fn pods_in_their_grace_period() {
    let graceful = |until: &str, grace: i64| {
        let mut pod = pod("web-0");
        pod["metadata"]["deletionTimestamp"] = json!(format!("2026-11-27T{until}Z"));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        pod
    };
    let silent = {
        let mut node = node("node-0");
        node["status"]["conditions"] = json!([condition(
            "Ready",
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status."
        )]);
        node
    };
    check(vec![
        (
            "within",
            "pods web-0",
            cluster([node("node-0"), graceful("10:05:20", 30)]),
            "present: pod/web-0 was marked for deletion at 10:04:50Z (10 seconds ago), and is still there \
             because its containers have 30 seconds to stop, until 10:05:20Z (in 20 seconds). It is deleted \
             when they have stopped, in 20 seconds at the latest.",
            &["metadata.deletionGracePeriodSeconds: 30"],
        ),
        (
            "over",
            "pods web-0",
            cluster([node("node-0"), graceful("10:04:30", 30)]),
            "present: pod/web-0 was marked for deletion at 10:04:00Z (60 seconds ago), and is still there \
             because its grace period ended at 10:04:30Z (30 seconds ago), and the kubelet of node/node-0 \
             has not yet confirmed that its containers ended. If that lasts: kubectl delete pods web-0 -n \
             shop --grace-period=0 --force",
            &["--grace-period=0 --force"],
        ),
        (
            "the node is gone",
            "pods web-0",
            cluster([graceful("10:04:30", 30)]),
            "present: pod/web-0 was marked for deletion at 10:04:00Z (60 seconds ago), and is still there \
             because node/node-0, on which it ran, no longer exists, so that no kubelet confirms that its \
             containers ended. The pod garbage collector deletes it within a minute, or: kubectl delete \
             pods web-0 -n shop --grace-period=0 --force",
            &["--grace-period=0 --force"],
        ),
        (
            "the node is not ready",
            "pods web-0",
            cluster([silent, graceful("10:04:30", 30)]),
            "present: pod/web-0 was marked for deletion at 10:04:00Z (60 seconds ago), and is still there \
             because the kubelet of node/node-0 does not confirm that its containers ended: the node's \
             condition Ready is Unknown since 10:00:00Z (5 minutes ago). It is deleted once the node \
             reports again, or: kubectl delete pods web-0 -n shop --grace-period=0 --force",
            &["Ready is Unknown"],
        ),
        (
            "with a finalizer",
            "pods web-0",
            {
                let mut pod = graceful("10:05:20", 30);
                pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
                cluster([node("node-0"), pod])
            },
            "present: pod/web-0 was marked for deletion at 10:04:50Z (10 seconds ago), and is still there \
             because its containers have 30 seconds to stop, until 10:05:20Z (in 20 seconds), and its \
             finalizer example.com/hold is still set. It is deleted when they have stopped, in 20 seconds \
             at the latest. No controller of the control plane removes it. It goes when the program that \
             set it removes it, or: kubectl patch pods web-0 -n shop --type=json -p \
             '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/0\",\"value\":\"example.com/hold\"},{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}]'",
            &["deletionGracePeriodSeconds", "metadata.finalizers: example.com/hold"],
        ),
    ]);
}

#[test]
fn one_finalizer_of_a_namespace_is_removed_and_the_others_stay() {
    assert_eq!(
        crate::kubectl::finalize("shop", "example.com/hold"),
        "kubectl get namespace shop -o json | jq '.spec.finalizers -= [\"example.com/hold\"]' | kubectl replace --raw \
         /api/v1/namespaces/shop/finalize -f -"
    );
}
