//! The edges between objects that their specs name: claims, volumes, selectors and targets.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The edges of an object.
pub(crate) const MAX_EDGES: usize = 100;

/// An edge from an object to another that its spec names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The relation.
    #[serde(rename = "type")]
    pub edge_type: EdgeType,
    /// The uid of the other object.
    pub to: String,
}

/// The relation that an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EdgeType {
    /// A pod or a StatefulSet uses a claim.
    Claim,
    /// A claim is bound to a volume.
    Volume,
    /// A pod mounts a ConfigMap or a Secret.
    Mount,
    /// A selector matches a pod.
    Selector,
    /// An object names another one as its target or backend.
    Target,
}

/// The uids of objects by resource, namespace and name, and the labels of pods.
#[derive(Default)]
pub(crate) struct Places<'a> {
    uids: HashMap<(&'a str, &'a str), BTreeMap<&'a str, &'a str>>,
    pods: HashMap<&'a str, Vec<(&'a Value, &'a str)>>,
}

impl<'a> Places<'a> {
    pub fn add(&mut self, resource: &'a str, object: &'a Value) {
        let metadata = &object["metadata"];
        let (Some(name), Some(uid)) = (metadata["name"].as_str(), metadata["uid"].as_str()) else { return };
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        self.uids.entry((resource, namespace)).or_default().insert(name, uid);
        if resource == "pods" {
            self.pods.entry(namespace).or_default().push((&metadata["labels"], uid));
        }
    }

    fn uid(&self, resource: &str, namespace: &str, name: &Value) -> Option<&'a str> {
        self.uids.get(&(resource, namespace))?.get(name.as_str()?).copied()
    }
}

/// Returns the edges from an object to objects that exist.
pub(crate) fn edges(places: &Places, resource: &str, object: &Value) -> Vec<Edge> {
    let mut edges = Edges { places, namespace: text(&object["metadata"]["namespace"]), found: Vec::new() };
    let spec = &object["spec"];
    match resource {
        "pods" => edges.of_pod(text(&object["metadata"]["name"]), spec),
        "persistentvolumeclaims" => {
            edges.push(EdgeType::Volume, places.uid("persistentvolumes", "", &spec["volumeName"]))
        }
        "statefulsets.apps" => edges.of_stateful_set(text(&object["metadata"]["name"]), spec),
        "services" => edges.of_selector(spec["selector"].as_object()),
        "poddisruptionbudgets.policy" => edges.of_selector(spec["selector"]["matchLabels"].as_object()),
        "ingresses.networking.k8s.io" => edges.of_ingress(spec),
        "horizontalpodautoscalers.autoscaling" => edges.of_scale_target(&spec["scaleTargetRef"]),
        _ => {}
    }
    edges.found
}

struct Edges<'a> {
    places: &'a Places<'a>,
    namespace: &'a str,
    found: Vec<Edge>,
}

impl Edges<'_> {
    fn push(&mut self, edge_type: EdgeType, to: Option<&str>) {
        let Some(to) = to else { return };
        let edge = Edge { edge_type, to: to.to_owned() };
        if self.found.len() < MAX_EDGES && !self.found.contains(&edge) {
            self.found.push(edge);
        }
    }

    fn to(&mut self, edge_type: EdgeType, resource: &str, name: &Value) {
        self.push(edge_type, self.places.uid(resource, self.namespace, name));
    }

    fn of_pod(&mut self, pod: &str, spec: &Value) {
        for volume in items(&spec["volumes"]) {
            self.to(EdgeType::Claim, "persistentvolumeclaims", &volume["persistentVolumeClaim"]["claimName"]);
            self.to(EdgeType::Mount, "configmaps", &volume["configMap"]["name"]);
            self.to(EdgeType::Mount, "secrets", &volume["secret"]["secretName"]);
            if volume["ephemeral"].is_object() {
                let claim = format!("{pod}-{}", text(&volume["name"]));
                self.to(EdgeType::Claim, "persistentvolumeclaims", &claim.into());
            }
        }
    }

    fn of_stateful_set(&mut self, set: &str, spec: &Value) {
        let places = self.places;
        let Some(claims) = places.uids.get(&("persistentvolumeclaims", self.namespace)) else { return };
        for template in items(&spec["volumeClaimTemplates"]).take(MAX_EDGES) {
            let prefix = format!("{}-{set}-", text(&template["metadata"]["name"]));
            let from = claims.range(prefix.as_str()..).take_while(|(name, _)| name.starts_with(&prefix));
            let is_ordinal = |name: &str| {
                let ordinal = name.strip_prefix(&prefix).unwrap_or_default();
                !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit())
            };
            from.filter(|(name, _)| is_ordinal(name))
                .take(MAX_EDGES)
                .for_each(|(_, uid)| self.push(EdgeType::Claim, Some(uid)));
        }
    }

    fn of_selector(&mut self, selector: Option<&Map<String, Value>>) {
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { return };
        let places = self.places;
        for (labels, uid) in places.pods.get(self.namespace).into_iter().flatten() {
            if self.found.len() >= MAX_EDGES {
                return;
            }
            if selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
                self.push(EdgeType::Selector, Some(uid));
            }
        }
    }

    fn of_ingress(&mut self, spec: &Value) {
        self.to(EdgeType::Target, "services", &spec["defaultBackend"]["service"]["name"]);
        let paths = items(&spec["rules"]).flat_map(|rule| items(&rule["http"]["paths"]));
        for path in paths.take(MAX_EDGES) {
            self.to(EdgeType::Target, "services", &path["backend"]["service"]["name"]);
        }
    }

    fn of_scale_target(&mut self, target: &Value) {
        let resource = match text(&target["kind"]) {
            "Deployment" => "deployments.apps",
            "StatefulSet" => "statefulsets.apps",
            "ReplicaSet" => "replicasets.apps",
            "ReplicationController" => "replicationcontrollers",
            _ => return,
        };
        self.to(EdgeType::Target, resource, &target["name"]);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
