//! Bounds: of causes, depth, visited objects and texts; and objects of any shape.

use std::cell::Cell;

use serde_json::{Value, json};

use super::fake::{
    self, claim, cluster, condition, event, node, object, owned, pending, pod, stateful_set, terminating,
    using, volume,
};
use super::{NOW, explained};
use crate::explanation::{MAX_CAUSES, MAX_MEMBER, MAX_SENTENCE};
use crate::{Answer, Cause, Explanation, Objects, Refusal, Resource, Version, explain, tree};

fn only_answer(explanation: Explanation) -> Answer {
    explanation.answers.into_iter().next().unwrap()
}

#[test]
fn causes_beyond_the_limit_are_counted() {
    let finalizers: Vec<String> = (0..30).map(|number| format!("example.com/hold-{number}")).collect();
    let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    let cluster = cluster([terminating(object("Widget", "w", json!({})), &finalizers)]);
    let answer = only_answer(explained(&cluster, "widgets.example.com w").unwrap());
    assert_eq!(answer.causes.len(), MAX_CAUSES + 1);
    assert_eq!(answer.causes.last().unwrap(), &Cause::default().waits_for("and 10 more"));
    assert!(
        answer.sentence.contains("hold-0, example.com/hold-1, example.com/hold-2 and 27 more"),
        "{}",
        answer.sentence
    );
}

/// Builds widgets of which each owns the next, all of them in foreground deletion.
fn chain(length: usize) -> Vec<Value> {
    let mut widgets: Vec<Value> = Vec::new();
    for number in 0..length {
        let widget = object("Widget", &format!("w-{number}"), json!({}));
        let widget = widgets.last().map_or(widget.clone(), |owner| owned(widget, owner));
        widgets.push(terminating(widget, &["foregroundDeletion"]));
    }
    widgets
}

#[test]
fn causes_of_causes_are_followed_to_a_depth() {
    let answer = only_answer(explained(&cluster(chain(10)), "widgets.example.com w-0").unwrap());
    let about = |number: usize| {
        answer.causes.iter().any(|cause| cause.object == format!("widget.example.com/shop/w-{number}"))
    };
    // The last one that is named is not explained any more.
    assert_eq!((0..10).filter(|number| about(*number)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn circles_end() {
    let widgets = chain(2);
    let [first, second] = widgets.as_slice() else { panic!() };
    let circle = cluster([owned(first.clone(), second), second.clone()]);
    let answer = only_answer(explained(&circle, "widgets.example.com w-0").unwrap());
    assert_eq!(
        answer.causes.iter().filter(|cause| cause.waits_for.contains("was marked for deletion")).count(),
        1
    );
    let waiting = cluster([
        using(pending("web-0", "0/1 nodes are available: 1 waits."), &["data"]),
        claim("data", "Pending"),
        fake::class("standard", "coracle.csi", "WaitForFirstConsumer"),
    ]);
    for object in ["pods web-0", "persistentvolumeclaims data"] {
        let answer = only_answer(explained(&waiting, object).unwrap());
        assert!((2..=4).contains(&answer.causes.len()), "{:?}", answer.causes);
    }
}

/// A cluster with long lists of objects without members.
struct Endless {
    lists: Cell<usize>,
}

impl Objects for Endless {
    fn get(&self, _: &str, _: &str, name: &str) -> Option<Value> {
        Some(terminating(
            object("Widget", name, json!({})),
            &["foregroundDeletion", "orphan", "kubernetes.io/pvc-protection"],
        ))
    }

    fn list(&self, _: &str, _: Option<&str>) -> Vec<Value> {
        self.lists.set(self.lists.get() + 1);
        vec![Value::Null; 150_000]
    }

    fn resources(&self) -> Vec<Resource> {
        cluster([]).resources()
    }

    fn past(&self, _: &str, _: &str, _: &str) -> Vec<Version> {
        let version =
            Version { revision: 1, time: None, writer: None, object: json!({}), is_deletion: false };
        vec![version; 5000]
    }

    fn refusals(&self, _: &str, _: &str, _: &str) -> Vec<Refusal> {
        Vec::new()
    }
}

#[test]
fn objects_are_visited_to_a_limit() {
    let endless = Endless { lists: Cell::new(0) };
    assert!(explain(&endless, "widgets.example.com", "shop", "w", NOW.parse().unwrap()).is_some());
    assert_eq!(endless.lists.replace(0), 2);
    assert!(tree(&endless, "widgets.example.com", "shop", "w").is_some());
    assert_eq!(endless.lists.get(), 2);
}

fn assert_bounded(explanation: &Explanation) {
    let length = |text: &str| text.chars().count();
    for answer in &explanation.answers {
        assert!(length(&answer.sentence) <= MAX_SENTENCE + 3, "{}", answer.sentence);
        assert!(answer.causes.len() <= MAX_CAUSES + 1);
        for Cause { object, field, manager, since, waits_for, remedy } in &answer.causes {
            for member in [object, field, manager, since, waits_for, remedy] {
                assert!(length(member) <= MAX_MEMBER + 3, "{member}");
                assert!(!member.contains('\n'), "{member:?}");
            }
        }
    }
}

#[test]
fn texts_of_objects_are_cut_between_characters() {
    let long = "\u{1f980}\n\u{1b}[31m".repeat(100_000);
    let mut hostile =
        object("Widget", "w", json!({"status": {"conditions": [condition("Ready", "False", &long, &long)]}}));
    hostile["status"]["conditions"][0]["lastTransitionTime"] = json!(long);
    let explanation = explained(&cluster([hostile]), "widgets.example.com w").unwrap();
    assert_bounded(&explanation);
    assert!(only_answer(explanation).sentence.contains("\u{1f980} [31m"));
    let terminating = terminating(object("Widget", "w", json!({})), &[&long]);
    assert_bounded(&explained(&cluster([terminating]), "widgets.example.com w").unwrap());
    let name = object("Pod", &long, json!({}));
    assert_bounded(&explained(&cluster([name.clone()]), &format!("pods {long}")).unwrap());
    assert!(tree(&cluster([name]), "pods", "shop", &long).unwrap().root.object.len() < 3000);
}

/// A generator of numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn value(&mut self) -> Value {
        let values = [
            json!(null),
            json!(true),
            json!(0),
            json!(-1),
            json!(i64::MAX),
            json!(i64::MIN),
            json!(u64::MAX),
            json!(1e300),
            json!(""),
            json!("\u{e9}\u{1f980}"),
            json!("2026-11-27T10:00:00Z"),
            json!("9999-12-31T23:59:59Z"),
            json!("web-9223372036854775807"),
            json!([]),
            json!({}),
            json!([null, 1, "a", {}]),
            json!({"": null}),
            json!("Failed"),
            json!("Delete"),
            json!("data"),
            json!(["kubernetes.io/pvc-protection", "foregroundDeletion", 7, "kubernetes.io/pv-controller"]),
        ];
        values[self.below(values.len())].clone()
    }

    /// Replaces, removes or adds a member somewhere in a value.
    fn mutate(&mut self, value: &mut Value) {
        let stops = self.below(4) == 0;
        match value {
            Value::Object(members) if !members.is_empty() && !stops => {
                let index = self.below(members.len());
                if self.below(12) == 0 {
                    let member = members.keys().nth(index).unwrap().clone();
                    members.remove(&member);
                } else {
                    self.mutate(members.values_mut().nth(index).unwrap());
                }
            }
            Value::Array(elements) if !elements.is_empty() && !stops => {
                let index = self.below(elements.len());
                self.mutate(&mut elements[index]);
            }
            _ => *value = self.value(),
        }
    }
}

/// Builds objects of all kinds with rules, and with the members that rules read.
fn rich() -> Vec<Value> {
    let conditions = json!(
        [
            "Ready",
            "Available",
            "Progressing",
            "ReplicaFailure",
            "Failed",
            "PodScheduled",
            "DisruptionTarget",
            "Established",
            "NamesAccepted",
            "ScalingActive"
        ]
        .map(|name| condition(name, "False", "Because", "a message"))
    );
    let status = json!({
        "phase": "Pending", "conditions": conditions, "observedGeneration": 1, "replicas": 1, "readyReplicas": 1,
        "currentRevision": "a", "updateRevision": "b", "hard": {"pods": "1"}, "used": {"pods": "1"},
        "reservedFor": [{"name": "web-0"}], "active": [{"name": "count"}], "lastScheduleTime": "2026-11-27T10:00:00Z",
        "disruptionsAllowed": 0, "expectedPods": 1, "desiredNumberScheduled": 2, "loadBalancer": {},
        "containerStatuses": [{"name": "app", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}],
    });
    let spec = json!({
        "replicas": 2, "ordinals": {"start": 1}, "nodeName": "node-0", "volumeName": "pv-1", "storageClassName": "standard",
        "claimRef": {"namespace": "shop", "name": "data"}, "persistentVolumeReclaimPolicy": "Delete", "selector": {"app": "web"},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}}],
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}], "suspend": false, "finalizers": ["kubernetes"],
        "readinessGates": [{"conditionType": "x"}], "schedulingGates": [], "ports": [{"targetPort": "http"}],
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"}, "service": {"namespace": "shop", "name": "web"},
        "template": {"spec": {"tolerations": [{"key": "a"}]}}, "taints": [{"key": "a", "effect": "NoSchedule"}],
    });
    let metadata = json!({
        "generation": 2, "labels": {"app": "web", "controller-revision-hash": "a"},
        "annotations": {"deployment.kubernetes.io/revision": "1", "sim.coracle.dev/silent": "true"},
        "managedFields": [{"manager": "m", "time": "2026-11-27T10:00:00Z", "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"example.com/hold\"": {}}}}}],
    });
    let members = json!({"metadata": metadata, "spec": spec, "status": status, "webhooks": [{"name": "w", "clientConfig": {"service": {"namespace": "shop", "name": "web"}}}]});
    let owner = stateful_set("web", 2, json!({}));
    let kinds = [
        ("Pod", "web-0"),
        ("PersistentVolumeClaim", "data"),
        ("PersistentVolumeClaim", "data-web-1"),
        ("PersistentVolume", "pv-1"),
        ("Namespace", "shop"),
        ("Node", "node-0"),
        ("Service", "web"),
        ("ResourceQuota", "small"),
        ("StatefulSet", "web"),
        ("Deployment", "web"),
        ("ReplicaSet", "web-1"),
        ("DaemonSet", "agent"),
        ("Job", "count"),
        ("CronJob", "nightly"),
        ("PodDisruptionBudget", "web"),
        ("HorizontalPodAutoscaler", "web"),
        ("Ingress", "web"),
        ("ResourceClaim", "gpu"),
        ("CustomResourceDefinition", "widgets.example.com"),
        ("APIService", "v1.x"),
        ("CertificateSigningRequest", "csr"),
        ("ValidatingWebhookConfiguration", "check"),
        ("Widget", "w"),
        ("VolumeAttachment", "a"),
        ("ServiceCIDR", "c"),
    ];
    let mut objects: Vec<Value> = Vec::new();
    for (kind, name) in kinds {
        let object = object(kind, name, members.clone());
        let object = if objects.len().is_multiple_of(2) { object } else { owned(object, &owner) };
        let finalizers = [
            "foregroundDeletion",
            "kubernetes.io/pvc-protection",
            "kubernetes.io/pv-protection",
            "external-provisioner.volume.kubernetes.io/finalizer",
            "example.com/hold",
        ];
        let is_terminating = objects.len().is_multiple_of(3);
        objects.push(if is_terminating { terminating(object, &finalizers) } else { object });
    }
    let events = ["FailedCreate", "ProvisioningFailed", "VolumeFailedDelete", "Unhealthy", "FailedMount"];
    let events: Vec<Value> = objects
        .iter()
        .zip(events.iter().cycle())
        .map(|(object, reason)| event(object, reason, "exceeded quota: small, x"))
        .collect();
    objects.extend(events);
    objects.extend([node("node-1"), pod("web-1"), volume("pv-2", "Released", "Delete")]);
    objects
}

#[test]
fn objects_of_any_shape_are_explained_without_a_panic() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let objects = rich();
    for _ in 0..200 {
        // The keys stay, so that the objects are found.
        let mut mutated = cluster(objects.clone());
        for _ in 0..=random.below(40) {
            mutated.change(random.below(objects.len()), |object| random.mutate(object));
        }
        if random.below(3) == 0 {
            mutated.move_to_past(random.below(objects.len()));
        }
        for (resource, namespace, name) in mutated.keys() {
            if let Some(explanation) = explain(&mutated, &resource, &namespace, &name, NOW.parse().unwrap()) {
                assert_bounded(&explanation);
                let _ = explanation.to_string();
            }
        }
        let (resource, namespace, name) = mutated.keys()[random.below(objects.len())].clone();
        if let Some(tree) = tree(&mutated, &resource, &namespace, &name) {
            let _ = tree.to_string();
        }
    }
}
