//! The picture of all objects at one moment: a node for each, with its state and its edges.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use coracle_why::{Finding, Objects, Resource, State, Survey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::relations::{Edge, Places, edges};

/// The nodes of a picture.
pub const MAX_NODES: usize = 5000;
/// The characters of a text of a node.
const MAX_TEXT: usize = 300;
/// The owners, the finalizers and the blocking objects of a node.
const MAX_ITEMS: usize = 20;

/// The resources whose objects are not nodes: there are many of them, they change all the time, and
/// show nothing that
/// others do not.
const LEFT_OUT: [&str; 6] = [
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "endpointslices.discovery.k8s.io",
    "endpoints",
    "componentstatuses",
];
/// The resources whose objects are of the control plane rather than of its users.
const BACKGROUND: [&str; 11] = [
    "apiservices.apiregistration.k8s.io",
    "controllerrevisions.apps",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "ipaddresses.networking.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "priorityclasses.scheduling.k8s.io",
    "runtimeclasses.node.k8s.io",
    "servicecidrs.networking.k8s.io",
    "storageclasses.storage.k8s.io",
];
/// The resources with the objects that come first in a picture, and stay if there are too many.
/// Custom resources follow, then all others.
const FOREMOST: [&str; 13] = [
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "cronjobs.batch",
    "jobs.batch",
    "replicasets.apps",
    "replicationcontrollers",
    "pods",
    "services",
    "persistentvolumeclaims",
    "persistentvolumes",
    "nodes",
    "namespaces",
];
/// Labels by which a controller finds its pods: a pod with one of them and without an owner was
/// orphaned or released.
const OWNED_LABELS: [&str; 5] = [
    "pod-template-hash",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "batch.kubernetes.io/job-name",
    "job-name",
];

/// The objects at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Picture {
    /// The revision of this moment.
    pub resource_version: String,
    /// The oldest revision that can be shown.
    pub oldest: String,
    /// The time of this moment in RFC 3339.
    pub now: String,
    /// The nodes: workloads, pods, services, claims, volumes, nodes, namespaces, custom resources,
    /// then all others.
    pub objects: Vec<Node>,
    /// Whether there are more objects: more than [`MAX_NODES`], or more than are read.
    pub is_truncated: bool,
}

/// An object in the picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// The uid.
    pub uid: String,
    /// The plural name of the resource with its group: `statefulsets.apps`.
    pub resource: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uids of the owners, the controller first. Owners need not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// The state.
    pub state: State,
    /// The reason for the state in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The finalizers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// The uids of the objects that this one waits for: for its deletion, or to become ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// The edges to objects that its spec names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Edge>,
    /// The creation time in RFC 3339.
    pub created: String,
    /// The revision of the last write.
    pub resource_version: String,
    /// Whether the object is of the control plane rather than of its users.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_background: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The difference between two pictures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// The nodes that are new, or differ.
    pub changed: Vec<Node>,
    /// The uids of the nodes that are no longer there.
    pub deleted: Vec<String>,
    /// The revision of the later picture.
    pub resource_version: String,
    /// The oldest revision that can be shown.
    pub oldest: String,
    /// The time of the later picture.
    pub now: String,
    /// Whether there are more objects than the later picture has.
    pub is_truncated: bool,
}

/// An object with its resource.
struct Entry<'a> {
    resource: &'a Resource,
    object: &'a Value,
    is_background: bool,
}

impl Picture {
    /// Makes the picture of all objects.
    ///
    /// - `now`: the time of that moment
    ///
    /// The revisions are those of the caller, who knows them.
    pub fn of(objects: &dyn Objects, now: Timestamp) -> Picture {
        let survey = Survey::new(objects, now);
        let is_shown = |resource: &&Resource| !LEFT_OUT.contains(&resource.name.as_str());
        let mut resources: Vec<&Resource> = survey.resources().iter().filter(is_shown).collect();
        // The resources that are read first are read even if all others exceed the budget.
        resources.sort_by_key(|resource| rank(resource));
        let lists: Vec<(&Resource, Rc<Vec<Value>>)> =
            resources.into_iter().map(|resource| (resource, survey.list(&resource.name))).collect();
        let mut places = Places::default();
        let mut entries = Vec::new();
        for (resource, list) in &lists {
            for object in list.iter().filter(|object| !text(&object["metadata"]["uid"]).is_empty()) {
                places.add(&resource.name, object);
                entries.push(Entry { resource, object, is_background: is_background(resource, object) });
            }
        }
        // An owner that was not read may exist all the same.
        let are_all_read = !survey.is_truncated();
        let is_truncated = entries.len() > MAX_NODES || !are_all_read;
        if entries.len() > MAX_NODES {
            entries.sort_by_key(|entry| entry.is_background);
            entries.truncate(MAX_NODES);
        }
        let by_reference: HashMap<String, &str> =
            entries.iter().map(|entry| entry.reference(&survey)).collect();
        let uids: HashSet<&str> = lists
            .iter()
            .flat_map(|(_, list)| list.iter())
            .map(|object| text(&object["metadata"]["uid"]))
            .collect();
        let objects = entries
            .iter()
            .map(|entry| {
                let finding = survey.finding(&entry.resource.name, entry.object);
                entry.node(finding, &by_reference, Some(&uids).filter(|_| are_all_read), &places)
            })
            .collect();
        Picture { objects, is_truncated, now: now.to_string(), ..Picture::default() }
    }

    /// Returns the difference from an earlier picture.
    pub fn changes_since(&self, before: &Picture) -> Changes {
        let mut old: HashMap<&str, &Node> =
            before.objects.iter().map(|node| (node.uid.as_str(), node)).collect();
        let changed = self.objects.iter().filter(|node| old.remove(node.uid.as_str()) != Some(node));
        let changed = changed.cloned().collect();
        let deleted = old.into_keys().map(str::to_owned).collect();
        Changes { changed, deleted, ..self.without_changes() }
    }

    /// Returns the changes of a picture in which no node differs.
    pub fn without_changes(&self) -> Changes {
        Changes {
            resource_version: self.resource_version.clone(),
            oldest: self.oldest.clone(),
            now: self.now.clone(),
            is_truncated: self.is_truncated,
            ..Changes::default()
        }
    }
}

impl<'a> Entry<'a> {
    /// Returns the reference to the object, and its uid.
    fn reference(&self, survey: &Survey) -> (String, &'a str) {
        let metadata = &self.object["metadata"];
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        (survey.reference(&self.resource.name, namespace, name), text(&metadata["uid"]))
    }

    fn node(
        &self,
        finding: Finding,
        by_reference: &HashMap<String, &str>,
        uids: Option<&HashSet<&str>>,
        places: &Places,
    ) -> Node {
        let metadata = &self.object["metadata"];
        let Finding { mut state, mut reason, waits_for } = finding;
        let (owners, missing) = owners(metadata, uids);
        if let Some(missing) = missing.filter(|_| state == State::Ready) {
            (state, reason) = (State::Progressing, missing);
        } else if reason.is_empty() && owners.is_empty() && is_orphan(self.resource, metadata) {
            reason = "has no owner".to_owned();
        }
        let blocked_by = waits_for.iter().filter_map(|name| by_reference.get(name));
        let finalizers = items(&metadata["finalizers"]).filter_map(Value::as_str);
        Node {
            uid: cut(text(&metadata["uid"])),
            resource: self.resource.name.clone(),
            kind: self.resource.kind.clone(),
            namespace: cut(text(&metadata["namespace"])),
            name: cut(text(&metadata["name"])),
            owners,
            state,
            reason: cut(&reason),
            finalizers: finalizers.take(MAX_ITEMS).map(cut).collect(),
            blocked_by: blocked_by.take(MAX_ITEMS).map(|uid| cut(uid)).collect(),
            edges: edges(places, &self.resource.name, self.object),
            created: cut(text(&metadata["creationTimestamp"])),
            resource_version: cut(text(&metadata["resourceVersion"])),
            is_background: self.is_background,
        }
    }
}

/// Returns the uids of the owners, the controller first, and the text about one that does not
/// exist.
///
/// - `uids`: those of all objects; None if they are not known
fn owners(metadata: &Value, uids: Option<&HashSet<&str>>) -> (Vec<String>, Option<String>) {
    let mut references: Vec<&Value> = items(&metadata["ownerReferences"]).take(MAX_ITEMS).collect();
    references.sort_by_key(|owner| owner["controller"] != true);
    let is_missing = |owner: &&&Value| {
        owner["uid"].as_str().is_some_and(|uid| uids.is_some_and(|uids| !uids.contains(uid)))
    };
    let missing = references.iter().find(is_missing);
    let missing = missing
        .map(|owner| format!("owner {}/{} does not exist", text(&owner["kind"]), text(&owner["name"])));
    (references.iter().filter_map(|owner| owner["uid"].as_str()).map(cut).collect(), missing)
}

fn is_orphan(resource: &Resource, metadata: &Value) -> bool {
    resource.name == "pods" && OWNED_LABELS.iter().any(|label| metadata["labels"][label].is_string())
}

/// Returns the position of the objects of a resource in a picture.
fn rank(resource: &Resource) -> usize {
    let place = FOREMOST.iter().position(|name| *name == resource.name);
    place.unwrap_or(FOREMOST.len() + usize::from(!resource.is_custom))
}

/// Returns `true` if the control plane created an object for itself.
fn is_background(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let labels = &metadata["labels"];
    let is_named = match resource.name.as_str() {
        "namespaces" => name == "default" || name.starts_with("kube-"),
        "configmaps" => name == "kube-root-ca.crt",
        "serviceaccounts" => name == "default",
        "services" => namespace == "default" && name == "kubernetes",
        "clusterroles.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            name.starts_with("system:")
        }
        _ => false,
    };
    is_named
        || BACKGROUND.contains(&resource.name.as_str())
        || namespace.starts_with("kube-")
        || labels["kubernetes.io/bootstrapping"].is_string()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text.to_owned(),
    }
}
