//! The ConfigMaps and Secrets that a pod refers to: without them its volumes are not mounted, and
//! its containers not made.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, Cached, NamespacedName};
use coracle_controller_runtime::{Demand, Error, ReconcileContext, Sources};
use k8s_openapi::api::core::v1::{ConfigMap, Container, KeyToPath, Pod, Secret, Volume};
use kube::core::PartialObjectMeta;

use super::runtime_state::Obstacles;
use crate::settings::Context;

/// The ConfigMap with the cluster's authority, in the volume of every pod's token. It is made soon
/// after its namespace, where that controller runs.
const ROOT_CA: &str = "kube-root-ca.crt";

/// A kind that pods refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    ConfigMap,
    Secret,
}

/// A reference of a pod to an object of its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    kind: Kind,
    name: &'a str,
    /// The keys that it must have.
    keys: Vec<&'a str>,
    /// Whether it may be absent, and its keys too.
    is_optional: bool,
}

/// The objects that pods refer to. Of what they contain nothing is kept: a kubelet reads it when it
/// needs it, and watches only while a pod waits for any of them.
pub struct References {
    config_maps: Arc<Cache<PartialObjectMeta<ConfigMap>>>,
    secrets: Arc<Cache<PartialObjectMeta<Secret>>>,
    demands: [Demand; 2],
}

/// The keys of objects of a namespace; None for those that do not exist.
type Known<'a> = HashMap<(Kind, &'a str), Option<Keys>>;

/// The keys of an object.
#[derive(Debug, Default)]
pub struct Keys {
    /// Keys with text, which variables can have.
    text: Vec<String>,
    binary: Vec<String>,
}

impl References {
    pub fn new(context: &Context) -> References {
        let (config_maps, config_map_demand) = context.cache_on_demand();
        let (secrets, secret_demand) = context.cache_on_demand();
        References { config_maps, secrets, demands: [config_map_demand, secret_demand] }
    }

    /// Notes whether a pod waits for objects.
    pub fn set_waiting(&self, pod: &NamespacedName, waits: bool) {
        self.demands.iter().for_each(|demand| demand.set(pod, waits));
    }

    /// Reconciles pods that are pending when an object appears or changes that they refer to.
    ///
    /// - `pods_of`: the simulated pods of a namespace
    pub fn sources(
        &self,
        sources: &mut Sources<NamespacedName>,
        pods_of: &(impl Fn(&str) -> Vec<Arc<Pod>> + Clone + Send + Sync + 'static),
    ) {
        sources_of(sources, &self.config_maps, Kind::ConfigMap, pods_of.clone());
        sources_of(sources, &self.secrets, Kind::Secret, pods_of.clone());
    }

    /// Returns the kubelet's messages about the volumes of a pod, and the obstacles to its start.
    ///
    /// # Errors
    /// A request failed.
    pub async fn missing(
        &self,
        pod: &Pod,
        ctx: &ReconcileContext,
    ) -> Result<(Vec<String>, Obstacles), Error> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut known = Known::new();
        for reference in all(pod).filter(|reference| !reference.is_optional) {
            let Reference { kind, name, .. } = reference;
            if known.contains_key(&(kind, name)) {
                continue;
            }
            let object = NamespacedName::new(namespace, name);
            let keys = match kind {
                Kind::ConfigMap => {
                    let object = ctx.api_of_metadata(&self.config_maps).get(&object).await?;
                    object.map(|object| Keys {
                        text: object.data.into_iter().flatten().map(|(key, _)| key).collect(),
                        binary: object.binary_data.into_iter().flatten().map(|(key, _)| key).collect(),
                    })
                }
                Kind::Secret => {
                    let object = ctx.api_of_metadata(&self.secrets).get(&object).await?;
                    object.map(|object| Keys {
                        text: object.data.into_iter().flatten().map(|(key, _)| key).collect(),
                        binary: Vec::new(),
                    })
                }
            };
            known.insert((kind, name), keys);
        }
        Ok(missing(pod, &known))
    }
}

/// Reconciles pods that are pending when an object of a kind appears or changes that they refer to.
fn sources_of<K>(
    sources: &mut Sources<NamespacedName>,
    objects: &Arc<Cache<K>>,
    kind: Kind,
    pods_of: impl Fn(&str) -> Vec<Arc<Pod>> + Send + Sync + 'static,
) where
    K: Cached,
{
    sources.on(objects, move |change, queue| {
        let Some(object) = change.new.as_ref().map(|object| NamespacedName::of(object.as_ref())) else {
            return;
        };
        let refers = |reference: Reference| reference.kind == kind && reference.name == object.name;
        let pods = pods_of(&object.namespace).into_iter();
        let pods = pods.filter(|pod| coracle_kinds::pods::phase(pod) == "Pending" && all(pod).any(refers));
        pods.for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
    });
}

/// Returns `true` if a pod has a reference that is not optional.
pub fn has_any(pod: &Pod) -> bool {
    all(pod).any(|reference| !reference.is_optional)
}

fn missing<'a>(pod: &'a Pod, known: &Known<'a>) -> (Vec<String>, Obstacles) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = mounted_volumes(pod).filter_map(|volume| {
        let references = of_volume(volume);
        let problems: Vec<String> =
            references.iter().filter_map(|reference| reference.problem_of_volume(known)).collect();
        let problem = match problems.as_slice() {
            [] => return None,
            [problem] => problem.clone(),
            problems => format!("[{}]", problems.join(", ")),
        };
        Some(format!("MountVolume.SetUp failed for volume {:?} : {problem}", volume.name))
    });
    let volumes: Vec<String> = volumes.collect();
    let containers = containers(pod).filter_map(|container| {
        let mut references = of_container(container).into_iter();
        let problem = references.find_map(|reference| reference.problem_of_variable(known, namespace))?;
        Some((container.name.clone(), problem))
    });
    let (is_unmountable, configuration) = (!volumes.is_empty(), containers.collect());
    let obstacles = Obstacles { volumes: is_unmountable, configuration, ..Obstacles::default() };
    (volumes, obstacles)
}

impl<'a> Reference<'a> {
    /// Returns the object; an error if it does not exist and is required.
    fn keys<'k>(&self, known: &'k Known<'a>) -> Result<Option<&'k Keys>, String> {
        match known.get(&(self.kind, self.name)) {
            _ if self.is_optional => Ok(None),
            Some(Some(keys)) => Ok(Some(keys)),
            Some(None) => Err(match self.kind {
                Kind::ConfigMap => format!("configmap {:?} not found", self.name),
                Kind::Secret => format!("secret {:?} not found", self.name),
            }),
            None => Ok(None),
        }
    }

    fn problem_of_volume(&self, known: &Known<'a>) -> Option<String> {
        let keys = match self.keys(known) {
            Ok(keys) => keys?,
            Err(problem) => return Some(problem),
        };
        let has = |key: &&str| keys.text.iter().chain(&keys.binary).any(|known| known == key);
        let key = self.keys.iter().find(|key| !has(key))?;
        Some(match self.kind {
            Kind::ConfigMap => format!("configmap references non-existent config key: {key}"),
            Kind::Secret => format!("references non-existent secret key: {key}"),
        })
    }

    fn problem_of_variable(&self, known: &Known<'a>, namespace: &str) -> Option<String> {
        let keys = match self.keys(known) {
            Ok(keys) => keys?,
            Err(problem) => return Some(problem),
        };
        let key = self.keys.iter().find(|key| !keys.text.iter().any(|known| known == *key))?;
        let name = self.name;
        Some(match self.kind {
            Kind::ConfigMap => format!("couldn't find key {key} in ConfigMap {namespace}/{name}"),
            Kind::Secret => format!("couldn't find key {key} in Secret {namespace}/{name}"),
        })
    }
}

/// Iterates over all references of a pod.
fn all(pod: &Pod) -> impl Iterator<Item = Reference<'_>> {
    let volumes = mounted_volumes(pod).flat_map(of_volume);
    volumes.chain(containers(pod).flat_map(of_container))
}

/// Iterates over the volumes of a pod that a container mounts: a kubelet skips the others.
fn mounted_volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let mounted: HashSet<&str> = containers(pod)
        .flat_map(|container| container.volume_mounts.iter().flatten())
        .map(|mount| mount.name.as_str())
        .collect();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(move |volume| mounted.contains(volume.name.as_str()))
}

/// Iterates over the containers that wait for the objects that they refer to: all except the
/// ephemeral ones.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    init.chain(pod.spec.iter().flat_map(|spec| &spec.containers))
}

fn of_volume(volume: &Volume) -> Vec<Reference<'_>> {
    fn items(items: Option<&Vec<KeyToPath>>) -> Vec<&str> {
        items.into_iter().flatten().map(|item| item.key.as_str()).collect()
    }
    let mut references = Vec::new();
    let mut add = |kind, name, keys, optional: Option<bool>| {
        let is_optional = optional == Some(true) || (kind, name) == (Kind::ConfigMap, ROOT_CA);
        references.push(Reference { kind, name, keys, is_optional });
    };
    if let Some(source) = &volume.config_map {
        add(Kind::ConfigMap, source.name.as_str(), items(source.items.as_ref()), source.optional);
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        add(Kind::Secret, name, items(source.items.as_ref()), source.optional);
    }
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    for source in projected {
        if let Some(source) = &source.config_map {
            add(Kind::ConfigMap, source.name.as_str(), items(source.items.as_ref()), source.optional);
        }
        if let Some(source) = &source.secret {
            add(Kind::Secret, source.name.as_str(), items(source.items.as_ref()), source.optional);
        }
    }
    references
}

fn of_container(container: &Container) -> Vec<Reference<'_>> {
    let mut references = Vec::new();
    let mut add = |kind, name, keys, optional: Option<bool>| {
        references.push(Reference { kind, name, keys, is_optional: optional == Some(true) });
    };
    for source in container.env_from.iter().flatten() {
        if let Some(source) = &source.config_map_ref {
            add(Kind::ConfigMap, source.name.as_str(), Vec::new(), source.optional);
        }
        if let Some(source) = &source.secret_ref {
            add(Kind::Secret, source.name.as_str(), Vec::new(), source.optional);
        }
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(source) = &source.config_map_key_ref {
            add(Kind::ConfigMap, source.name.as_str(), vec![source.key.as_str()], source.optional);
        }
        if let Some(source) = &source.secret_key_ref {
            add(Kind::Secret, source.name.as_str(), vec![source.key.as_str()], source.optional);
        }
    }
    references
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn known() -> Known<'static> {
        let keys = |text: &[&str], binary: &[&str]| {
            let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
            Some(Keys { text: owned(text), binary: owned(binary) })
        };
        Known::from([
            ((Kind::ConfigMap, "map"), keys(&["k"], &["b"])),
            ((Kind::ConfigMap, "none"), None),
            ((Kind::Secret, "secret"), keys(&["k"], &[])),
            ((Kind::Secret, "none"), None),
        ])
    }

    #[test]
    fn volumes_are_mounted_from_what_exists() {
        let setup = |problem: &str| format!("MountVolume.SetUp failed for volume \"v\" : {problem}");
        for (source, want) in [
            (json!({"configMap": {"name": "map"}}), None),
            (json!({"configMap": {"name": "map", "items": [{"key": "b", "path": "b"}]}}), None),
            (
                json!({"configMap": {"name": "map", "items": [{"key": "x", "path": "x"}]}}),
                Some("configmap references non-existent config key: x"),
            ),
            (json!({"configMap": {"name": "none"}}), Some("configmap \"none\" not found")),
            (json!({"configMap": {"name": "none", "optional": true}}), None),
            (json!({"secret": {"secretName": "none"}}), Some("secret \"none\" not found")),
            (
                json!({"secret": {"secretName": "secret", "items": [{"key": "x", "path": "x"}]}}),
                Some("references non-existent secret key: x"),
            ),
            (
                json!({"projected": {"sources": [{"secret": {"name": "secret"}}, {"configMap": {"name": "none"}}]}}),
                Some("configmap \"none\" not found"),
            ),
            (
                json!({"projected": {"sources": [{"secret": {"name": "none"}}, {"configMap": {"name": "none"}}]}}),
                Some("[secret \"none\" not found, configmap \"none\" not found]"),
            ),
            (json!({"projected": {"sources": [{"configMap": {"name": ROOT_CA}}]}}), None),
            (json!({"emptyDir": {}}), None),
        ] {
            let mut volume = json!({"name": "v"});
            volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            let container = json!({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
            let pod = json!({"spec": {"containers": [container], "volumes": [volume]}});
            let mut pod: Pod = serde_json::from_value(pod).unwrap();
            let (volumes, obstacles) = missing(&pod, &known());
            assert_eq!(volumes, want.map(setup).into_iter().collect::<Vec<_>>(), "{source}");
            assert_eq!(obstacles.volumes, want.is_some());
            pod.spec.as_mut().unwrap().containers[0].volume_mounts = None;
            assert!(!missing(&pod, &known()).1.volumes, "it is not mounted");
        }
    }

    #[test]
    fn variables_have_the_values_of_what_exists() {
        let from = |kind: &str, source: Value| json!({"env": [{"name": "A", "valueFrom": {kind: source}}]});
        for (container, want) in [
            (from("configMapKeyRef", json!({"name": "map", "key": "k"})), None),
            (
                from("configMapKeyRef", json!({"name": "map", "key": "b"})),
                Some("couldn't find key b in ConfigMap ns/map"),
            ),
            (from("secretKeyRef", json!({"name": "none", "key": "k"})), Some("secret \"none\" not found")),
            (
                from("secretKeyRef", json!({"name": "secret", "key": "x"})),
                Some("couldn't find key x in Secret ns/secret"),
            ),
            (from("secretKeyRef", json!({"name": "none", "key": "k", "optional": true})), None),
            (from("fieldRef", json!({"fieldPath": "metadata.name"})), None),
            (
                json!({"envFrom": [{"secretRef": {"name": "secret"}}, {"configMapRef": {"name": "none"}}]}),
                Some("configmap \"none\" not found"),
            ),
            (json!({"envFrom": [{"configMapRef": {"name": "none", "optional": true}}]}), None),
        ] {
            let mut full = json!({"name": "c"});
            full.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
            let pod = json!({"metadata": {"namespace": "ns"}, "spec": {"containers": [full]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let (_, obstacles) = missing(&pod, &known());
            assert_eq!(obstacles.configuration.get("c").map(String::as_str), want, "{container}");
        }
    }
}
