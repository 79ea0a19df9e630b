//! A cluster in memory.

use serde_json::{Value, json};

use crate::{Objects, Refusal, Resource, Version, Writer};

/// Kind, apiVersion, resource, and whether it is namespaced.
const KINDS: [(&str, &str, &str, bool); 32] = [
    ("Pod", "v1", "pods", true),
    ("PersistentVolumeClaim", "v1", "persistentvolumeclaims", true),
    ("PersistentVolume", "v1", "persistentvolumes", false),
    ("StorageClass", "storage.k8s.io/v1", "storageclasses.storage.k8s.io", false),
    ("VolumeAttachment", "storage.k8s.io/v1", "volumeattachments.storage.k8s.io", false),
    ("VolumeAttributesClass", "storage.k8s.io/v1", "volumeattributesclasses.storage.k8s.io", false),
    ("Namespace", "v1", "namespaces", false),
    ("Node", "v1", "nodes", false),
    ("Service", "v1", "services", true),
    ("ConfigMap", "v1", "configmaps", true),
    ("Event", "v1", "events", true),
    ("ResourceQuota", "v1", "resourcequotas", true),
    ("ReplicationController", "v1", "replicationcontrollers", true),
    ("StatefulSet", "apps/v1", "statefulsets.apps", true),
    ("Deployment", "apps/v1", "deployments.apps", true),
    ("ReplicaSet", "apps/v1", "replicasets.apps", true),
    ("DaemonSet", "apps/v1", "daemonsets.apps", true),
    ("Job", "batch/v1", "jobs.batch", true),
    ("CronJob", "batch/v1", "cronjobs.batch", true),
    ("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets.policy", true),
    ("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers.autoscaling", true),
    ("Ingress", "networking.k8s.io/v1", "ingresses.networking.k8s.io", true),
    ("IngressClass", "networking.k8s.io/v1", "ingressclasses.networking.k8s.io", false),
    ("ServiceCIDR", "networking.k8s.io/v1", "servicecidrs.networking.k8s.io", false),
    ("IPAddress", "networking.k8s.io/v1", "ipaddresses.networking.k8s.io", false),
    ("ResourceClaim", "resource.k8s.io/v1", "resourceclaims.resource.k8s.io", true),
    (
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions.apiextensions.k8s.io",
        false,
    ),
    ("APIService", "apiregistration.k8s.io/v1", "apiservices.apiregistration.k8s.io", false),
    (
        "CertificateSigningRequest",
        "certificates.k8s.io/v1",
        "certificatesigningrequests.certificates.k8s.io",
        false,
    ),
    (
        "ValidatingWebhookConfiguration",
        "admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        false,
    ),
    ("Widget", "example.com/v1", "widgets.example.com", true),
    ("Gadget", "example.com/v1", "gadgets.example.com", false),
];

pub fn is_namespaced(resource: &str) -> bool {
    KINDS.iter().any(|(_, _, other, namespaced)| *other == resource && *namespaced)
}

fn resource_of(kind: &str) -> &'static str {
    KINDS.iter().find(|(other, _, _, _)| *other == kind).unwrap_or_else(|| panic!("{kind}")).2
}

/// A key: resource, namespace and name.
pub type Key = (String, String, String);

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (
        resource_of(object["kind"].as_str().unwrap()).to_owned(),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    )
}

/// A cluster in memory.
#[derive(Clone, Default)]
pub struct Fake {
    objects: Vec<(Key, Value)>,
    past: Vec<(Key, Version)>,
    refusals: Vec<(Key, Refusal)>,
}

/// Creates a cluster with objects.
pub fn cluster(objects: impl IntoIterator<Item = Value>) -> Fake {
    Fake { objects: objects.into_iter().map(|object| (key(&object), object)).collect(), ..Fake::default() }
}

impl Fake {
    /// Adds a version of an object's past; older ones are added later.
    pub fn version(self, time: &str, writer: Writer, object: Value) -> Fake {
        self.add(time, writer, object, false)
    }

    /// Adds the deletion of an object.
    pub fn deleted(self, time: &str, writer: Writer, object: Value) -> Fake {
        self.add(time, writer, object, true)
    }

    fn add(mut self, time: &str, writer: Writer, object: Value, is_deletion: bool) -> Fake {
        let revision = 1000 - u64::try_from(self.past.len()).unwrap();
        let time = Some(format!("2026-11-27T{time}Z"));
        self.past.push((key(&object), Version { revision, time, writer: Some(writer), object, is_deletion }));
        self
    }

    /// Forgets who wrote, and when.
    pub fn without_writers(mut self) -> Fake {
        for (_, version) in &mut self.past {
            (version.writer, version.time) = (None, None);
        }
        self
    }

    /// Returns the keys of all objects, also of those in the past.
    pub fn keys(&self) -> Vec<Key> {
        let past = self.past.iter().map(|(key, _)| key.clone());
        self.objects.iter().map(|(key, _)| key.clone()).chain(past).collect()
    }

    /// Changes an object and keeps its key.
    pub fn change(&mut self, index: usize, change: impl FnOnce(&mut Value)) {
        change(&mut self.objects[index].1);
    }

    /// Deletes an object, of which the past knows two versions.
    pub fn move_to_past(&mut self, index: usize) {
        let (key, object) = self.objects.remove(index);
        for (is_deletion, revision) in [(true, 2), (false, 1)] {
            let (time, writer) = (Some("2026-11-27T10:04:00Z".to_owned()), Some(manager()));
            self.past
                .push((key.clone(), Version { revision, time, writer, object: object.clone(), is_deletion }));
        }
    }

    /// Changes the time of all versions.
    pub fn set_time(&mut self, time: &str) {
        self.past.iter_mut().for_each(|(_, version)| version.time = Some(time.to_owned()));
    }

    /// Adds a request that was refused, about an object of a resource in the namespace `shop`.
    pub fn refused(mut self, object: &str, verb: &str, code: u16, reason: &str, message: &str) -> Fake {
        let (resource, name) = object.split_once(' ').unwrap();
        let namespace = if is_namespaced(resource) { "shop" } else { "" };
        let writer = Writer { verb: verb.to_owned(), ..alice() };
        let [reason, message] = [reason, message].map(str::to_owned);
        let time = "2026-11-27T10:04:00Z".to_owned();
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        let before =
            self.past.iter().filter(|(_, version)| version.time.as_ref().is_none_or(|at| *at <= time));
        let revision = before.map(|(_, version)| version.revision).max().unwrap_or_default();
        self.refusals.push((key, Refusal { time, revision, writer, code, reason, message }));
        self
    }
}

pub fn writer(user: &str, user_agent: &str, verb: &str) -> Writer {
    let [user, user_agent, verb] = [user, user_agent, verb].map(str::to_owned);
    Writer { user, user_agent, verb }
}

pub fn alice() -> Writer {
    writer("alice", "kubectl/v1.36.0 (linux/amd64)", "delete")
}

/// Returns the controller manager, which does not identify the controller.
pub fn manager() -> Writer {
    writer("system:kube-controller-manager", "kube-controller-manager/v1.36 coracle/0.1.0", "delete")
}

/// Returns the garbage collector of a controller manager with service accounts.
pub fn collector() -> Writer {
    writer(
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "kube-controller-manager/v1.36",
        "delete",
    )
}

/// Builds an object of a kind with the uid `uid-NAME`; namespaced ones are in `shop`.
pub fn object(kind: &str, name: &str, members: Value) -> Value {
    let (_, version, resource, _) = KINDS.iter().find(|(other, _, _, _)| *other == kind).unwrap();
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": format!("uid-{name}")}});
    if is_namespaced(resource) {
        object["metadata"]["namespace"] = json!("shop");
    }
    for (member, value) in members.as_object().unwrap() {
        match member.as_str() {
            "metadata" => {
                object["metadata"].as_object_mut().unwrap().extend(value.as_object().unwrap().clone())
            }
            _ => object[member] = value.clone(),
        }
    }
    object
}

/// Returns the object with its deletion requested two minutes ago.
pub fn terminating(mut object: Value, finalizers: &[&str]) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-11-27T10:03:00Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    object["metadata"]["finalizers"] = json!(finalizers);
    object
}

/// Returns the object with a controller.
pub fn owned(mut object: Value, owner: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

pub fn event(of: &Value, reason: &str, message: &str) -> Value {
    let (_, namespace, name) = key(of);
    let involved =
        json!({"kind": of["kind"], "name": name, "namespace": namespace, "uid": of["metadata"]["uid"]});
    let mut event = object(
        "Event",
        &format!("{name}.{reason}"),
        json!({"involvedObject": involved, "reason": reason, "message": message, "lastTimestamp": "2026-11-27T10:04:00Z"}),
    );
    if namespace.is_empty() {
        event["metadata"]["namespace"] = json!("default");
    }
    event
}

pub fn condition(name: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-27T10:00:00Z"})
}

/// Builds a pod that runs on `node-0` and is ready.
pub fn pod(name: &str) -> Value {
    object(
        "Pod",
        name,
        json!({"spec": {"nodeName": "node-0"}, "status": {"phase": "Running", "conditions": [condition("Ready", "True", "", "")]}}),
    )
}

/// Builds a pod of a phase on `node-0`, with other members of its status.
pub fn unready(name: &str, phase: &str, status: Value) -> Value {
    let mut pod = pod(name);
    pod["status"] = status;
    pod["status"]["phase"] = json!(phase);
    pod
}

/// Builds a pod with a container that crashes repeatedly.
pub fn crashing(name: &str) -> Value {
    unready(
        name,
        "Running",
        json!({"containerStatuses": [{"name": "app", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}]}),
    )
}

/// Builds a pod without a node.
pub fn pending(name: &str, message: &str) -> Value {
    let conditions = json!([condition("PodScheduled", "False", "Unschedulable", message)]);
    object("Pod", name, json!({"spec": {}, "status": {"phase": "Pending", "conditions": conditions}}))
}

/// Returns the pod with volumes of claims.
pub fn using(mut pod: Value, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    pod["spec"]["volumes"] = json!(volumes);
    pod
}

pub fn node(name: &str) -> Value {
    object(
        "Node",
        name,
        json!({"spec": {}, "status": {"conditions": [condition("Ready", "True", "KubeletReady", "")]}}),
    )
}

/// Builds a claim of the class `standard`.
pub fn claim(name: &str, phase: &str) -> Value {
    object(
        "PersistentVolumeClaim",
        name,
        json!({
            "spec": {"storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": phase},
        }),
    )
}

pub fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    object("StorageClass", name, json!({"provisioner": provisioner, "volumeBindingMode": mode}))
}

/// Builds a volume with the claim `data`.
pub fn volume(name: &str, phase: &str, policy: &str) -> Value {
    object(
        "PersistentVolume",
        name,
        json!({
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "shop", "name": "data", "uid": "uid-data"}},
            "status": {"phase": phase},
        }),
    )
}

/// Builds a StatefulSet with claims `data-NAME-ORDINAL`.
pub fn stateful_set(name: &str, replicas: i64, status: Value) -> Value {
    object(
        "StatefulSet",
        name,
        json!({
            "spec": {"replicas": replicas, "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
                "updateStrategy": {"type": "RollingUpdate"}},
            "status": status,
        }),
    )
}

impl Objects for Fake {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self
            .objects
            .iter()
            .find(|((r, s, n), _)| (r.as_str(), s.as_str(), n.as_str()) == (resource, namespace, name));
        found.map(|(_, object)| object.clone())
    }

    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        let is_meant = |key: &Key| key.0 == resource && namespace.is_none_or(|namespace| key.1 == namespace);
        self.objects.iter().filter(|(key, _)| is_meant(key)).map(|(_, object)| object.clone()).collect()
    }

    fn resources(&self) -> Vec<Resource> {
        let resource = |(kind, version, name, namespaced): &(&str, &str, &str, bool)| Resource {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            api_version: (*version).to_owned(),
            namespaced: *namespaced,
            is_custom: name.ends_with(".example.com"),
        };
        KINDS.iter().map(resource).collect()
    }

    fn past(&self, resource: &str, namespace: &str, name: &str) -> Vec<Version> {
        let is_meant = |(r, s, n): &Key| (r.as_str(), s.as_str(), n.as_str()) == (resource, namespace, name);
        self.past.iter().filter(|(key, _)| is_meant(key)).map(|(_, version)| version.clone()).collect()
    }

    fn refusals(&self, resource: &str, namespace: &str, name: &str) -> Vec<Refusal> {
        let is_meant = |(r, s, n): &Key| (r.as_str(), s.as_str(), n.as_str()) == (resource, namespace, name);
        self.refusals.iter().filter(|(key, _)| is_meant(key)).map(|(_, refusal)| refusal.clone()).collect()
    }
}
